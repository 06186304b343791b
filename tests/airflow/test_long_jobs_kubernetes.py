"""Jobs on Kubernetes outlive their task, on a server that plays its API: Airflow's own client asks it."""

import asyncio
import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

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
from tests.airflow.test_kubernetes import Node
from tests.reference.kubernetes_api import Cluster, kubernetes

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),  # SparkSubmitHook's pipe
    pytest.mark.timeout(900),
    pytest.mark.cluster,
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    node = Node(tmp_path)
    with kubernetes(node.run) as node.cluster:
        yield node.cluster


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparkSubmit:
    return recorded(tmp_path / "bin", monkeypatch)


@pytest.fixture
def lake(postgres_catalog, connect, set_connection, cluster, submit, tmp_path, monkeypatch) -> Iterator[Lake]:  # noqa: ARG001
    connect(postgres_catalog, data_path=postgres_catalog.data_path)
    extra = {"deploy-mode": "cluster", "namespace": "lakes"}
    set_connection("spark_default", conn_type="spark", host=f"k8s://{cluster.url}", extra=extra)
    context = {"cluster": "here", "user": "me"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": {"server": cluster.url}}],
        "users": [{"name": "me", "user": {}}],
        "contexts": [{"name": "here", "context": context}],
        "current-context": "here",
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER", "False")
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE", str(tmp_path / "kubeconfig"))
    with DuckLakeHook() as hook:
        with hook.get_or_create_lake().transaction() as tx:
            tx.create_table("t", {"id": "int32", "name": "varchar"})
        yield hook.lake()
    gc.collect()


@pytest.fixture
def slow(tmp_path: Path, gate: Path) -> dict[str, Any]:
    (tmp_path / "uploads").mkdir()
    conf = {
        "spark.kubernetes.container.image": "registry.example.com/spark-lake:4.2.0",
        "spark.kubernetes.file.upload.path": f"file://{tmp_path}/uploads",
    }
    return slow_rows(tmp_path, gate) | {"conf": conf, "durable": True}


@pytest.mark.parametrize("step", ["noted", "submitted", "done"])
def test_a_later_try_takes_the_results_of_what_a_killed_worker_submitted(
    step, lake, slow, gate, postgres_catalog, submit, cluster
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
    assert step == "noted" or len(submit.calls) == len(cluster.of_kind("pods")) == 1


def test_a_deferred_task_commits_when_the_pod_has_ended(lake, slow, gate, postgres_catalog):
    ti_id = uuid4()
    left = deferred(**slow, ti_id=ti_id, poll_interval=1)
    gate.unlink()

    event = asyncio.run(event_of(left.trigger))
    result = execute(**slow, deferrable=True, event=event, ti_id=ti_id)

    assert (event["state"], result["rows_added"]) == ("succeeded", ROWS)
    check_once(lake, postgres_catalog)


def test_a_pod_that_a_person_ends_leaves_nothing(lake, slow, cluster, postgres_catalog):
    left = deferred(**slow)
    assert len(cluster.of_kind("pods")) == 1

    asyncio.run(left.trigger.on_kill())

    assert cluster.of_kind("pods") == []
    check_nothing(lake, postgres_catalog)
