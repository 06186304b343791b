"""Partitions by which DuckDB misses rows, or of which its compaction fails: avoided, warned of, noted."""

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.types import LongType, StringType

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidPartitionError
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from tests.interop.iceberg_source import append, new_table
from tests.interop.lakes import alone, by_duckdb
from tests.reference.duckdb_lake import open_lake

BUCKETS, FOLDERS = FindingCode.BUCKET_VALUES_MISSING, FindingCode.PARTITION_FOLDERS_DIFFER
WAYS_TO_COMPACT = (
    "CALL ducklake_merge_adjacent_files('lake')",
    "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)",
    "CHECKPOINT lake",
)


@pytest.fixture
def lake(sqlite_catalog):
    lake = Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, foreign_files=True)
    with lake:
        yield lake


def notes(lake):
    """Return the codes of all findings but that files lie elsewhere."""
    assert lake.verify() == []
    return {one.code for one in lake.verify(with_notes=True)} - {FindingCode.OUTSIDE_DATA_PATH}


def found_by_duckdb(catalog, values):
    """Return those of the values of column a that DuckDB finds one row of."""
    with open_lake(catalog) as duck:
        return [one for one in values if duck.sql(f"SELECT count(*) FROM t WHERE a = {one}") == [(1,)]]


# Buckets


BEFORE = {"no keys": (), "another column": ("b",), "other buckets": ("bucket(8, a)",)}


@pytest.mark.parametrize("keys", BEFORE.values(), ids=BEFORE)
def test_a_bucket_key_over_rows_is_warned_of_and_noted_until_they_are_written_again(
    lake, sqlite_catalog, warnings, keys
):
    alone(lake).create_table("t", {"a": "int64", "b": "int64"}, keys)
    lake.append_arrow("t", pa.table({"a": range(20), "b": [1] * 20}))
    assert notes(lake) == set()

    alone(lake).set_partitioned_by("t", ["bucket(4, a)"])

    assert [one for one in warnings if "partition key bucket(4) of column a" in one]
    assert len(found_by_duckdb(sqlite_catalog, range(20))) < 20
    assert notes(lake) == {BUCKETS}

    with lake.transaction() as tx:
        rows = lake.read_arrow("t")
        tx.truncate("t")
        tx.append_arrow("t", rows)

    assert found_by_duckdb(sqlite_catalog, range(20)) == list(range(20))
    assert notes(lake) == set()


