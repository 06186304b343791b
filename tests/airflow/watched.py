"""A real Airflow with a DAG that a watched table starts, and what its runs got."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.airflow.services import Airflow, airflow, unpaused

PATIENCE = 300.0
DAG_FILE = """
import json, os, uuid
from datetime import UTC, datetime
from airflow.sdk import DAG, AssetWatcher, task
from airflow_provider_ducklake.assets.ducklake import create_asset
from airflow_provider_ducklake.triggers.snapshot import DuckLakeSnapshotTrigger

orders = create_asset(
    table="orders",
    watchers=[
        AssetWatcher(
            name=f"orders_{number}",
            trigger=DuckLakeSnapshotTrigger(table="orders", since=SINCE, poll_interval=INTERVAL + number),
        )
        for number in range(WATCHERS)
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


@contextmanager
def watched(
    folder: Path, connection: Mapping[str, Any], since: int, interval: float, watchers: int = 1
) -> Iterator[tuple[Airflow, Path]]:
    """Yield an Airflow that watches the table `orders` of a lake, and the folder of what its runs got."""
    consumed = folder / "consumed"
    consumed.mkdir()
    environment = {
        "AIRFLOW_CONN_DUCKLAKE_DEFAULT": json.dumps({"conn_type": "ducklake", **connection}),
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",  # of a task whose machine was lost
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
    }
    with airflow(folder / "airflow", environment) as one:
        text = DAG_FILE
        names = {"SINCE": since, "INTERVAL": interval, "WATCHERS": watchers, "FOLDER": repr(str(consumed))}
        for name, value in names.items():
            text = text.replace(name, str(value))
        (one.dags / "on_orders.py").write_text(text)
        one.start()
        unpaused(one, ["on_orders"])
        yield one, consumed


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


def heard(one: Airflow, consumed: Path, snapshot: int, commit: Callable[[], int]) -> int:
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
        snapshot = commit()
