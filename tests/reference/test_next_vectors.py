"""Deletion vectors as ducklakepy writes and reads them: bare for one snapshot, a container for several."""

from pathlib import Path

import pytest

from tests.reference import duckdb_lake, ducklakepy_lake
from tests.reference.catalog_dump import dump_catalog
from tests.reference.containers import read_container

TABLE = "CREATE TABLE t AS SELECT i FROM range(100) r(i)"


@pytest.fixture
def lake(sqlite_catalog):
    """A lake whose table has 100 rows since snapshot 2 and lost three at each of 3, 4 and 5."""
    with ducklakepy_lake.open_lake(sqlite_catalog, inline_limit=0) as lake:
        lake.create_table("t", {"i": "int64"})
        lake.set_option("write_deletion_vectors", "true")
        lake.insert("t", [{"i": n} for n in range(100)])
        for first in (0, 10, 20):
            lake.delete("t", f"i BETWEEN {first} AND {first + 2}")
        yield lake


def delete_files(catalog) -> list[dict]:
    return dump_catalog(catalog)["ducklake_delete_file"]


def content_of(catalog, row: dict) -> bytes:
    return (Path(catalog.data_path) / "main" / "t" / row["path"]).read_bytes()


@pytest.mark.usefixtures("lake")
def test_a_container_holds_a_cumulative_vector_for_each_snapshot(sqlite_catalog):
    (row,) = delete_files(sqlite_catalog)
    content = content_of(sqlite_catalog, row)

    assert (row["begin_snapshot"], row["end_snapshot"], row["partial_max"]) == (3, None, 5)
    assert (row["format"], row["delete_count"], row["row_group_count"]) == ("puffin", 9, None)
    assert row["file_size_bytes"] == len(content)
    assert content[len(content) - row["footer_size"] :][:4] == content[:4] == content[-4:] == b"PFA1"
    assert read_container(content) == {
        i: s for s, first in ((3, 0), (4, 10), (5, 20)) for i in range(first, first + 3)
    }


def test_each_snapshot_has_its_rows_and_the_feed_its_deletes(lake):
    assert [lake.count("t", snapshot) for snapshot in (2, 3, 4, 5)] == [100, 97, 94, 91]
    feed = lake.changes("t", 3, 5).select(["snapshot_id", "rowid", "change_type"]).to_pylist()
    assert sorted((row["snapshot_id"], row["rowid"]) for row in feed) == [
        (s, i) for s, first in ((3, 0), (4, 10), (5, 20)) for i in range(first, first + 3)
    ]
    assert {row["change_type"] for row in feed} == {"delete"}


def test_the_vectors_outlive_a_snapshot_between_and_a_change_of_the_format(sqlite_catalog, lake):
    assert lake.expire(versions=[4]) == (4,)
    lake.set_option("write_deletion_vectors", "false")
    lake.delete("t", "i = 99")

    (row,) = delete_files(sqlite_catalog)
    assert (row["format"], row["row_group_count"], row["partial_max"]) == ("parquet", 1, 6)
    assert [lake.count("t", snapshot) for snapshot in (2, 3, 5, 6)] == [100, 97, 91, 90]

    lake.set_option("write_deletion_vectors", "true")
    lake.delete("t", "i = 98")

    (row,) = delete_files(sqlite_catalog)
    assert row["format"] == "puffin"
    assert set(read_container(content_of(sqlite_catalog, row))) == {0, 1, 2, 10, 11, 12, 20, 21, 22, 98, 99}
    assert [lake.count("t", snapshot) for snapshot in (2, 3, 5, 6, 7)] == [100, 97, 91, 90, 89]


def test_the_deletes_of_one_snapshot_are_the_same_bytes_from_both_writers(new_catalog):
    theirs, its = new_catalog("sqlite"), new_catalog("sqlite")
    with ducklakepy_lake.open_lake(theirs, inline_limit=0) as lake:
        lake.create_table("t", {"i": "int64"})
        lake.set_option("write_deletion_vectors", "true")
        lake.insert("t", [{"i": n} for n in range(100)])
        lake.delete("t", "i < 3")
    with duckdb_lake.open_lake(its, data_inlining_row_limit=0) as reference:
        reference.sql("CALL lake.set_option('write_deletion_vectors', true)")
        reference.sql(TABLE)
        reference.sql("DELETE FROM t WHERE i < 3")

    rows = [delete_files(catalog)[0] for catalog in (theirs, its)]

    assert [row["footer_size"] for row in rows] == [0, 0]
    assert content_of(theirs, rows[0]) == content_of(its, rows[1])


def test_at_1_0_the_deletes_of_several_snapshots_are_a_parquet_file_that_the_reference_reads(sqlite_catalog):
    with ducklakepy_lake.open_lake(sqlite_catalog, version="1.0", inline_limit=0) as lake:
        lake.create_table("t", {"i": "int64"})
        lake.set_option("write_deletion_vectors", "true")
        lake.insert("t", [{"i": n} for n in range(100)])
        lake.delete("t", "i < 3")
        assert [row["format"] for row in delete_files(sqlite_catalog)] == ["puffin"]
        lake.delete("t", "i < 6")

    assert [row["format"] for row in delete_files(sqlite_catalog)] == ["parquet"]
    with duckdb_lake.open_lake(sqlite_catalog) as reference:
        counts = [reference.sql(f"SELECT count(i) FROM t AT (VERSION => {n})")[0][0] for n in (2, 3, 4)]
    assert counts == [100, 97, 94]
