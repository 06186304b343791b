"""A lake on S3 through Spark Connect: each verb, a server without the jar, and no secret anywhere."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import DuckLakeError
from airflow_provider_ducklake.operators.delete import DuckLakeSparkDeleteOperator
from tests.airflow.conftest import connection_fields
from tests.airflow.dags import FakeTaskInstance, parse, state_of, sync_dag, xcom
from tests.airflow.spark_submit import ROOT
from tests.airflow.test_s3 import BUCKET, DAG_FILE, PAGE, SECRET, TASKS, append_parts, read_by_duckdb
from tests.reference import s3
from tests.reference.connect_server import ConnectServer, connect_server

pytestmark = pytest.mark.submits

PACKAGE = re.search(r'"(org\.apache\.hadoop:hadoop-aws:[\d.]+)"', PAGE)[1]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3.bucket(BUCKET) as url:
        yield url


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    conf = {"spark.jars.packages": PACKAGE, "spark.jars.ivy": str(ROOT / "build" / "ivy")}
    with connect_server(tmp_path_factory.mktemp("connect"), conf) as one:
        yield one


@pytest.fixture
def lake(postgres_catalog, endpoint: str, set_connection) -> Iterator[Lake]:
    options = {"key": "id", "secret": SECRET, "endpoint_url": endpoint}
    set_connection(**connection_fields(postgres_catalog, storage_options=options))
    lake = Lake.create(postgres_catalog.sqlalchemy_url, f"s3://{BUCKET}/connect/", storage_options=options)
    with lake.transaction() as tx:
        tx.create_schema("sales")
        for name in ("orders", "totals", "parts"):
            tx.create_table(f"sales.{name}", {"id": "int32", "price": "float64"})
    yield lake
    lake.close()


@pytest.mark.usefixtures("airflow_db")
def test_each_verb_works_on_s3_and_shows_no_secret(
    lake, postgres_catalog, endpoint, server, set_connection, tmp_path, monkeypatch, capfd
):
    append_parts(lake)
    set_connection("connect", conn_type="spark_connect", host="127.0.0.1", port=server.port)
    monkeypatch.setenv("PATH", "/nowhere")
    Path(tmp_path / "orders.csv").write_text("id,price\n1,1.5\n2,2.5\n3,3.5\n")
    Path(tmp_path / "changes.csv").write_text("id,price\n3,30\n4,40\n")
    file = tmp_path / "first_mile.py"
    settings = 'S3 = {"spark_connect_conn_id": "connect"}'
    file.write_text(
        DAG_FILE.format(s3=settings, folder=tmp_path, ivy="unused").replace('S3["conf"]', "UNUSED")
    )

    run = sync_dag(parse(file)).test()

    assert [state_of(run, task) for task in TASKS] == ["success"] * len(TASKS)
    assert xcom(run, "compact")["files_removed"] == 3
    assert xcom(run, "orphans")["files_deleted"] == 0
    for table in ("orders", "totals"):
        rows = read_by_duckdb(postgres_catalog, endpoint, f"FROM sales.{table} ORDER BY id")
        assert rows == [(1, 1.5), (3, 30), (4, 40)]
    assert lake.verify() == []
    shown = "".join(capfd.readouterr()) + server.log + server.events
    assert "SparkListenerConnectOperationStarted" in shown
    assert SECRET not in shown
    assert SECRET not in json.dumps([xcom(run, task) for task in TASKS], default=str)


def test_a_server_without_the_jar_says_so(lake, set_connection, tmp_path_factory):
    append_parts(lake)
    with connect_server(tmp_path_factory.mktemp("bare")) as bare:
        set_connection("connect", conn_type="spark_connect", host="127.0.0.1", port=bare.port)
        delete = DuckLakeSparkDeleteOperator(
            task_id="delete", table="sales.parts", where="id = 1", spark_connect_conn_id="connect"
        )
        with pytest.raises((AirflowFailException, DuckLakeError), match="hadoop-aws"):
            delete.execute({"ti": FakeTaskInstance("delete"), "logical_date": None})
        assert SECRET not in bare.log + bare.events
    assert lake.row_count("sales.parts") == 3
