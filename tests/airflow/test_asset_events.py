"""Which asset events tasks make, in runs of real DAGs: one of each table they changed, and of no other."""

import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import airflow
import pyarrow as pa
import pytest
from airflow.models.asset import AssetEvent, AssetModel
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, AssetWatcher, task
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_provider_ducklake.assets.ducklake import create_asset, table_of, uri_of
from airflow_provider_ducklake.hooks import compat
from airflow_provider_ducklake.hooks.events import announce
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.planning.reading.watch import RangeReport, event_of
from airflow_provider_ducklake.operators.compact import DuckLakeSparkMergeAdjacentFilesOperator
from airflow_provider_ducklake.operators.ddl import DuckLakeDDLOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from airflow_provider_ducklake.operators.merge import DuckLakeSparkMergeOperator
from airflow_provider_ducklake.operators.restore import DuckLakeRestoreOperator
from airflow_provider_ducklake.operators.sql import DuckLakeSparkSQLOperator
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor
from airflow_provider_ducklake.triggers.snapshot import DuckLakeSnapshotTrigger
from tests.airflow.conftest import connection_fields
from tests.airflow.dags import DROPS_USERS, sync_dag
from tests.airflow.services import PATIENCE, SERVICES, Airflow, events_in, heard, newest, watched
from tests.airflow.test_snapshot_sensor import commit_to
from tests.reference.catalogs import CatalogDatabase

START = datetime(2024, 1, 1, tzinfo=UTC)
NUMBERS = itertools.count()


@pytest.fixture
def conn_id(sqlite_catalog, set_connection) -> str:
    """A connection of its own for each test: assets outlive tests."""
    return set_connection(f"lake_{next(NUMBERS)}", **connection_fields(sqlite_catalog))


@pytest.fixture
def lake(sqlite_catalog, conn_id, airflow_db):  # noqa: ARG001 - needed
    lake = Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path)
    with lake, lake.transaction() as tx:
        tx.create_schema("sales")
        tx.create_table(
            "sales.orders", {"id": "int32", "day": "date"}, partition_by=["year(day)", "month(day)"]
        )
        tx.create_table("sales.quiet", {"id": "int32"})
    with lake:
        yield lake


def listener(dag_id: str, *assets: Asset) -> None:
    """Register a DAG that waits for assets, so that there are such assets."""
    with DAG(dag_id, start_date=START, schedule=list(assets)) as dag:
        EmptyOperator(task_id="heard")
    sync_dag(dag)


def asset(conn_id: str, table: str, **kind: Any) -> Asset:
    return create_asset(ducklake_conn_id=conn_id, table=table, **kind)


def events(of: Asset) -> list[AssetEvent]:
    with create_session() as session:
        query = select(AssetEvent).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        named = (AssetModel.name == of.name) & (AssetModel.uri == of.uri)
        return list(session.scalars(query.where(named).order_by(AssetEvent.id)))


def partition_key(event: AssetEvent) -> str | None:
    return getattr(event, "partition_key", None)  # Airflow 3.1 knows none


def run(dag_id: str, *make: Any) -> Any:
    with DAG(dag_id, start_date=START, schedule=None) as dag:
        for one in make:
            one()
    run = sync_dag(dag).test()
    assert run.state == "success"
    return dag


def test_each_changed_table_has_an_event_that_says_how(lake, conn_id):
    """Also where its name is not known before the task runs."""
    orders, quiet = asset(conn_id, "sales.orders"), asset(conn_id, "Sales.QUIET")
    listener("l1", orders, quiet)

    dag = run(
        "changes",
        lambda: DuckLakeDDLOperator(
            ducklake_conn_id=conn_id,
            task_id="ddl",
            sql=["COMMENT ON TABLE sales.quiet IS 'x'", "ALTER TABLE sales.quiet ADD COLUMN n INT"],
        ),
    )

    assert dag.task_dict["ddl"].outlets == []
    assert events(orders) == []
    (event,) = events(quiet)
    extra = event.extra
    assert extra["changes"] == ["schema"]
    assert (extra["rows_added"], extra["rows_deleted"], extra["partitions"]) == (0, 0, [])
    assert extra["snapshot_id"] == extra["to_snapshot"] == lake.current_snapshot().id
    assert extra["from_snapshot"] == extra["to_snapshot"] - 1


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_task_that_changed_nothing_makes_no_event(lake, conn_id, dry_run):
    at = lake.current_snapshot().id

    dag = run(
        f"restore_nothing_{dry_run}",
        lambda: DuckLakeRestoreOperator(
            ducklake_conn_id=conn_id, task_id="restore", table="sales.orders", at=at, dry_run=dry_run
        ),
    )

    outlets = dag.task_dict["restore"].outlets
    assert outlets == [asset(conn_id, "sales.orders")]
    assert events(asset(conn_id, "sales.orders")) == []


