"""The sensor on lakes that the reference client changes: what wakes it, since when, in each mode."""

import asyncio
import json
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from airflow.sdk import PokeReturnValue
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.operators.health import DuckLakeTableHealthOperator
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor
from airflow_provider_ducklake.triggers.snapshot import DuckLakeSnapshotTrigger, described, last_change
from tests.airflow.dags import (
    new_dag,
    parse,
    reschedule_count,
    run_once,
    start_run,
    state_of,
    succeeded,
    sync_dag,
    xcom,
)
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

pytestmark = pytest.mark.usefixtures("airflow_db")
Commit = Callable[[str], int]

CREATE = "CREATE SCHEMA sales; CREATE TABLE sales.orders (id INT, amount INT)"
MANY_ROWS = "INSERT INTO sales.orders SELECT i, i * 2 FROM range({}, {}) t(i)"


def commit_to(catalog: CatalogDatabase, sql: str) -> int:
    """Run statements in the reference client, each a commit of its own, and return the newest snapshot id."""
    with open_lake(catalog) as lake:
        for statement in duckdb.extract_statements(sql):
            _commit(lake, statement.query)
        ((newest,),) = lake.sql("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")
        return newest


def _commit(lake: DuckLakeConnection, statement: str, tries: int = 5) -> None:
    """Run a statement, again where DuckDB does not wait for SQLite's lock: a watcher notes its watermark."""
    try:
        lake.sql(statement)
    except duckdb.TransactionException as error:
        if "database is locked" not in str(error) or tries == 1:
            raise
        time.sleep(0.1)
        _commit(lake, statement, tries - 1)


@pytest.fixture
def commit(catalog: CatalogDatabase, connect: Callable[..., str]) -> Commit:
    connect(catalog)
    return lambda sql: commit_to(catalog, sql)


@pytest.fixture
def sqlite_commit(sqlite_catalog: CatalogDatabase, connect: Callable[..., str]) -> Commit:
    connect(sqlite_catalog)
    return lambda sql: commit_to(sqlite_catalog, sql)


def look(since: Any = None, run_started: datetime | None = None, **arguments: Any) -> PokeReturnValue:
    arguments = {"task_id": "wait", "table": "sales.orders", "since": since, **arguments}
    run = SimpleNamespace(start_date=run_started, run_after=run_started)
    return DuckLakeSnapshotSensor(**arguments).poke({"dag_run": run})


def found(since: Any, **arguments: Any) -> tuple[list[str], int, int] | None:
    looked = look(since, **arguments)
    assert bool(looked) is (looked.xcom_value is not None)
    if not looked:
        return None
    assert looked.xcom_value["table"] == "sales.orders"
    return looked.xcom_value["changes"], looked.xcom_value["from_snapshot"], looked.xcom_value["to_snapshot"]


ALL = ("data", "schema")


@pytest.mark.parametrize(
    ("sql", "changes"),
    [
        ("INSERT INTO sales.orders VALUES (1000, 1)", ["insert"]),
        (MANY_ROWS.format(500, 550), ["insert"]),
        ("DELETE FROM sales.orders WHERE id = 1", ["delete"]),
        ("DELETE FROM sales.orders WHERE id < 40", ["delete"]),
        ("UPDATE sales.orders SET amount = 0 WHERE id = 2", ["delete", "insert"]),
        ("ALTER TABLE sales.orders ADD COLUMN note VARCHAR", ["schema"]),
        ("CALL ducklake_merge_adjacent_files('lake')", None),
        ("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)", None),
        ("CALL ducklake_flush_inlined_data('lake')", None),
        ("CREATE TABLE sales.refunds (id INT); INSERT INTO sales.refunds VALUES (1)", None),
    ],
    ids=[
        "inlined insert",
        "insert into a file",
        "inlined delete",
        "delete into a file",
        "update",
        "schema change",
        "merge of adjacent files",
        "rewrite of deletes",
        "flush of inlined rows and deletes",
        "another table",
    ],
)
def test_what_each_kind_of_commit_means_to_the_sensor(commit, sql, changes):
    before = commit(
        f"{CREATE}; {MANY_ROWS.format(0, 50)}; {MANY_ROWS.format(100, 150)}; {MANY_ROWS.format(200, 250)};"
        "DELETE FROM sales.orders WHERE id BETWEEN 20 AND 45; DELETE FROM sales.orders WHERE id = 10;"
        "INSERT INTO sales.orders VALUES (2000, 2)"
    )

    after = commit(sql)

    assert after > before, "the statement commits a snapshot, else this test shows nothing"
    if changes is None:
        assert found(before, changes=ALL) is None
    else:
        words, start, end = found(before, changes=ALL)
        assert (sorted(words), start, end) == (changes, before, after)


