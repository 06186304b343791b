"""Jobs in cluster mode outlive their task: on a standalone cluster of this machine, with a shared disk."""

import asyncio
import base64
import json
import multiprocessing
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk.exceptions import AirflowTaskTimeout
from airflow.sdk.execution_time.timeout import timeout

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError, SparkJobError
from airflow_provider_ducklake.lake.spark.job.package_zip import runnable_zip
from airflow_provider_ducklake.operators.compact import DuckLakeSparkMergeAdjacentFilesOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from airflow_provider_ducklake.triggers.application import SparkApplicationTrigger
from tests.airflow.dags import FakeTaskInstance
from tests.airflow.long_jobs import (
    PLANNED,
    ROWS,
    SMALL,
    SUBMITTED,
    TAKEN_OVER,
    check_nothing,
    check_once,
    count,
    deferred,
    event_of,
    execute,
    slow_rows,
    started,
    wait_until,
)
from tests.airflow.spark_submit import SparkSubmit, recorded
from tests.interop.lakes import alone, by_duckdb
from tests.reference.catalogs import CatalogDatabase
from tests.reference.standalone_cluster import Cluster

pytestmark = [pytest.mark.timeout(900), pytest.mark.cluster]

FAILS_AFTERWARDS = (
    "import subprocess, time; subprocess.run(command + sys.argv[1:]); time.sleep({}); sys.exit(1)"
)


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparkSubmit:
    return recorded(tmp_path / "bin", monkeypatch)


@pytest.fixture
def lake(postgres_catalog, connect, set_connection, cluster, submit) -> Iterator[Lake]:  # noqa: ARG001
    connect(postgres_catalog, data_path=postgres_catalog.data_path)
    extra = {"deploy-mode": "cluster", "rest-port": cluster.rest_port}
    set_connection("spark_default", conn_type="spark", host=cluster.url, extra=extra)
    with DuckLakeHook() as hook:
        alone(hook.get_or_create_lake()).create_table("t", {"id": "int32", "name": "varchar"})
        yield hook.lake()


@pytest.fixture
def slow(tmp_path: Path, gate: Path) -> dict[str, Any]:
    return slow_rows(tmp_path, gate)


def check_done(lake: Lake, catalog: CatalogDatabase, cluster: Cluster) -> None:
    wait_until(lambda: not cluster.cluster_drivers(), "no driver is left")
    check_once(lake, catalog)


# --- without faults ---


def test_a_job_runs_in_cluster_mode_which_spark_refuses_python(
    lake, slow, gate, postgres_catalog, cluster, submit, monkeypatch
):
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", "postgres://user:hidden-word@host/db")
    gate.unlink()

    result = execute(**slow)

    assert result["rows_added"] == ROWS
    check_done(lake, postgres_catalog, cluster)
    (call,) = submit.calls
    assert "hidden-word" not in str(call.environment)
    assert not [name for name in call.environment if name.startswith(("AIRFLOW", "DUCKLAKE"))]


def test_the_code_may_lie_where_nobody_writes_who_writes_the_lake(
    lake, slow, gate, postgres_catalog, cluster, submit, tmp_path
):
    package = tmp_path / "airflow_provider_ducklake.jar"
    package.write_bytes(runnable_zip())

    worker = started(**slow, application=f"file://{package}")
    wait_until(cluster.cluster_drivers, "running")
    code = [*Path(postgres_catalog.data_path).rglob("*.jar"), *Path(postgres_catalog.data_path).rglob("*.py")]
    gate.unlink()
    worker.join()

    assert (worker.exitcode, code) == (0, [])
    assert f"file://{package}" in submit.calls[0].arguments
    check_done(lake, postgres_catalog, cluster)


@pytest.mark.parametrize("has_file", [True, False])
def test_documents_on_an_encrypted_lake_are_sealed_in_cluster_mode_by_a_key_file(
    has_file, postgres_catalog, connect, set_connection, cluster, submit, slow, gate, tmp_path
):
    (tmp_path / "key").write_text(base64.b64encode(bytes(range(32))).decode())
    more = {"document_key_file": str(tmp_path / "key")} if has_file else {}
    connect(postgres_catalog, data_path=postgres_catalog.data_path, encrypted=True, **more)
    extra = {"deploy-mode": "cluster", "rest-port": cluster.rest_port}
    set_connection("spark_default", conn_type="spark", host=cluster.url, extra=extra)
    with DuckLakeHook() as hook, hook.get_or_create_lake().transaction() as tx:
        tx.create_table("t", {"id": "int32", "name": "varchar"})

    worker = started(**slow)
    wait_until(cluster.cluster_drivers, "running")
    (request,) = Path(postgres_catalog.data_path).rglob("request.json")
    assert request.read_bytes().startswith(b"DLS2") == has_file
    gate.unlink()
    worker.join()

    assert worker.exitcode == 0
    assert by_duckdb(postgres_catalog, "SELECT count(*) FROM t", encrypted=True) == [(ROWS,)]
    assert {file.read_bytes()[:4] for file in Path(postgres_catalog.data_path).rglob("*.parquet")} == {
        b"PARE"
    }
    assert bytes(range(32)).hex() not in str(submit.calls)