def test_partitions_have_events_where_they_are_an_outlet(lake, conn_id):
    months = asset(conn_id, "sales.orders", by_partition=True)
    days = [datetime(2026, 11, 5, tzinfo=UTC).date(), datetime(2026, 11, 9, tzinfo=UTC).date()]
    lake.append_arrow("sales.orders", pa.table({"id": pa.array([1, 2], pa.int32()), "day": days}))
    before = lake.current_snapshot().id
    later = [datetime(2027, 2, 1, tzinfo=UTC).date(), days[0]]
    lake.append_arrow("sales.orders", pa.table({"id": pa.array([3, 4], pa.int32()), "day": later}))

    run(
        "go_back",
        lambda: DuckLakeRestoreOperator(
            ducklake_conn_id=conn_id, task_id="restore", table="sales.orders", at=before, outlets=[months]
        ),
    )

    (event,) = events(asset(conn_id, "sales.orders"))
    assert partition_key(event) is None
    assert list(event.extra)[:2] == ["rows_added", "snapshot_id"]
    assert event.extra["partitions"] == ["month=2026-11", "month=2027-02"]
    assert event.extra["rows_deleted"] == 2
    keys = sorted(partition_key(one) for one in events(months))
    assert keys == (["month=2026-11", "month=2027-02"] if compat.PARTITION_EVENTS else [])


@pytest.mark.usefixtures("lake")
def test_a_table_that_no_dag_names_gets_its_asset_with_the_event(conn_id, capfd):
    other, quiet = asset(conn_id, "sales.other"), asset(conn_id, "sales.quiet")

    run(
        "unheard",
        lambda: DuckLakeDDLOperator(
            ducklake_conn_id=conn_id,
            task_id="ddl",
            sql="ALTER TABLE sales.quiet ADD COLUMN n INT",
            asset_events=False,
        ),
    )
    run(
        "no_listener",
        lambda: DuckLakeDDLOperator(
            ducklake_conn_id=conn_id, task_id="ddl", sql="CREATE TABLE sales.other (id INT)"
        ),
    )

    assert events(quiet) == []
    found = [(event.extra["table"], event.extra["changes"]) for event in events(other)]
    assert found == ([("sales.other", ["schema"])] if compat.ALIASES_KEEP_ASSETS else [])
    assert "Asset not found" not in "".join(capfd.readouterr())


def test_mapped_tasks_make_events(lake, conn_id):
    """Airflow has not seen their outlets, which are those of each operator that it makes of them."""
    listener("l7", asset(conn_id, "sales.quiet"))
    at = lake.current_snapshot().id
    lake.append_arrow("sales.quiet", pa.table({"id": pa.array([1, 2], pa.int32())}))
    with DAG("mapped", start_date=START, schedule=None) as dag:
        DuckLakeRestoreOperator.partial(
            ducklake_conn_id=conn_id, task_id="restore", table="sales.quiet"
        ).expand(at=[at])
    assert sync_dag(dag).test().state == "success"

    (event,) = events(asset(conn_id, "sales.quiet"))
    assert (event.extra["changes"], event.extra["rows_deleted"]) == (["delete"], 2)


