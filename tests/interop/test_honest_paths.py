"""Paths that the reference writes are taken, however odd: only what leads elsewhere is refused."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from tests.interop.compacting import merge_adjacent
from tests.interop.lakes import alone, by_duckdb
from tests.reference.duckdb_lake import open_lake

NOW = timedelta(0)
ODD = ("..", "../..", "a\\..\\b", "x\ny", "%2e%2e", "/", "a/../b", "*", "ü ", "")


@pytest.fixture(params=["plain", "climbing", "doubled slashes", "a file in it"])
def place(request, sqlite_catalog) -> str:
    """A data path as users write them: the catalog keeps it letter by letter."""
    folder = Path(sqlite_catalog.data_path).parent
    (folder / "aside").mkdir()
    return {
        "plain": sqlite_catalog.data_path,
        "climbing": f"{folder}/aside/../data/",
        "doubled slashes": f"{folder}//data/",
        "a file in it": f"{folder}/data/a/b c/%2e/",
    }[request.param]


def test_a_lake_of_the_reference_is_read_written_and_cleaned_up(sqlite_catalog, place):
    with open_lake(sqlite_catalog, place, data_inlining_row_limit=0) as reference:
        reference.sql('CREATE SCHEMA "../s"; CREATE TABLE "../s"."../t" ("../../k" VARCHAR, i INT)')
        reference.sql('ALTER TABLE "../s"."../t" SET PARTITIONED BY ("../../k")')
        for number, value in enumerate((*ODD, *ODD)):
            reference.sql(f'INSERT INTO "../s"."../t" VALUES (\'{value}\', {number})')
        reference.sql(
            'DELETE FROM "../s"."../t" WHERE i = 3; CREATE TABLE gone AS SELECT range FROM range(20)'
        )
        reference.sql("DROP TABLE gone")
    table = ("../s", "../t")
    rows = pa.table({"../../k": list(ODD), "i": pa.array(range(100, 100 + len(ODD)), pa.int32())})

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow(table).num_rows == 2 * len(ODD) - 1
        assert lake.verify() == []
        lake.append_arrow(table, rows)
        alone(lake).delete_rows(table, "i = 5")
        merge_adjacent(lake, table)
        lake.expire_snapshots(keep_last=1)
        cleaned = lake.cleanup_old_files(older_than=NOW)
        orphans = lake.delete_orphaned_files(older_than=NOW)

        assert (cleaned.failures, orphans.failures) == ((), ())
        assert len(cleaned.deleted) > 1
        assert lake.verify() == []
        ids = sorted(lake.read_arrow(table)["i"].to_pylist())
    with open_lake(sqlite_catalog, place, data_inlining_row_limit=0) as reference:
        assert [i for (i,) in reference.sql('SELECT i FROM "../s"."../t" ORDER BY i')] == ids
    assert ids == [*range(3), 4, *range(6, 20), *range(100, 100 + len(ODD))]


def moved_to(catalog, data_path: str) -> None:
    """Write another data path into a catalog, as people do by hand."""
    with closing(sqlite3.connect(catalog.location)) as connection, connection:
        connection.execute("UPDATE ducklake_metadata SET value = ? WHERE key = 'data_path'", (data_path,))


def test_a_data_path_without_a_slash_at_its_end_is_the_same_directory(sqlite_catalog, tmp_path):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t AS SELECT range AS i FROM range(20)")
        reference.sql("CREATE TABLE gone AS SELECT 1 AS i; DROP TABLE gone")
    moved_to(sqlite_catalog, sqlite_catalog.data_path.removesuffix("/"))

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        lake.append_arrow("t", pa.table({"i": pa.array(range(20, 50), pa.int64())}))
        assert lake.read_arrow("t").num_rows == 50
        lake.expire_snapshots(keep_last=1)
        cleaned = lake.cleanup_old_files(older_than=NOW)
        assert (len(cleaned.deleted), lake.delete_orphaned_files(older_than=NOW).deleted) == (1, ())
        assert lake.verify() == []
    with open_lake(f"ducklake:sqlite:{sqlite_catalog.location}") as reference:
        assert reference.sql("SELECT count(i), sum(i) FROM t") == [(50, sum(range(50)))]
    assert [one.name for one in tmp_path.rglob("main*")] == ["main"]


def test_a_data_path_with_the_name_of_a_host_is_refused(sqlite_catalog, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where files would go
    by_duckdb(sqlite_catalog, "CREATE TABLE t AS SELECT range AS i FROM range(20)", data_inlining_row_limit=0)
    moved_to(sqlite_catalog, f"file://localhost{sqlite_catalog.data_path}")

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        with pytest.raises(UnsupportedFeatureError, match="is relative"):
            lake.append_arrow("t", pa.table({"i": pa.array(range(20, 50), pa.int64())}))
        with pytest.raises(UnsupportedFeatureError, match="is relative"):
            lake.delete_orphaned_files(older_than=NOW)
    assert not (tmp_path / "localhost").exists()


def test_files_that_the_reference_added_from_elsewhere_are_read_whatever_they_are_called(
    sqlite_catalog, tmp_path
):
    folder = tmp_path / "else where"
    folder.mkdir()
    for name in ("a.parquet", "b", "c.dat"):
        pq.write_table(pa.table({"i": pa.array([1], pa.int32())}), folder / name)
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t (i INT)")
        for name in ("a.parquet", "b", "c.dat"):
            reference.sql(f"CALL ducklake_add_data_files('lake', 't', '{folder}/{name}')")

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow("t")["i"].to_pylist() == [1, 1, 1]
        assert lake.verify() == []
        with lake.transaction() as tx:
            tx.delete_rows("t", "i = 1")  # the delete files lie below the data path
        assert lake.row_count("t") == 0
    assert {path.name for path in folder.iterdir()} == {"a.parquet", "b", "c.dat"}
