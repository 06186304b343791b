"""Poke, reschedule and deferrable: one decision, so the same answer for the same lake."""

import asyncio
import json
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor
from airflow_provider_ducklake.triggers.snapshot import DuckLakeSnapshotTrigger
from tests.airflow.test_snapshot_sensor import CREATE, MANY_ROWS, commit_to

INTERVAL = 0.05  # seconds between two polls
PATIENCE = 240

COMMITS = {
    "an inlined insert": "INSERT INTO sales.orders VALUES (1000, 1)",
    "an insert into a file": MANY_ROWS.format(500, 550),
    "an inlined delete": "DELETE FROM sales.orders WHERE id = 1",
    "a delete into a file": "DELETE FROM sales.orders WHERE id < 40",
    "an update": "UPDATE sales.orders SET amount = 0 WHERE id = 2",
    "a column": "ALTER TABLE sales.orders ADD COLUMN note VARCHAR",
    "upkeep": "CALL ducklake_merge_adjacent_files('lake'); CALL ducklake_flush_inlined_data('lake')",
    "another table": "CREATE TABLE sales.refunds (id INT); INSERT INTO sales.refunds VALUES (1)",
    "a new table of the name": (
        "DROP TABLE sales.orders; CREATE TABLE sales.orders (id INT, amount INT);"
        "INSERT INTO sales.orders VALUES (7, 7)"
    ),
    "a table that takes the name": (
        "CREATE TABLE sales.other (id INT, amount INT); INSERT INTO sales.other VALUES (5, 5);"
        "DROP TABLE sales.orders; ALTER TABLE sales.other RENAME TO orders"
    ),
}
WANTED = {"data": ("data",), "schema": ("schema",), "all": ("insert", "delete", "schema")}
DECISIVE = (
    "INSERT INTO sales.orders (id) VALUES (3000); DELETE FROM sales.orders WHERE id = 3000 OR id < 8;"
    "ALTER TABLE sales.orders ADD COLUMN decisive INT"
)
SCENARIOS = [
    pytest.param(COMMITS[commit], WANTED[wanted], since, id=f"{commit}, {wanted}, since {since}")
    for commit in COMMITS
    for wanted in WANTED
    for since in ("snapshot", "start of run")
]


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Executor]:
    """A process of its own for DuckDB: two copies of SQLite in one process break each other's locks."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        yield executor


def context_of(start: datetime) -> Any:
    return {"dag_run": SimpleNamespace(start_date=start, run_after=start)}


def sensor_of(**arguments: Any) -> DuckLakeSnapshotSensor:
    return DuckLakeSnapshotSensor(task_id="wait", table="sales.orders", poke_interval=INTERVAL, **arguments)


def deferred(sensor: DuckLakeSnapshotSensor, context: Any) -> DuckLakeSnapshotTrigger:
    """Return the trigger that the triggerer would make of what the task handed it."""
    with pytest.raises(TaskDeferred) as raised:
        sensor.execute(context)
    assert raised.value.method_name == "execute_complete"
    path, arguments = raised.value.trigger.serialize()
    assert path == "airflow_provider_ducklake.triggers.snapshot.DuckLakeSnapshotTrigger"
    return DuckLakeSnapshotTrigger(**json.loads(json.dumps(arguments)))


async def event_of(trigger: DuckLakeSnapshotTrigger) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        async for event in trigger.run():
            return event.payload
    raise AssertionError("the trigger ended without an event")


async def followed(
    trigger: DuckLakeSnapshotTrigger, steps: Iterable[Callable[[], dict[str, Any] | None]]
) -> dict[str, Any]:
    """Take steps while the trigger waits, and return its event.

    Each step returns what a poke after it hands on: the trigger goes on waiting if that is nothing, and else
    hands on the same.
    """
    waiting = asyncio.create_task(event_of(trigger))
    for step in steps:
        await asyncio.sleep(4 * INTERVAL)
        assert not waiting.done()
        expected = await asyncio.to_thread(step)
        if expected is not None:
            assert await waiting == {"status": "success", "xcom": expected}
            return waiting.result()
    raise AssertionError("no step was anything to hand on")


def test_a_deferred_sensor_waits_for_what_comes_after_a_tag(sqlite_catalog, connect, elsewhere):
    connect(sqlite_catalog)
    before = commit_to(sqlite_catalog, f"{CREATE}; INSERT INTO sales.orders VALUES (1, 1)")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        lake.tag("q3-close")
    context = context_of(datetime.now(UTC))
    arguments = {"changes": ("insert",), "since": "tag:q3-close"}
    trigger = deferred(sensor_of(**arguments, deferrable=True), context)

    def committed() -> dict[str, Any] | None:
        elsewhere.submit(commit_to, sqlite_catalog, COMMITS["an inlined insert"]).result(PATIENCE)
        return sensor_of(**arguments).poke(context).xcom_value

    event = asyncio.run(followed(trigger, [committed]))
    assert (event["xcom"]["from_snapshot"], event["xcom"]["to_snapshot"]) == (before, before + 1)


@pytest.mark.drawn(one_in=4)
@pytest.mark.parametrize(("sql", "changes", "since"), SCENARIOS)
def test_the_three_modes_hand_the_same_on(sqlite_catalog, connect, elsewhere, sql, changes, since):
    """Upkeep and other tables wake nobody; the statements after them do."""
    connect(sqlite_catalog)
    before = commit_to(
        sqlite_catalog,
        f"{CREATE}; {MANY_ROWS.format(0, 50)}; {MANY_ROWS.format(100, 150)};"
        "DELETE FROM sales.orders WHERE id = 10; INSERT INTO sales.orders VALUES (2000, 2)",
    )
    context = context_of(datetime.now(UTC))
    arguments = {"changes": changes, "since": before if since == "snapshot" else None}
    deferring = sensor_of(**arguments, deferrable=True)

    def poked() -> dict[str, Any] | None:
        answers = [sensor_of(**arguments, mode=mode).poke(context) for mode in ("poke", "reschedule")]
        assert answers[0].xcom_value == answers[1].xcom_value
        return answers[0].xcom_value

    def committed(sql: str) -> Callable[[], dict[str, Any] | None]:
        at_once = sql if "CALL" in sql else f"BEGIN; {sql}; COMMIT"

        def commit_and_poke() -> dict[str, Any] | None:
            elsewhere.submit(commit_to, sqlite_catalog, at_once).result(PATIENCE)
            return poked()

        return commit_and_poke

    assert poked() is None
    trigger = deferred(deferring, context)

    event = asyncio.run(followed(trigger, [committed(sql), committed(DECISIVE)]))

    handed_on = deferring.execute_complete(context, event)
    assert (handed_on["table"], handed_on["from_snapshot"]) == ("sales.orders", before)
    assert handed_on == poked() == deferring.execute(context)  # at the first look
    assert asyncio.run(event_of(trigger)) == event