def test_data_means_inserts_and_deletes_and_not_the_schema(commit):
    created = commit(CREATE)
    altered = commit("ALTER TABLE sales.orders ADD COLUMN note VARCHAR")

    assert found(created) is None
    assert found(created, changes=["schema"]) == (["schema"], created, altered)

    inserted = commit("INSERT INTO sales.orders VALUES (1, 1, 'new')")

    assert found(altered) == (["insert"], altered, inserted)
    assert found(altered, changes=["delete"]) is None
    assert found(inserted) is None


def test_everything_since_then_comes_in_one_answer(commit):
    created = commit(CREATE)
    commit(MANY_ROWS.format(0, 20))
    commit("ALTER TABLE sales.orders ADD COLUMN note VARCHAR")
    last = commit("DELETE FROM sales.orders WHERE id < 15")

    words, start, end = found(created, changes=ALL)

    assert (sorted(words), start, end) == (["delete", "insert", "schema"], created, last)


def test_a_table_that_does_not_exist_yet_is_waited_for(commit):
    before = commit("CREATE SCHEMA other")
    assert found(before) is None

    after = commit(f"{CREATE}; INSERT INTO sales.orders VALUES (1, 1)")

    assert found(before) == (["insert"], before, after)


def test_a_time_counts_from_the_newest_snapshot_at_or_before_it(sqlite_commit):
    sqlite_commit(CREATE)
    first = sqlite_commit("INSERT INTO sales.orders VALUES (1, 1)")
    between = datetime.now(UTC)
    second = sqlite_commit("INSERT INTO sales.orders VALUES (2, 2)")

    assert found(between) == (["insert"], first, second)
    assert found(between.isoformat()) == (["insert"], first, second)
    assert found(between.astimezone().isoformat(sep=" ")) == (["insert"], first, second)
    assert found(datetime.now(UTC)) is None
    assert found(str(first)) == (["insert"], first, second)


def test_without_since_the_start_of_the_dag_run_counts(sqlite_commit):
    sqlite_commit(f"{CREATE}; INSERT INTO sales.orders VALUES (1, 1)")
    started = datetime.now(UTC)
    assert found(None, run_started=started) is None

    after = sqlite_commit("INSERT INTO sales.orders VALUES (2, 2)")

    assert found(None, run_started=started) == (["insert"], after - 1, after)


def test_a_time_before_the_first_snapshot_means_from_the_beginning(sqlite_commit):
    last = sqlite_commit(f"{CREATE}; INSERT INTO sales.orders VALUES (1, 1)")

    assert found(datetime(2001, 1, 1, tzinfo=UTC)) == (["insert"], 0, last)


def test_when_older_snapshots_expired_a_time_before_the_oldest_means_from_the_oldest(sqlite_commit):
    sqlite_commit(CREATE)
    first = sqlite_commit("INSERT INTO sales.orders VALUES (1, 1)")
    sqlite_commit("INSERT INTO sales.orders VALUES (2, 2); INSERT INTO sales.orders VALUES (3, 3)")
    last = sqlite_commit("CALL ducklake_expire_snapshots('lake', versions => [0, 1, 2, 3])")
    assert first == 3

    assert found(datetime(2001, 1, 1, tzinfo=UTC)) == (["insert"], first, last)


