"""Lakes that older DuckDBs wrote are read as those read them, at every snapshot, and never written."""

import sqlite3
from contextlib import closing

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import UnsupportedVersionError
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from tests.interop.old_lakes import RECORDED, OldLake, old_lake, read_alike, recorded
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import file_catalog
from tests.reference.duckdb_lake import open_lake


@pytest.fixture(params=RECORDED)
def old(request, tmp_path):
    return recorded(request.param, tmp_path / "lake")


def test_rows_are_those_of_the_older_duckdb_at_every_snapshot(old):
    compared = 0
    with Lake.connect(old.catalog.sqlalchemy_url) as lake:
        assert lake.version.value == old.version
        for snapshot, tables in old.rows.items():
            names = {str(name).removeprefix("main.") for name in lake.tables(at=int(snapshot))}
            assert names == set(tables), snapshot
            for name, rows in tables.items():
                ours = lake.read_arrow(name, at=int(snapshot))
                found = sorted(str(tuple(row.values())) for row in ours.to_pylist())
                assert found == read_alike(rows), (snapshot, name)
                compared += 1
    assert compared > 50


def test_merged_rows_are_in_the_feed_of_the_snapshots_they_came_by(old):
    with Lake.connect(old.catalog.sqlalchemy_url) as lake:
        feed = lake.changes("m", 16, 22).read_arrow()

        assert feed["snapshot_id"].to_pylist() == [16] * 3 + [17] * 3 + [18] * 3 + [19] * 3 + [21, 22]
        assert feed.filter(pa.array([kind == "delete" for kind in feed["change_type"].to_pylist()]))[
            "n"
        ].to_pylist() == [10]
        assert lake.changes("m", 18, 18).read_arrow()["n"].to_pylist() == [20, 21, 22]
        assert [one.kind for one in lake.snapshots()[20].changes] != []
        assert lake.snapshots()[3].message is None
        assert lake.table_info("m")[0].file_count == 2


def test_nothing_is_written_to_an_older_lake(old):
    before = dump_catalog(old.catalog)
    with Lake.connect(old.catalog.sqlalchemy_url) as lake:
        attempts = [
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


def test_0_4_is_read_as_1_0(tmp_path):
    catalog = file_catalog("sqlite", tmp_path)
    with open_lake(catalog) as reference:
        reference.sql("CREATE TABLE t AS SELECT x AS i FROM range(30) r(x)")
        reference.sql("DELETE FROM t WHERE i < 20")
    OldLake(catalog, "0.4", {}).execute("UPDATE ducklake_metadata SET value = '0.4' WHERE key = 'version'")

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert sorted(lake.read_arrow("t")["i"].to_pylist()) == list(range(20, 30))
        with pytest.raises(UnsupportedVersionError, match=r"'0\.4'"):
            lake.transaction()


def test_0_1_is_read_as_the_0_2_that_it_became(tmp_path):
    old = old_lake("0.1", tmp_path / "lake")

    with Lake.connect(old.catalog.sqlalchemy_url) as lake:
        assert lake.version.value == "0.1"
        for snapshot, tables in old.rows.items():
            for name, rows in tables.items():
                found = sorted(
                    str(tuple(row.values())) for row in lake.read_arrow(name, at=int(snapshot)).to_pylist()
                )
                assert found == read_alike(rows), (snapshot, name)
                assert lake.row_count(name, int(snapshot)) == len(rows)
        (key,) = lake.table_snapshot("p").partition_spec.fields
        assert key.column_id == lake.table_snapshot("p").schema.find("k").id
        assert lake.read_arrow("p", filter="k = 'k1'").num_rows == 5
        assert lake.changes("m", 16, 22).read_arrow().num_rows == 14
        with pytest.raises(UnsupportedVersionError, match=r"0\.1"):
            lake.transaction()


def test_changes_of_an_older_lake_are_watched(old):
    with Lake.connect(old.catalog.sqlalchemy_url) as lake:
        kinds = {name: lake.table_changes(name, 1, ("insert", "delete")) for name in lake.tables()}
    assert {"insert", "delete"} <= {kind for found in kinds.values() if found for kind in found.changes}


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


def by_duckdb(catalog, *statements: str) -> None:
    with open_lake(catalog) as reference:
        for statement in statements:
            reference.sql(statement)


def sql(catalog, statement: str) -> list[tuple]:
    with closing(sqlite3.connect(catalog.location)) as connection, connection:
        return connection.execute(statement).fetchall()
