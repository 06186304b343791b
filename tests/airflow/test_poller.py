"""One poll per lake, whoever waits for it; and what becomes of who waits when the catalog does not answer."""

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.triggers import watcher
from airflow_provider_ducklake.triggers.snapshot import DuckLakeSnapshotTrigger
from airflow_provider_ducklake.triggers.watcher import LakePoller, LakeThreads
from tests.reference.postgres import libpq

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
    with (
        Lake.create(postgres_catalog.sqlalchemy_url, postgres_catalog.data_path) as lake,
        lake.transaction() as tx,
    ):
        tx.create_table("t", {"id": "int32"})

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
    with (
        Lake.create(postgres_catalog.sqlalchemy_url, postgres_catalog.data_path) as lake,
        lake.transaction() as tx,
    ):
        tx.create_table("t", {"id": "int32"})
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
