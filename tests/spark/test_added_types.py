"""Added files that Spark's own reader reads otherwise or not at all, through Spark's verbs."""

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.storage.parquet.modules import Items, ModuleKind, ThriftField
from airflow_provider_ducklake.lake.storage.parquet.readable import undecodable
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.interop.added_types import FILES, TAKEN
from tests.interop.comparison import multiset
from tests.interop.footers import KEYS, edited, parquet
from tests.interop.lakes import by_duckdb
from tests.reference.duckdb_lake import open_lake
from tests.spark.reading import assert_same_rows

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
        with lake.transaction() as tx:
            tx.add_data_files("t", [str(path) for path in paths])
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
        with lake.transaction() as tx:
            tx.add_data_files("t", [str(path)])

        assert same(spark, lake, sqlite_catalog) == 3
