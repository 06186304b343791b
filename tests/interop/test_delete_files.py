"""Deletion vectors of several snapshots in one file, as 1.1 has them: at every snapshot, and damaged ones."""

import sqlite3
import struct
import time
import zlib
from collections import Counter
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64
from sqlalchemy import create_engine, text

from airflow_provider_ducklake.lake.catalog.database.connect import parse_url
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import OUTAGES, CatalogError, StorageError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.planning.reading.scan import ScanPlan
from airflow_provider_ducklake.lake.spark.job.codec import decode, encode
from airflow_provider_ducklake.lake.storage.deletes.deletes import deleted_rows
from airflow_provider_ducklake.lake.storage.deletes.vectors import bitmap_of, positions, vector_of
from airflow_provider_ducklake.lake.storage.files.filesystem import open_filesystem
from tests.interop.lakes import alone, by_duckdb
from tests.interop.vectors import container, vector
from tests.reference import ducklakepy_lake
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import CatalogDatabase, file_catalog
from tests.reference.duckdb_lake import open_lake

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
    alone(lake).delete_at("t", {file.id: [50]}, [])

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

    lake.expire_snapshots(snapshots=[deleted[2]])

    assert {snapshot: rows_at(lake, snapshot) for snapshot in before} == before
    lake.restore("t", at=deleted[1])
    assert rows_at(lake) == before[deleted[1]]
    assert lake.verify() == []


# --- ours


def rows_of_delete_files(catalog: CatalogDatabase) -> list[tuple[object, ...]]:
    names = ("begin_snapshot", "end_snapshot", "format", "delete_count", "partial_max")
    return [tuple(row[name] for name in names) for row in dump_catalog(catalog)["ducklake_delete_file"]]


def delete(lake: Lake, *places: int) -> int:
    (file,) = lake.table_snapshot("t", with_files=True).files or ()
    alone(lake).delete_at("t", {file.id: list(places)}, [])
    return lake.current_snapshot().id


def created(catalog: CatalogDatabase, version: str) -> Lake:
    lake = Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=version)
    lake.set_option("data_inlining_row_limit", 0)
    lake.set_option("write_deletion_vectors", value=True)
    alone(lake).create_table("t", {"i": "int32"})
    lake.append_arrow("t", pa.table({"i": pa.array(range(100), pa.int32())}))
    return lake


def test_ours_have_a_vector_for_each_snapshot(catalog, judge):
    with created(catalog, "1.1") as lake:
        made = [delete(lake, *places) for places in DELETED]
        assert rows_of_delete_files(catalog) == [(made[0], None, "puffin", 9, made[-1])]
        with ducklakepy_lake.open_lake(catalog) as theirs:
            for count, snapshot in enumerate(made, 1):
                gone = {one for ids in DELETED[:count] for one in ids}
                left = sorted(set(range(100)) - gone)
                assert rows_at(lake, snapshot) == sorted(theirs.read("t", snapshot)["i"].to_pylist()) == left
            feed = Counter(theirs.changes("t", made[0], made[-1])["snapshot_id"].to_pylist())
            assert feed == dict.fromkeys(made, 3)
        assert by_duckdb(judge(catalog), f"SELECT count(*) FROM t AT (VERSION => {made[1]})") == [(94,)]
        assert lake.verify() == []


def test_formats_alternate_and_the_history_survives(catalog):
    with created(catalog, "1.1") as lake:
        made = [delete(lake, 1)]
        assert rows_of_delete_files(catalog) == [(made[0], None, "puffin", 1, None)]
        lake.set_option("write_deletion_vectors", value=False)
        made.append(delete(lake, 2))
        assert rows_of_delete_files(catalog) == [(made[0], None, "parquet", 2, made[-1])]
        lake.set_option("write_deletion_vectors", value=True, table="t")
        made.append(delete(lake, 3, 4))
        assert rows_of_delete_files(catalog) == [(made[0], None, "puffin", 4, made[-1])]
        with ducklakepy_lake.open_lake(catalog) as theirs:
            counts = [theirs.count("t", one) for one in made]
        assert counts == [len(rows_at(lake, one)) for one in made] == [99, 98, 96]
        assert lake.verify() == []


