"""Lakes that DuckDB writes under each of its options for Parquet files, through every verb: DuckDB's rows.

A day tries a few cells, `make test-soak` all of them; a line at the end says how many, and how many verbs.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import duckdb
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.storage.parquet.opening import open_parquet
from airflow_provider_ducklake.lake.storage.parquet.readable import undecodable
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.reference.duckdb_lake import open_lake
from tests.spark.reading import shown

CODECS = ("uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4", "lz4_raw")
GROUPS = {"parquet_row_group_size": 2048, "parquet_row_group_size_bytes": "32KB"}
TYPES = {
    "id": ("BIGINT", "i"),
    "b": ("BOOLEAN", "i % 3 = 0"),
    "i8": ("TINYINT", "i % 100"),
    "i32": ("INTEGER", "i"),
    "u16": ("USMALLINT", "i"),
    "u64": ("UBIGINT", "i"),
    "f": ("FLOAT", "i / 4.0"),
    "d": ("DOUBLE", "i / 7.0"),
    "day": ("DATE", "DATE '2020-01-01' + (i % 900)::INT"),
    "at": ("TIMESTAMP", "make_timestamp(i * 1000003)"),
    "tz": ("TIMESTAMPTZ", "make_timestamp(i * 1000003)"),
    "ns": ("TIMESTAMP_NS", "make_timestamp_ns(i * 1000003)"),
    "clock": ("TIME", "TIME '00:00:01' + to_seconds(i % 80000)"),
    "s": ("VARCHAR", "'s' || i % 50"),
    "raw": ("BLOB", "('x' || i)::BLOB"),
    "u": ("UUID", "md5(i::VARCHAR)::UUID"),
    "n7": ("DECIMAL(7, 2)", "i / 100"),
    "n18": ("DECIMAL(18, 2)", "i / 100"),
    "n38": ("DECIMAL(38, 2)", "i / 100"),
    "l": ("DOUBLE[]", "[i / 7.0, NULL]"),
    "st": ("STRUCT(f FLOAT, s VARCHAR)", "{'f': i / 4.0, 's': 't' || i}"),
    "m": ("MAP(BIGINT, DOUBLE)", "MAP {i: i / 7.0}"),
}
COLUMNS = ", ".join(f'"{name}" {type_}' for name, (type_, _) in TYPES.items())
VALUES = ", ".join(
    f"CASE WHEN i % 11 = 5 AND '{name}' <> 'id' THEN NULL ELSE {value} END"
    for name, (_, value) in TYPES.items()
)
UPDATES = ("update_preimage", "update_postimage")
done: Counter[str] = Counter()


class Cell(NamedTuple):
    """How DuckDB writes: `groups` names the option by which it cuts row groups, `spec` the lake's version."""

    page: int
    codec: str
    groups: str | None = None
    per_thread: bool = False
    encrypted: bool = False
    spec: str = "1.0"

    def __str__(self) -> str:
        flags = [name for name in ("per_thread", "encrypted") if getattr(self, name)]
        return "-".join([f"v{self.page}", self.codec, *filter(None, [self.groups]), *flags, self.spec])


def cells() -> Iterator[Cell]:
    """Yield all cells; those of 1.1 are lakes of 1.0 that are migrated: only a later DuckDB writes them."""
    for cell in product((1, 2), CODECS, (None, *GROUPS), (False, True), (False, True)):
        yield Cell(*cell)
    for page, codec, encrypted in product((1, 2), CODECS, (False, True)):
        yield Cell(page, codec, encrypted=encrypted, spec="1.1")


DAILY = (Cell(2, "snappy", "parquet_row_group_size"), Cell(1, "brotli", per_thread=True, spec="1.1"))


@pytest.fixture(scope="module", autouse=True)
def counted(request):
    yield
    if done:
        cell_count = done.pop("cells")
        verbs = ", ".join(f"{name} {count}" for name, count in done.items())
        capture = request.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print(f"\n{cell_count} cells of options, {sum(done.values())} verbs as DuckDB's: {verbs}")  # noqa: T201


def write(catalog, cell):
    with open_lake(catalog, encrypted=cell.encrypted, data_inlining_row_limit=0) as duck:
        duck.sql("SET threads = 4; SET preserve_insertion_order = false")
        options = {"parquet_version": cell.page, "parquet_compression": f"'{cell.codec}'"}
        if cell.groups:
            options[cell.groups] = f"'{GROUPS[cell.groups]}'"
        if cell.per_thread:
            options["per_thread_output"] = True
        for name, value in options.items():
            duck.sql(f"CALL lake.set_option('{name}', {value})")
        duck.sql(f"CREATE TABLE t ({COLUMNS})")
        for first in (0, 3000):
            ranges = [f"SELECT * FROM range({first + n}, {first + n + 1500}) r(i)" for n in (0, 1500)]
            duck.sql(f"INSERT INTO t SELECT {VALUES} FROM ({' UNION ALL '.join(ranges)})")
        duck.sql("DELETE FROM t WHERE id % 40 = 7")
        return duck.arrow("FROM t")