@pytest.mark.usefixtures("lake")
def test_operators_that_another_task_executes_make_events(conn_id):
    quiet, orders = asset(conn_id, "sales.quiet"), asset(conn_id, "sales.orders")
    listener("l8", quiet, orders)
    with DAG("inner", start_date=START, schedule=None) as dag:

        @task
        def both(**context: Any) -> None:
            for number, table in enumerate(("quiet", "orders")):
                DuckLakeDDLOperator(
                    ducklake_conn_id=conn_id,
                    task_id=f"inner_{number}",
                    sql=f"ALTER TABLE sales.{table} ADD COLUMN inner_{number} INT",
                ).execute(context)

        both()
    assert sync_dag(dag).test().state == "success"

    found = [[event.extra["changes"] for event in events(one)] for one in (quiet, orders)]
    assert found == ([[["schema"]]] * 2 if compat.ALIASES_KEEP_ASSETS else [[], []])


@pytest.mark.usefixtures("lake")
def test_outlets_of_other_lakes_and_of_upkeep_are_the_users_business(conn_id):
    elsewhere, same_lake = asset("another", "t"), asset(conn_id, "t")

    dag = run(
        "mine",
        lambda: DuckLakeDDLOperator(
            ducklake_conn_id=conn_id,
            task_id="ddl",
            sql="CREATE TABLE sales.mine (id INT)",
            outlets=[elsewhere, same_lake],
        ),
    )

    assert elsewhere in dag.task_dict["ddl"].outlets
    assert len(events(elsewhere)) == 1
    assert events(same_lake) == []
    merge = DuckLakeSparkMergeAdjacentFilesOperator(task_id="merge", table="sales.orders")
    assert merge.changed_in({"table": "sales.orders", "snapshot_ids": [3]}) is None


def test_outlets_are_declared_where_the_table_is_known_while_the_dag_is_parsed():
    def uris(**arguments: Any) -> list[str]:
        outlets = DuckLakeSparkInsertOperator(task_id="t", source="/x", **arguments).outlets
        assert all((one.name == one.uri) is (one.group == "ducklake") for one in outlets)
        return [one.uri for one in outlets]

    known = "ducklake://ducklake_default/sales/orders"
    assert uris(table="Sales.orders") == uris(table=("sales", "orders")) == [known]
    assert uris(table="sales.orders", ducklake_conn_id="prod") == ["ducklake://prod/sales/orders"]
    assert uris(table="sales.orders", outlets=[Asset("mine", uri=known)]) == [known]
    assert uris(table="sales.{{ params.table }}") == uris(table="orders", ducklake_conn_id="{{ x }}") == []
    assert uris(table="sales.orders", stage_only=True) == uris(table="orders", asset_events=False) == []
    assert uris(table="a..b") == []


def test_tables_that_tasks_read_are_inlets():
    """But on Airflow 3.1, where a task with an inlet fails that no other DAG names."""
    arguments = {"table": "sales.orders", "on": "id", "source_table": "sales.new", "update_all": True}
    merge = DuckLakeSparkMergeOperator(task_id="merge", **arguments)
    sql = DuckLakeSparkSQLOperator(
        task_id="sql", transform="m:f", tables=["sales.orders", "x"], targets={"sales.days": "append"}
    )
    sensor = DuckLakeSnapshotSensor(task_id="wait", table="sales.orders", ducklake_conn_id="prod")

    def uris(assets: list[Any]) -> list[str]:
        return [one.uri.removeprefix("ducklake://") for one in assets]

    assert (uris(merge.outlets), uris(sql.outlets)) == (
        ["ducklake_default/sales/orders"],
        ["ducklake_default/sales/days"],
    )
    assert [uris(one.inlets) for one in (merge, sql, sensor)] == (
        [
            ["ducklake_default/sales/new"],
            ["ducklake_default/sales/orders", "ducklake_default/main/x"],
            ["prod/sales/orders"],
        ]
        if not airflow.__version__.startswith("3.1.")
        else [[], [], []]
    )


