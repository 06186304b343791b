"""Clocks that disagree: a writer's and the store's with the server's, and one that goes back."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from uuid6 import uuid7

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

ROWS = pa.table({"i": pa.array(range(20), pa.int64())})
HOUR = timedelta(hours=1)
OFF = [timedelta(hours=5), timedelta(hours=-5)]
# In the place of PostgreSQL's own, as no search path leads elsewhere: only a superuser can do so.
CLOCK = """
SET allow_system_table_mods = on;
ALTER FUNCTION pg_catalog.clock_timestamp() RENAME TO true_clock_timestamp;
CREATE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
$$ SELECT pg_catalog.true_clock_timestamp() + interval '{seconds} seconds' $$
"""


@pytest.fixture(params=OFF, ids=["ahead", "behind"])
def off(request) -> timedelta:
    """How far the server's clock is ahead of the writer's."""
    return request.param


@pytest.fixture
def lake(postgres_catalog: CatalogDatabase, off: timedelta) -> Iterator[Lake]:
    with psycopg.connect(postgres_catalog.location, autocommit=True) as admin:
        admin.execute(CLOCK.format(seconds=off.total_seconds()))
    with Lake.create(postgres_catalog.sqlalchemy_url, postgres_catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
        yield lake


def is_near(time: datetime, expected: datetime) -> bool:
    return abs(time - expected) < timedelta(minutes=10)


def files(lake: Lake) -> set[str]:
    return {str(one) for one in Path(lake.data_path).rglob("*.parquet")}


def test_snapshots_have_the_servers_time_and_are_found_by_it(lake, off):
    committed = lake.append_arrow("t", ROWS)

    assert is_near(committed.time, datetime.now(UTC) + off)
    assert lake.snapshot_at(committed.time).id == committed.id
    times = [one.time for one in lake.snapshots()]
    assert times == sorted(times)


def test_what_expires_and_is_deleted_is_old_by_the_servers_clock(lake):
    for _ in range(2):
        lake.append_arrow("t", ROWS)
    with lake.transaction() as tx:
        tx.truncate("t")
    before = files(lake)

    assert lake.expire_snapshots(older_than=HOUR).snapshots == ()
    assert lake.expire_snapshots(keep_last=1).data_files == 2
    assert lake.cleanup_old_files(older_than=HOUR).deleted == ()
    assert files(lake) == before
    assert len(lake.cleanup_old_files(older_than=timedelta(0)).deleted) == 2


def test_a_file_that_somebody_is_writing_is_young_by_whatever_clock(lake):
    lake.append_arrow("t", ROWS)
    young = Path(lake.data_path) / "main" / "t" / f"ducklake-{uuid7()}.parquet"
    young.write_bytes(b"PAR1")

    done = lake.delete_orphaned_files(older_than=HOUR)

    assert (done.deleted, done.young) == ((), 1)
    assert young.exists()


def test_a_registered_job_is_protected_by_the_servers_clock(lake):
    directory = f"{lake.data_path}main/t/ducklake-job/"
    lake.jobs.register("job", directory)

    assert lake.jobs.protected_prefixes(HOUR) == {directory}
    assert lake.jobs.protected_prefixes(timedelta(0)) == frozenset()


def test_after_a_clock_that_was_ahead_times_go_on_as_the_reference_reads_them(sqlite_catalog):
    """A file has no clock of its own: a writer whose clock is ahead, then one whose clock is not."""
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
        moments = [datetime.now(UTC)]
        ahead = lake.append_arrow("t", ROWS).id
        moments.append(set_ahead(sqlite_catalog, ahead, timedelta(hours=5)))
        now = lake.append_arrow("t", ROWS)
        moments += [now.time, now.time + HOUR]

        assert now.time >= moments[1]
        counts = [lake.row_count("t", at=one) for one in moments]
        assert lake.expire_snapshots(older_than=timedelta(0)).snapshots[-1].id < ahead
        assert lake.verify() == []

    assert counts[0] == 0
    assert counts[2:] == [40, 40]
    with open_lake(sqlite_catalog) as reference:
        for time, count in zip(moments[1:], counts[1:], strict=True):
            query = f"SELECT count(*) FROM t AT (TIMESTAMP => '{time.isoformat()}'::TIMESTAMPTZ)"
            assert reference.sql(query) == [(count,)]


def set_ahead(catalog: CatalogDatabase, snapshot_id: int, by: timedelta) -> datetime:
    """Let a snapshot be of a writer whose clock is ahead; return the time it has then."""
    with closing(sqlite3.connect(catalog.location)) as database:
        (text,) = database.execute(
            "SELECT snapshot_time FROM ducklake_snapshot WHERE snapshot_id = ?", [snapshot_id]
        ).fetchone()
        time = datetime.fromisoformat(text) + by
        database.execute(
            "UPDATE ducklake_snapshot SET snapshot_time = ? WHERE snapshot_id = ?",
            [f"{time:%Y-%m-%d %H:%M:%S.%f}+00", snapshot_id],
        )
        database.commit()
    return time
