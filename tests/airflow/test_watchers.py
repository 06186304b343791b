"""Watchers that are stopped at any moment, or whose table, catalog or watermark is not as it should be.

Every change is in one range, or repeated with that one's id.
"""

import asyncio
import json
import random
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import structlog

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.ledger.consumers import WATERMARKS
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.triggers.snapshot import DuckLakeSnapshotTrigger
from tests.airflow.conftest import connection_fields
from tests.airflow.test_snapshot_sensor import (
    commit_to,
    elsewhere,  # noqa: F401 - a fixture
)
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


async def stop_and_go(
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

    asyncio.run(stop_and_go(stopped, lambda: trigger_of(since=before), commits, draw))

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


# --- tables, catalogs and watermarks that are not as they should be ---

PATIENCE = 120
Commit = Callable[[str], Any]


@pytest.fixture
def commit(sqlite_catalog, connect, elsewhere) -> Commit:  # noqa: F811
    """Commit by DuckDB in another process; await the newest snapshot's id."""
    connect(sqlite_catalog)

    async def commit(sql: str) -> int:
        return await asyncio.wrap_future(elsewhere.submit(commit_to, sqlite_catalog, sql))

    return commit


@pytest.fixture
def said() -> Iterator[Callable[[str], list[str]]]:
    """Return the lines of the log that contain a text."""
    with structlog.testing.capture_logs() as entries:
        yield lambda text: [line for entry in entries if text in (line := _line(entry))]


def _line(entry: Any) -> str:
    arguments = entry.get("positional_args", ())
    return entry["event"] % arguments if arguments else entry["event"]


@asynccontextmanager
async def watching(trigger: DuckLakeSnapshotTrigger) -> AsyncIterator[list[dict[str, Any]]]:
    """Run a watcher within the block; yield the events that it has made so far."""
    events: list[dict[str, Any]] = []

    async def run() -> None:
        async for event in trigger.run():
            events.append(event.payload)  # noqa: PERF401 - whoever looks sees each at once

    running = asyncio.create_task(run())
    try:
        yield events
        assert not running.done(), "a watcher never ends"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(is_so: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not is_so():  # noqa: ASYNC110 - what it asks makes no event
            await asyncio.sleep(INTERVAL)


async def some_polls() -> None:
    await asyncio.sleep(10 * INTERVAL)


def stored(catalog) -> list[Any]:
    """Return the states of all watchers; none where no watcher has stored any."""
    with sqlite3.connect(catalog.location) as connection:
        if not connection.execute(f"SELECT 1 FROM sqlite_master WHERE name = '{WATERMARKS.name}'").fetchall():
            return []
        return [json.loads(row[0]) for row in connection.execute(f"SELECT state FROM {WATERMARKS.name}")]


def store(catalog, state: Any) -> None:
    """Write a state over the stored ones; a string as it is."""
    text = state if isinstance(state, str) else json.dumps(state)
    with sqlite3.connect(catalog.location, timeout=30) as connection:
        connection.execute(f"UPDATE {WATERMARKS.name} SET state = ?", [text])


def test_a_table_that_comes_late_goes_and_comes_again(commit, said):
    """Each time is logged once, not at each poll."""

    async def play() -> list[dict[str, Any]]:
        before = await commit("CREATE TABLE others (id INT)")
        async with watching(trigger_of(since=before)) as events:
            await until(lambda: said("Table main.orders is not in the lake"))
            await some_polls()
            await commit("INSERT INTO others VALUES (1)")
            await some_polls()
            assert events == []
            await commit("CREATE TABLE orders (id INT); INSERT INTO orders VALUES (1), (2)")
            await until(lambda: events)
            await commit("DROP TABLE orders")
            await until(lambda: said("Table main.orders is gone from the lake"))
            await some_polls()
            assert sum(one["rows_added"] for one in events) == 2
            gone = len(events)
            await commit("CREATE TABLE orders (id INT, n INT); INSERT INTO orders VALUES (3, 3)")
            await until(lambda: len(events) > gone)
            await until(lambda: len(said("Table main.orders is in the lake of")) == 2)
            return events

    *first, last = asyncio.run(play())

    assert [one["recreated"] for one in first] == [False] * len(first)
    assert (last["recreated"], last["rows_added"], last["is_complete"]) == (True, 1, True)
    assert [len(said(f"main.orders {how}")) for how in ("is not in", "is gone from", "is in")] == [1, 1, 2]
    assert not said("Waiting for the lake")


def test_a_table_that_is_created_again_while_no_watcher_runs(commit):
    async def play() -> dict[str, Any]:
        before = await commit(SETUP)
        async with watching(trigger_of(since=before)):
            await some_polls()
        at = await commit("DROP TABLE orders; CREATE TABLE orders (id INT); INSERT INTO orders VALUES (1)")
        async with watching(trigger_of(since=before)) as events:
            await until(lambda: events)
            assert (events[0]["from_snapshot"], events[0]["to_snapshot"]) == (before, at)
            return events[0]

    assert asyncio.run(play())["recreated"] is True


EXPIRE = "CALL ducklake_expire_snapshots('lake', versions => [{}])"


@pytest.mark.parametrize("after", ["INSERT INTO others VALUES (9)", "INSERT INTO orders VALUES (9)"])
def test_an_event_says_that_history_has_expired(commit, after):
    """Also if no snapshot that is left says anything of the table."""

    async def play() -> tuple[int, int, dict[str, Any]]:
        before = await commit(SETUP)
        async with watching(trigger_of(since=before)):
            await some_polls()
        lost = await commit("INSERT INTO orders VALUES (1)")
        newest = await commit(after)
        await commit(EXPIRE.format(lost))
        async with watching(trigger_of(since=before)) as events:
            await until(lambda: events)
            await some_polls()
            assert len(events) == 1
        return before, newest, events[0]

    before, newest, event = asyncio.run(play())

    assert (event["from_snapshot"], event["to_snapshot"]) == (before, newest)
    assert (event["is_complete"], event["rows_added"], event["partitions"]) == (False, None, None)
    assert "insert" in event["changes"]


def test_a_snapshot_that_expires_between_two_polls_is_told(commit):
    async def play() -> list[dict[str, Any]]:
        before = await commit(SETUP)
        lost, newest = before + 1, before + 2
        async with watching(trigger_of(since=before)) as events:
            await some_polls()
            await commit(
                "INSERT INTO orders VALUES (1); INSERT INTO others VALUES (1);" + EXPIRE.format(lost)
            )
            await until(lambda: events and events[-1]["to_snapshot"] >= lost)
            assert events[-1]["to_snapshot"] <= newest
            return events

    assert len(asyncio.run(play())) == 1


def set_time(catalog, snapshot: int, time: datetime) -> None:
    """Have a snapshot say another time, as a client whose clock is wrong writes it."""
    with sqlite3.connect(catalog.location, timeout=30) as connection:
        done = connection.execute(
            "UPDATE ducklake_snapshot SET snapshot_time = ? WHERE snapshot_id = ?",
            [time.strftime("%Y-%m-%d %H:%M:%S.%f+00"), snapshot],
        )
        assert done.rowcount == 1


def test_a_start_by_time_goes_by_the_times_that_snapshots_say(commit, sqlite_catalog):
    """Where a watcher is it knows by id: later commits count, whatever time they say."""

    async def play() -> tuple[int, list[dict[str, Any]]]:
        before = await commit(SETUP)
        ahead = await commit("INSERT INTO orders VALUES (1)")
        now = datetime.now(UTC) + timedelta(seconds=1)  # on the triggerer
        set_time(sqlite_catalog, ahead, now + timedelta(hours=1))
        async with watching(trigger_of(since=now.isoformat())) as events:
            await until(lambda: events)
            assert (events[0]["from_snapshot"], events[0]["to_snapshot"]) == (before, ahead)
            behind = await commit("INSERT INTO others VALUES (2); INSERT INTO orders VALUES (2)")
            set_time(sqlite_catalog, behind, now - timedelta(hours=1))
            await until(lambda: events[-1]["to_snapshot"] == behind)
        async with watching(trigger_of(since=now.isoformat())) as again:
            last = await commit("INSERT INTO orders VALUES (3)")
            set_time(sqlite_catalog, last, now - timedelta(hours=2))
            await until(lambda: again and again[-1]["to_snapshot"] == last)
        return last, events + again

    last, events = asyncio.run(play())

    ranges = {one["range_id"]: one for one in events}.values()
    assert sum(one["rows_added"] for one in ranges) == 3
    assert max(one["to_snapshot"] for one in ranges) == last


def test_a_connection_that_is_gone_is_waited_for(commit, sqlite_catalog, set_connection, monkeypatch, said):
    async def play() -> None:
        before = await commit(SETUP)
        trigger = trigger_of(since=before, ducklake_conn_id="gone")
        async with watching(trigger) as events:
            await until(lambda: said("Waiting for the lake of gone"))
            await some_polls()
            set_connection("gone", **connection_fields(sqlite_catalog))
            await until(lambda: said("The lake of gone answers again"))
            await commit("INSERT INTO orders VALUES (1)")
            await until(lambda: events)
        monkeypatch.delenv("AIRFLOW_CONN_GONE")
        async with watching(trigger):
            await until(lambda: len(said("Waiting for the lake of gone")) == 2)

    asyncio.run(play())

    assert len(said("Waiting for the lake of gone")) == 2
    for line in said("Waiting for the lake of gone"):
        assert "InvalidInputError: The lake's connection 'gone' does not exist. Create it" in line


def test_watchers_of_other_arguments_have_watermarks_of_their_own(commit, sqlite_catalog):
    async def play() -> list[list[dict[str, Any]]]:
        before = await commit(SETUP)
        several = [
            trigger_of(since=before),
            trigger_of(since=before, poll_interval=3 * INTERVAL),
            trigger_of(since=before, changes=("delete",)),
        ]
        async with watching(several[0]) as one, watching(several[1]) as two, watching(several[2]) as three:
            await commit("INSERT INTO orders VALUES (1), (2)")
            await until(lambda: one and two)
            await commit("DELETE FROM orders WHERE id = 1")
            await until(lambda: len(one) + len(two) >= 4 and three)
            return [one, two, three]

    one, two, three = asyncio.run(play())

    for events in (one, two):
        assert sum(event["rows_added"] for event in events) == 2
        assert sum(event["rows_deleted"] for event in events) == 1
    assert [event["changes"] for event in three] == [["delete"]]
    assert len(stored(sqlite_catalog)) == 3


def test_a_watcher_that_another_one_doubles_waits_and_says_so(commit, said):
    """Airflow makes one trigger of equal ones; here are two, that would move one watermark."""

    async def play() -> None:
        before = await commit(SETUP)
        async with watching(trigger_of(since=before)) as first:
            await some_polls()
            async with watching(trigger_of(since=before)) as second:
                await until(lambda: said("Another watcher of this asset"))
                await commit("INSERT INTO orders VALUES (1)")
                await until(lambda: first)
                await some_polls()
                assert second == []
        async with watching(trigger_of(since=before)) as third:
            await until(lambda: third)
            assert third == first  # the last event once more

    asyncio.run(play())

    (line,) = said("Another watcher of this asset")
    assert "Remove one of the two" in line


@pytest.mark.parametrize(
    "state",
    ["garbage", "{", '"text"', {}, {"snapshot": -5, "table_id": 1, "pending": []}, {"snapshot": 10**30}],
)
def test_garbage_in_place_of_the_watermark_is_told_and_can_be_put_right(commit, sqlite_catalog, said, state):
    async def play() -> list[dict[str, Any]]:
        before = await commit(SETUP)
        async with watching(trigger_of(since=before)):
            await until(lambda: stored(sqlite_catalog))
        (good,) = stored(sqlite_catalog)
        store(sqlite_catalog, state)
        async with watching(trigger_of(since=before)) as events:
            await until(lambda: said("is not a watermark"))
            await commit("INSERT INTO orders VALUES (1)")
            await some_polls()
            assert events == []
            store(sqlite_catalog, good)
            await until(lambda: events)
            return events

    (event,) = asyncio.run(play())

    assert event["rows_added"] == 1
    (line,) = said("is not a watermark")
    assert "airflow_ducklake_watermark where watcher = '" in line
    assert "Delete it" in line


def test_a_watermark_after_the_lakes_newest_snapshot_makes_an_incomplete_event(commit, sqlite_catalog):
    """As after a backup was restored: what came in between and is gone, nobody knows."""

    async def play() -> tuple[int, list[dict[str, Any]]]:
        before = await commit(SETUP)
        async with watching(trigger_of(since=before)):
            await until(lambda: stored(sqlite_catalog))
        store(sqlite_catalog, {"snapshot": before + 1000, "table_id": 1, "pending": []})
        async with watching(trigger_of(since=before)) as events:
            await until(lambda: events)
            await commit("INSERT INTO orders VALUES (1)")
            await until(lambda: len(events) == 2)
        return before, events

    before, (first, second) = asyncio.run(play())

    assert (first["from_snapshot"], first["to_snapshot"]) == (before + 1000, before)
    assert first["is_complete"] is False
    assert (second["from_snapshot"], second["rows_added"]) == (before, 1)


def test_a_table_of_another_lake_is_told_as_created_again(commit, sqlite_catalog):
    """The watermark is of a lake in which the table had another id."""

    async def play() -> list[dict[str, Any]]:
        before = await commit(SETUP)
        async with watching(trigger_of(since=before)):
            await until(lambda: stored(sqlite_catalog))
        store(sqlite_catalog, {"snapshot": before, "table_id": 77, "pending": []})
        async with watching(trigger_of(since=before)) as events:
            await some_polls()
            await commit("INSERT INTO orders VALUES (2)")
            await until(lambda: events)
            await commit("INSERT INTO orders VALUES (3)")
            await until(lambda: len(events) == 2)
        return events

    assert [event["recreated"] for event in asyncio.run(play())] == [True, False]


def test_rows_that_come_long_after_the_table_was_created_again_are_of_another_table(commit):
    async def play() -> dict[str, Any]:
        before = await commit(SETUP)
        async with watching(trigger_of(since=before)) as events:
            for sql in ("DROP TABLE orders", "CREATE TABLE orders (id INT)", "INSERT INTO orders VALUES (1)"):
                await some_polls()
                await commit(sql)
            await until(lambda: events)
            return events[0]

    assert asyncio.run(play())["recreated"] is True