# --- workers that are killed ---


@pytest.mark.parametrize("step", ["noted", "submitted", "running", "done"])
def test_a_later_try_takes_the_results_of_what_a_killed_worker_submitted(
    step, lake, slow, gate, postgres_catalog, cluster, submit
):
    worker = started(**slow)
    wait_until(lambda: count(postgres_catalog, PLANNED if step == "noted" else SUBMITTED), step)
    if step == "running":
        wait_until(cluster.cluster_drivers, step)
    if step == "done":
        gate.unlink()
        wait_until(lambda: [*Path(lake.data_path).rglob("_DONE")], step)
    worker.kill()
    worker.join()
    assert worker.exitcode == -signal.SIGKILL
    gate.unlink(missing_ok=True)

    result = execute(2, **slow)

    assert result["rows_added"] == ROWS
    check_done(lake, postgres_catalog, cluster)
    if step != "noted":
        assert len(submit.calls) == 1, "the second try has submitted another job"


def test_the_second_try_leaves_what_another_task_would_have_done(
    lake, slow, gate, postgres_catalog, cluster, submit
):
    worker = started(**slow, message="the old one", mode="overwrite", schema_evolution="add_columns")
    wait_until(cluster.cluster_drivers, "running")
    worker.kill()
    worker.join()
    (old,) = cluster.cluster_drivers()
    gate.with_name("gate-2").touch()

    worker = started(tries=2, **slow)  # somebody has changed the DAG in between
    wait_until(lambda: old not in cluster.cluster_drivers(), "the old driver is stopped")
    gate.unlink()
    worker.join()

    assert worker.exitcode == 0
    assert len(submit.calls) == 2
    check_done(lake, postgres_catalog, cluster)


# --- tasks that end before their job ---


def test_a_time_out_stops_the_application_and_removes_its_files(lake, slow, postgres_catalog, cluster):
    before = {str(file) for file in Path(lake.data_path).rglob("*")}

    with pytest.raises(AirflowTaskTimeout), timeout(25):
        execute(**slow)

    wait_until(lambda: not cluster.cluster_drivers(), "the driver is gone")
    assert {str(file) for file in Path(lake.data_path).rglob("*") if file.is_file()} == before
    assert count(postgres_catalog, PLANNED) == 0
    assert by_duckdb(postgres_catalog, "SELECT count(*) FROM t") == [(0,)]


def test_an_application_whose_submission_fails_afterwards_is_stopped(
    lake, slow, postgres_catalog, cluster, submit, tmp_path, monkeypatch
):
    SparkSubmit(tmp_path / "failing", [str(submit.program)], monkeypatch, FAILS_AFTERWARDS.format(20))

    with pytest.raises(SparkJobError):
        execute(**slow)

    assert len(submit.calls) == 1

    wait_until(lambda: not cluster.cluster_drivers(), "the driver is gone")
    check_nothing(lake, postgres_catalog)


def test_an_application_whose_submission_fails_afterwards_is_left_to_a_try_that_waits_for_it(
    lake, slow, gate, postgres_catalog, cluster, submit, tmp_path, monkeypatch
):
    SparkSubmit(tmp_path / "failing", [str(submit.program)], monkeypatch, FAILS_AFTERWARDS.format(60))
    first = started(**slow)
    wait_until(lambda: count(postgres_catalog, SUBMITTED), "submitted")
    second = started(tries=2, **slow)
    wait_until(lambda: count(postgres_catalog, TAKEN_OVER), "taken over")
    assert first.is_alive()

    first.join()
    assert first.exitcode == 1
    assert cluster.cluster_drivers()
    gate.unlink()
    second.join()

    assert second.exitcode == 0
    check_done(lake, postgres_catalog, cluster)
    assert len(submit.calls) == 1


def test_a_person_who_ends_the_task_ends_the_application(lake, slow, postgres_catalog, cluster):
    worker = multiprocessing.get_context("fork").Process(target=execute_until_term, kwargs=slow)
    worker.start()
    wait_until(cluster.cluster_drivers, "running")
    worker.terminate()
    worker.join()

    wait_until(lambda: not cluster.cluster_drivers(), "the driver is gone")
    assert worker.exitcode == 1
    check_nothing(lake, postgres_catalog)


