"""What has to work with every version of Airflow, Spark and Python, over every catalog.

``scripts/matrix.py`` runs this file in environments of other versions than the locked ones, so it takes
nothing from Airflow's inside that only some versions have.
"""

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService
from airflow.sdk import DAG

from airflow_provider_ducklake.hooks import compat
from airflow_provider_ducklake.hooks.connection_form import EXTRA_FIELDS
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.operators.compact import DuckLakeSparkMergeAdjacentFilesOperator
from airflow_provider_ducklake.operators.ddl import DuckLakeDDLOperator
from airflow_provider_ducklake.operators.delete import DuckLakeSparkDeleteOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor
from airflow_provider_ducklake.triggers import watcher as poller
from airflow_provider_ducklake.triggers.snapshot import DuckLakeSnapshotTrigger
from tests.airflow.conftest import SetConnection, connection_fields, run_python
from tests.airflow.dags import CAN_RESCHEDULE_IN_PROCESS, DagBag, reschedule_count, sync_dag, xcom
from tests.airflow.services import PATIENCE, events_in, heard, newest, watched
from tests.airflow.spark_submit import ROOT, recorded
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake, opens_1_0

EXAMPLES = ROOT / "example_dags"
ROWS = 2_000  # of an insert: more than are kept in the catalog


def test_every_module_imports():
    imported = run_python(
        """
        import importlib, pkgutil
        import airflow_provider_ducklake as package
        names = [one.name for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
        for name in names:
            if name.endswith(".main"):  # a program
                continue
            try:
                importlib.import_module(name)
            except ModuleNotFoundError as error:  # extras that the locked environment has
                if (error.name or "").partition(".")[0] not in ("pyiceberg", "deltalake"):
                    raise
        print(*names)
        """,
        timeout=600,
    )

    assert "airflow_provider_ducklake.lake.spark.jobs.insert" in imported.split()


def test_airflow_shows_every_field_of_the_connection():
    (shown,) = [meta for meta in HookMetaService.hook_meta_data() if meta.connection_type == "ducklake"]

    assert shown.hook_name == "DuckLake"
    assert list(shown.extra_fields) == [field.name for field in EXTRA_FIELDS]
    assert shown.standard_fields.url_schema.title == "Database"


def test_all_examples_parse():
    bag = DagBag(str(EXAMPLES))

    assert bag.import_errors == {}
    assert len(bag.dags) == len(list(EXAMPLES.glob("*.py")))
    assert all(dag.tags >= {"ducklake"} for dag in bag.dags.values())


@pytest.mark.every_catalog(mariadb="daily", duckdb="daily")
def test_the_connection_can_be_tested(catalog: CatalogDatabase, connect: Callable[..., str]):
    Lake.create(catalog.sqlalchemy_url, catalog.data_path).close()

    is_fine, message = DuckLakeHook(connect(catalog)).test_connection()

    assert is_fine, message


@pytest.mark.every_catalog(sqlite="submits", mariadb="submits", duckdb="submits")
@pytest.mark.usefixtures("airflow_db")
def test_jobs_and_sensors_of_one_dag(
    catalog: CatalogDatabase,
    connect: Callable[..., str],
    set_connection: SetConnection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    connect(catalog, data_path=catalog.data_path)
    set_connection("spark_default", conn_type="spark", host="local[2]")
    recorded(tmp_path / "bin", monkeypatch)

    run = sync_dag(readings_dag(tmp_path)).test()

    assert run.state == "success"
    merged = xcom(run, "merge")
    assert (merged["files_removed"], merged["files_added"]) == (2, 1)
    assert [xcom(run, task)["changes"] for task in ("wait", "look")] == [["delete"], ["insert"]]
    assert (reschedule_count(run, "wait") >= 1) is CAN_RESCHEDULE_IN_PROCESS
    assert_odd_readings(catalog)


def readings_dag(folder: Path) -> DAG:
    """Rows of two tasks are made one file, and half of them are deleted, which a sensor waits for."""
    with DAG("readings", start_date=datetime(2026, 1, 1, tzinfo=UTC), schedule=None) as dag:
        create = DuckLakeDDLOperator(
            task_id="create",
            sql="CREATE TABLE readings (id BIGINT, place VARCHAR, seen TIMESTAMPTZ, value DECIMAL(9, 2))",
            create_lake=True,
        )
        insert = DuckLakeSparkInsertOperator(
            task_id="insert", table="readings", source=written(rows(0), folder / "readings.parquet")
        )
        append = dag.task(appended, task_id="append")()
        merge = DuckLakeSparkMergeAdjacentFilesOperator(task_id="merge", table="readings")
        delete = DuckLakeSparkDeleteOperator(task_id="delete", table="readings", where="id % 2 = 0")
        wait = DuckLakeSnapshotSensor(
            task_id="wait",
            table="readings",
            changes=("delete",),
            mode="reschedule",
            poke_interval=0,
            timeout=600,
        )
        look = DuckLakeSnapshotSensor(
            task_id="look", table="readings", changes=("insert",), mode="poke", poke_interval=1, timeout=60
        )
        create >> insert >> append >> merge >> delete
        append >> look
        (create if CAN_RESCHEDULE_IN_PROCESS else delete) >> wait
    return dag


def rows(first: int) -> pa.Table:
    ids = range(first, first + ROWS)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "place": [f"ü {one % 7}" for one in ids],
            "seen": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * ROWS, pa.timestamp("us", "UTC")),
            "value": pa.array([Decimal(one) for one in ids], pa.decimal128(9, 2)),
        }
    )