def test_duckdbs_own_buckets_over_rows_are_noted_and_its_update_writes_them_again(lake, sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as duck:
        duck.sql("CREATE TABLE t AS SELECT i AS a FROM range(20) r(i)")
        duck.sql("ALTER TABLE t SET PARTITIONED BY (bucket(4, a))")
    assert (found_by_duckdb(sqlite_catalog, range(20)), notes(lake)) == ([], {BUCKETS})

    by_duckdb(sqlite_catalog, "UPDATE t SET a = a", data_inlining_row_limit=0)

    assert (found_by_duckdb(sqlite_catalog, range(20)), notes(lake)) == (list(range(20)), set())


def test_a_table_without_rows_or_with_the_same_key_is_not_warned_of(lake, sqlite_catalog, warnings):
    alone(lake).create_table("t", {"a": "int64", "b": "int64"}, ["b"])
    alone(lake).set_partitioned_by("t", ["bucket(4, a)"])
    lake.append_arrow("t", pa.table({"a": range(20), "b": [1] * 20}))
    alone(lake).set_partitioned_by("t", ["bucket(4, a)", "b"])

    assert not warnings
    assert found_by_duckdb(sqlite_catalog, range(20)) == list(range(20))
    assert notes(lake) == set()


@pytest.mark.parametrize("keys", [["bucket(4, a)"], ["bucket(4, a)", "p"]])
def test_added_files_of_several_buckets_are_refused(lake, tmp_path, keys):
    source = new_table(tmp_path / "ice", {"a": LongType(), "p": StringType()}, ["p"])
    append(source, a=list(range(8)), p=["x"] * 8)
    alone(lake).create_table("t", {"a": "int64", "p": "varchar"}, keys)
    before = lake.current_snapshot()

    with pytest.raises(InvalidPartitionError, match=r"several values of bucket\(4\) of column a.*insert the"):
        lake.add_table("t", source.metadata_location, "iceberg")

    assert lake.current_snapshot() == before


# Folders


def three_files(folder, keys):
    source = new_table(folder, {"a": LongType(), "p": StringType(), "s": StringType()}, keys)
    append(source, a=[1, 2, 3, 4], p=["a", "a", "b", "a"], s=["x1", "y1", "x2", "x3"])
    append(source, a=[5], p=["a"], s=["x1"])
    return source


def assert_duckdb_compacts(lake, catalog, count):
    by_duckdb(catalog, "DELETE FROM t WHERE a = 1", data_inlining_row_limit=0)
    for way in WAYS_TO_COMPACT:
        with open_lake(catalog, data_inlining_row_limit=0) as duck:
            duck.sql(way)
            assert duck.sql("SELECT count(*) FROM t") == [(count - 1,)]
    assert lake.verify() == []
    assert lake.read_arrow("t").num_rows == count - 1


SCATTERED = [
    (["p", "truncate[1](s)"], {(), ("b",)}),
    (["truncate[1](s)", "p"], {(), ("b",)}),
    (["p"], {("a",), ("b",)}),
    (["truncate[1](s)"], {()}),
]


@pytest.mark.parametrize(("keys", "values"), SCATTERED)
def test_duckdb_compacts_what_lies_in_more_folders_than_the_table_has_partitions(
    lake, sqlite_catalog, tmp_path, keys, values
):
    source = three_files(tmp_path / "ice", keys)

    lake.add_table("t", source.metadata_location, "iceberg", create_table=True)

    assert notes(lake) == set()
    assert {one.partition_values for one in lake.table_snapshot("t", with_files=True).files} == values
    assert_duckdb_compacts(lake, sqlite_catalog, 5)


def test_duckdb_compacts_files_of_two_partitionings(lake, sqlite_catalog, tmp_path):
    source = three_files(tmp_path / "ice", ["p", "truncate[1](s)"])
    with source.update_spec() as spec:
        spec.remove_field("key_1")
    append(source, a=[6, 7], p=["a", "b"], s=["x1", "z"])

    lake.add_table("t", source.metadata_location, "iceberg", create_table=True)

    assert notes(lake) == set()
    assert_duckdb_compacts(lake, sqlite_catalog, 7)


def test_duckdb_compacts_files_added_beside_those_of_the_table(lake, sqlite_catalog, tmp_path):
    source = three_files(tmp_path / "ice", ["p"])
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as duck:
        duck.sql("CREATE TABLE t (a BIGINT, p VARCHAR, s VARCHAR); ALTER TABLE t SET PARTITIONED BY (p)")
        duck.sql("INSERT INTO t VALUES (10, 'a', 'q'), (11, 'c', 'q')")

    lake.add_table("t", source.metadata_location, "iceberg")

    assert notes(lake) == set()
    assert_duckdb_compacts(lake, sqlite_catalog, 7)


def test_buckets_in_several_folders_are_refused(lake, tmp_path):
    source = three_files(tmp_path / "ice", ["bucket[1](a)", "truncate[1](s)"])

    with pytest.raises(InvalidPartitionError, match=r"files in several folders \(.*Insert the rows instead"):
        lake.add_table("t", source.metadata_location, "iceberg", create_table=True)

    assert lake.current_snapshot().id == 0


def test_rows_beside_added_files_are_noted_where_duckdbs_compaction_fails(lake, sqlite_catalog, tmp_path):
    source = three_files(tmp_path / "ice", ["p"])
    lake.add_table("t", source.metadata_location, "iceberg", create_table=True)
    assert notes(lake) == set()

    lake.append_arrow("t", pa.table({"a": range(20), "p": ["a"] * 20, "s": ["q"] * 20}))

    assert notes(lake) == {FOLDERS}
    with (
        open_lake(sqlite_catalog) as duck,
        pytest.raises(duckdb.InternalException, match="different hive partition path"),
    ):
        duck.sql(WAYS_TO_COMPACT[0])
