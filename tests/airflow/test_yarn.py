"""A job in cluster mode on a YARN of this machine: real servers, real containers, and a lake on S3."""

import gc
import sys
from collections.abc import Iterator

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.storage.files.filesystem import write_bytes
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from tests.airflow.conftest import SetConnection
from tests.airflow.dags import FakeTaskInstance
from tests.airflow.s3_lakes import s3_lake
from tests.airflow.spark_submit import ROOT, recorded
from tests.airflow.test_s3 import read_by_duckdb
from tests.reference import s3
from tests.reference.catalogs import CatalogDatabase
from tests.reference.s3_proxy import proxy
from tests.reference.yarn_cluster import JARS

BUCKET = "nodes"
ROWS = 20_000  # more than a driver would write by itself
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
def lake(postgres_catalog: CatalogDatabase, endpoint: str, set_connection: SetConnection) -> Iterator[Lake]:
    set_connection("spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"})
    with s3_lake(postgres_catalog, f"s3://{BUCKET}/lake/", endpoint, set_connection) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"id": "int32", "name": "varchar"})
        rows = "".join(f"{number},n{number % 7}\n" for number in range(ROWS))
        write_bytes(f"s3://{BUCKET}/landing/in.csv", f"id,name\n{rows}".encode(), lake.opened.storage_options)
        yield lake


@pytest.mark.cluster
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.usefixtures("lake")
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
    ).execute({"ti": FakeTaskInstance("insert"), "logical_date": None})

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
    gc.collect()  # SparkSubmitHook leaves spark-submit's pipe
