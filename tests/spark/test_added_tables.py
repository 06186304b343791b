"""Tables that were Iceberg's or Delta's, and added files of other types, by Spark's verbs."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType, StringType

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from airflow_provider_ducklake.lake.spark.read import read_table
from airflow_provider_ducklake.lake.storage.parquet.modules import Items, ModuleKind, ThriftField
from airflow_provider_ducklake.lake.storage.parquet.readable import undecodable
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.interop.added_types import FILES, TAKEN
from tests.interop.comparison import multiset
from tests.interop.footers import KEYS, edited, parquet
from tests.interop.iceberg_source import append, data_paths, new_table, plain, position_deletes, with_entries
from tests.interop.lakes import alone, by_duckdb
from tests.reference.duckdb_lake import open_lake
from tests.spark.reading import assert_same_rows

RECORDED = Path(__file__).parents[1] / "golden" / "delta_tables"


@pytest.fixture
def lake(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        yield lake


def same_rows(spark, lake: Lake, catalog, where: str | None = None) -> int:
    """Compare what Spark and DuckDB read, and return how many rows they are."""
    found = read_table(spark, lake.scan("t", filter=where)).toArrow()
    with open_lake(catalog) as duck:
        assert plain(found) == plain(duck.arrow(f"FROM t WHERE {where or 'true'}"))
    return int(found.num_rows)


@pytest.mark.parametrize(
    ("name", "rows"), [("vectors", 51), ("parts", 2), ("named", 3), ("numbered", 2), ("wide", 2)]
)
def test_tables_of_delta_are_read(spark, lake, sqlite_catalog, tmp_path, name, rows):
    folder = shutil.copytree(RECORDED / name, tmp_path / name)
    lake.add_table("t", str(folder), "delta", create_table=True)

    assert same_rows(spark, lake, sqlite_catalog) == rows


def test_a_table_of_iceberg_is_read_and_changed(spark, lake, sqlite_catalog, tmp_path):
    table = new_table(tmp_path / "ice", {"id!": LongType(), "old": StringType()}, ["bucket[2](id)"])
    append(table, id=list(range(40)), old=["x"] * 40)
    with table.update_schema() as schema:
        schema.rename_column("old", "new")
    with table.update_schema() as schema:
        schema.add_column("old", StringType())
    append(table, id=list(range(40, 60)), new=["y"] * 20, old=["z"] * 20)
    parts = {task.file.file_path: task.file.partition for task in table.scan().plan_files()}
    gone = [position_deletes(table, {path: [0, 3]}, partition=parts[path]) for path in data_paths(table)]
    lake.add_table("t", with_entries(table, gone), "iceberg", create_table=True)

    assert same_rows(spark, lake, sqlite_catalog) == 52
    assert same_rows(spark, lake, sqlite_catalog, where="old IS NULL AND id > 10") > 0

    session = LakeSession(spark, lake)
    session.update("t", {"new": "'changed'"}, "id % 2 = 0")
    session.delete("t", "id % 3 = 0")
    changed = pa.table({"id": [1000], "new": ["n"], "old": [None]}, schema=lake.read_arrow("t").schema)
    lake.append_arrow("t", changed)

    assert same_rows(spark, lake, sqlite_catalog) > 30
    assert lake.verify() == []
    merged = session.rewrite_data_files("t", delete_threshold=0)
    assert merged is not None
    assert same_rows(spark, lake, sqlite_catalog) > 30
    assert lake.verify() == []


def test_a_file_that_duckdb_registered_twice_is_two_files(spark, lake, sqlite_catalog, tmp_path):
    file = tmp_path / "twice.parquet"
    with open_lake(sqlite_catalog) as duck:
        duck.sql("CREATE TABLE t (id BIGINT)")
        duck.sql("CREATE TABLE copied (id BIGINT)")
        duck.sql(f"COPY (SELECT range AS id FROM range(3)) TO '{file}'")
        for _ in range(2):
            duck.sql(f"CALL ducklake_add_data_files('lake', 't', '{file}')")
    session = LakeSession(spark, lake)
    session.sql("INSERT INTO main.copied SELECT id FROM main.t", incremental=True, consumer="copier")
    read = read_table(spark, lake.scan("t"), row_ids=True)
    session.delete("t", "id = 1")
    session.update("t", {"id": "id + 10"}, "id = 2")
    clauses = {"when_matched": [{"delete": True}], "when_not_matched": [{"insert": {"id": "source.id"}}]}
    session.merge("t", spark.range(2).select("id"), ["id"], **clauses)

    last = lake.current_snapshot().id
    with open_lake(sqlite_catalog) as duck:
        counted = duck.sql("SELECT count(*) FROM copied")
        left = duck.sql("SELECT id FROM t ORDER BY id")
        changes = duck.arrow(f"FROM ducklake_table_changes('lake', 'main', 't', 3, {last})")
    assert (read.count(), counted) == (6, [(6,)])
    assert [row.id for row in session.read("t").orderBy("id").collect()] == [row[0] for row in left]
    assert [row[0] for row in left] == [1, 12, 12]
    assert plain(session.changes("t", 3, last).toArrow()) == plain(changes)
    assert {found.code for found in lake.verify()} == {FindingCode.PATH_TWICE}


# --- files that Spark's own reader reads otherwise or not at all ---

CREATED_BY = 6  # of FileMetaData


def same(spark, lake, catalog):
    with open_lake(catalog) as duck:
        assert multiset(lake.read_arrow("t")) == multiset(duck.arrow("FROM t"))
        return assert_same_rows(spark, lake, duck)


@pytest.mark.parametrize(("name", "sql"), TAKEN)
def test_rows_stay_what_duckdb_reads_through_a_delete_and_a_merge(spark, sqlite_catalog, tmp_path, name, sql):
    paths = [tmp_path / "one.parquet", tmp_path / "two.parquet"]
    paths[0].write_bytes(FILES[name])
    shutil.copy(*paths)
    by_duckdb(sqlite_catalog, f"CREATE TABLE t (a {sql})")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        session = LakeSession(spark, lake)
        alone(lake).add_data_files("t", [str(path) for path in paths])
        count = same(spark, lake, sqlite_catalog)
        session.merge_adjacent_files("t")
        assert same(spark, lake, sqlite_catalog) == count
        session.delete("t", "a IS NULL")
        same(spark, lake, sqlite_catalog)


def without_a_value(footer) -> None:
    footer[KEYS] = ThriftField(
        ModuleKind.LIST, Items(ModuleKind.STRUCT, [{1: ThriftField(ModuleKind.BINARY, b"key")}])
    )


def of_impala(footer) -> None:
    footer[CREATED_BY] = ThriftField(ModuleKind.BINARY, b"impala version 1.2-INTERNAL (build a462ec42)")


@pytest.mark.parametrize("change", [without_a_value, of_impala])
def test_files_that_spark_fails_over_are_read_by_pyarrow(spark, sqlite_catalog, tmp_path, change):
    path = tmp_path / "file.parquet"
    path.write_bytes(edited(parquet({"a": pa.array([1, 2, None])}), change))
    assert list(undecodable(pq.read_metadata(path)))
    by_duckdb(sqlite_catalog, "CREATE TABLE t (a BIGINT)")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        alone(lake).add_data_files("t", [str(path)])

        assert same(spark, lake, sqlite_catalog) == 3
