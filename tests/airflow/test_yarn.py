"""Jobs in cluster mode on a YARN of this machine: real servers, real containers."""

import asyncio
import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from airflow_provider_ducklake.hooks.clusters import ApplicationState
from airflow_provider_ducklake.hooks.clusters import Yarn as Manager
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.storage.files.filesystem import write_bytes
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from tests.airflow.conftest import SetConnection
from tests.airflow.dags import context_of
from tests.airflow.long_jobs import (
    PLANNED,
    ROWS,
    SUBMITTED,
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
from tests.airflow.s3_lakes import read_by_duckdb, s3_lake
from tests.airflow.spark_submit import ROOT, SparkSubmit, recorded
from tests.interop.lakes import alone
from tests.reference import s3
from tests.reference.catalogs import CatalogDatabase
from tests.reference.s3_proxy import proxy
from tests.reference.yarn_cluster import JARS, Yarn

BUCKET = "nodes"
CONF = {
    "spark.jars.ivy": str(ROOT / "build" / "ivy"),
    "spark.yarn.jars": f"local:{JARS}/*",
    "spark.yarn.maxAppAttempts": "1",
    "spark.yarn.am.waitTime": "600s",
    "spark.network.timeout": "600s",
    "spark.yarn.preserve.staging.files": "true",
    "spark.yarn.appMasterEnv.PYSPARK_PYTHON": sys.executable,
    "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
    "spark.executor.instances": "1",
}


@pytest.fixture
def endpoint() -> Iterator[str]:
    with s3.bucket(BUCKET) as store, proxy(store, lambda _: None) as url:
        yield url


@pytest.fixture
def lake_on_s3(
    postgres_catalog: CatalogDatabase, endpoint: str, set_connection: SetConnection
) -> Iterator[Lake]:
    set_connection("spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"})
    with s3_lake(postgres_catalog, f"s3://{BUCKET}/lake/", endpoint, set_connection) as lake_on_s3:
        alone(lake_on_s3).create_table("t", {"id": "int32", "name": "varchar"})
        rows = "".join(f"{number},n{number % 7}\n" for number in range(ROWS))
        write_bytes(
            f"s3://{BUCKET}/landing/in.csv", f"id,name\n{rows}".encode(), lake_on_s3.opened.storage_options
        )
        yield lake_on_s3


@pytest.mark.cluster
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("lake_on_s3")
def test_an_insert_runs_in_containers_and_no_secret_of_the_connection_reaches_them(
    postgres_catalog, endpoint, yarn, tmp_path, monkeypatch, capfd
):
    submit = recorded(tmp_path / "bin", monkeypatch)
    monkeypatch.setenv("YARN_CONF_DIR", str(yarn.conf))

    result = DuckLakeSparkInsertOperator(
        task_id="insert",
        table="t",
        source=f"s3://{BUCKET}/landing/in.csv",
        packages=s3.PACKAGES,
        exclude_packages="software.amazon.awssdk:bundle",
        conf={**CONF, "spark.yarn.stagingDir": f"file://{tmp_path}/staging"},
        driver_memory="512m",
        executor_memory="512m",
    ).execute(context_of("insert"))

    assert result["rows_added"] == ROWS
    assert read_by_duckdb(postgres_catalog, endpoint, "SELECT count(*), sum(id) FROM t") == [
        (ROWS, sum(range(ROWS)))
    ]
    (call,) = submit.calls
    assert call.value_of("--deploy-mode") == "cluster"
    below = [*(tmp_path / "staging").rglob("*"), *yarn.folder.rglob("*")]
    staged = [file for file in below if file.is_file() and file.suffix != ".jar"]
    assert any("__spark_conf__" in str(file) for file in staged)
    assert "DUCKLAKE_STORAGE_SECRETS" not in call.environment
    shown = {"logs": yarn.logs, "arguments": " ".join(call.arguments), "printed": "".join(capfd.readouterr())}
    assert [name for name, text in shown.items() if s3.SECRET in text] == []
    assert [file for file in staged if s3.SECRET.encode() in file.read_bytes()] == []


# --- jobs that outlive their task: the real ResourceManager is asked, by its REST API ---


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, yarn: Yarn) -> SparkSubmit:
    monkeypatch.setenv("YARN_CONF_DIR", str(yarn.conf))
    return recorded(tmp_path / "bin", monkeypatch)


@pytest.fixture
def lake(postgres_catalog, connect, set_connection, yarn, submit) -> Iterator[Lake]:  # noqa: ARG001
    connect(postgres_catalog, data_path=postgres_catalog.data_path)
    extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": yarn.address}
    set_connection("spark_default", conn_type="spark", host="yarn", extra=extra)
    with DuckLakeHook() as hook:
        alone(hook.get_or_create_lake()).create_table("t", {"id": "int32", "name": "varchar"})
        yield hook.lake()
    gc.collect()


@pytest.fixture
def slow(tmp_path: Path, gate: Path) -> dict[str, Any]:
    conf = {**CONF, "spark.yarn.stagingDir": f"file://{tmp_path}/staging", "spark.yarn.tags": "of-a-user"}
    return slow_rows(tmp_path, gate) | {"conf": conf}


@pytest.mark.cluster
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("step", ["noted", "submitted", "done"])
def test_a_later_try_takes_the_results_of_what_a_killed_worker_submitted(
    step, lake, slow, gate, postgres_catalog, submit
):
    worker = started(**slow)
    wait_until(lambda: count(postgres_catalog, PLANNED if step == "noted" else SUBMITTED), step)
    if step == "done":
        gate.unlink()
        wait_until(lambda: [*Path(lake.data_path).rglob("_DONE")], step)
    worker.kill()
    worker.join()
    gate.unlink(missing_ok=True)

    result = execute(2, **slow)

    assert result["rows_added"] == ROWS
    check_once(lake, postgres_catalog)
    assert step == "noted" or len(submit.calls) == 1


@pytest.mark.cluster
@pytest.mark.timeout(1800)
def test_an_application_that_nobody_noted_is_found_by_its_tag(lake, slow, yarn, postgres_catalog):
    left = deferred(**slow)
    manager = Manager(yarn.address)

    assert manager.find(left.trigger.job_id) == left.trigger.application
    assert manager.find(str(uuid4())) is None
    assert manager.status(left.trigger.application).state is ApplicationState.RUNNING
    assert manager.status("application_1_0001").state is ApplicationState.GONE

    asyncio.run(left.trigger.on_kill())

    assert manager.status(left.trigger.application).state is ApplicationState.KILLED
    check_nothing(lake, postgres_catalog)


@pytest.mark.cluster
@pytest.mark.timeout(1800)
def test_a_deferred_task_commits_when_the_application_has_ended(lake, slow, gate, postgres_catalog):
    ti_id = uuid4()
    left = deferred(**slow, ti_id=ti_id, poll_interval=1)
    gate.unlink()

    event = asyncio.run(event_of(left.trigger))
    result = execute(**slow, deferrable=True, event=event, ti_id=ti_id)

    assert (event["state"], result["rows_added"]) == ("succeeded", ROWS)
    check_once(lake, postgres_catalog)
