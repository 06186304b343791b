"""Deletion vectors of several snapshots in one file, as 1.1 has them: at every snapshot, and damaged ones."""

from pathlib import Path

import pytest

from airflow_provider_ducklake.catalog.lake import Lake
from airflow_provider_ducklake.errors import StorageError
from airflow_provider_ducklake.storage.deletes.delete_files import deleted_rows
from airflow_provider_ducklake.storage.files.filesystem import open_filesystem
from tests.interop.vectors import container, vector
from tests.reference import ducklakepy_lake
from tests.reference.catalog_dump import dump_catalog

DELETED = ((0, 1, 2), (10, 11, 12), (20, 21, 22))  # by three snapshots


@pytest.fixture
def deleted(catalog):
    """Return the snapshots of an insert of 100 rows and of three deletes, which ducklakepy made."""
    with ducklakepy_lake.open_lake(catalog) as theirs:
        theirs.create_table("t", {"i": "int32"})
        theirs.set_option("data_inlining_row_limit", 0)
        theirs.set_option("write_deletion_vectors", "true")
        inserted = theirs.insert("t", [{"i": i} for i in range(100)])
        return inserted, *(theirs.delete("t", f"i IN {ids}") for ids in DELETED)


@pytest.fixture
def lake(catalog, deleted):  # noqa: ARG001 - first
    with Lake.connect(catalog.sqlalchemy_url) as opened:
        yield opened


def rows_at(lake: Lake, snapshot: int | None = None) -> list[int]:
    return sorted(lake.read_arrow("t", at=snapshot)["i"].to_pylist())


def test_each_snapshot_has_lost_what_it_and_earlier_ones_deleted(lake, catalog, deleted):
    (row,) = dump_catalog(catalog)["ducklake_delete_file"]
    assert row["format"] == "puffin"

    for count, snapshot in enumerate(deleted):
        gone = {one for ids in DELETED[:count] for one in ids}
        assert rows_at(lake, snapshot) == sorted(set(range(100)) - gone)
    feed = lake.changes("t", deleted[1], deleted[-1]).read_arrow()
    seen = zip(feed["snapshot_id"].to_pylist(), feed["rowid"].to_pylist(), strict=True)
    assert sorted(seen) == [
        (snapshot, row) for snapshot, ids in zip(deleted[1:], DELETED, strict=True) for row in ids
    ]
    assert feed["change_type"].unique().to_pylist() == ["delete"]
    assert lake.verify() == []


def test_our_deletes_keep_whose_the_earlier_ones_were(lake, catalog, deleted):
    (file,) = lake.table_snapshot("t", with_files=True).files or ()
    with lake.transaction() as tx:
        tx.delete_at("t", {file.id: [50]}, [])

    for count, snapshot in enumerate(deleted):
        gone = {one for ids in DELETED[:count] for one in ids}
        assert rows_at(lake, snapshot) == sorted(set(range(100)) - gone)
    assert len(rows_at(lake)) == 90
    with ducklakepy_lake.open_lake(catalog) as theirs:
        assert sorted(theirs.read("t")["i"].to_pylist()) == rows_at(lake)
        assert sorted(theirs.read("t", deleted[2])["i"].to_pylist()) == rows_at(lake, deleted[2])
        later = theirs.delete("t", "i = 60")
    assert len(rows_at(lake, later)) == 89
    assert lake.verify() == []


def test_upkeep_leaves_the_rows_as_they_are(lake, deleted):
    before = {snapshot: rows_at(lake, snapshot) for snapshot in (*deleted[:2], deleted[-1])}

    lake.expire_snapshots(versions=[deleted[2]])

    assert {snapshot: rows_at(lake, snapshot) for snapshot in before} == before
    lake.restore("t", at=deleted[1])
    assert rows_at(lake) == before[deleted[1]]
    assert lake.verify() == []


# --- files by hand


def read(folder: Path, content: bytes) -> list[tuple[int, int]]:
    (folder / "d.puffin").write_bytes(content)
    found = deleted_rows(open_filesystem(f"{folder}/d.puffin", {}), "puffin", 7)
    return sorted(zip(found["pos"].to_pylist(), found["snapshot_id"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (vector(1, 2**40), [(1, 7), (2**40, 7)]),
        (container(("3", vector(1)), ("5", vector(1, 2))), [(1, 3), (2, 5)]),
        (container(("5", vector(1, 2)), ("3", vector(1))), [(1, 3), (2, 5)]),  # in another order
        (container(("3", vector(1)), ("5", vector(2))), [(1, 3), (2, 5)]),  # not cumulative
        (container((None, vector(1)), (None, vector(1, 2))), [(1, 7), (2, 7)]),
        (container(), []),
        (container(("3", vector(*range(100_000)))), [(i, 3) for i in range(100_000)]),
    ],
    ids=["bare", "cumulative", "unsorted", "deltas", "without snapshots", "none", "large"],
)
def test_what_a_file_says(tmp_path, content, found):
    assert read(tmp_path, content) == found


GOOD = container(("3", vector(1)), ("5", vector(1, 2)))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (GOOD[:-1], "footer is not where"),
        (GOOD[:20], "footer is not where"),
        (b"PFA1", "truncated"),
        (b"", "truncated or has a wrong"),
        (GOOD[:12] + bytes([GOOD[12] ^ 1]) + GOOD[13:], "wrong checksum"),
        (container(("3", vector(1)), (None, vector(2))), "only some of its vectors"),
        (container(("3", vector(1)), flags=1), "flags 0x1"),
        (container(("x", vector(1))), "snapshot 'x'"),
        (container(("99999999999999999999", vector(1))), "snapshot"),
        (container(("3", vector(1)), offset=10**9), "behind the place of the footer"),
        (container(("3", vector(1)), offset="4"), "lies at '4'"),
        (container(("3", vector(1)), length=-1), "lies at"),
        (container(("3", vector(1)), length=True), "lies at"),
        (container(("3", vector(1)), length=3), "wrong checksum"),
        (container(("3", vector(1)), type="apache-datasketches-theta-v1"), "blob that is not"),
        (container(("3", vector(1)), **{"compression-codec": "zstd"}), "blob that is not"),
        (GOOD.replace(b'"blobs"', b'"glops"'), "lists no vectors"),
        (GOOD.replace(b'{"blobs"', b'["blobs"'), "not a JSON document"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, content, problem):
    with pytest.raises(StorageError, match=rf"d\.puffin is damaged: .*{problem}"):
        read(tmp_path, content)