async def first_event(trigger: DuckLakeSnapshotTrigger) -> dict[str, Any]:
    async with asyncio.timeout(60), aclosing(trigger.run()) as events:
        return (await anext(events)).payload


@pytest.mark.parametrize("expired", ["2, 3", "0, 1, 2, 3"])
def test_what_an_expired_snapshot_may_have_done_counts(sqlite_commit, expired):
    created = sqlite_commit(CREATE)
    started = datetime.now(UTC)
    sqlite_commit("INSERT INTO sales.orders VALUES (1, 1); CREATE TABLE sales.refunds (id INT)")
    assert look(created).xcom_value["is_complete"] is True
    newest = sqlite_commit(f"CALL ducklake_expire_snapshots('lake', versions => [{expired}])")
    assert newest == created + 2

    by_id, by_time = look(created), look(run_started=started)
    trigger = DuckLakeSnapshotTrigger(table="sales.orders", since=created, poll_interval=0.05, once=True)

    changes = {"table": "sales.orders", "changes": ["delete", "insert"], "is_complete": False}
    assert by_id.xcom_value == changes | {"from_snapshot": created, "to_snapshot": newest}
    assert by_time.xcom_value.items() >= changes.items()
    assert asyncio.run(first_event(trigger))["xcom"] == by_id.xcom_value
    assert found(newest) is None


def test_expired_snapshots_before_the_start_do_not_count(sqlite_commit):
    sqlite_commit(f"{CREATE}; INSERT INTO sales.orders VALUES (1, 1)")
    newest = sqlite_commit("CREATE TABLE sales.refunds (id INT)")
    sqlite_commit("CALL ducklake_expire_snapshots('lake', versions => [0, 1, 2, 3])")

    assert found(newest - 1) is None
    assert found(datetime.now(UTC)) is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"changes": ("inserts",)}, "inserts"),
        ({"changes": ()}, "changes=()"),
        ({"since": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001 - the point
        ({"since": "2026-01-01T00:00:00"}, "no time zone"),
        ({"since": ""}, "not a valid ISO time"),
        ({"since": "None"}, "not a valid ISO time"),
        ({"since": -1}, "since is -1"),
        ({"since": True}, "since is True"),
        ({"since": 1.5}, "since is 1.5"),
        ({"since": 2**63}, "has 64 bits"),
        ({"since": "9" * 30}, "has 64 bits"),
        ({"since": "0001-01-01T00:00:00+14:00"}, "years 1 to 9999"),
        ({"since": datetime.fromisoformat("9999-12-31T23:59:59-14:00")}, "years 1 to 9999"),
        ({"table": ""}, "as a name"),
        ({"table": "a..c"}, "as a name"),
    ],
)
def test_bad_input_fails_the_task_before_the_lake_is_asked(arguments, said):
    """No connection is set: reaching for the lake would be another error."""
    with pytest.raises(AirflowFailException, match=r"^Invalid") as raised:
        look(**{"run_started": datetime.now(UTC), **arguments})

    assert said in str(raised.value)


def test_bad_input_fails_even_a_sensor_that_swallows_errors():
    sensor = DuckLakeSnapshotSensor(
        task_id="wait", table="sales.orders", changes=["nonsense"], silent_fail=True
    )

    with pytest.raises(AirflowFailException):
        sensor.execute({})


DAG_FILE = """
from datetime import UTC, datetime
from airflow.sdk import DAG
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor

with DAG("{dag_id}", start_date=datetime(2024, 1, 1, tzinfo=UTC), schedule=None):
    DuckLakeSnapshotSensor(
        task_id="wait",
        table="{{{{ params.table }}}}",
        mode="reschedule",
        poke_interval=0,
        timeout=60,
        params={{"table": "sales.orders"}},
    )
"""


