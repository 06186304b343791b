"""Jobs that are submitted to Kubernetes in cluster mode, on a server that plays its API.

The pod does what its spec says, as a process of this machine: with the settings and files that reached it,
and with the environment that it is given there.
"""

import asyncio
import gc
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import SparkJobError
from airflow_provider_ducklake.lake.storage.files.filesystem import file_sizes, write_bytes
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
from tests.reference.kubernetes_api import Cluster, Object, kubernetes
from tests.reference.processes import FAST_JVM
from tests.reference.s3_proxy import proxy

BUCKET = "pods"
OF_POD = "the-pods-own-secret"
IVY = ROOT / "build" / "ivy"
CONF = {
    "spark.jars.ivy": str(IVY),
    "spark.kubernetes.container.image": "registry.example.com/spark-lake:4.2.0",
    "spark.kubernetes.file.upload.path": f"s3a://{BUCKET}/spark-uploads",
    "spark.kubernetes.driver.secretKeyRef.AWS_ACCESS_KEY_ID": "lake:id",
    "spark.kubernetes.driver.secretKeyRef.AWS_SECRET_ACCESS_KEY": "lake:secret",
    "spark.hadoop.fs.s3a.path.style.access": "true",
}
ELSEWHERE = re.compile(r"spark\.(?:driver\.(?:host|port|blockManager)|kubernetes|jars)")
SECRETS = {"id": "pod", "secret": OF_POD}


@pytest.fixture
def endpoint() -> Iterator[str]:
    with s3.bucket(BUCKET) as store, proxy(store, lambda _: None) as url:  # moto knows no 100-continue
        yield url


@pytest.fixture
def lake_on_s3(
    postgres_catalog: CatalogDatabase, endpoint: str, set_connection: SetConnection
) -> Iterator[Lake]:
    with s3_lake(postgres_catalog, f"s3://{BUCKET}/lake/", endpoint, set_connection) as lake_on_s3:
        alone(lake_on_s3).create_table("t", {"id": "int32", "name": "varchar"})
        write_bytes(
            f"s3://{BUCKET}/landing/in.csv", b"id,name\n1,a\n2,b\n", lake_on_s3.opened.storage_options
        )
        yield lake_on_s3


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparkSubmit:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(variable, raising=False)
    return recorded(tmp_path / "bin", monkeypatch)


@pytest.fixture
def insert(set_connection: SetConnection, endpoint: str) -> Callable[..., dict[str, Any]]:
    def insert(cluster: Cluster, **arguments: Any) -> dict[str, Any]:
        extra = {"deploy-mode": "cluster", "namespace": "lakes"}
        set_connection("spark_default", conn_type="spark", host=f"k8s://{cluster.url}", extra=extra)
        conf = {**CONF, "spark.hadoop.fs.s3a.endpoint": endpoint}
        given = {"source": f"s3://{BUCKET}/landing/in.csv", "packages": s3.PACKAGES, "conf": conf} | arguments
        given["exclude_packages"] = "software.amazon.awssdk:bundle"
        operator = DuckLakeSparkInsertOperator(task_id="insert", table="t", **given)
        return operator.execute(context_of("insert"))

    return insert


