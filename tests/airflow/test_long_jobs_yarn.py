"""Jobs of a YARN of this machine outlive their task: its real ResourceManager is asked, by its REST API."""

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from airflow_provider_ducklake.hooks.clusters import ApplicationState
from airflow_provider_ducklake.hooks.clusters import Yarn as Manager
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.catalog.lake import Lake
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
from tests.airflow.spark_submit import SparkSubmit, recorded
from tests.airflow.test_yarn import CONF
from tests.reference.yarn_cluster import Yarn

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),  # SparkSubmitHook's pipe
    pytest.mark.timeout(1800),
    pytest.mark.cluster,
]


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
        with hook.get_or_create_lake().transaction() as tx:
            tx.create_table("t", {"id": "int32", "name": "varchar"})
        yield hook.lake()
    gc.collect()


@pytest.fixture
def slow(tmp_path: Path, gate: Path) -> dict[str, Any]:
    conf = {**CONF, "spark.yarn.stagingDir": f"file://{tmp_path}/staging", "spark.yarn.tags": "of-a-user"}
    return slow_rows(tmp_path, gate) | {"conf": conf}


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


def test_a_deferred_task_commits_when_the_application_has_ended(lake, slow, gate, postgres_catalog):
    ti_id = uuid4()
    left = deferred(**slow, ti_id=ti_id, poll_interval=1)
    gate.unlink()

    event = asyncio.run(event_of(left.trigger))
    result = execute(**slow, deferrable=True, event=event, ti_id=ti_id)

    assert (event["state"], result["rows_added"]) == ("succeeded", ROWS)
    check_once(lake, postgres_catalog)
