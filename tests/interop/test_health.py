"""The numbers of tables equal what the reference lists of them."""

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import TableNotFoundError
from tests.reference.duckdb_lake import open_lake

STATEMENTS = (
    "CREATE SCHEMA s",
    "CREATE TABLE s.few (i INT)",
    "INSERT INTO s.few VALUES (1), (2), (3)",
    "DELETE FROM s.few WHERE i = 1",
    "CREATE TABLE t AS SELECT x AS i, repeat(md5(x::VARCHAR), 30) AS s FROM range(60000) r(x)",
    "INSERT INTO t SELECT x, 's' FROM range(100) r(x)",
    "DELETE FROM t WHERE i >= 200 AND i < 250",  # a delete file
    "DELETE FROM t WHERE i = 300",  # a mark in the catalog
    "CREATE TABLE ended AS SELECT x AS i FROM range(100) r(x)",
    "DELETE FROM ended WHERE i < 50",
    "DELETE FROM ended",
)


def test_the_numbers_are_those_of_the_reference(catalog):
    with open_lake(catalog, data_inlining_row_limit=10) as reference:
        for statement in STATEMENTS:
            reference.sql(statement)
        infos = {row[0]: row[4:] for row in reference.sql("FROM ducklake_table_info('lake')")}
        ((rows,),) = reference.sql("SELECT count(*) FROM t")
        snapshots = reference.sql("FROM ducklake_snapshots('lake')")
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        health = lake.table_health()
        with pytest.raises(TableNotFoundError):
            lake.table_health(["nothing"])
        assert lake.table_health(["t"]).tables == health.tables[1:2]

    assert [one.name for one in health.tables] == ["main.ended", "main.t", "s.few"]
    assert (health.snapshot_id, health.snapshot_count) == (snapshots[-1][0], len(snapshots))
    assert abs(health.oldest_snapshot_time - snapshots[0][1]).total_seconds() < 1e-3
    ended, table, few = health.tables
    assert (table.file_count, table.file_size_bytes) == infos["t"][:2]
    assert (table.delete_file_count, table.delete_file_size_bytes) == infos["t"][2:4]
    assert table.record_count - table.deleted_row_count == rows
    assert (table.deleted_row_count, table.inlined_delete_count) == (51, 1)
    assert table.delete_ratio == pytest.approx(51 / 60100)
    assert {band: count for band, count in table.files_by_size.items() if count} == {
        "under_1_mib": 1,
        "under_16_mib": 1,
    }
    assert (few.inlined_row_count, few.file_count, few.delete_ratio) == (2, 0, 0.0)
    assert (ended.file_count, ended.delete_file_count, ended.deleted_row_count) == (0, 0, 0)


def test_files_that_wait_for_deletion_are_counted(sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        for statement in (
            "CREATE TABLE t (i INT)",
            "INSERT INTO t VALUES (1)",
            "INSERT INTO t VALUES (2)",
            "CALL ducklake_merge_adjacent_files('lake')",
        ):
            reference.sql(statement)
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        assert lake.table_health().scheduled_file_count == 2