def test_at_1_0_deletes_of_several_snapshots_are_parquet(catalog):
    with created(catalog, "1.0") as lake:
        made = [delete(lake, 0, 1, 2)]
        assert rows_of_delete_files(catalog) == [(made[0], None, "puffin", 3, None)]
        assert by_duckdb(catalog, "SELECT count(*), min(i) FROM t") == [(97, 3)]
        made.append(delete(lake, 50))
        assert rows_of_delete_files(catalog) == [(made[0], None, "parquet", 4, made[-1])]
        assert lake.verify() == []
    with open_lake(catalog) as reference:
        assert reference.sql(f"SELECT count(*) FROM t AT (VERSION => {made[0]})") == [(97,)]
        assert reference.sql("SELECT count(*) FROM t") == [(96,)]


def test_a_lost_race_writes_the_new_snapshot_into_the_file(catalog):
    with created(catalog, "1.1") as lake, Lake.connect(catalog.sqlalchemy_url) as other:
        first = delete(lake, 1)
        (file,) = lake.table_snapshot("t", with_files=True).files or ()
        with lake.transaction() as tx:
            tx.delete_at("t", {file.id: [2]}, [])
            alone(other).create_schema("s")
        newest = lake.current_snapshot().id

        assert newest == first + 2
        feed = lake.changes("t", first, newest).read_arrow()
        assert feed["snapshot_id"].to_pylist() == [first, newest]
        assert lake.verify() == []


def test_flushed_deletes_are_vectors_too(catalog):
    with created(catalog, "1.1") as lake:
        lake.set_option("data_inlining_row_limit", 10)
        made = [delete(lake, 1), delete(lake, 2)]
        lake.flush_inlined_data("t")

        assert rows_of_delete_files(catalog) == [(made[0], None, "puffin", 2, made[-1])]
        with ducklakepy_lake.open_lake(catalog) as theirs:
            assert [theirs.count("t", one) for one in made] == [99, 98]
        assert lake.verify() == []


def test_a_vector_is_the_reference_s_byte_for_byte(sqlite_catalog):
    with open_lake(sqlite_catalog) as reference:
        reference.sql("CALL lake.set_option('data_inlining_row_limit', 0)")
        reference.sql("CALL lake.set_option('write_deletion_vectors', true)")
        reference.sql("CREATE TABLE t AS FROM range(100_000) r(i)")
        reference.sql("DELETE FROM t WHERE i < 3 OR i % 7 = 1")
    (row,) = dump_catalog(sqlite_catalog)["ducklake_delete_file"]
    assert row["format"] == "puffin"
    theirs = Path(f"{sqlite_catalog.data_path}main/t/{row['path']}").read_bytes()

    assert vector_of(pa.array([i for i in range(100_000) if i < 3 or i % 7 == 1], pa.int64())) == theirs


LOW = st.integers(0, 2**20) | st.integers(0, 2**40)


@settings(deadline=None)  # on a busy machine the largest takes longer than a moment
@given(st.sets(LOW, max_size=200), st.integers(0, 3), st.sampled_from([5, 4096, 4097, 65_536]))
def test_any_positions_come_back(some, blocks, in_each):
    numbers = sorted(some | {block * 2**16 + low for block in range(blocks) for low in range(in_each)})
    data = bitmap_of(pa.array(numbers, pa.int64()))

    assert positions(data, len(numbers)).to_pylist() == numbers
    assert list(BitMap64.deserialize(data)) == numbers


# --- files by hand


def read(folder: Path, content: bytes, row_count: int = 2**41) -> list[tuple[int, int]]:
    (folder / "d.puffin").write_bytes(content)
    found = deleted_rows(open_filesystem(f"{folder}/d.puffin", {}), "puffin", 7, row_count)
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
        (
            container(("3", vector(1, 2, 3)), ("4", vector()), ("5", vector(4)), ("6", vector(3, 4))),
            [(1, 3), (2, 3), (3, 3), (4, 5)],
        ),
    ],
    ids=["bare", "cumulative", "unsorted", "deltas", "without snapshots", "none", "large", "shrinking"],
)
def test_what_a_file_says(tmp_path, content, found):
    assert read(tmp_path, content) == found


