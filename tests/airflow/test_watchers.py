"""Watchers that are stopped at any moment: every change is in one range, or repeated with that one's id."""

import asyncio
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.triggers.snapshot import DuckLakeSnapshotTrigger
from tests.airflow.test_sensor_modes import elsewhere  # noqa: F401 - a fixture
from tests.airflow.test_snapshot_sensor import commit_to
from tests.reference.catalogs import CatalogDatabase

INTERVAL = 0.05
SETUP = "CREATE TABLE orders (id INT); CREATE TABLE others (id INT); INSERT INTO orders VALUES (0)"


def trigger_of(**arguments: Any) -> DuckLakeSnapshotTrigger:
    return DuckLakeSnapshotTrigger(**{"table": "orders", "poll_interval": INTERVAL, **arguments})


class Stopped:
    """Runs watchers, one after the other, and keeps their events."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.starts = 0

    async def run(self, trigger: DuckLakeSnapshotTrigger) -> None:
        self.starts += 1
        async for event in trigger.run():
            self.events.append(event.payload)


async def watched(
    stopped: Stopped,
    make: Callable[[], DuckLakeSnapshotTrigger],
    commits: list[Callable[[], int]],
    draw: random.Random,
) -> None:
    """Commit while a watcher runs that is stopped and started again at drawn moments."""
    for commit in commits:
        running = asyncio.create_task(stopped.run(make()))
        await asyncio.sleep(draw.uniform(0, 4 * INTERVAL))
        newest = await asyncio.to_thread(commit)
        await asyncio.sleep(draw.uniform(0, 4 * INTERVAL))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    running = asyncio.create_task(stopped.run(make()))
    async with asyncio.timeout(60):
        while not stopped.events or stopped.events[-1]["to_snapshot"] < newest:  # noqa: ASYNC110 - no event
            await asyncio.sleep(INTERVAL)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.kills
def test_a_watcher_that_is_stopped_at_any_moment_leaves_nothing_out(sqlite_catalog, connect, elsewhere, seed):  # noqa: F811
    connect(sqlite_catalog)
    draw, before = random.Random(seed), commit_to(sqlite_catalog, SETUP)
    commits = [
        commit_of(
            sqlite_catalog,
            elsewhere,
            f"INSERT INTO {table} VALUES ({number}); INSERT INTO orders VALUES (-1)",
        )
        for number in range(1, 21)
        for table in [draw.choice(["orders", "others"])]
    ]
    stopped = Stopped()

    asyncio.run(watched(stopped, lambda: trigger_of(since=before), commits, draw))

    ranges = {one["range_id"]: one for one in stopped.events}
    assert all(one == ranges[one["range_id"]] for one in stopped.events)
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        feed = lake.changes("orders", before + 1, lake.current_snapshot().id).read_arrow()
    covered = Counter(
        snapshot
        for one in ranges.values()
        for snapshot in range(one["from_snapshot"] + 1, one["to_snapshot"] + 1)
    )
    assert set(covered.values()) == {1}
    assert set(feed["snapshot_id"].to_pylist()) <= set(covered)
    assert sum(one["rows_added"] for one in ranges.values()) == feed.num_rows
    repeats = len(stopped.events) - len(ranges)
    assert repeats < stopped.starts


def commit_of(catalog: CatalogDatabase, elsewhere, sql: str) -> Callable[[], int]:  # noqa: F811
    return lambda: elsewhere.submit(commit_to, catalog, sql).result(60)


def test_mistakes_are_explained_while_the_dag_is_parsed():
    for arguments, said in (
        ({"table": "a..b"}, "as a name"),
        ({"changes": ["inserts"]}, "inserts"),
        ({"since": "yesterday"}, "not a valid ISO time"),
        ({"once": True}, "since is None"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            trigger_of(**arguments)


def stored_watchers(catalog: CatalogDatabase) -> set[str]:
    with closing(sqlite3.connect(catalog.location)) as connection:
        tables = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'airflow_ducklake_watermark'")
        if tables.fetchone() is None:
            return set()
        return {row[0] for row in connection.execute("SELECT watcher FROM airflow_ducklake_watermark")}


async def stopped_soon(
    trigger: DuckLakeSnapshotTrigger, is_ready: Callable[[], bool] = lambda: True
) -> list[dict[str, Any]]:
    stopped = Stopped()
    running = asyncio.create_task(stopped.run(trigger))
    await asyncio.sleep(20 * INTERVAL)
    async with asyncio.timeout(60):
        while not is_ready():  # noqa: ASYNC110 - no event
            await asyncio.sleep(INTERVAL)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return stopped.events


def test_watchers_of_other_arguments_and_other_airflows_do_not_share_a_watermark(sqlite_catalog, connect):
    connect(sqlite_catalog)
    before = commit_to(sqlite_catalog, SETUP)

    def run_until_stored(count: int, **arguments: Any) -> None:
        stored = lambda: len(stored_watchers(sqlite_catalog)) == count  # noqa: E731 - of this count
        asyncio.run(stopped_soon(trigger_of(since=before, **arguments), stored))

    run_until_stored(1)
    run_until_stored(2, poll_interval=2 * INTERVAL)
    connect(sqlite_catalog, commit_namespace="another Airflow")
    run_until_stored(3)

    assert len(stored_watchers(sqlite_catalog)) == 3


def test_a_start_to_come_is_waited_for_over_restarts(sqlite_catalog, connect, elsewhere):  # noqa: F811
    connect(sqlite_catalog)
    before = commit_to(sqlite_catalog, SETUP)
    insert = commit_of(sqlite_catalog, elsewhere, "INSERT INTO orders VALUES (1)")

    assert asyncio.run(stopped_soon(trigger_of(since=before + 2))) == []
    assert asyncio.run(stopped_soon(trigger_of(since=before + 2))) == []
    for _ in range(2):
        insert()
        assert asyncio.run(stopped_soon(trigger_of(since=before + 2))) == []
    insert()
    (event,) = asyncio.run(stopped_soon(trigger_of(since=before + 2)))

    assert (event["from_snapshot"], event["to_snapshot"]) == (before + 2, before + 3)
    assert (event["rows_added"], event["is_complete"]) == (1, True)
