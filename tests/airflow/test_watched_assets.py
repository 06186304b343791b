"""Commits by DuckDB start DAGs of a real Airflow, whose processes are killed at drawn moments."""

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ducklake.catalog.lake import Lake
from tests.airflow.conftest import connection_fields
from tests.airflow.services import SERVICES, Airflow, airflow, unpaused
from tests.airflow.test_snapshot_sensor import commit_to
from tests.reference.catalogs import CatalogDatabase

ROUNDS = {"ci": 2, "full": 20}
INTERVAL = 2.0  # seconds between two polls
PATIENCE = 120.0
SETUP = "CREATE TABLE orders (id INT); CREATE TABLE others (id INT); INSERT INTO orders VALUES (0)"
DAG_FILE = """
import json, os, uuid
from datetime import UTC, datetime
from airflow.sdk import DAG, AssetWatcher, task
from airflow_provider_ducklake.assets.ducklake import create_asset
from airflow_provider_ducklake.triggers.snapshot import DuckLakeSnapshotTrigger

orders = create_asset(
    table="orders",
    name="orders",
    watchers=[
        AssetWatcher(
            name="orders_snapshots",
            trigger=DuckLakeSnapshotTrigger(table="orders", since=SINCE, poll_interval=INTERVAL),
        )
    ],
)

with DAG("on_orders", schedule=[orders], start_date=datetime(2024, 1, 1, tzinfo=UTC), catchup=False) as dag:

    @task(retries=10, retry_delay=1)
    def consume(triggering_asset_events=None, dag_run=None):
        found = [event.extra["payload"] for event in triggering_asset_events[orders]]
        path = os.path.join(FOLDER, f"{uuid.uuid4()}.json")
        with open(path + ".new", "w") as file:
            json.dump({"run": dag_run.run_id, "events": found}, file)
        os.rename(path + ".new", path)

    consume()
"""


@pytest.fixture
def watching(tmp_path, postgres_catalog) -> Iterator[tuple[Airflow, CatalogDatabase, Path, int]]:
    """An Airflow with a DAG that consumes the changes of a table."""
    since = commit_to(postgres_catalog, SETUP)
    consumed = tmp_path / "consumed"
    consumed.mkdir()
    connection = json.dumps({"conn_type": "ducklake", **connection_fields(postgres_catalog)})
    environment = {
        "AIRFLOW_CONN_DUCKLAKE_DEFAULT": connection,
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",  # of a task whose machine was lost
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
    }
    with airflow(tmp_path / "airflow", environment) as one:
        names = {"SINCE": since, "INTERVAL": INTERVAL, "FOLDER": repr(str(consumed))}
        text = DAG_FILE
        for name, value in names.items():
            text = text.replace(name, str(value))
        (one.dags / "on_orders.py").write_text(text)
        one.start()
        unpaused(one, ["on_orders"])
        yield one, postgres_catalog, consumed, since


def events_in(consumed: Path) -> list[dict[str, Any]]:
    """Return the events that runs got; a run whose task was killed and tried again counts once."""
    files = sorted(consumed.glob("*.json"), key=lambda file: file.stat().st_mtime)
    runs = {run["run"]: run["events"] for run in (json.loads(file.read_text()) for file in files)}
    return [event for events in runs.values() for event in events]


def newest(consumed: Path) -> int:
    return max((event["to_snapshot"] for event in events_in(consumed)), default=0)


def newest_event(one: Airflow) -> int:
    """Return up to which snapshot Airflow has stored events."""
    rows = one.query("SELECT extra FROM asset_event")
    return max((json.loads(extra)["payload"]["to_snapshot"] for (extra,) in rows), default=0)


def has_runs_to_come(one: Airflow) -> bool:
    queued = one.query("SELECT 1 FROM asset_dag_run_queue")
    return bool(queued or one.query("SELECT 1 FROM dag_run WHERE state IN ('queued', 'running')"))


def heard(one: Airflow, catalog: CatalogDatabase, consumed: Path, snapshot: int) -> int:
    """Wait until runs have got all up to a snapshot; return how many commits more Airflow needed.

    Before 3.4 an event that comes while the one before is still queued starts no run of its own, and is
    handed to the next run that anything starts.
    """
    more = 0
    while True:
        one.wait(lambda at=snapshot: newest_event(one) >= at, PATIENCE, f"no event of {snapshot}")
        one.wait(lambda: not has_runs_to_come(one), 2 * PATIENCE, "a run does not end")
        if newest(consumed) >= snapshot:
            return more
        more += 1
        snapshot = commit_to(catalog, "INSERT INTO orders VALUES (-3)")


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
    more = heard(one, catalog, consumed, last)
    burst = one.query("SELECT count(*) FROM asset_event")[0][0] - before - more

    draw = random.Random(seed)
    killed: Counter[str] = Counter()
    for number in range(ROUNDS[size]):
        last = play(one, catalog, draw, number, killed)
    more += heard(one, catalog, consumed, last)

    events = events_in(consumed)
    repeats = check(catalog, events, since)
    with capsys.disabled():
        print(  # noqa: T201 - what was drawn and seen
            f"\nwatched asset, seed {seed}, {ROUNDS[size]} rounds in {time.monotonic() - started:.0f} s: "
            f"first run after {delay:.1f} s, {burst} events of 500 commits, {dict(killed)} killed, "
            f"{last - since} snapshots in {len(events)} events, none lost, {repeats} repeated, "
            f"{more} commits more until Airflow started a run of the last event"
        )
    assert burst <= 500 / 20
    assert repeats <= sum(killed.values())
    assert more <= 1 + ROUNDS[size] / 4


def play(
    one: Airflow, catalog: CatalogDatabase, draw: random.Random, number: int, killed: Counter[str]
) -> int:
    """Commit, kill at a drawn moment, commit, start again, commit; return the newest snapshot."""
    victims = draw.choice([("triggerer",), ("scheduler",), SERVICES])
    last = commit_to(catalog, f"INSERT INTO orders VALUES ({number}); INSERT INTO others VALUES ({number})")
    time.sleep(draw.uniform(0, 2 * INTERVAL))
    one.kill(*victims)
    killed[" and ".join(victims)] += 1
    if draw.random() < 0.7:
        last = commit_to(catalog, f"DELETE FROM orders WHERE id = {number}; INSERT INTO orders VALUES (7)")
    one.start(*victims)
    time.sleep(draw.uniform(0, 10 * INTERVAL))
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