def test_many_short_vectors_beside_a_long_one_are_read_in_a_moment(tmp_path):
    short = [(str(i), vector(2**20 + i // 2)) for i in range(2, 1_000)]
    content = container(("1", vector(*range(2**20))), *short)
    started = time.monotonic()

    found = read(tmp_path, content)

    assert time.monotonic() - started < 20  # it took minutes
    assert found[2**20 :] == [(2**20 + i, 2 * i) for i in range(1, 500)]


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
        (container(("3", vector(1)), ("5", vector(2)), offset=4), "lie in each other"),
        (vector(2**63), "beyond 63 bits"),
        (GOOD.replace(b'"blobs"', b'"glops"'), "lists no vectors"),
        (GOOD.replace(b'{"blobs"', b'["blobs"'), "not a JSON document"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, content, problem):
    with pytest.raises(StorageError, match=rf"d\.puffin is damaged: .*{problem}"):
        read(tmp_path, content)


@pytest.mark.parametrize(
    "content",
    [vector(*range(101)), GOOD, container(("3", vector(0)), ("5", vector(1, 2)))],
    ids=["bare", "cumulative", "deltas"],
)
def test_vectors_have_no_more_rows_than_their_data_file(tmp_path, content):
    rows = len(read(tmp_path, content))

    with pytest.raises(StorageError, match=rf"d\.puffin is damaged: .* {rows - 1} "):
        read(tmp_path, content, rows - 1)


def test_a_delete_file_of_rows_without_end_is_not_read(tmp_path):
    """Five million repeated positions are a few kilobytes."""
    positions = pa.repeat(pa.scalar(0, pa.int64()), 5_000_000)
    rows = pa.table({"file_path": pa.repeat("f.parquet", len(positions)), "pos": positions})
    pq.write_table(rows, tmp_path / "d.parquet", compression="zstd")
    before = pa.total_allocated_bytes()

    with pytest.raises(StorageError, match=r"d\.parquet is damaged: it has 5000000 rows, and may have 100\."):
        deleted_rows(open_filesystem(f"{tmp_path}/d.parquet", {}), "parquet", 7, row_count=100)
    assert pa.total_allocated_bytes() - before < 2**20


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"file_path": ["f"], "pos": pa.array([2**63], pa.uint64())}),
        pa.table({"file_path": ["f"], "pos": pa.array([None], pa.int64())}),
        pa.table([["f"], [1], [1]], names=["file_path", "pos", "pos"]),
        pa.table({"file_path": ["f"], "pos": [1], "_ducklake_internal_snapshot_id": ["x"]}),
    ],
    ids=["too large", "null", "twice", "snapshot"],
)
def test_a_delete_file_with_odd_columns_is_named(tmp_path, rows):
    pq.write_table(rows, tmp_path / "d.parquet")

    with pytest.raises(StorageError, match=r"d\.parquet"):
        deleted_rows(open_filesystem(f"{tmp_path}/d.parquet", {}), "parquet", 7, row_count=1)


# A data file that the reference gives two delete files by a flush: both count.


STATEMENTS = (
    "CREATE TABLE t AS SELECT x AS i FROM range(40) r(x)",
    "DELETE FROM t WHERE i % 7 = 0",  # six rows, in the catalog
    "DELETE FROM t WHERE i < 30",  # the others, in a delete file
)
ENDS = "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.1)"


@pytest.fixture
def flushed(sqlite_catalog):
    """Return a lake whose file has ended, and had marks since before its delete file; and how it began."""
    with open_lake(sqlite_catalog, data_inlining_row_limit=10) as duck:
        for statement in STATEMENTS:
            duck.sql(statement)
        last = duck.sql("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")[0][0]
        duck.sql(ENDS)
        duck.sql("CALL ducklake_flush_inlined_data('lake')")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        yield lake, last


def test_rows_of_either_delete_file_are_gone(flushed, sqlite_catalog):
    lake, last = flushed
    (file,) = lake.scan("t", at=last).files
    assert file.delete_file is not None
    assert len(file.older_delete_files) == 1

    assert [lake.read_arrow("t", at=at).num_rows for at in range(last - 2, last + 1)] == [40, 34, 9]
    assert [lake.row_count("t", at=at) for at in range(last - 2, last + 1)] == [40, 34, 9]
    with open_lake(sqlite_catalog) as duck:  # a fault of the reference, which shows the file twice
        assert duck.sql(f"SELECT count(*) FROM t AT (VERSION => {last})") == [(34 + 15,)]


def test_they_travel_with_a_plan(flushed):
    lake, last = flushed
    plan = lake.scan("t", at=last)

    sent = decode(encode(plan, ScanPlan), ScanPlan)

    assert [one.older_delete_files for one in sent.files] == [one.older_delete_files for one in plan.files]


def test_no_more_rows_of_it_are_deleted(flushed):
    lake, last = flushed
    table = lake.table_snapshot("t", at=last)
    with pytest.raises(UnsupportedFeatureError, match="has 2 delete files"):
        lake.writes.replacing_where(table, "i BETWEEN 31 AND 33")


# A count of rows that the catalog has wrong: a small deletion vector fills no memory by it.