class Node:
    """Runs the driver of a pod as its container would, with ``spark-submit`` of this environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster: Cluster | None = None
        self.output = ""

    def run(self, pod: Object) -> int:
        container = pod["spec"]["containers"][0]
        assert container["args"][:2] == ["driver", "--properties-file"]
        arguments = ["--properties-file", str(self._properties(pod)), *container["args"][3:]]
        here = ["--deploy-mode", "client", "--master", "local[1]"]
        environment = {**self._kept(), **dict(map(_variable, container["env"]))}
        with (self.folder / "driver.log").open("w+") as log:
            process = subprocess.Popen(
                ["spark-submit", *here, *arguments],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            while process.poll() is None:
                if not self.cluster.has(pod):  # deleted: the kubelet ends it
                    os.killpg(process.pid, signal.SIGKILL)
                time.sleep(0.1)
            log.seek(0)
            self.output = log.read()
        return process.returncode

    def _properties(self, pod: Object) -> Path:
        """Return the mounted file, without what a cluster alone has, or an image has already."""
        assert self.cluster is not None
        mounted = {one["configMap"]["name"] for one in pod["spec"]["volumes"] if "configMap" in one}
        found = (
            one["data"] for one in self.cluster.of_kind("configmaps") if one["metadata"]["name"] in mounted
        )
        lines = next(data for data in found if "spark.properties" in data)["spark.properties"].splitlines()
        file = self.folder / f"{pod['metadata']['name']}.properties"
        file.write_text("\n".join(line for line in lines if not ELSEWHERE.match(line)))
        return file

    def _kept(self) -> dict[str, str]:
        """Return what an image has."""
        return {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "JAVA_HOME": os.environ["JAVA_HOME"],
            "JDK_JAVA_OPTIONS": FAST_JVM,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "HOME": str(self.folder),
            "SPARK_DIST_CLASSPATH": ":".join(map(str, IVY.glob("jars/*"))),
        }


def _variable(one: Object) -> tuple[str, str]:
    source = one.get("valueFrom", {})
    if "secretKeyRef" in source:
        return one["name"], SECRETS[source["secretKeyRef"]["key"]]
    if "fieldRef" in source:
        return one["name"], "127.0.0.1"
    return (one["name"], one["value"]) if not one["name"].startswith("SPARK_") else ("SPARK_USER", "185")


@pytest.mark.cluster
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("lake_on_s3")
def test_an_insert_runs_in_a_pod_and_no_secret_is_on_the_way(
    postgres_catalog, endpoint, recorder, insert, tmp_path, capfd
):
    node = Node(tmp_path)
    with kubernetes(node.run) as node.cluster:
        result = insert(node.cluster)
        seen = [*node.cluster.requests]
        (pod,), (settings,) = node.cluster.of_kind("pods"), node.cluster.of_kind("configmaps")

    assert result["rows_added"] == 2
    assert read_by_duckdb(postgres_catalog, endpoint, "FROM t ORDER BY id") == [(1, "a"), (2, "b")]
    arguments = pod["spec"]["containers"][0]["args"]
    assert arguments[-3].startswith(f"s3a://{BUCKET}/spark-uploads/")
    assert re.fullmatch(rf"s3://{BUCKET}/lake/main/t/ducklake-[\w-]+/request\.json", arguments[-2])
    assert f"spark.submit.pyFiles=s3a\\://{BUCKET}/spark-uploads/" in settings["data"]["spark.properties"]
    (call,) = recorder.calls
    shown = [json.dumps(seen), " ".join(call.arguments), node.output, *capfd.readouterr()]
    assert not any(s3.SECRET in one for one in shown)
    assert call.environment["AWS_SECRET_ACCESS_KEY"] == s3.SECRET
    assert "DUCKLAKE_STORAGE_SECRETS" not in call.environment
    assert "AWS_SECRET_ACCESS_KEY" not in os.environ


@pytest.mark.cluster
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("recorder")
def test_a_pod_that_dies_is_told_and_nothing_stays(lake_on_s3, insert, tmp_path):
    conf = {**CONF, "spark.kubernetes.file.upload.path": f"file://{tmp_path}"}
    before = file_sizes(
        f"s3://{BUCKET}/lake/", lake_on_s3.opened.storage_options
    )  # moto keeps those of other tests
    with (
        kubernetes(lambda _: 137) as cluster,
        pytest.raises(SparkJobError, match=r"^The driver's pod ran out of memory .* Raise driver_memory"),
    ):
        insert(cluster, conf=conf, packages=None)

    assert len(cluster.of_kind("pods")) == 1
    assert lake_on_s3.row_count("t") == 0
    assert file_sizes(f"s3://{BUCKET}/lake/", lake_on_s3.opened.storage_options) == before


# --- jobs that outlive their task: Airflow's own client asks the server ---


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
        alone(hook.get_or_create_lake()).create_table("t", {"id": "int32", "name": "varchar"})
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


@pytest.mark.cluster
@pytest.mark.timeout(900)
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


@pytest.mark.cluster
@pytest.mark.timeout(900)
def test_a_deferred_task_commits_when_the_pod_has_ended(lake, slow, gate, postgres_catalog):
    ti_id = uuid4()
    left = deferred(**slow, ti_id=ti_id, poll_interval=1)
    gate.unlink()

    event = asyncio.run(event_of(left.trigger))
    result = execute(**slow, deferrable=True, event=event, ti_id=ti_id)

    assert (event["state"], result["rows_added"]) == ("succeeded", ROWS)
    check_once(lake, postgres_catalog)


@pytest.mark.cluster
@pytest.mark.timeout(900)
def test_a_pod_that_a_person_ends_leaves_nothing(lake, slow, cluster, postgres_catalog):
    left = deferred(**slow)
    assert len(cluster.of_kind("pods")) == 1

    asyncio.run(left.trigger.on_kill())

    assert cluster.of_kind("pods") == []
    check_nothing(lake, postgres_catalog)