def test_rescheduled_looks_by_fresh_operators_agree_on_when_the_run_started(commit, catalog, tmp_path):
    commit(
        f"{CREATE}; {MANY_ROWS.format(0, 30)}; {MANY_ROWS.format(30, 60)}; {MANY_ROWS.format(60, 90)};"
        "DELETE FROM sales.orders WHERE id = 1"
    )
    file = tmp_path / "wait.py"
    file.write_text(DAG_FILE.format(dag_id=f"wait_{catalog.kind}"))
    run = start_run(sync_dag(parse(file)))
    operators = []

    def look_again() -> str:
        operators.append(parse(file).task_dict["wait"])
        return run_once(run, operators[-1])

    assert look_again() == "up_for_reschedule"
    commit("CALL ducklake_flush_inlined_data('lake')")
    assert look_again() == "up_for_reschedule"
    commit("CALL ducklake_merge_adjacent_files('lake')")
    assert look_again() == "up_for_reschedule"
    before = commit("ALTER TABLE sales.orders ADD COLUMN note VARCHAR")
    assert look_again() == "up_for_reschedule"
    last = commit("DELETE FROM sales.orders WHERE id = 2")
    assert look_again() == "success"

    handed_on = xcom(run, "wait")
    assert handed_on["from_snapshot"] < before < handed_on["to_snapshot"] == last
    assert (handed_on["table"], handed_on["changes"]) == ("sales.orders", ["delete"])
    assert reschedule_count(run, "wait") == 4
    assert len({id(operator) for operator in operators}) == len(operators) == 5


def test_a_rescheduled_sensor_wakes_within_a_whole_dag_run(sqlite_commit):
    sqlite_commit(CREATE)
    with new_dag("wait_and_write") as dag:
        DuckLakeSnapshotSensor(
            task_id="wait", table="sales.orders", mode="reschedule", poke_interval=0, timeout=60
        )
        write = None
        for number, sql in enumerate(
            [
                "CREATE TABLE sales.refunds (id INT)",
                "ALTER TABLE sales.orders ADD COLUMN note VARCHAR",
                "INSERT INTO sales.orders VALUES (1, 1, 'x')",
            ]
        ):
            following = dag.task(sqlite_commit, task_id=f"write_{number}")(sql)
            if write is not None:
                write >> following
            write = following

    run = succeeded(dag)

    assert reschedule_count(run, "wait") >= 2
    assert xcom(run, "wait")["changes"] == ["insert"]


def test_a_poking_sensor_wakes_within_its_one_execution(sqlite_commit, monkeypatch):
    sqlite_commit(CREATE)
    to_come = [
        "CREATE TABLE sales.refunds (id INT)",
        "ALTER TABLE sales.orders ADD COLUMN note VARCHAR",
        "INSERT INTO sales.orders VALUES (1, 1, 'x')",
    ]

    class Clock:
        """Time passes by commits."""

        monotonic = staticmethod(lambda: 0.0)
        sleep = staticmethod(lambda _: sqlite_commit(to_come.pop(0)))

    monkeypatch.setattr("airflow.sdk.bases.sensor.time", Clock)
    with new_dag("wait_poking") as dag:
        DuckLakeSnapshotSensor(task_id="wait", table="sales.orders")

    run = sync_dag(dag).test()

    assert to_come == []
    assert (state_of(run, "wait"), reschedule_count(run, "wait")) == ("success", 0)
    assert xcom(run, "wait")["changes"] == ["insert"]


