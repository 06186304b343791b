"""One poll per lake, whoever waits for it; and what becomes of who waits when a catalog does not answer."""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import CatalogUnavailableError
from airflow_provider_ducklake.triggers import watcher
from airflow_provider_ducklake.triggers.snapshot import DuckLakeSnapshotTrigger
from airflow_provider_ducklake.triggers.watcher import LakePoller, LakeThreads, in_own_thread
from tests.interop.lakes import alone
from tests.reference.postgres import libpq
from tests.reference.silent import dropping_server, silent_server

INTERVAL = 0.2
WATCHED = 200


@contextmanager
def logged(catalog) -> Iterator[list[str]]:
    """Yield the statements that PostgreSQL gets for a database within the block, by its own log."""
    server, statements = libpq(int(catalog.server["port"]), "postgres"), []
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE \"{catalog.database}\" SET log_statement = 'all'")
        admin.execute("ALTER SYSTEM SET log_line_prefix = '%d|'")
        admin.execute("SELECT pg_reload_conf()")
        log = Path(admin.execute("SHOW data_directory").fetchone()[0]).parent / "log"
        time.sleep(0.2)
        before = len(log.read_text(errors="replace"))
        yield statements
        text = log.read_text(errors="replace")[before:]
        statements += re.findall(
            rf"^{catalog.database}\|LOG:  (?:statement|execute [^:]*): (.*)", text, re.MULTILINE
        )


def waiting_for(tables: list[str], since: int) -> list[DuckLakeSnapshotTrigger]:
    return [
        DuckLakeSnapshotTrigger(table=table, since=since, poll_interval=INTERVAL, once=True)
        for table in tables
    ]


async def first_event(trigger: DuckLakeSnapshotTrigger) -> dict[str, Any]:
    async for event in trigger.run():
        return event.payload
    raise AssertionError("the trigger ended without an event")


def test_an_error_from_before_somebody_waited_is_not_theirs(sqlite_catalog, connect):
    Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path).close()
    conn_id = connect(sqlite_catalog, data_pth="a mistake")

    async def events() -> list[bool]:
        async with LakePoller.shared(conn_id, INTERVAL) as poller:
            async for polled in poller.polls():
                if polled.error is not None:
                    break
            connect(sqlite_catalog)  # a person corrects it
            (trigger,) = waiting_for(["t"], 0)
            waiting = asyncio.create_task(first_event(trigger))
            async for polled in poller.polls():
                if polled.error is None:
                    break
            still_waits = not waiting.done()
            with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake, lake.transaction() as tx:
                tx.create_table("t", {"i": "int32"})
                tx.append_arrow("t", pa.table({"i": pa.array([1], pa.int32())}))
            return [still_waits, (await waiting)["status"] == "success"]

    assert asyncio.run(events()) == [True, True]


def test_many_who_wait_share_one_statement_per_poll(postgres_catalog, connect):
    connect(postgres_catalog)
    tables = [f"t{number}" for number in range(WATCHED)]
    with Lake.create(postgres_catalog.sqlalchemy_url, postgres_catalog.data_path) as lake:
        with lake.transaction() as tx:
            for table in tables:
                tx.create_table(table, {"id": "int32"})
        since = lake.current_snapshot().id

        async def polls_of_many() -> tuple[list[str], int]:
            waiting = [asyncio.create_task(first_event(one)) for one in waiting_for(tables, since)]
            await asyncio.sleep(0)
            (shared,) = watcher._POLLERS.values()
            calm = 0
            while calm < 10:
                await asyncio.sleep(INTERVAL / 4)
                calm = calm + 1 if shared._in_use <= 1 and shared.known.number else 0
            first = shared.known.number
            with logged(postgres_catalog) as sent:
                await asyncio.sleep(10 * INTERVAL)
            polls = shared.known.number - first
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            return sent, polls

        sent, polls = asyncio.run(polls_of_many())

    assert polls >= 5
    assert abs(len(sent) - polls) <= 1, sent[:5]
    assert watcher._POLLERS == {}


