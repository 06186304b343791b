"""Spark's own writer on S3: with the magic committer no file is copied, without it each one is."""

import gc
from collections.abc import Iterator

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from tests.airflow.conftest import SetConnection
from tests.airflow.dags import FakeTaskInstance
from tests.airflow.s3_lakes import s3_lake
from tests.airflow.spark_submit import ROOT, recorded
from tests.airflow.test_s3 import read_by_duckdb
from tests.reference import s3
from tests.reference.catalogs import CatalogDatabase
from tests.reference.s3_proxy import Request, proxy

BUCKET = "native"
HADOOP_AWS = "org.apache.hadoop:hadoop-aws:3.5.0"
MAGIC = "org.apache.spark:spark-hadoop-cloud_2.13:4.0.1"  # 4.2 is not in the index; Spark 4.2 runs it
# What it brings for other stores, and what Spark has.
UNNEEDED = (
    "org.apache.hadoop:hadoop-azure",
    "org.apache.hadoop:hadoop-cloud-storage",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "com.google.cloud.bigdataoss:gcs-connector",
    "com.google.cloud.bigdataoss:util-hadoop",
    "com.google.cloud.bigdataoss:util",
)


@pytest.fixture
def requests() -> list[Request]:
    return []


@pytest.fixture
def endpoint(requests: list[Request]) -> Iterator[str]:
    with s3.bucket(BUCKET) as store, proxy(store, requests.append) as url:
        yield url


@pytest.fixture
def lake(postgres_catalog: CatalogDatabase, endpoint: str, set_connection: SetConnection) -> Iterator[Lake]:
    set_connection("spark_default", conn_type="spark", host="local[2]")
    with s3_lake(postgres_catalog, f"s3://{BUCKET}/lake/", endpoint, set_connection) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"id": "int32", "k": "varchar"}, partition_by=["k"])
        yield lake


@pytest.mark.native
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("has_magic", [True, False], ids=["magic", "renamed"])
def test_files_are_written_once_if_spark_has_the_magic_committer(
    lake, postgres_catalog, endpoint, requests, has_magic, tmp_path, monkeypatch
):
    recorded(tmp_path / "bin", monkeypatch)
    (tmp_path / "rows.csv").write_text("id,k\n" + "".join(f"{n},k{n % 3}\n" for n in range(100)))

    DuckLakeSparkInsertOperator(
        task_id="insert",
        table="t",
        source=str(tmp_path / "rows.csv"),
        engine="native",
        packages=",".join([HADOOP_AWS, *([MAGIC] if has_magic else [])]),
        exclude_packages=",".join(UNNEEDED),
        conf={"spark.jars.ivy": str(ROOT / "build" / "ivy")},
    ).execute({"ti": FakeTaskInstance("insert"), "logical_date": None})

    copies = [one.copied for one in requests if one.copied is not None]
    assert bool(copies) is not has_magic
    assert read_by_duckdb(postgres_catalog, endpoint, "SELECT k, count(*) FROM t GROUP BY 1 ORDER BY 1") == [
        ("k0", 34),
        ("k1", 33),
        ("k2", 33),
    ]
    assert lake.read_arrow("t", filter="k = 'k1'").num_rows == 33
    assert sorted(lake.read_arrow("t")["id"].to_pylist()) == list(range(100))
    assert len(lake.scan("t", filter="k = 'k2'").files) == 1
    gc.collect()  # SparkSubmitHook leaves spark-submit's pipe