ROWS = pa.table({"id": pa.array(range(50), pa.int64())})
CONTAINERS = 400  # of 65,536 rows each


def runs(containers: int) -> bytes:
    """Return a bitmap of containers that are one run each, of all their numbers."""
    body = struct.pack("<QII", 1, 0, 12347 | (containers - 1) << 16) + b"\xff" * ((containers + 7) // 8)
    body += b"".join(struct.pack("<HH", key, 65535) for key in range(containers)) + b"\0\0\0\0" * containers
    return body + struct.pack("<HHH", 1, 0, 65535) * containers


def vector_with(bitmap: bytes) -> bytes:
    body = b"\xd1\xd3\x39\x64" + bitmap
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


@pytest.fixture
def forged(tmp_path) -> CatalogDatabase:
    """Return a lake whose catalog has 2**62 rows for a file of 50, and a vector that deletes millions."""
    catalog = file_catalog("sqlite", tmp_path)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        alone(lake).create_table("main.t", {"id": "int64"})
        lake.append_arrow("main.t", ROWS)
    data = vector_with(runs(CONTAINERS))
    Path(catalog.data_path, "main", "t", "d.puffin").write_bytes(data)
    with closing(sqlite3.connect(catalog.location)) as database, database:
        database.execute("UPDATE ducklake_data_file SET record_count = ?", (2**62,))
        database.execute(
            "INSERT INTO ducklake_delete_file (delete_file_id, table_id, begin_snapshot, data_file_id, path,"
            " path_is_relative, format, delete_count, file_size_bytes) SELECT 900, table_id, begin_snapshot,"
            " data_file_id, 'd.puffin', 1, 'puffin', 5, ? FROM ducklake_data_file",
            (len(data),),
        )
    return catalog


@pytest.mark.parametrize(
    "verb",
    [
        lambda lake: lake.read_arrow("main.t"),
        lambda lake: lake.changes("main.t", 1, lake.current_snapshot().id).read_arrow(),
    ],
    ids=["read", "changes"],
)
def test_a_vector_is_bounded_by_the_rows_that_the_data_file_has(forged, verb):
    before = pa.default_memory_pool().max_memory()

    with (
        Lake.connect(forged.sqlalchemy_url) as lake,
        pytest.raises(StorageError, match="more numbers than the 50 that it may have"),
    ):
        verb(lake)

    assert pa.default_memory_pool().max_memory() - before < 64 * 2**20


def test_containers_of_one_number_are_few_arrays():
    ones = struct.pack("<QII", 1, 0, 12346) + struct.pack("<I", 65536)
    ones += b"".join(struct.pack("<HH", key, 0) for key in range(65536)) + b"\0\0\0\0" * 65536

    many = positions(runs(CONTAINERS), 2**62)
    few = positions(ones + b"\7\0" * 65536, 2**62)

    assert many.chunk(7)[3].as_py() == 7 * 65536 + 3
    assert few.to_pylist() == [(key << 16) + 7 for key in range(65536)]
    assert few.num_chunks < 32


@pytest.mark.parametrize("report", [lambda lake: lake.table_info(), lambda lake: lake.table_health()])
def test_sizes_whose_sum_is_beyond_64_bits_are_no_outage(sqlite_catalog, report):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        alone(lake).create_table("main.t", {"id": "int64"})
        for _ in range(2):
            lake.append_arrow("main.t", ROWS)
        with closing(sqlite3.connect(sqlite_catalog.location)) as database, database:
            database.execute("UPDATE ducklake_data_file SET file_size_bytes = ?", (2**63 - 1,))
        with pytest.raises(CatalogError, match="or a sum is") as caught:
            report(lake)
    assert type(caught.value) is CatalogError  # which no task tries again


@pytest.mark.every_catalog
def test_a_number_that_grows_beyond_64_bits_is_no_refusal_that_a_later_try_may_pass(catalog):
    most = 2**63 - 1
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        alone(lake).create_table("main.t", {"id": "int64"})
        lake.append_arrow("main.t", ROWS)
        engine = create_engine(parse_url(catalog.sqlalchemy_url))
        with engine.begin() as connection:
            connection.execute(text(f"UPDATE ducklake_table_stats SET next_row_id = {most}"))
        engine.dispose()
        with pytest.raises(CatalogError) as caught:
            lake.append_arrow("main.t", ROWS)
        assert not isinstance(caught.value, OUTAGES), caught.value
        assert lake.read_arrow("main.t") == ROWS
