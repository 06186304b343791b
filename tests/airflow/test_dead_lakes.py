"""A triggerer with lakes that are dead, each in its way, and one that is sound: what they cost that one."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import CatalogUnavailableError
from airflow_provider_ducklake.triggers import watcher
from airflow_provider_ducklake.triggers.watcher import LakePoller, LakeThreads, in_own_thread
from tests.reference.silent import dropping_server, silent_server

INTERVAL = 0.2
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