def test_no_connection_is_open_between_polls(postgres_catalog, connect):
    connect(postgres_catalog)
    with Lake.create(postgres_catalog.sqlalchemy_url, postgres_catalog.data_path) as lake:
        alone(lake).create_table("t", {"id": "int32"})

    async def sessions() -> list[int]:
        waiting = asyncio.create_task(first_event(waiting_for(["t"], 1)[0]))
        await asyncio.sleep(2 * INTERVAL)
        found = []
        with psycopg.connect(
            libpq(int(postgres_catalog.server["port"]), "postgres"), autocommit=True
        ) as admin:
            for _ in range(20):
                await asyncio.sleep(INTERVAL / 3)
                query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
                found.append(admin.execute(query, [postgres_catalog.database]).fetchone()[0])
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return found

    assert sorted(asyncio.run(sessions()))[:15] == [0] * 15


def test_who_waits_gets_the_shortest_interval(sqlite_catalog, connect):
    connect(sqlite_catalog)
    Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path).close()

    async def polls() -> int:
        async with LakePoller.shared("ducklake_default", 3600) as slow:
            async for _ in slow.polls():
                break
            async with LakePoller.shared("ducklake_default", 0.02) as fast:
                assert fast is slow
                before = slow.known.number
                await asyncio.sleep(1)
                return slow.known.number - before

    assert asyncio.run(polls()) > 10


def test_a_connection_that_is_gone_ends_the_wait(monkeypatch):
    monkeypatch.delenv("AIRFLOW_CONN_DUCKLAKE_DEFAULT", raising=False)

    event = asyncio.run(first_event(waiting_for(["t"], 1)[0]))

    assert (event["status"], event["is_incurable"]) == ("error", True)
    assert "'ducklake_default' does not exist" in event["message"]


def test_a_catalog_that_is_away_is_waited_for(postgres_catalog, set_connection):
    """Here the connection names another port at first, and is corrected while the trigger waits."""
    with Lake.create(postgres_catalog.sqlalchemy_url, postgres_catalog.data_path) as lake:
        alone(lake).create_table("t", {"id": "int32"})
    server = postgres_catalog.server
    fields = {"host": server["host"], "login": server["user"], "schema": postgres_catalog.database}
    extra = {"catalog_type": "postgres"}
    set_connection(port=1, extra=extra, **fields)
    trigger = DuckLakeSnapshotTrigger(
        table="t", changes=["schema"], since=0, poll_interval=INTERVAL, once=True
    )

    async def waited() -> dict[str, Any]:
        waiting = asyncio.create_task(first_event(trigger))
        await asyncio.sleep(1)
        assert not waiting.done()
        set_connection(port=int(server["port"]), extra=extra, **fields)
        async with asyncio.timeout(60):
            return await waiting

    assert asyncio.run(waited())["xcom"]["changes"] == ["schema"]


