"""Lakes of versions that are migrated before anything else, and what older DuckDBs left in those of 1.0."""

import sqlite3
from contextlib import closing

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import UnsupportedVersionError
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from tests.interop.lakes import by_duckdb
from tests.interop.old_lakes import RECORDED, recorded
from tests.reference.catalog_dump import dump_catalog


@pytest.fixture(params=RECORDED)
def old(request, tmp_path):
    return recorded(request.param, tmp_path / "lake")


def test_an_older_lake_is_neither_read_nor_written_and_the_error_says_what_opens_it(old):
    before = dump_catalog(old.catalog)
    with pytest.raises(UnsupportedVersionError, match=rf"{old.version}.*to_migrate=True\)\.migrate\(\)"):
        Lake.connect(old.catalog.sqlalchemy_url)
    with Lake.connect(old.catalog.sqlalchemy_url, to_migrate=True) as lake:
        attempts = [
            lambda: lake.read_arrow("m"),
            lambda: lake.changes("m", 16, 22),
            lambda: lake.append_arrow("m", pa.table({"n": pa.array([1], pa.int32())})),
            lake.transaction,
            lambda: lake.set_option("data_inlining_row_limit", 0),
            lambda: lake.expire_snapshots(keep_last=1),
            lake.maintenance.create_indexes,
        ]
        for attempt in attempts:
            with pytest.raises(UnsupportedVersionError, match=old.version):
                attempt()
    assert dump_catalog(old.catalog) == before


def test_a_column_that_duckdb_1_4_1_changed_twice_is_read_as_it_was(sqlite_catalog):
    """DuckDB 1.4.0 and 1.4.1 end all rows of a column anew with each change of it."""
    by_duckdb(
        sqlite_catalog,
        "CREATE TABLE t (a INTEGER, k INTEGER)",
        "INSERT INTO t SELECT x, x FROM range(3) r(x)",
        "ALTER TABLE t RENAME COLUMN a TO b",
        "INSERT INTO t SELECT x, x FROM range(50) r(x)",
        "ALTER TABLE t ALTER COLUMN b SET DEFAULT 5",
        "INSERT INTO t (k) VALUES (7)",
    )

    def seen(lake: Lake) -> list[list[dict]]:
        reads = [lake.read_arrow("t", at=snapshot).to_pylist() for snapshot in range(1, 7)]
        return [*reads, lake.changes("t", 1, 6).read_arrow().to_pylist()]

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        whole, columns = seen(lake), sql(sqlite_catalog, "SELECT * FROM ducklake_column ORDER BY 1, 2")
        sql(
            sqlite_catalog,
            "UPDATE ducklake_column SET end_snapshot = 5 WHERE column_id = 1 AND end_snapshot IS NOT NULL",
        )
        assert sql(sqlite_catalog, "SELECT * FROM ducklake_column ORDER BY 1, 2") != columns

        assert seen(lake) == whole
        found = lake.verify()
        assert {one.code for one in found} == {FindingCode.COLUMN_TWICE}
        assert lake.maintenance.plan_merge("t").table.table_id
        assert lake.repair(found).left == ()

        assert lake.verify() == []
        assert seen(lake) == whole
    assert sql(sqlite_catalog, "SELECT * FROM ducklake_column ORDER BY 1, 2") == columns


def test_a_former_partition_key_may_have_lost_its_column(sqlite_catalog):
    """DuckDB's migration of 0.1 leaves NULL for a key that ended, of a column that was dropped."""
    by_duckdb(
        sqlite_catalog,
        "CREATE TABLE t (a INTEGER, c INTEGER)",
        "ALTER TABLE t SET PARTITIONED BY (c)",
        "INSERT INTO t SELECT x, x FROM range(50) r(x)",
        "ALTER TABLE t RESET PARTITIONED BY",
        "ALTER TABLE t DROP COLUMN c",
    )
    sql(sqlite_catalog, "UPDATE ducklake_partition_column SET column_id = NULL")

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow("t", filter="a < 3").to_pylist() == [{"a": 0}, {"a": 1}, {"a": 2}]
        lake.append_arrow("t", pa.table({"a": pa.array([99], pa.int32())}))
        assert lake.row_count("t") == 51
        assert lake.maintenance.plan_merge("t").bins == ()


def sql(catalog, statement: str) -> list[tuple]:
    with closing(sqlite3.connect(catalog.location)) as connection, connection:
        return connection.execute(statement).fetchall()
