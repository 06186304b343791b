"""A deferred job of a real Airflow, whose processes are killed at each step: one commit, and no more."""

import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.airflow.conftest import connection_fields
from tests.airflow.long_jobs import PLANNED, ROWS, SLOW, SUBMITTED, count
from tests.airflow.services import SERVICES, Airflow, airflow, unpaused
from tests.interop.lakes import by_duckdb
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake
from tests.reference.processes import FAST_JVM
from tests.reference.standalone_cluster import Cluster, command_lines

ROUNDS = {"ci": 1, "full": 16}
PATIENCE = 240.0
WORKER, SUPERVISOR = "airflow worker -- ", "airflow supervisor: "
VICTIMS = ("worker", "supervisor", "triggerer", "scheduler", "all")
STEPS = ("noted", "submitted", "deferred", "ended")
DAG_FILE = """
from datetime import UTC, datetime, timedelta
from airflow.sdk import DAG
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator

with DAG("long", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=UTC), max_active_runs=1):
    DuckLakeSparkInsertOperator(
        task_id="insert",
        table="t",
        transform="slow_rows:rows",
        py_files={py_files!r},
        driver_memory="512m",
        executor_memory="512m",
        deferrable=True,
        poll_interval=1,
        retries=5,
        retry_delay=timedelta(seconds=1),
    )
"""


@dataclass
class Lab:
    """A real Airflow, a real cluster, a lake, and the file that holds the job up."""

    airflow: Airflow
    cluster: Cluster
    catalog: CatalogDatabase
    gate: Path


@pytest.fixture
def lab(tmp_path, postgres_catalog, cluster) -> Iterator[Lab]:
    gate, module = tmp_path / "gate", tmp_path / "slow_rows.py"
    module.write_text(SLOW.format(gate=str(gate), rows=ROWS))
    by_duckdb(postgres_catalog, "CREATE TABLE t (id INTEGER, name VARCHAR)")
    extra = {"deploy-mode": "cluster", "rest-port": cluster.rest_port}
    connections = {
        "DUCKLAKE_DEFAULT": {"conn_type": "ducklake", **connection_fields(postgres_catalog)},
        "SPARK_DEFAULT": {"conn_type": "spark", "host": cluster.url, "extra": extra},
    }
    environment = {f"AIRFLOW_CONN_{name}": json.dumps(one) for name, one in connections.items()} | {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JDK_JAVA_OPTIONS": FAST_JVM,
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "15",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
        "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "10",
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "2",
    }
    with airflow(tmp_path / "airflow", environment) as one:
        (one.dags / "long.py").write_text(DAG_FILE.format(py_files=str(module)))
        one.start()
        unpaused(one, ["long"])
        yield Lab(one, cluster, postgres_catalog, gate)


@pytest.mark.services
@pytest.mark.timeout(5400)
def test_a_deferred_job_is_committed_once_whatever_is_killed_when(lab, seed, size, capsys):
    draw = random.Random(seed)
    rounds = [(victim, step) for victim in VICTIMS for step in STEPS]
    draw.shuffle(rounds)
    played = [play(lab, number, *one) for number, one in enumerate(rounds[: ROUNDS[size]])]

    tries = Counter(tries for tries, _ in played)
    with capsys.disabled():
        print(f"\nlong jobs, seed {seed}: {len(played)} tasks, tries {dict(tries)}: {played}")  # noqa: T201
    assert lab.airflow.query("SELECT DISTINCT state FROM dag_run") == [("success",)]
    with open_lake(lab.catalog) as lake:
        assert lake.sql("SELECT count(*), sum(id) FROM t") == [
            (ROWS * len(played), sum(range(ROWS)) * len(played))
        ]
        assert len(lake.sql("FROM ducklake_snapshots('lake')")) == 2 + len(played)
    assert lab.cluster.cluster_drivers() == []
    files = [file for file in Path(lab.catalog.data_path).rglob("*") if file.is_file()]
    assert {file.suffix for file in files} == {".parquet"}
    assert count(lab.catalog, PLANNED) == 0


def play(lab: Lab, number: int, victim: str, step: str) -> tuple[int, str]:
    """Run the DAG, kill something at a step, and return after how many tries it ended."""
    lab.gate.touch()
    run_id = f"run-{number}"
    lab.airflow.run("dags", "trigger", "long", "--run-id", run_id)
    lab.airflow.wait(is_at(lab, step, run_id), PATIENCE, f"{victim} at {step}: not there")
    if step == "ended":
        lab.gate.unlink()
        lab.airflow.wait(lambda: not lab.cluster.cluster_drivers(), PATIENCE, "the driver runs on")
    kill(lab, victim)
    lab.gate.unlink(missing_ok=True)
    ended = "SELECT state FROM dag_run WHERE run_id = ? AND state IN ('success', 'failed')"
    ((state,),) = lab.airflow.wait(
        lambda: lab.airflow.query(ended, run_id), PATIENCE, f"{victim} killed at {step}: no end"
    )
    assert state == "success", f"{victim} at {step}\n{lab.airflow.logs()}"
    ((tries,),) = lab.airflow.query("SELECT try_number FROM task_instance WHERE run_id = ?", run_id)
    return tries, f"{victim} at {step}"


def is_at(lab: Lab, step: str, run_id: str) -> Callable[[], object]:
    """Return what tells whether the task is at a step."""
    is_deferred = "SELECT 1 FROM task_instance WHERE run_id = ? AND state = 'deferred'"
    return {
        "noted": lambda: count(lab.catalog, PLANNED),
        "submitted": lambda: count(lab.catalog, SUBMITTED),
        "deferred": lambda: lab.airflow.query(is_deferred, run_id),
        "ended": lambda: lab.airflow.query(is_deferred, run_id) and lab.cluster.cluster_drivers(),
    }[step]


def kill(lab: Lab, victim: str) -> None:
    """Kill it, and start again what Airflow does not start by itself."""
    if victim == "worker":
        kill_named(WORKER)
    elif victim == "supervisor":
        kill_named(SUPERVISOR)
    else:
        services = SERVICES if victim == "all" else (victim,)
        lab.airflow.kill(*services)
        lab.airflow.start(*services)


def kill_named(title: str) -> None:
    """Kill by title; an idle worker may hold the lock of the queue, which nobody could take after it."""
    for pid, line in command_lines():
        if line.startswith(title) and "<idle>" not in line:
            os.kill(pid, signal.SIGKILL)