def test_a_process_without_a_free_thread_can_ask_again_later(monkeypatch):
    class NoThread(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    async def asked() -> int:
        threads = LakeThreads(at_once=1, seconds=1)
        with monkeypatch.context() as full:
            full.setattr(watcher, "Thread", NoThread)
            with pytest.raises(RuntimeError, match="new thread"):
                await threads.run(int)
        return await threads.run(lambda: 7)

    assert asyncio.run(asked()) == 7


# --- lakes that are dead, each in its way, and what they cost one that is sound ---

DEAD = 6  # of each kind: the threads that asyncio has on a machine of two cores


@contextmanager
def dead_lakes(set_connection) -> Iterator[list[str]]:
    """Name the connections of lakes whose port is closed, silent, or loses what is sent to it."""
    with ExitStack() as servers:
        ports = {
            "refused": 1,
            "silent": servers.enter_context(silent_server()),
            "dropped": servers.enter_context(dropping_server()),
        }
        yield [
            set_connection(
                f"{how}_{kind}_{number}",
                host="127.0.0.1",
                port=port,
                login="ann",
                password="secret",
                schema="lake",
                extra={"catalog_type": kind},
            )
            for how, port in ports.items()
            for kind in ("postgres", "mysql")
            for number in range(DEAD // 2)
        ]


async def polls_of(conn_id: str, seconds: float, enough: int | None) -> int:
    count = 0
    async with LakePoller.shared(conn_id, INTERVAL) as shared:
        try:
            async with asyncio.timeout(seconds):
                async for polled in shared.polls():
                    assert polled.error is None
                    count += 1
                    if count == enough:
                        break
        except TimeoutError:
            pass
    return count


async def beside(dead: list[str], seconds: float, enough: int | None) -> int:
    """Count the polls of the sound lake while others watch the dead ones."""

    async def watch(conn_id: str) -> None:
        async with LakePoller.shared(conn_id, INTERVAL) as shared:
            async for polled in shared.polls():
                assert polled.error is not None

    watching = [asyncio.create_task(watch(one)) for one in dead]
    await asyncio.sleep(0.1)
    try:
        return await polls_of("ducklake_default", seconds, enough)
    finally:
        for one in watching:
            one.cancel()
        await asyncio.gather(*watching, return_exceptions=True)


def polls(dead: list[str], seconds: float, enough: int | None = None) -> int:
    """Count them on a loop of its own; threads that hang do not keep it from ending."""
    found = asyncio.run(beside(dead, seconds, enough))
    assert watcher._POLLERS == {}
    return found


def test_dead_lakes_do_not_stop_the_polls_of_a_sound_one(sqlite_catalog, connect, set_connection):
    connect(sqlite_catalog)
    Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path).close()

    with dead_lakes(set_connection) as dead:
        assert polls(dead, 20.0, enough=5) == 5  # in a second or so, and on a loaded machine in ten


@pytest.mark.soak
def test_dead_lakes_cost_a_sound_one_no_twentieth_of_its_polls(sqlite_catalog, connect, set_connection):
    connect(sqlite_catalog)
    Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path).close()

    alone = polls([], 60.0)
    with dead_lakes(set_connection) as dead:
        assert polls(dead, 60.0) >= 0.95 * alone


def test_threads_that_hang_are_counted_and_use_up_no_more_than_their_lakes_own():
    release, started = threading.Event(), []

    def hang() -> None:
        started.append(threading.current_thread().name)
        release.wait(60)

    async def ask() -> tuple[int, int]:
        threads = LakeThreads(at_once=2, seconds=0.05)
        for _ in range(4):
            with pytest.raises(TimeoutError):
                await threads.run(hang)
        hung = threads.hung
        assert await in_own_thread(lambda: 42) == 42
        release.set()
        async with asyncio.timeout(60):
            while threads.hung:  # noqa: ASYNC110 - it counts, and says nothing
                await asyncio.sleep(0.01)
        assert await threads.run(lambda: 43) == 43
        return hung, len(started)

    assert asyncio.run(ask()) == (2, 2)


def test_a_poll_that_is_not_answered_in_time_is_an_error_of_that_poll(sqlite_catalog, connect, monkeypatch):
    connect(sqlite_catalog)
    Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path).close()
    monkeypatch.setattr(watcher, "_PATIENCE", 0.3)
    hang = threading.Event()

    async def error_of(question: Callable[[Lake], object]) -> tuple[Exception, float]:
        async with LakePoller.shared("ducklake_default", 60) as shared:
            async for _ in shared.polls():
                break
            began = time.monotonic()
            with pytest.raises(CatalogUnavailableError) as raised:
                await shared.ask(question)
            return raised.value, time.monotonic() - began

    error, seconds = asyncio.run(error_of(lambda _: hang.wait(60)))
    hang.set()

    assert "connection ducklake_default" in str(error)
    assert "hold a thread: 1" in str(error)
    assert seconds < 30