def test_each_run_can_go_on_where_the_last_one_stopped(sqlite_commit):
    """The recipe of docs/sensor.md."""
    first = sqlite_commit(f"{CREATE}; INSERT INTO sales.orders VALUES (1, 1)")
    before = (
        "{{ (ti.xcom_pull(task_ids='wait', include_prior_dates=True) or {'to_snapshot': 0})['to_snapshot'] }}"
    )
    with new_dag("wait_on_and_on") as dag:
        DuckLakeSnapshotSensor(task_id="wait", table="sales.orders", since=before)
    sync_dag(dag)
    day = datetime(2026, 1, 1, tzinfo=UTC)

    seen = xcom(dag.test(logical_date=day), "wait")
    second = sqlite_commit("INSERT INTO sales.orders VALUES (2, 2); DELETE FROM sales.orders WHERE id = 1")
    seen_next = xcom(dag.test(logical_date=day + timedelta(days=1)), "wait")

    assert (seen["from_snapshot"], seen["to_snapshot"]) == (0, first)
    assert (seen_next["from_snapshot"], seen_next["to_snapshot"]) == (first, second)
    assert sorted(seen_next["changes"]) == ["delete", "insert"]


def test_a_wrong_word_fails_the_task_without_a_retry(sqlite_commit):
    sqlite_commit(CREATE)
    with new_dag("wait_wrongly") as dag:
        DuckLakeSnapshotSensor(task_id="wait", table="sales.orders", changes=["inserts"], retries=3)

    run = sync_dag(dag).test()

    assert (run.state, state_of(run, "wait")) == ("failed", "failed")


# --- poke, reschedule and deferrable: one decision, so the same answer for the same lake ---

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


# --- when the rows of a table last changed, as a missed deadline reports it ---

RUN = {"dag_run_id": "r1", "state": "running", "run_after": "2026-11-25T05:00:00Z"}


@pytest.fixture
def lake(sqlite_catalog):
    commit_to(sqlite_catalog, "CREATE TABLE others (id INT)")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        yield lake


def test_the_newest_change_of_rows_counts_and_nothing_else(lake, sqlite_catalog):
    commit_to(sqlite_catalog, "CREATE TABLE orders (id INT); INSERT INTO orders VALUES (1), (2)")
    changed = commit_to(sqlite_catalog, "DELETE FROM orders WHERE id = 1")
    commit_to(sqlite_catalog, "INSERT INTO others VALUES (1); ALTER TABLE orders ADD COLUMN name TEXT")

    found = last_change(lake, "orders")

    assert (found.snapshot_id, found.is_expired) == (changed, False)
    assert found.time == lake.snapshot_at(changed).time


def test_of_an_expired_change_only_the_oldest_snapshot_is_known(lake, sqlite_catalog):
    changed = commit_to(sqlite_catalog, "CREATE TABLE orders (id INT); INSERT INTO orders VALUES (1)")
    kept = commit_to(sqlite_catalog, "INSERT INTO others VALUES (1)")
    commit_to(
        sqlite_catalog, f"CALL ducklake_expire_snapshots('lake', versions => {list(range(changed + 1))})"
    )

    found = last_change(lake, "orders")

    assert (found.snapshot_id, found.is_expired) == (kept, True)
    assert "orders is not fresh: not changed since snapshot" in described("orders", found, RUN)


def test_a_table_that_does_not_exist_is_not_fresh(lake):
    found = last_change(lake, "orders")

    assert found is None
    assert described("orders", found, RUN).startswith(
        "orders is not fresh: it does not exist. The run r1, of"
    )


def test_a_table_that_has_not_changed_for_too_long_fails_the_task_of_its_health(sqlite_catalog, connect):
    commit_to(sqlite_catalog, "CREATE TABLE orders (id INT); INSERT INTO orders VALUES (1)")
    connect(sqlite_catalog)

    def health(hours):
        limits = {"hours_since_change": hours}
        return DuckLakeTableHealthOperator(task_id="health", fail_above=limits).execute({})

    (table,) = health(26)["tables"]
    assert 0 <= table["hours_since_change"] < 1
    with pytest.raises(AirflowFailException, match=r"orders has not changed for .* hours, more than -1"):
        health(-1)