class Oracle:
    """A DuckDB in memory, with the table as the reference wrote it: the same is done to it as to the lake."""

    def __init__(self, rows):
        self.raw = duckdb.connect()
        self.sql("SET TimeZone = 'UTC'")
        self.raw.register("written", rows)
        self.sql(f"CREATE TABLE t ({COLUMNS})")
        self.sql("INSERT INTO t FROM written")

    def sql(self, text):
        return self.raw.execute(text).fetchall()

    def shown(self, rows, table="t"):
        return shown(self, rows, {name: type_ for name, type_, *_ in self.sql(f"DESCRIBE {table}")})


class Verbs:
    """Each verb on the table of a cell, and on DuckDB's."""

    def __init__(self, spark, lake, oracle):
        self.session, self.lake, self.oracle = LakeSession(spark, lake), lake, oracle

    def same(self, verb, table="t"):
        """Compare all rows, by both readers."""
        expected = self.oracle.shown(self.oracle.raw.execute(f"FROM {table}").to_arrow_table(), table)
        assert self.oracle.shown(self.lake.read_arrow(table), table) == expected, f"{verb}: read_arrow"
        assert self.oracle.shown(self.session.read(table).toArrow(), table) == expected, f"{verb}: Spark"
        done[verb] += 1

    def run(self):
        self.same("read")
        before = self.lake.current_snapshot().id
        self.session.delete("t", "d > 100 AND d < 101")
        self.oracle.sql("DELETE FROM t WHERE d > 100 AND d < 101")
        self.same("delete")
        self.session.update("t", {"s": "concat(s, '!')"}, "f < 10 AND l[0] > 1")
        self.oracle.sql("UPDATE t SET s = s || '!' WHERE f < 10 AND l[1] > 1")
        self.same("update")
        self.merge()
        self.same("merge")
        self.session.sql("CREATE TABLE main.v AS SELECT id, d, f, l, st FROM main.t WHERE d IS NOT NULL")
        self.oracle.sql("CREATE TABLE v AS SELECT id, d, f, l, st FROM t WHERE d IS NOT NULL")
        self.same("sql", "v")
        self.feed(before + 1, self.lake.current_snapshot().id)
        self.session.rewrite_data_files("t", delete_threshold=0)
        self.session.merge_adjacent_files("t")
        self.same("compaction")

    def merge(self):
        self.session.merge(
            "t",
            sql="SELECT id + 5990 AS id, 'merged' AS s FROM range(20)",
            on=["id"],
            when_matched=[{"update": {"s": "source.s"}}],
            when_not_matched=[{"insert": {"id": "source.id", "s": "source.s"}}],
        )
        self.oracle.sql(
            "MERGE INTO t USING (SELECT range + 5990 AS id, 'merged' AS s FROM range(20)) n USING (id) "
            "WHEN MATCHED THEN UPDATE SET s = n.s WHEN NOT MATCHED THEN INSERT (id, s) VALUES (n.id, n.s)"
        )

    def feed(self, start, end):
        by_spark = self.session.changes("t", start, end).toArrow()
        rows = self.lake.changes("t", start, end).read_arrow()
        assert Counter(rows["change_type"].to_pylist()).keys() == {"insert", "delete", *UPDATES}
        for kind in ("insert", "delete", *UPDATES):
            of_kind = [
                one.filter(pc.equal(one["change_type"], kind)).select(list(TYPES)) for one in (by_spark, rows)
            ]
            assert self.oracle.shown(of_kind[0]) == self.oracle.shown(of_kind[1]), kind
        done["change feed"] += 1


def check(cell, spark, catalog):
    oracle = Oracle(write(catalog, cell))
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        if cell.spec == "1.1":
            lake.migrate("1.1", backup=False)
        assert_written_as_asked(lake, cell)
        Verbs(spark, lake, oracle).run()
        assert lake.verify() == []
    if cell.spec == "1.0":
        with open_lake(catalog) as duck:
            assert oracle.shown(duck.arrow("FROM t")) == oracle.shown(
                oracle.raw.execute("FROM t").to_arrow_table()
            )
    done["cells"] += 1


def assert_written_as_asked(lake, cell):
    """Spark cannot decode what is brotli, or of version 2; other options make more files, and row groups."""
    files = lake.scan("t").files
    metadata = []
    for file in files:
        with open_parquet(lake.locate(file.path).with_key(file.encryption_key)) as source:
            metadata.append(pq.read_metadata(source))
    assert all(any(undecodable(one)) == (cell.page == 2 or cell.codec == "brotli") for one in metadata)
    if cell.per_thread:
        assert len(files) > 2
    elif cell.groups == "parquet_row_group_size":
        assert max(one.num_row_groups for one in metadata) > 1


@pytest.mark.drawn(one_in=1)
@pytest.mark.parametrize("cell", DAILY, ids=str)
def test_two_of_the_options(spark, sqlite_catalog, cell):
    check(cell, spark, sqlite_catalog)


@pytest.mark.soak
@pytest.mark.parametrize("cell", list(cells()), ids=str)
def test_each_of_the_options(spark, sqlite_catalog, cell):
    check(cell, spark, sqlite_catalog)
