"""Tables of many small files with every type, and filters drawn for them."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.reference.duckdb_lake import open_lake

LONG = "x" * 300
# column: (SQL type, values of the rows as SQL texts, values in filters as they are written there)
COLUMNS = {
    "b": ("BOOLEAN", ["true", "false"], ["TRUE", "FALSE", "0", "1"]),
    "i8": (
        "TINYINT",
        ["-128", "-1", "0", "5", "127"],
        ["-129", "-1", "0.0", "1.5", "5", "'5'", "127", "5e0"],
    ),
    "i32": (
        "INTEGER",
        ["-2147483648", "-7", "0", "3", "2147483647"],
        ["-7", "2.9", "3.0", "9999999999", "0"],
    ),
    "i64": (
        "BIGINT",
        ["-9223372036854775808", "-1", "0", "6", "9223372036854775807"],
        ["6", "-1", "5.5", "1e3"],
    ),
    "u16": ("USMALLINT", ["0", "3", "65535"], ["-1", "3", "65535", "65536", "2.5"]),
    "u64": (
        "UBIGINT",
        ["0", "1", "9223372036854775808", "18446744073709551615"],
        ["1", "18446744073709551615"],
    ),
    "f32": (
        "FLOAT",
        ["nan", "inf", "-inf", "-0.0", "0.0", "1.1", "16777216", "1e-45"],
        ["1.1", "0", "'nan'", "16777217", "-0.0", "1.1e0", "0.1234567890123456789", "'-inf'"],
    ),
    "f64": (
        "DOUBLE",
        ["nan", "inf", "-inf", "-0.0", "0.0", "0.1", "1e300"],
        ["0.1", "1e300", "'nan'", "0", "'inf'", "0.12345678901234567890123", "0.1::FLOAT"],
    ),
    "n": (
        "DECIMAL(9,2)",
        ["-7.00", "0.05", "1.50", "9999999.99"],
        ["1.5", "1.505", "'0.05'", "-7", "9999999999"],
    ),
    "n38": (
        "DECIMAL(38,10)",
        ["-0.5", "0", "1234567890123456789.5"],
        ["1234567890123456789.5", "-0.5", "0.00"],
    ),
    "d": (
        "DATE",
        [
            "infinity",
            "-infinity",
            "0044-03-15 (BC)",
            "1969-12-31",
            "1970-01-01",
            "2024-02-29",
            "290000-01-01",
        ],
        [
            "'2024-02-29'",
            "DATE '1970-01-01'",
            "TIMESTAMP '1969-12-31 12:00:00'",
            "'infinity'",
            "'0044-03-15 (BC)'",
        ],
    ),
    "day": ("DATE", ["1969-12-31", "2024-02-29", "2025-01-01"], ["DATE '2024-02-29'", "'2025-01-01'"]),
    "t": ("TIME", ["00:00:00", "12:34:56.789", "23:59:59.999999"], ["'12:34:56.789'", "TIME '00:00:00'"]),
    "ts": (
        "TIMESTAMP",
        ["infinity", "0044-03-15 (BC) 01:02:03", "1969-12-31 23:59:59.5", "2020-01-02 03:04:05.678901"],
        ["'1969-12-31 23:59:59.5'", "DATE '2020-01-02'", "'-infinity'", "'2020-01-02 03:04:05.678901'"],
    ),
    "ts_s": (
        "TIMESTAMP_S",
        ["1969-12-31 23:59:59", "2020-01-02 03:04:05"],
        ["'2020-01-02 03:04:05'", "TIMESTAMP '1969-12-31 23:59:59.5'", "DATE '2020-01-02'", "'infinity'"],
    ),
    "ts_ms": (
        "TIMESTAMP_MS",
        ["1969-12-31 23:59:59.1", "2020-01-02 03:04:05.678"],
        ["'2020-01-02 03:04:05.678'"],
    ),
    "ts_ns": (
        "TIMESTAMP_NS",
        ["1969-12-31 23:59:59.123456789", "2020-01-02 03:04:05"],
        ["TIMESTAMP '2020-01-02 03:04:05'", "'1969-12-31 23:59:59.123456789'", "DATE '2020-01-02'"],
    ),
    "tz": (
        "TIMESTAMPTZ",
        ["1970-01-01 00:00:00+00", "2020-12-31 23:30:00+00", "infinity"],
        ["'2020-12-31 23:30:00+00'", "TIMESTAMPTZ '1970-01-01 02:00:00+02'", "'infinity'"],
    ),
    "s": (
        "VARCHAR",
        ["", "a", "a%b", "it''s", "Ünïcode 😀", LONG, LONG + "y", "\x7f"],
        ["'a'", "''", "'a_b'", f"'{LONG}'", "'Ü'", "'zz'", "'it''s'"],
    ),
    "w": ("VARCHAR", ["", "a/b", "it''s", "É", "null"], ["'a/b'", "'É'", "'it''s'", "'x'"]),
    "js": ("JSON", ['{"a": 1}', "10", "9"], ["'10'", "'9'"]),
    "u": (
        "UUID",
        ["00000000-0000-0000-0000-000000000001", "80000000-0000-0000-0000-000000000000"],
        ["'80000000-0000-0000-0000-000000000000'", "UUID '00000000-0000-0000-0000-000000000001'"],
    ),
    "x": ("BLOB", ["", "\\xAA\\x00", "ab"], ["'ab'", "'\\xAA\\x00'", "BLOB 'b'"]),
}
STRUCT = "STRUCT(a INTEGER, b STRUCT(c VARCHAR))"
STRUCTS = ["NULL", "{'a': 1, 'b': NULL}", "{'a': NULL, 'b': {'c': 'x'}}", "{'a': 7, 'b': {'c': 'y'}}"]
PARTITIONS = (
    ("year(d)", "i8"),
    ("bucket(4, s)", "bucket(3, i64)", "month(ts)"),
    ("bucket(3, u)", "bucket(5, ts)", "bucket(2, u16)"),
    ("f32", "day(d)", "hour(t)"),
    ("w", "year(tz)", "day(tz)"),
    ("tz", "x", "b"),
    ("bucket(4, day)", "bucket(3, ts_s)", "year(ts_ns)"),
)
ALTERATIONS = (
    "ALTER TABLE t ALTER i32 SET DATA TYPE BIGINT",
    "ALTER TABLE t ALTER u16 SET DATA TYPE BIGINT",
    "ALTER TABLE t ALTER f32 SET DATA TYPE DOUBLE",
    "ALTER TABLE t ALTER n SET DATA TYPE DECIMAL(18,3)",
    "ALTER TABLE t ALTER day SET DATA TYPE TIMESTAMP",
    "ALTER TABLE t RENAME COLUMN i64 TO key",
    "ALTER TABLE t RENAME COLUMN i8 TO i64",
    "ALTER TABLE t ADD COLUMN late INTEGER DEFAULT 7",
)


PROMOTIONS = {"i32": "int64", "u16": "int64", "f32": "float64", "n": "decimal(18,3)", "day": "timestamp"}


class Rows:
    """Makes rows whose values lie close together in each file."""

    def __init__(self) -> None:
        self.random = random.Random(4)
        self.count = 0

    def of_a_file(self, count: int = 4) -> str:
        pools = {
            name: self.random.sample(values, min(2, len(values))) for name, (_, values, _) in COLUMNS.items()
        }
        nulls = {name: self.random.choice([0, 0, 0.3, 0.3, 1]) for name in COLUMNS}
        return ", ".join(self._row(pools, nulls) for _ in range(count))

    def _row(self, pools: dict[str, list[str]], nulls: dict[str, float]) -> str:
        self.count += 1
        cells = [
            f"CAST({self._cell(pools[name], nulls[name])} AS {type_})"
            for name, (type_, *_) in COLUMNS.items()
        ]
        nested = [self.random.choice(STRUCTS), self.random.choice(["NULL", "[1]"])]
        return f"({', '.join([str(self.count), *cells, *nested])})"

    def _cell(self, pool: list[str], nulls: float) -> str:
        return "NULL" if self.random.random() < nulls else f"'{self.random.choice(pool)}'"


def make_table(reference) -> None:
    reference.sql("CALL lake.set_option('data_inlining_row_limit', 0)")
    listed = ", ".join(f"{name} {type_}" for name, (type_, _, _) in COLUMNS.items())
    reference.sql(f"CREATE TABLE t (id INTEGER, {listed}, st {STRUCT}, l INTEGER[])")


def fill_by_the_reference(catalog, folder: Path) -> int:
    """Make the table with all that files go through; return its last snapshot before it was altered."""
    rows = Rows()
    with open_lake(catalog) as reference:
        make_table(reference)
        insert(reference, rows, 6)
        for keys in PARTITIONS:
            reference.sql(f"ALTER TABLE t SET PARTITIONED BY ({', '.join(keys)})")
            insert(reference, rows, 2)
        reference.sql("ALTER TABLE t RESET PARTITIONED BY")
        ((before,),) = reference.sql("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")
        reference.sql("DELETE FROM t WHERE id % 7 = 3")
        for statement in ALTERATIONS:
            reference.sql(statement)
        insert(reference, rows, 3, late=True)
        insert(reference, rows, 1, late=True)
        reference.sql("CALL ducklake_merge_adjacent_files('lake')")
        insert(reference, rows, 3, late=True)
        reference.sql("CALL lake.set_option('data_inlining_row_limit', 10)")
        insert(reference, rows, 1, late=True)
        reference.sql("DELETE FROM t WHERE id % 11 = 3")
        reference.sql("CALL ducklake_flush_inlined_data('lake')")
        insert(reference, rows, 2, late=True)
        add_files_of_others(reference, folder)
    return before


def insert(reference, rows: Rows, files: int, *, late: bool = False) -> None:
    for _ in range(files):
        names = "id, " + ", ".join(f"c{number}" for number in range(len(COLUMNS) + 2))
        extra = ", id % 3" if late else ""
        reference.sql(f"INSERT INTO t SELECT {names}{extra} FROM (VALUES {rows.of_a_file()}) v({names})")


def add_files_of_others(reference, folder: Path) -> None:
    for late, values in (
        ("7", [1.5, float("nan")]),
        ("08", [None, None]),
        ("__HIVE_DEFAULT_PARTITION__", [0.0, 2.5]),
    ):
        place = folder / f"late={late}"
        place.mkdir(parents=True)
        ids = pa.array([1000, 1001], pa.int32())
        floats = pa.array(values, pa.float32())
        pq.write_table(pa.table({"id": ids, "f32": floats, "s": ["a", "it's"]}), place / "a.parquet")
    reference.sql(
        f"CALL ducklake_add_data_files('lake', 't', '{folder}/*/*.parquet', hive_partitioning => true, "
        "allow_missing => true)"
    )


def fill_by_us(catalog, source: Lake, before: int) -> None:
    """Append the rows of another such table by our own writer."""
    with open_lake(catalog) as reference:
        make_table(reference)
    first = source.read_arrow("t", at=before)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        for number, start in enumerate(range(0, first.num_rows, 6)):
            with lake.transaction() as tx:
                tx.set_partitioned_by("t", PARTITIONS[number % len(PARTITIONS)] if number % 3 else [])
                tx.append_arrow("t", first.slice(start, 6))
        with lake.transaction() as tx:
            tx.set_partitioned_by("t", [])
            for name, type_ in (
                ("i32", "int64"),
                ("u16", "int64"),
                ("f32", "float64"),
                ("n", "decimal(18,3)"),
            ):
                tx.set_column_type("t", name, type_)
            tx.set_column_type("t", "day", "timestamp")
            tx.rename_column("t", "i64", "key")
            tx.rename_column("t", "i8", "i64")
            tx.add_column("t", "late", "int32", 7)
        rest = source.read_arrow("t", filter="late <> 7")
        for start in range(0, rest.num_rows, 5):
            lake.append_arrow("t", rest.slice(start, 5))
        lake.set_option("data_inlining_row_limit", 10)
        lake.append_arrow("t", rest.slice(0, 3))


NOW = {"i64": "key", "i8": "i64"}  # names after the alterations
VALUES = {NOW.get(name, name): values for name, (_, _, values) in COLUMNS.items()} | {
    "id": ["5", "40", "1000", "77.5"],
    "late": ["7", "8", "0", "1"],
    "st.a": ["1", "7", "8"],
    "st.b.c": ["'x'", "'y'", "''"],
    '"S"': ["'a'", "'b'"],
}
NESTED = ["st", "st.b", "l"]
OPERATORS = ["=", "<>", "<", "<=", ">", ">=", "!=", "=="]
PATTERNS = ["'a%'", "'%'", "'_'", "'a\\%b'", "'Ü%'", "'it''s'", "'%xy'", "''"]


def _comparisons(name: str) -> st.SearchStrategy[str]:
    value = st.sampled_from([*VALUES[name], *VALUES[name], "NULL"])
    several = st.lists(value, min_size=1, max_size=3).map(", ".join)
    negated = st.sampled_from(["", "NOT "])
    comparing = st.builds("{} {} {}".format, st.just(name), st.sampled_from(OPERATORS), value)
    return st.one_of(
        comparing,
        comparing,
        st.builds("{2} {1} {0}".format, st.just(name), st.sampled_from(OPERATORS), value),
        st.builds("{} {}IN ({})".format, st.just(name), negated, several),
        st.builds("{} {}BETWEEN {} AND {}".format, st.just(name), negated, value, value),
        st.builds("{} IS {}DISTINCT FROM {}".format, st.just(name), negated, value),
    )


def _conditions() -> st.SearchStrategy[str]:
    negated = st.sampled_from(["", "NOT "])
    return st.one_of(
        st.sampled_from(sorted(VALUES)).flatmap(_comparisons),
        st.sampled_from(sorted(VALUES)).flatmap(_comparisons),
        st.sampled_from(sorted(VALUES)).flatmap(_comparisons),
        st.builds("{} IS {}NULL".format, st.sampled_from([*VALUES, *NESTED]), negated),
        st.builds("s {}LIKE {}".format, negated, st.sampled_from(PATTERNS)),
        st.sampled_from(["b", "NOT b", "b IS TRUE", "b IS NOT FALSE", "TRUE", "FALSE", "NULL"]),
    )


filters = st.recursive(
    _conditions(),
    lambda inner: st.one_of(
        st.builds("{} AND {}".format, inner, inner),
        st.builds("{} OR {}".format, inner, inner),
        st.builds("NOT {}".format, inner),
        st.builds("({})".format, inner),
        st.builds("NOT ({} OR {})".format, inner, inner),
    ),
    max_leaves=5,
)