def test_an_asset_of_a_table_has_no_name_of_its_own():
    """What a watcher finds is another asset than what tasks say, and partitions have no watcher."""
    trigger = DuckLakeSnapshotTrigger(table="orders")
    watcher = AssetWatcher(name="orders", trigger=trigger)
    assert create_asset(table="orders", watchers=[watcher]).uri.endswith("/main/orders?by=watcher")
    with pytest.raises(InvalidInputError, match="name='mine': a table's asset has its URI as its name"):
        create_asset(table="orders", name="mine")
    with pytest.raises(InvalidInputError, match="events are of the whole table"):
        create_asset(table="orders", watchers=[watcher], by_partition=True)


def test_a_name_that_is_no_assets_makes_no_event_and_fails_no_task(lake, conn_id):
    """Somebody else may have chosen it, in the same snapshot or schema."""
    with lake.transaction() as tx:
        tx.create_table(("sales", "x" * 1600), {"i": "int32"})
        tx.create_table("sales.fine", {"i": "int32"})
    snapshot_id = lake.current_snapshot().id
    operator = DuckLakeDDLOperator(task_id="t", sql="SELECT 1", ducklake_conn_id=conn_id)
    context: Any = {"outlet_events": OutletEventAccessors(), "ti": SimpleNamespace(map_index=-1)}

    announce(operator, context, lake, [snapshot_id])

    assert len(operator.outlets) == 1  # of the other table


def test_an_event_is_small_whatever_names_and_values_are():
    report = RangeReport("t", 1, 1, 2, ("insert",), 1, 0, ("p=" + "x" * 10**6,), ("a" * 10**6, *"b" * 1000))

    event = event_of(report, None)

    assert event["partitions"] is None
    assert len(json.dumps(event)) < 5000


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("ducklake://prod", "names no table"),
        ("ducklake://prod/", "names no table"),
        ("ducklake:///sales/orders", "names no connection"),
        ("ducklake://prod/sales.orders", "a slash belongs"),
        ("ducklake://prod/sales//orders", "names no table"),
        ("ducklake://me@prod/sales/orders", "has a user or a port"),
        ("ducklake://prod:5432/sales/orders", "has a user or a port"),
        ("ducklake://prod/sales/orders?by=day", "a query other than by=partition and by=watcher"),
        ("ducklake://prod/Sales/orders", "is not spelled 'ducklake://prod/sales/orders'"),
        ("ducklake://prod/orders", "is not spelled 'ducklake://prod/main/orders'"),
        ("ducklake://prod/sales/%00", "cannot name a table"),
    ],
)
def test_a_mistake_in_a_uri_is_explained_when_the_dag_is_parsed(uri, said):
    if "@" in uri and DROPS_USERS:
        with pytest.warns(UserWarning, match="auth info"):
            Asset("x", uri=uri)
        return
    with pytest.raises(ValueError, match=said):
        Asset("x", uri=uri)


@pytest.mark.parametrize(
    ("table", "uri"),
    [
        ("orders", "ducklake://prod/main/orders"),
        ("Sales.Orders", "ducklake://prod/sales/orders"),
        ('sales."or/ders ü?"', "ducklake://prod/sales/or%2Fders%20%C3%BC%3F"),
        ("sales.europe.orders", "ducklake://prod/sales/europe/orders"),
        (("a.b", "c"), "ducklake://prod/a.b/c"),
    ],
)
def test_a_table_has_one_uri_which_airflow_leaves_alone(table, uri):
    assert uri_of("prod", table) == Asset("x", uri=uri).uri == uri
    assert table_of(uri) == ("prod", QualifiedName.of(QualifiedName.of(table).folded))
    assert asset("prod", table, by_partition=True).uri == f"{uri}?by=partition"


# --- commits by DuckDB start DAGs of a real Airflow, whose processes are killed at drawn moments ---

ROUNDS = {"ci": 1, "full": 20}
WATCH_INTERVAL = 2.0  # seconds between two polls
SETUP = "CREATE TABLE orders (id INT); CREATE TABLE others (id INT); INSERT INTO orders VALUES (0)"


