"""A real Airflow in processes of its own: API server, scheduler, triggerer, DAG processor.

And one with a DAG that a watched table starts, and what its runs got.
"""

import json
import os
import secrets
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.reference.processes import free_port

# What serves logs over HTTP would listen on all addresses.
SERVICES = {
    "api-server": (),
    "dag-processor": (),
    "scheduler": ("--skip-serve-logs",),
    "triggerer": ("--skip-serve-logs",),
}
SECONDS_TO_IMPORT = "600"  # a DAG file, on a machine that has much else to do


class Airflow:
    """An Airflow home with its services, each of which can be killed and started again."""

    def __init__(self, home: Path, environment: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.dags = home / "dags"
        self.dags.mkdir(parents=True)
        self.port = free_port()
        url = f"http://127.0.0.1:{self.port}"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        self.environment = clean | {
            "AIRFLOW_HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")]),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": SECONDS_TO_IMPORT,
            "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": SECONDS_TO_IMPORT,
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__API__BASE_URL": url,
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "5",
            "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
            "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "5",
            **(environment or {}),
        }
        self.run("db", "migrate")
        self.services: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, *command: str, program: tuple[str, ...] = ("airflow",)) -> str:
        """Run a command of Airflow's, or of another program in its home, and return its output."""
        ended = subprocess.run(
            [*program, *command],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def start(self, *services: str) -> None:
        """Start services, all by default."""
        for service in services or SERVICES:
            with (self.home / f"{service}.log").open("a") as log:
                self.services[service] = subprocess.Popen(
                    ["airflow", service, *SERVICES[service]],
                    env=self.environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self.home,
                    start_new_session=True,
                )

    def kill(self, *services: str) -> None:
        """Kill services with all their processes, as a lost machine does."""
        for service in services or tuple(self.services):
            process = self.services.pop(service)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return rows of the metadata database."""
        with closing(sqlite3.connect(self.home / "airflow.db", timeout=60)) as connection:
            return connection.execute(sql, values).fetchall()

    def logs(self) -> str:
        """Return the ends of all services' logs."""
        return "\n".join(
            f"=== {file.name}\n{file.read_text(errors='replace')[-4000:]}" for file in self.home.glob("*.log")
        )

    def wait(self, is_so: Callable[[], Any], seconds: float, what: str) -> Any:
        """Wait until something is so, and return it."""
        end = time.monotonic() + seconds
        while not (found := is_so()):
            if time.monotonic() > end:
                raise TimeoutError(f"{what}\n{self.logs()}")
            time.sleep(0.2)
        return found


@contextmanager
def airflow(home: Path, environment: Mapping[str, str] | None = None) -> Iterator[Airflow]:
    """Make an Airflow; whatever it runs ends with the block."""
    one = Airflow(home, environment)
    try:
        yield one
    finally:
        one.kill()


def unpaused(one: Airflow, dag_ids: Iterable[str], seconds: float = 300) -> None:
    """Wait until DAGs were parsed, and let them run."""
    for dag_id in dag_ids:
        one.wait(
            lambda dag_id=dag_id: one.query("SELECT 1 FROM dag WHERE dag_id = ?", dag_id), seconds, dag_id
        )
        one.run("dags", "unpause", dag_id, "-y")


# --- a DAG that a watched table starts ---

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