def written(table: pa.Table, path: Path) -> str:
    pq.write_table(table, path)
    return str(path)


def appended() -> None:
    """Append rows without Spark, as a task."""
    hook = DuckLakeHook()
    hook.append_arrow("readings", rows(ROWS))
    hook.close()


def assert_odd_readings(catalog: CatalogDatabase) -> None:
    """See that we read the odd ones, and DuckDB too, if this version opens lakes of 1.0."""
    odd = list(range(1, 2 * ROWS, 2))
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        read = lake.read_arrow("readings").sort_by("id").to_pydict()
    assert read["id"] == odd
    assert read["place"] == [f"ü {one % 7}" for one in odd]
    assert [int(one) for one in read["value"]] == odd
    if opens_1_0():
        with open_lake(catalog.attach_string, read_only=True) as reference:
            counted = reference.sql("SELECT count(*), sum(id), sum(value)::BIGINT, min(place) FROM readings")
        assert counted == [(ROWS, sum(odd), sum(odd), "ü 0")]


ORDERS = pa.table({"id": pa.array([1, 2], pa.int32())})


@pytest.fixture
def orders(sqlite_catalog, connect) -> Callable[[], int]:
    """Append two rows to the table `orders`, which is there; return the snapshot."""
    connect(sqlite_catalog)
    with (
        Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake,
        lake.transaction() as tx,
    ):
        tx.create_table("orders", {"id": "int32"})

    def append() -> int:
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            lake.append_arrow("orders", ORDERS)
            return int(lake.current_snapshot().id)

    return append


@pytest.mark.usefixtures("airflow_db")
def test_a_deferred_sensor_hands_on_what_its_trigger_found(orders):
    since = orders()
    with DAG("deferred", start_date=datetime(2026, 1, 1, tzinfo=UTC), schedule=None) as dag:
        DuckLakeSnapshotSensor(
            task_id="wait", table="orders", since=since, deferrable=True, poke_interval=0.1, timeout=PATIENCE
        )
    committed = []

    def commit_when_deferred() -> None:
        end = time.monotonic() + PATIENCE
        while not poller._POLLERS and time.monotonic() < end:
            time.sleep(0.05)
        committed.append(orders())

    elsewhere = threading.Thread(target=commit_when_deferred)
    elsewhere.start()
    run = sync_dag(dag).test()
    elsewhere.join()

    assert run.state == "success"
    assert xcom(run, "wait") == {
        "table": "main.orders",
        "from_snapshot": since,
        "to_snapshot": committed[0],
        "changes": ["insert"],
        "is_complete": True,
    }


@asynccontextmanager
async def watcher(since: int) -> AsyncIterator[list[dict[str, Any]]]:
    """Run a watcher within the block; yield the events that it has made so far."""
    trigger, events = DuckLakeSnapshotTrigger(table="orders", since=since, poll_interval=0.05), []

    async def run() -> None:
        async for event in trigger.run():
            events.append(event.payload)  # noqa: PERF401 - whoever looks sees each at once

    running = asyncio.create_task(run())
    yield events
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_a_watcher_goes_on_where_it_was(orders):
    """Outside a triggerer its watermark is in the lake, as it is everywhere before Airflow 3.3."""
    since = orders()

    async def play() -> list[dict[str, Any]]:
        seen: list[dict[str, Any]] = []
        for _ in range(3):
            newest = await asyncio.to_thread(orders)
            async with watcher(since) as events, asyncio.timeout(PATIENCE):
                while not events or events[-1]["to_snapshot"] < newest:  # noqa: ASYNC110 - no event of its own
                    await asyncio.sleep(0.05)
            seen += events
        return seen

    seen = asyncio.run(play())

    ranges = {one["range_id"]: one for one in seen}
    assert [(one["from_snapshot"], one["to_snapshot"]) for one in ranges.values()] == [
        (since + number, since + number + 1) for number in range(3)
    ]
    assert [one["rows_added"] for one in ranges.values()] == [2, 2, 2]
    assert all(one == ranges[one["range_id"]] for one in seen)


@pytest.mark.services
@pytest.mark.timeout(600)
def test_a_watched_table_starts_runs_of_a_real_airflow(tmp_path, orders, sqlite_catalog):
    """The watermark is in the store of that Airflow, where it has one; a killed triggerer goes on."""
    since = orders()
    with watched(tmp_path, connection_fields(sqlite_catalog), since, 1.0) as (one, consumed):
        first = orders()
        one.wait(lambda: newest(consumed) >= first, PATIENCE, "no run of the first commit")
        one.kill("triggerer")
        second = orders()
        one.start("triggerer")
        more = heard(one, consumed, second, orders)
        events = {event["range_id"]: event for event in events_in(consumed)}
        tables = [name for (name,) in one.query("SELECT name FROM sqlite_master")]
        kept = one.query("SELECT 1 FROM asset_state_store") if "asset_state_store" in tables else []

    assert sum(event["rows_added"] for event in events.values()) == 2 * (2 + more)
    assert more <= 1
    assert min(event["from_snapshot"] for event in events.values()) == since
    assert len(kept) == compat.ACK_STREAMS
    assert has_watermarks(sqlite_catalog) is not compat.ACK_STREAMS


def has_watermarks(catalog: CatalogDatabase) -> bool:
    with sqlite3.connect(catalog.location) as connection:
        query = "SELECT 1 FROM sqlite_master WHERE name = 'airflow_ducklake_watermark'"
        return bool(connection.execute(query).fetchall())
