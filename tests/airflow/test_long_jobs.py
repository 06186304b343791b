"""Jobs in cluster mode outlive their task: on a standalone cluster of this machine, with a shared disk."""

import csv
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ducklake.catalog.lake import Lake
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from tests.airflow.dags import FakeTaskInstance
from tests.airflow.spark_submit import recorded
from tests.reference.duckdb_lake import open_lake
from tests.reference.standalone_cluster import Cluster, standalone_cluster

ROWS = 20_000
SMALL = {"driver_memory": "512m", "executor_memory": "512m", "status_poll_interval": 1}

pytestmark = [pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")]  # SparkSubmitHook's pipe


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster") / "all", shares_disk=True) as cluster:
        yield cluster


@pytest.fixture
def lake(postgres_catalog, connect, set_connection, cluster, tmp_path, monkeypatch) -> Iterator[Lake]:
    connect(postgres_catalog, data_path=postgres_catalog.data_path)
    extra = {"deploy-mode": "cluster", "rest-port": cluster.rest_port}
    set_connection("spark_default", conn_type="spark", host=cluster.url, extra=extra)
    recorded(tmp_path / "bin", monkeypatch)
    with closing(DuckLakeHook()) as hook:
        with hook.get_or_create_lake().transaction() as tx:
            tx.create_table("t", {"id": "int32", "name": "varchar"})
        yield hook.lake()


@pytest.fixture
def source(tmp_path: Path) -> str:
    with (tmp_path / "in.csv").open("w") as file:
        csv.writer(file).writerows([("id", "name"), *((number, f"n{number % 7}") for number in range(ROWS))])
    return str(tmp_path / "in.csv")


def execute(tries: int = 1, **arguments: Any) -> dict[str, Any]:
    ti = FakeTaskInstance("insert")
    ti.try_number, ti.max_tries = tries, 9
    operator = DuckLakeSparkInsertOperator(task_id="insert", table="t", retries=9, **SMALL, **arguments)
    return operator.execute({"ti": ti, "logical_date": None})


def test_a_job_runs_in_cluster_mode_which_spark_refuses_python(lake, source, postgres_catalog, cluster):
    result = execute(source=source)

    assert result["rows_added"] == ROWS
    with open_lake(postgres_catalog) as reference:
        assert reference.sql("SELECT count(*), sum(id) FROM t") == [(ROWS, sum(range(ROWS)))]
    assert [file for file in Path(lake.data_path).rglob("*") if file.suffix in {".json", ".jar"}] == []
    assert cluster.cluster_drivers() == []
