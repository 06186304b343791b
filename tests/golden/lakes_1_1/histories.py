"""What happened in the recorded lakes: a function each, which writes through ducklakepy."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from tests.reference.duckdb_core import open_core
from tests.reference.ducklakepy_lake import DuckLakePyLake

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# the lake of DuckDB 1.5.5 that `migrated` was
AT_1_0 = (
    "CREATE TABLE t (i INTEGER, st STRUCT(a INTEGER, b VARCHAR), z TIMESTAMPTZ)",
    "INSERT INTO t VALUES (1, {'a': 1, 'b': 'x'}, '1969-12-31 23:00:00+00'), (2, NULL, NULL)",
    "INSERT INTO t SELECT n, {'a': n, 'b': 'file'}, NULL FROM range(100, 150) r(n)",
    "DELETE FROM t WHERE i IN (2, 100)",
    "DELETE FROM t WHERE i BETWEEN 120 AND 140",
    "ALTER TABLE t ADD COLUMN st.k INTEGER DEFAULT 7",
    "ALTER TABLE t RENAME COLUMN st.k TO k2",
    "INSERT INTO t VALUES (3, {'a': 3, 'b': 'y', 'k2': 9}, NULL)",
    "CREATE VIEW v AS SELECT i FROM t",
    "COMMENT ON COLUMN t.i IS 'a number'",
)


def nested(lake: DuckLakePyLake) -> None:
    """Schemas in schemas, their tables and views, comments on a view's columns, a drop of all below one."""
    for name in ("sales", "sales.europe", "sales.europe.de", ("a.b",), "a", "a.b", "sales.b"):
        lake.create_schema(name)
    for number, table in enumerate(("sales.europe.t", ("a.b", "t"), "a.b.t", "sales.europe.de.t")):
        lake.create_table(table, {"i": "int64", "s": "varchar"})
        lake.insert(table, [{"i": number, "s": "one"}])
    lake.create_view("sales.europe.v", "SELECT i, s FROM sales.europe.t", ["x"])
    lake.comment("sales.europe.v", "the view")
    lake.comment("sales.europe.v", "a number", column="i")
    lake.comment("sales.europe.v", "the number", column="I")
    lake.comment("sales.europe.v", "gone", column="s")
    lake.comment("sales.europe.v", None, column="s")
    lake.rename_view("sales.europe.v", "shown")
    lake.set_option("data_inlining_row_limit", 0, schema="sales.europe")
    lake.insert("sales.europe.t", [{"i": 10, "s": "in a file"}])
    lake.drop_schema("sales.europe.de", cascade=True)
    lake.rename_table("sales.europe.t", "renamed")
    lake.drop_schema("a", cascade=True)
    lake.create_schema("a")


def inlined(lake: DuckLakePyLake) -> None:
    """Inlined rows of old and new columns, a flush; VARIANT, `null`, nanoseconds, names that 1.0 reserves."""
    columns = {"i": "int64", "n": "null", "at": "timestamptz_ns", "d": "decimal(10,2)", "b": "blob"}
    lake.create_table("t", columns)
    rows = [
        {"i": n, "at": EPOCH - timedelta(microseconds=n), "d": Decimal("1.25"), "b": b"\x00\xff"}
        for n in range(4)
    ]
    lake.insert("t", rows)
    lake.update("t", {"d": Decimal("-7.50")}, "i = 1")
    lake.delete("t", "i = 2")
    lake.add_column("t", "late", "varchar", default="was not there")
    lake.insert("t", [{"i": 5, "late": "is there"}, {"i": 6}])
    lake.rename_column("t", "d", "amount")
    lake.create_table("v", {"i": "int64", "doc": "variant"})
    with open_core() as core:
        early = "SELECT -1::BIGINT AS i, TIMESTAMPTZ_NS '1969-12-31 23:59:59.999999999+00' AS at"
        lake.insert("t", core.arrow(early))
        texts = "('5'), ('null'), ('{\"b\": 1, \"a\": [\"x\", -2]}'), ('[]'), (NULL)"
        query = f"SELECT row_number() OVER () AS i, text::JSON::VARIANT AS doc FROM (VALUES {texts}) r(text)"
        lake.insert("v", core.arrow(query))
    lake.delete("v", "i = 4")
    lake.create_table("row_ids", {"row_id": "int64", "begin_snapshot": "varchar"})
    lake.insert("row_ids", [{"row_id": 7, "begin_snapshot": "mine"}])
    lake.flush("t")
    lake.insert("t", [{"i": 7, "at": EPOCH}])
    lake.delete("t", "i = 5")


def files(lake: DuckLakePyLake) -> None:
    """Files partitioned by epochs, sorted, with deletes of several snapshots in one file of either format."""
    lake.set_option("data_inlining_row_limit", 0)
    lake.create_table(
        "p",
        {
            "i": "int64",
            "ts": "timestamp",
            "z": "timestamptz",
            "d": "date",
            "n": {"x": "null", "l": ["int32"]},
        },
    )
    lake.partition_by("p", "epoch_day(ts)", "epoch_hour(z)", "epoch_month(d)")
    for hours in (-24 * 351, -1, 0, 24 * 19763 + 5):
        z = EPOCH + timedelta(hours=hours)
        row = {
            "i": hours,
            "ts": z.replace(tzinfo=None),
            "z": z,
            "d": z.date(),
            "n": {"x": None, "l": [1, None]},
        }
        lake.insert("p", [row, {"i": hours + 1}])
    lake.delete("p", "i = 0")
    lake.partition_by("p", "epoch_year(d)", "bucket(3, i)")
    lake.sort_by("p", "i DESC")
    lake.insert("p", [{"i": n, "d": date(1969 + n % 3, 1, 1)} for n in range(1000, 1006)])
    lake.update("p", {"d": date(1999, 12, 31)}, "i = 1003")
    lake.create_table("c", {"i": "int64", "s": "varchar", "f": "float64"})
    lake.set_option("write_deletion_vectors", "true", table="c")
    lake.set_option("skip_stats_columns", ["s"], table="c")
    lake.insert("c", [{"i": n, "s": f"s{n}", "f": n / 4} for n in range(100)])
    for first in (0, 10, 20):
        lake.delete("c", f"i BETWEEN {first} AND {first + 2}")
    lake.insert("c", [{"i": n, "s": "second", "f": float("nan")} for n in range(100, 110)])
    lake.delete("c", "i IN (30, 100)")
    lake.create_table("parquet", {"i": "int64"})
    lake.insert("parquet", [{"i": n} for n in range(50)])
    for n in (1, 2, 3):
        lake.delete("parquet", f"i = {n}")


def migrated(lake: DuckLakePyLake) -> None:
    """A lake of DuckDB 1.5.5 that was migrated: inlined tables of both versions, then writes of 1.1."""
    lake.insert("t", [{"i": 4, "st": {"a": 4, "b": None, "k2": None}}])
    lake.add_column("t", "at", "timestamptz_ns")
    lake.insert("t", [{"i": 5, "at": EPOCH}, {"i": 6}])
    lake.delete("t", "i IN (1, 5, 149)")
    lake.create_schema("main.below")
    lake.create_table("main.below.t", {"i": "int32"})
    lake.comment("v", "the number", column="i")
    lake.update("t", {"z": EPOCH}, "i IN (3, 101)")


HISTORIES = {"nested": nested, "inlined": inlined, "files": files, "migrated": migrated}
