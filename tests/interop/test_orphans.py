"""Files that no row of the lake names go, by their age, and none that somebody may still need."""

import os
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from uuid6 import uuid7

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.ledger.jobs import SubmittedJob
from airflow_provider_ducklake.lake.errors import SharedDataPathError, StorageError, UntrustedValueError
from airflow_provider_ducklake.lake.format.snapshots import SnapshotId
from airflow_provider_ducklake.lake.planning.upkeep.files import MARK
from tests.interop.lakes import by_duckdb
from tests.interop.test_cleanup import files, run_sql, write_history
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.both_versions

NO_TIME = timedelta(0)
UUID = "0198c0de-0000-7000-8000-000000000000"


@pytest.fixture
def lake(catalog: CatalogDatabase) -> Iterator[Lake]:
    write_history(catalog)
    with Lake.connect(catalog.sqlalchemy_url) as opened:
        yield opened


@pytest.fixture
def sqlite_lake(sqlite_catalog: CatalogDatabase) -> Iterator[Lake]:
    write_history(sqlite_catalog)
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as opened:
        yield opened


def plant(catalog: CatalogDatabase, *names: str) -> list[str]:
    """Write files below the data path; return their paths."""
    paths = [Path(catalog.data_path) / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"PAR1")
    wait()
    return [str(path) for path in paths]


def wait() -> None:
    """Let the file system's clock go on, so that what follows is later than what was before."""
    time.sleep(0.02)


def marks(catalog: CatalogDatabase) -> set[str]:
    return {path for path in files(catalog) if MARK in path}


LEFT = (
    f"main/t/ducklake-{UUID}.parquet",
    "main/t/no_name_of_ours.parquet",
    "main/t/k=a%20b/old.PARQUET",
    f"main/t/ducklake-{UUID}-delete.puffin",
    f"main/t/ducklake-{UUID}/part-00000.json",
    f"main/t/ducklake-{UUID}/_temporary/0/x",
    f"main/t/k=1/.ducklake-{UUID}-1.parquet.crc",
    "main/t/.0123456789abcdef.tmp",
    "top.parquet",
)
OTHERS = ("main/t/readme.txt", "data.csv", "main/t/x.parquet.bak", ".hidden", "main/_delta_log/0.json")


def test_what_writes_left_behind_goes_and_all_else_stays(catalog, lake):
    before = files(catalog)
    left, others = plant(catalog, *LEFT), plant(catalog, *OTHERS)

    planned = lake.delete_orphaned_files(older_than=NO_TIME, dry_run=True)
    assert files(catalog) == before | {*left, *others}
    done = lake.delete_orphaned_files(older_than=NO_TIME)

    assert sorted(planned.deleted) == sorted(done.deleted) == sorted(left)
    assert (done.bytes, done.failures, planned.evidence) == (4 * len(left), (), None)
    assert files(catalog) - marks(catalog) == before | {*others}
    assert lake.delete_orphaned_files(older_than=NO_TIME).deleted == ()
    assert lake.read_arrow("t", at=2).num_rows == 5


def test_the_same_parquet_files_are_orphans_as_for_the_reference(catalog, lake):
    lake.expire_snapshots(keep_last=2)  # scheduled files are no orphans
    plant(catalog, "main/t/a.parquet", "main/t/k=1/b.parquet", "main/c.parquet")
    theirs = by_duckdb(
        catalog, "CALL ducklake_delete_orphaned_files('lake', cleanup_all => true, dry_run => true)"
    )

    ours = lake.delete_orphaned_files(older_than=NO_TIME, dry_run=True)

    assert sorted(ours.deleted) == sorted(path for (path,) in theirs)
    assert len(theirs) == 3