def test_a_worker_that_was_given_up_leaves_the_application_to_the_next_try(
    lake, slow, gate, postgres_catalog, cluster, submit
):
    """Airflow took it for dead, and ends it while a later try waits for the same application."""
    given_up = multiprocessing.get_context("fork").Process(target=execute_until_term, kwargs=slow)
    given_up.start()
    wait_until(cluster.cluster_drivers, "running")
    wait_until(lambda: count(postgres_catalog, SUBMITTED), "submitted")
    second = started(tries=2, **slow)
    wait_until(lambda: count(postgres_catalog, TAKEN_OVER), "taken over")

    given_up.terminate()
    time.sleep(2)
    given_up.kill()
    given_up.join()
    assert cluster.cluster_drivers()
    gate.unlink()
    second.join()

    assert second.exitcode == 0
    check_done(lake, postgres_catalog, cluster)
    assert len(submit.calls) == 1


def execute_until_term(**arguments: Any) -> None:
    """Execute a try as the task's process does, which Airflow ends by SIGTERM."""
    ti = FakeTaskInstance("insert")
    operator = DuckLakeSparkInsertOperator(task_id="insert", table="t", **SMALL, **arguments)
    signal.signal(signal.SIGTERM, lambda *_: operator.on_kill())
    operator.execute({"ti": ti, "logical_date": None})


# --- deferred tasks ---


def test_a_deferred_task_leaves_its_slot_and_commits_when_the_application_has_ended(
    lake, slow, gate, postgres_catalog, cluster, submit
):
    ti_id = uuid4()
    left = deferred(**slow, ti_id=ti_id, poll_interval=1)
    assert cluster.cluster_drivers()
    assert left.method_name == "execute_complete"
    _, arguments = left.trigger.serialize()
    assert json.loads(json.dumps(arguments)) == arguments
    gate.unlink()

    event = asyncio.run(event_of(SparkApplicationTrigger(**arguments)))
    result = execute(**slow, deferrable=True, event=event, ti_id=ti_id)

    assert (event["state"], result["rows_added"]) == ("succeeded", ROWS)
    check_done(lake, postgres_catalog, cluster)
    assert len(submit.calls) == 1


def test_a_deferred_compaction_is_done_once(lake, cluster, submit):
    lake.set_option("data_inlining_row_limit", 0)
    for number in range(3):
        ids = pa.array([number], pa.int32())
        lake.append_arrow("t", pa.table({"id": ids, "name": ["n"]}))
    ti_id = uuid4()
    compaction = {"cls": DuckLakeSparkMergeAdjacentFilesOperator, "ti_id": ti_id, "max_output_files": 1}
    left = deferred(**compaction, poll_interval=1)

    event = asyncio.run(event_of(left.trigger))
    lake.append_arrow("t", pa.table({"id": pa.array([3, 4], pa.int32()), "name": ["n", "n"]}))
    result = execute(**compaction, deferrable=True, event=event)

    assert (result["files_removed"], result["files_added"]) == (3, 1)
    assert len(submit.calls) == 1
    wait_until(lambda: not cluster.cluster_drivers(), "no driver is left")
    left_files = {str(file) for file in Path(lake.data_path).rglob("*") if file.is_file()}
    assert left_files == set(lake.reads.registered_files(left_files))


def test_a_deferred_task_that_a_person_ends_leaves_nothing(lake, slow, postgres_catalog, cluster):
    left = deferred(**slow)
    wait_until(cluster.cluster_drivers, "running")

    asyncio.run(left.trigger.on_kill())

    wait_until(lambda: not cluster.cluster_drivers(), "the driver is gone")
    check_nothing(lake, postgres_catalog)


def test_a_failed_job_of_a_deferred_task_says_why(lake, tmp_path, postgres_catalog):
    (tmp_path / "failing_rows.py").write_text(
        "def rows(spark, sources):\n    raise ValueError('no such day')\n"
    )
    failing = {"transform": "failing_rows:rows", "py_files": str(tmp_path / "failing_rows.py")}
    ti_id = uuid4()
    left = deferred(**failing, ti_id=ti_id, poll_interval=1)

    event = asyncio.run(event_of(left.trigger))
    with pytest.raises((SparkJobError, AirflowFailException), match="no such day"):
        execute(**failing, deferrable=True, event=event, ti_id=ti_id)

    check_nothing(lake, postgres_catalog)


@pytest.mark.parametrize("name", ["deferrable", "durable"])
@pytest.mark.usefixtures("lake")
def test_a_job_that_ends_with_its_task_cannot_outlive_it(name, source_file, set_connection):
    set_connection("spark_default", conn_type="spark", host="local[1]")

    with pytest.raises(AirflowFailException, match=f"{name}=True: In client mode the driver"):
        execute(source=source_file, **{name: True})
    with pytest.raises(InvalidInputError, match=f"{name}=True: In client mode the driver"):
        execute(source=source_file, deploy_mode="client", **{name: True})
    with pytest.raises(InvalidInputError, match=f"{name}=True: A job through Spark Connect"):
        execute(source=source_file, spark_connect_conn_id="connect", **{name: True})


@pytest.fixture
def source_file(tmp_path: Path) -> str:
    (tmp_path / "in.csv").write_text("id,name\n1,a\n")
    return str(tmp_path / "in.csv")