@pytest.fixture
def watching(tmp_path, postgres_catalog) -> Iterator[tuple[Airflow, CatalogDatabase, Path, int]]:
    """An Airflow with a DAG that consumes the changes of a table; of two equal watchers one is idle."""
    since = commit_to(postgres_catalog, SETUP)
    with watched(tmp_path, connection_fields(postgres_catalog), since, WATCH_INTERVAL, watchers=2) as (
        one,
        consumed,
    ):
        yield one, postgres_catalog, consumed, since


@pytest.mark.services
@pytest.mark.timeout(3600)
def test_commits_start_runs_and_none_is_lost_whatever_is_killed(watching, seed, size, capsys):
    one, catalog, consumed, since = watching
    started = time.monotonic()
    first = commit_to(catalog, "INSERT INTO orders VALUES (-1)")
    one.wait(lambda: newest(consumed) >= first, PATIENCE, "no run of the first commit")

    begin = time.monotonic()
    second = commit_to(catalog, "INSERT INTO orders VALUES (-2)")
    one.wait(lambda: newest(consumed) >= second, PATIENCE, "no run of the second commit")
    delay = time.monotonic() - begin

    before = one.query("SELECT count(*) FROM asset_event")[0][0]
    last = commit_to(catalog, "; ".join(f"INSERT INTO orders VALUES ({number})" for number in range(500)))
    commit = partial(commit_to, catalog, "INSERT INTO orders VALUES (-3)")
    more = heard(one, consumed, last, commit)
    burst = one.query("SELECT count(*) FROM asset_event")[0][0] - before - more

    draw = random.Random(seed)
    killed: Counter[str] = Counter()
    for number in range(ROUNDS[size]):
        last = play(one, catalog, draw, number, killed)
    more += heard(one, consumed, last, commit)

    events = events_in(consumed)
    repeats = check(catalog, events, since)
    with capsys.disabled():
        print(  # noqa: T201 - what was drawn and seen
            f"\nwatched asset, seed {seed}, {ROUNDS[size]} rounds in {time.monotonic() - started:.0f} s: "
            f"first run after {delay:.1f} s, {burst} events of 500 commits, {dict(killed)} killed, "
            f"{last - since} snapshots in {len(events)} events, none lost, {repeats} repeated, "
            f"{more} commits more until Airflow started a run of the last event"
        )
    assert "Another watcher of this asset" in (one.home / "triggerer.log").read_text()
    assert burst <= 500 / 20
    assert repeats <= sum(killed.values())
    assert more <= 1 + ROUNDS[size] / 4


def play(
    one: Airflow, catalog: CatalogDatabase, draw: random.Random, number: int, killed: Counter[str]
) -> int:
    """Commit, kill at a drawn moment, commit, start again, commit; return the newest snapshot."""
    victims = draw.choice([("triggerer",), ("scheduler",), SERVICES])
    last = commit_to(catalog, f"INSERT INTO orders VALUES ({number}); INSERT INTO others VALUES ({number})")
    time.sleep(draw.uniform(0, 2 * WATCH_INTERVAL))
    one.kill(*victims)
    killed[" and ".join(victims)] += 1
    if draw.random() < 0.7:
        last = commit_to(catalog, f"DELETE FROM orders WHERE id = {number}; INSERT INTO orders VALUES (7)")
    one.start(*victims)
    time.sleep(draw.uniform(0, 10 * WATCH_INTERVAL))
    return last


def check(catalog: CatalogDatabase, events: list[dict[str, Any]], since: int) -> int:
    """Compare what was consumed with the change feed; return how many ranges came again."""
    ranges = {event["range_id"]: event for event in events}
    assert all(event == ranges[event["range_id"]] for event in events)
    covered = Counter(
        snapshot
        for event in ranges.values()
        for snapshot in range(event["from_snapshot"] + 1, event["to_snapshot"] + 1)
    )
    assert set(covered.values()) == {1}
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        feed = lake.changes("orders", since + 1, lake.current_snapshot().id).read_arrow()
    assert set(feed["snapshot_id"].to_pylist()) <= set(covered)
    inserts = sum(kind == "insert" for kind in feed["change_type"].to_pylist())
    assert sum(event["rows_added"] for event in ranges.values()) == inserts
    return len(events) - len(ranges)