@pytest.mark.every_catalog(mariadb="daily", duckdb="daily")
@pytest.mark.drawn(one_in=1)
def test_every_catalog_finds_its_orphans(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
            tx.append_arrow("t", pa.table({"i": pa.array(range(20), pa.int64())}))
        lake.jobs.register("00000000-0000-7000-8000-000000000001", f"{catalog.data_path}main/t/x/")
        (left,) = plant(catalog, LEFT[0])

        assert lake.delete_orphaned_files(older_than=NO_TIME).deleted == (left,)
        assert lake.delete_orphaned_files(older_than=NO_TIME).deleted == ()
        assert lake.read_arrow("t").num_rows == 20


def test_young_files_stay(lake, catalog):
    planted = plant(catalog, "main/t/a.parquet")

    assert lake.delete_orphaned_files().young == 1  # 2 days, unless the option says something else
    assert lake.delete_orphaned_files(older_than=timedelta(hours=1)).young == 1
    assert {*planted} <= files(catalog)

    moment = datetime.now(UTC)
    wait()
    (later,) = plant(catalog, "main/t/later.parquet")
    assert lake.delete_orphaned_files(older_than=moment).deleted == tuple(planted)
    assert later in files(catalog)


def test_a_file_that_was_moved_there_is_young_whatever_its_time_says(sqlite_lake, sqlite_catalog, tmp_path):
    moment = datetime.now(UTC)
    old = tmp_path / "old.parquet"
    old.write_bytes(b"PAR1")
    os.utime(old, (0, 0))
    wait()
    old.rename(f"{sqlite_catalog.data_path}main/t/old.parquet")

    assert sqlite_lake.delete_orphaned_files(older_than=moment).young == 1


def test_files_of_jobs_that_may_still_commit_stay(lake, catalog):
    job_id, done, given_up = (str(uuid7()) for _ in range(3))
    root = f"{catalog.data_path}main/t/"
    for one in (job_id, done, given_up):
        lake.jobs.register(one, f"{root}ducklake-{one}/")
    lake.jobs.release(given_up)
    kept = plant(catalog, f"main/t/ducklake-{job_id}/a.parquet", f"main/t/k=1/ducklake-{job_id}-b.parquet")
    gone = plant(catalog, f"main/t/ducklake-{given_up}/a.parquet")

    result = lake.delete_orphaned_files(older_than=NO_TIME)

    assert (result.protected, result.deleted) == (2, tuple(gone))
    assert {*kept} <= files(catalog)


def test_nobody_can_commit_what_a_clean_up_has_given_up(lake, catalog):
    job_id = str(uuid7())
    lake.jobs.register(job_id, f"{catalog.data_path}main/t/ducklake-{job_id}/")
    (path,) = plant(catalog, f"main/t/ducklake-{job_id}/a.parquet")

    planned = lake.delete_orphaned_files(older_than=NO_TIME, stage_ttl=NO_TIME, dry_run=True)
    assert lake.jobs.registered([job_id])[job_id].released_at is None
    done = lake.delete_orphaned_files(older_than=NO_TIME, stage_ttl=NO_TIME)

    assert (planned.protected, done.deleted) == (1, (path,))
    assert lake.jobs.registered([job_id])[job_id].released_at is not None
    assert not lake.jobs.release(job_id)


def test_jobs_released_long_ago_are_forgotten(sqlite_lake, sqlite_catalog):
    old, recent = str(uuid7()), str(uuid7())
    for one in (old, recent):
        sqlite_lake.jobs.register(one, f"{sqlite_catalog.data_path}main/t/ducklake-{one}/")
        sqlite_lake.jobs.note_submitted(
            SubmittedJob(one, "k" * 64, 1, "1", SnapshotId(0), f"d{one}/", "0" * 64, "here", "1")
        )
        sqlite_lake.jobs.release(one)
    run_sql(
        sqlite_catalog,
        "UPDATE airflow_ducklake_job SET released_at = '2020-01-01 00:00:00+00' WHERE job_id = :id",
        id=old,
    )

    sqlite_lake.delete_orphaned_files()

    assert sqlite_lake.jobs.registered([old, recent]).keys() == {recent}
    assert [one["job_id"] for one in dump_catalog(sqlite_catalog)["airflow_ducklake_application"]] == [recent]


SPELLINGS = {
    "two slashes": lambda path: path.replace("/t/", "//t/"),
    "dots": lambda path: path.replace("/t/", "/./x/../t/"),
    "percent signs": lambda path: path.replace("ducklake", "%64uckl%61ke"),
    "a scheme": lambda path: f"file://{path}",
    "capitals": lambda path: path.replace("/main/", "/MAIN/"),
    "another mount": lambda path: "/mnt/elsewhere/" + path.rpartition("/")[2],
}


@pytest.mark.parametrize("spell", SPELLINGS.values(), ids=SPELLINGS)
@pytest.mark.parametrize("kind", ["data_file", "delete_file", "files_scheduled_for_deletion"])
def test_a_file_is_known_by_any_spelling(sqlite_lake, sqlite_catalog, spell, kind):
    sqlite_lake.expire_snapshots(keep_last=1) if kind.startswith("files") else None
    dump = dump_catalog(sqlite_catalog)
    row = dump[f"ducklake_{kind}"][0]
    full = sqlite_catalog.data_path + ("" if kind.startswith("files") else "main/t/") + row["path"]
    run_sql(
        sqlite_catalog,
        f"UPDATE ducklake_{kind} SET path = :spelt, path_is_relative = 0 WHERE path = :path",
        spelt=spell(full),
        path=row["path"],
    )

    assert sqlite_lake.delete_orphaned_files(older_than=NO_TIME).deleted == ()
    assert Path(full).exists()


def test_links_are_not_followed(sqlite_lake, sqlite_catalog, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine.parquet").write_bytes(b"PAR1")
    root = Path(sqlite_catalog.data_path)
    (root / "main" / "t" / "link").symlink_to(outside)
    (root / "main" / "t" / "link.parquet").symlink_to(outside / "mine.parquet")
    wait()

    assert sqlite_lake.delete_orphaned_files(older_than=NO_TIME).deleted == ()
    assert (outside / "mine.parquet").exists()


def test_what_links_below_the_data_path_lead_to_stays(sqlite_lake, sqlite_catalog):
    landing = Path(sqlite_catalog.data_path) / "landing"
    (landing / "2026-01").mkdir(parents=True)
    for name in ("linked_directory", "linked_file", "unknown"):
        pq.write_table(pa.table({"i": pa.array([7], pa.int32())}), landing / "2026-01" / f"{name}.parquet")
    (landing / "latest").symlink_to("2026-01")
    (landing / "file.parquet").symlink_to(landing / "2026-01" / "linked_file.parquet")
    pq.write_table(pa.table({"i": pa.array([7], pa.int32())}), landing / "garbage.parquet")
    rows = sqlite_lake.row_count("t")
    with sqlite_lake.transaction() as tx:
        tx.add_data_files("t", [str(landing / "latest" / "linked_directory.parquet")])
        tx.add_data_files("t", [str(landing / "file.parquet")])
    wait()

    done = sqlite_lake.delete_orphaned_files(older_than=NO_TIME)

    assert done.deleted == (str(landing / "garbage.parquet"),)
    assert done.protected == 3  # which of them the lake names is not looked into
    assert sqlite_lake.read_arrow("t").num_rows == rows + 2


@pytest.mark.only_1_0("no reader of 1.1 takes such a catalog")
def test_a_file_without_a_path_has_nothing_deleted(sqlite_lake, sqlite_catalog):
    run_sql(sqlite_catalog, "UPDATE ducklake_data_file SET path = NULL")
    wait()

    with pytest.raises(UntrustedValueError, match="is not a string"):
        sqlite_lake.delete_orphaned_files(older_than=NO_TIME)


def second_lake(first: CatalogDatabase, data_path: str, table: str) -> CatalogDatabase:
    """Another lake, by the reference, with a data path of our choosing."""
    catalog = CatalogDatabase("sqlite", f"{first.location}.second", data_path)
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        reference.sql(f"CREATE TABLE {table} AS FROM range(3)")
        for number in range(12):
            reference.sql(f"INSERT INTO {table} VALUES ({number})")
    wait()
    return catalog


@pytest.mark.parametrize("table", ["t", "other"])
@pytest.mark.parametrize("below", ["", "main/nested/"])
def test_a_data_path_of_two_lakes_is_refused_by_both(sqlite_lake, sqlite_catalog, table, below):
    second = second_lake(sqlite_catalog, sqlite_catalog.data_path + below, table)
    before = files(sqlite_catalog)

    planned = sqlite_lake.delete_orphaned_files(older_than=NO_TIME, dry_run=True)
    with pytest.raises(SharedDataPathError, match="may be shared with another lake"):
        sqlite_lake.delete_orphaned_files(older_than=NO_TIME)
    assert planned.evidence is not None

    with Lake.connect(second.sqlalchemy_url) as other:
        if not below:
            with pytest.raises(SharedDataPathError, match="contains the mark of another lake"):
                other.delete_orphaned_files(older_than=NO_TIME, sole_owner=True)
    assert files(sqlite_catalog) - marks(sqlite_catalog) == before


@pytest.mark.parametrize("directory", ["", "main/t/"])  # the first as a migration from 0.1 leaves it
def test_a_lake_below_the_directory_of_a_table_is_no_part_of_it(sqlite_catalog, directory):
    by_duckdb(sqlite_catalog, "CREATE TABLE t (i BIGINT)")
    for kind in () if directory else ("schema", "table"):
        run_sql(sqlite_catalog, f"UPDATE ducklake_{kind} SET path = ''")
    by_duckdb(sqlite_catalog, "INSERT INTO t FROM range(20)")
    below = f"{sqlite_catalog.data_path}{directory}second/"
    second = CatalogDatabase("sqlite", f"{sqlite_catalog.location}.second", below)
    by_duckdb(second, "CREATE TABLE u AS SELECT 42 AS i", data_inlining_row_limit=0)
    (left,) = plant(sqlite_catalog, f"{directory}k=a%2Fb/ducklake-{UUID}.parquet")

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        with pytest.raises(SharedDataPathError, match="second/main/u/"):
            lake.delete_orphaned_files(older_than=NO_TIME)
        assert by_duckdb(second, "FROM u") == [(42,)]
        shutil.rmtree(below)
        assert lake.delete_orphaned_files(older_than=NO_TIME).deleted == (left,)
        assert lake.read_arrow("t").num_rows == 20


def test_copies_of_files_that_jobs_wrote_are_not_left_over(sqlite_catalog):
    """A backup below the data path has files of the same names."""
    by_duckdb(sqlite_catalog, "CREATE TABLE t (i BIGINT); INSERT INTO t VALUES (1)")
    place = Path(sqlite_catalog.data_path)
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        lake.flush_inlined_data()
        shutil.copytree(place / "main", place / "backup/main")
        before = files(sqlite_catalog)
        wait()

        with pytest.raises(SharedDataPathError, match="backup/main/t/"):
            lake.delete_orphaned_files(older_than=NO_TIME)

    assert files(sqlite_catalog) - marks(sqlite_catalog) == before


def test_whoever_owns_the_data_path_alone_may_say_so(sqlite_lake, sqlite_catalog):
    (left,) = plant(sqlite_catalog, f"main/never_made/ducklake-{UUID}.parquet")

    with pytest.raises(SharedDataPathError, match=r"main/never_made/ \(1\)"):
        sqlite_lake.delete_orphaned_files(older_than=NO_TIME)
    assert sqlite_lake.delete_orphaned_files(older_than=NO_TIME, sole_owner=True).deleted == (left,)


def test_files_of_a_job_of_ours_are_ours_wherever_they_lie(sqlite_lake, sqlite_catalog):
    job_id = str(uuid7())
    sqlite_lake.jobs.register(job_id, f"{sqlite_catalog.data_path}main/new/ducklake-{job_id}/")
    sqlite_lake.jobs.release(job_id)
    (left,) = plant(sqlite_catalog, f"main/new/ducklake-{job_id}/a.parquet")

    assert sqlite_lake.delete_orphaned_files(older_than=NO_TIME).deleted == (left,)


def test_a_copy_of_the_catalog_is_refused_and_so_is_a_backup(sqlite_lake, sqlite_catalog):
    sqlite_lake.delete_orphaned_files()
    copy = f"{sqlite_catalog.location}.copy"
    shutil.copy(sqlite_catalog.location, copy)
    sqlite_lake.delete_orphaned_files()
    sqlite_lake.append_arrow("t", pa.table({"i": pa.array([1], pa.int32())}))
    before = files(sqlite_catalog)
    wait()

    with (
        Lake.connect(f"sqlite:///{copy}") as stale,
        pytest.raises(SharedDataPathError, match="by a copy of this catalog, or by a newer state"),
    ):
        stale.delete_orphaned_files(older_than=NO_TIME, sole_owner=True)

    assert files(sqlite_catalog) == before
    sqlite_lake.delete_orphaned_files(older_than=NO_TIME)
    (mark,) = marks(sqlite_catalog)
    Path(mark).unlink()  # as the error advises
    with Lake.connect(f"sqlite:///{copy}") as stale:
        assert stale.delete_orphaned_files().deleted == ()


@pytest.mark.parametrize("length", [60_000, 2**31])
def test_a_mark_that_is_none_is_refused_and_not_read_if_it_is_long(sqlite_lake, sqlite_catalog, length):
    sqlite_lake.delete_orphaned_files()
    (mark,) = marks(sqlite_catalog)
    with Path(mark).open("wb") as file:
        file.write(b'{"token":' + b"[" * 50_000)
        file.truncate(length)

    with pytest.raises((SharedDataPathError, StorageError), match=Path(mark).name):
        sqlite_lake.delete_orphaned_files()

    Path(mark).unlink()  # as the error advises
    sqlite_lake.delete_orphaned_files()
