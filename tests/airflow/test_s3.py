"""A lake on S3 as `docs/connection.md` sets it up: each verb by a Spark of its own, and by Spark Connect."""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import DuckLakeError, SparkJobError, StorageError
from airflow_provider_ducklake.lake.storage.files.filesystem import file_sizes, write_bytes
from airflow_provider_ducklake.operators.delete import DuckLakeSparkDeleteOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from tests.airflow.conftest import SetConnection, connection_fields
from tests.airflow.dags import context_of, parse, state_of, sync_dag, xcom
from tests.airflow.s3_lakes import read_by_duckdb, s3_lake
from tests.airflow.spark_submit import ROOT, SparkSubmit, recorded
from tests.reference import s3
from tests.reference.catalogs import CatalogDatabase
from tests.reference.connect_server import ConnectServer, connect_server
from tests.reference.s3_proxy import Fault, Refuse, Request, proxy

PAGE = (ROOT / "docs" / "connection.md").read_text()
BUCKET, SECRET = "first-mile", s3.SECRET
TASKS = ("insert", "delete", "merge", "query", "compact", "orphans")

DAG_FILE = """
from datetime import UTC, datetime
from airflow.sdk import DAG
from airflow_provider_ducklake.operators.cleanup import DuckLakeDeleteOrphanedFilesOperator
from airflow_provider_ducklake.operators.compact import DuckLakeSparkMergeAdjacentFilesOperator
from airflow_provider_ducklake.operators.delete import DuckLakeSparkDeleteOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from airflow_provider_ducklake.operators.merge import DuckLakeSparkMergeOperator
from airflow_provider_ducklake.operators.sql import DuckLakeSparkSQLOperator

{s3}

S3["conf"] = {{"spark.jars.ivy": "{ivy}"}}

with DAG("first_mile", start_date=datetime(2026, 1, 1, tzinfo=UTC), schedule=None, default_args=S3):
    insert = DuckLakeSparkInsertOperator(task_id="insert", table="sales.orders", source="{folder}/orders.csv")
    delete = DuckLakeSparkDeleteOperator(task_id="delete", table="sales.orders", where="id = 2")
    merge = DuckLakeSparkMergeOperator(
        task_id="merge",
        table="sales.orders",
        on=["id"],
        source={{"path": "{folder}/changes.csv", "options": {{"schema": "id INT, price DOUBLE"}}}},
        update_all=True,
        insert_all=True,
    )
    query = DuckLakeSparkSQLOperator(
        task_id="query", sql="INSERT INTO sales.totals SELECT id, sum(price) FROM sales.orders GROUP BY id"
    )
    compact = DuckLakeSparkMergeAdjacentFilesOperator(task_id="compact", table="sales.parts")
    orphans = DuckLakeDeleteOrphanedFilesOperator(
        task_id="orphans", older_than="0 seconds", min_retention="0 seconds"
    )
    insert >> delete >> merge >> query >> compact >> orphans
"""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3.bucket(BUCKET) as url:
        yield url


@pytest.fixture
def documented(postgres_catalog: CatalogDatabase, endpoint: str, set_connection: SetConnection) -> str:
    """The page's first connection, with the addresses and keys of this test."""
    fields = json.loads(re.findall(r"^```json\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[0])
    here = connection_fields(postgres_catalog)
    fields |= {name: here.get(name) for name in ("host", "port", "login", "password", "schema")}
    assert fields["extra"]["storage_options"].keys() == {"key", "secret", "endpoint_url"}
    fields["extra"]["storage_options"] = {"key": "id", "secret": SECRET, "endpoint_url": endpoint}
    return set_connection(**fields)


@pytest.fixture
def lake(documented: str, postgres_catalog: CatalogDatabase) -> Iterator[Lake]:
    """A lake with the tables of the DAG; `parts` has three small files."""
    options = DuckLakeHook(documented).settings().storage_options
    lake = Lake.create(postgres_catalog.sqlalchemy_url, f"s3://{BUCKET}/lake/", storage_options=options)
    with lake.transaction() as tx:
        tx.create_schema("sales")
        for name in ("orders", "totals", "parts"):
            tx.create_table(f"sales.{name}", {"id": "int32", "price": "float64"})
    yield lake
    lake.close()


def append_parts(lake: Lake) -> None:
    import pyarrow as pa  # noqa: PLC0415

    lake.set_option("data_inlining_row_limit", 0)
    for number in range(3):
        rows = pa.table({"id": pa.array([number], pa.int32()), "price": [0.5]})
        lake.append_arrow("sales.parts", rows)


@pytest.mark.submits
@pytest.mark.usefixtures("airflow_db")
def test_the_documented_lake_on_s3_works_for_each_verb(
    lake, postgres_catalog, endpoint, set_connection, tmp_path, monkeypatch, capfd
):
    append_parts(lake)
    submit: SparkSubmit = recorded(tmp_path / "bin", monkeypatch)
    set_connection("spark_default", conn_type="spark", host="local[2]")
    Path(tmp_path / "orders.csv").write_text("id,price\n1,1.5\n2,2.5\n3,3.5\n")
    Path(tmp_path / "changes.csv").write_text("id,price\n3,30\n4,40\n")
    settings = re.search(r"^S3 = \{.*?^\}", PAGE, re.DOTALL | re.MULTILINE)[0]
    file = tmp_path / "first_mile.py"
    file.write_text(DAG_FILE.format(s3=settings, folder=tmp_path, ivy=ROOT / "build" / "ivy"))

    run = sync_dag(parse(file)).test()

    assert [state_of(run, task) for task in TASKS] == ["success"] * len(TASKS)
    assert xcom(run, "compact")["files_removed"] == 3
    assert xcom(run, "orphans")["files_deleted"] == 0
    for table in ("orders", "totals"):
        rows = read_by_duckdb(postgres_catalog, endpoint, f"FROM sales.{table} ORDER BY id")
        assert rows == [(1, 1.5), (3, 30), (4, 40)]
    assert lake.verify() == []
    assert len(submit.calls) == 5
    for call in submit.calls:
        assert SECRET in call.environment["DUCKLAKE_STORAGE_SECRETS"]
        assert not any(SECRET in argument for argument in call.arguments)
    assert SECRET not in "".join(capfd.readouterr())
    assert SECRET not in str(os.environ.get("DUCKLAKE_STORAGE_SECRETS"))
    check_without_the_package(lake, in_job=True)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    check_without_the_package(lake, in_job=False)
    assert len(submit.calls) == 6


def check_without_the_package(lake: Lake, *, in_job: bool) -> None:
    """What reads the lake says which package it lacks, and is not retried.

    If the binary may be anybody's, Spark is asked; else the error comes before Spark starts.
    """
    delete = DuckLakeSparkDeleteOperator(task_id="delete", table="sales.orders", where="id = 1")

    with pytest.raises(AirflowFailException, match=r'packages="(org.apache.hadoop:\S+)"') as caught:
        delete.execute(context_of("delete"))

    assert ("Spark has no file system" in str(caught.value)) is in_job
    package = re.search(r'packages="(\S+)"', str(caught.value))
    assert f'"{package[1]},' in PAGE  # with which the DAG has run
    assert lake.row_count("sales.orders") == 3


# --- through Spark Connect ---

PACKAGE = re.search(r'"(org\.apache\.hadoop:hadoop-aws:[\d.]+)"', PAGE)[1]


@pytest.fixture(scope="module")
def server_with_jar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    conf = {"spark.jars.packages": PACKAGE, "spark.jars.ivy": str(ROOT / "build" / "ivy")}
    with connect_server(tmp_path_factory.mktemp("connect"), conf) as one:
        yield one


@pytest.fixture
def lake_of_connect(postgres_catalog, endpoint: str, set_connection) -> Iterator[Lake]:
    options = {"key": "id", "secret": SECRET, "endpoint_url": endpoint}
    set_connection(**connection_fields(postgres_catalog, storage_options=options))
    lake_of_connect = Lake.create(
        postgres_catalog.sqlalchemy_url, f"s3://{BUCKET}/connect/", storage_options=options
    )
    with lake_of_connect.transaction() as tx:
        tx.create_schema("sales")
        for name in ("orders", "totals", "parts"):
            tx.create_table(f"sales.{name}", {"id": "int32", "price": "float64"})
    yield lake_of_connect
    lake_of_connect.close()


@pytest.mark.submits
@pytest.mark.usefixtures("airflow_db")
def test_each_verb_works_on_s3_and_shows_no_secret(
    lake_of_connect, postgres_catalog, endpoint, server_with_jar, set_connection, tmp_path, monkeypatch, capfd
):
    append_parts(lake_of_connect)
    set_connection("connect", conn_type="spark_connect", host="127.0.0.1", port=server_with_jar.port)
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
    assert lake_of_connect.verify() == []
    shown = "".join(capfd.readouterr()) + server_with_jar.log + server_with_jar.events
    assert "SparkListenerConnectOperationStarted" in shown
    assert SECRET not in shown
    assert SECRET not in json.dumps([xcom(run, task) for task in TASKS], default=str)


@pytest.mark.submits
def test_a_server_without_the_jar_says_so(lake_of_connect, set_connection, tmp_path_factory):
    append_parts(lake_of_connect)
    with connect_server(tmp_path_factory.mktemp("bare")) as bare:
        set_connection("connect", conn_type="spark_connect", host="127.0.0.1", port=bare.port)
        delete = DuckLakeSparkDeleteOperator(
            task_id="delete", table="sales.parts", where="id = 1", spark_connect_conn_id="connect"
        )
        with pytest.raises((AirflowFailException, DuckLakeError), match="hadoop-aws"):
            delete.execute(context_of("delete"))
        assert SECRET not in bare.log + bare.events
    assert lake_of_connect.row_count("sales.parts") == 3


# --- names that need escaping, and keys that expire while Spark writes ---

ODD_BUCKET = "odd-names"
SOURCE = f"s3://{ODD_BUCKET}/landing day=1 +ü/in.csv"
TABLE = '"o dd+?#%"."t=1&é."'
VALUES = ["a b", "50%", "a%20b", "x+y", "#1", "why?", "ü ñ 東", "k=v", "a&b", "dots..", "[x]*{y}", ";:@$"]
SPARK: dict[str, Any] = {
    "table": TABLE,
    "packages": s3.PACKAGES,
    "exclude_packages": "software.amazon.awssdk:bundle",
    "conf": {"spark.jars.ivy": str(ROOT / "build" / "ivy")},
}


class Store:
    """Refuses keys as expired from the moment on that a data file is to be written."""

    expires = False
    has_expired = False

    def fault(self, request: Request) -> Fault:
        is_data = request.operation in ("PutObject", "CreateMultipartUpload") and ".parquet" in request.key
        self.has_expired = self.has_expired or (self.expires and is_data)
        return Refuse(400, "ExpiredToken", "The provided token has expired.") if self.has_expired else None


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def odd_endpoint(store: Store) -> Iterator[str]:
    with s3.bucket(ODD_BUCKET) as upstream, proxy(upstream, store.fault) as url:
        yield url


@pytest.fixture
def odd_lake(
    postgres_catalog: CatalogDatabase, odd_endpoint: str, set_connection: SetConnection
) -> Iterator[Lake]:
    set_connection("spark_default", conn_type="spark", host="local[2]")
    with s3_lake(
        postgres_catalog, f"s3://{ODD_BUCKET}/the lake%2B/", odd_endpoint, set_connection
    ) as odd_lake:
        with odd_lake.transaction() as tx:
            tx.create_schema("o dd+?#%")
            tx.create_table(TABLE, {"id": "int32", "k": "varchar"}, ["k"])
        rows = "".join(f'{number},"{value}"\n' for number, value in enumerate(VALUES))
        write_bytes(SOURCE, f"id,k\n{rows}".encode(), odd_lake.opened.storage_options)
        yield odd_lake


def run(operator: Any) -> dict[str, Any]:
    done: dict[str, Any] = operator.execute(context_of(operator.task_id))
    return done


@pytest.mark.submits
@pytest.mark.timeout(1800)
def test_names_that_need_escaping_come_back(
    odd_lake, postgres_catalog, odd_endpoint, tmp_path: Path, monkeypatch
):
    recorded(tmp_path / "bin", monkeypatch)

    added = run(DuckLakeSparkInsertOperator(task_id="insert", source=SOURCE, **SPARK))

    assert added["rows_added"] == len(VALUES)
    check_rows(odd_lake, postgres_catalog, odd_endpoint, list(enumerate(VALUES)))


@pytest.mark.submits
@pytest.mark.timeout(1800)
def test_rows_of_names_that_need_escaping_are_deleted(
    odd_lake, postgres_catalog, odd_endpoint, tmp_path: Path, monkeypatch
):
    recorded(tmp_path / "bin", monkeypatch)
    rows = {"id": pa.array(range(len(VALUES)), pa.int32()), "k": VALUES}
    odd_lake.append_arrow(TABLE, pa.table(rows))

    gone = run(DuckLakeSparkDeleteOperator(task_id="delete", where="id % 3 = 0", **SPARK))

    kept = [(number, value) for number, value in enumerate(VALUES) if number % 3]
    assert gone["rows_deleted"] == len(VALUES) - len(kept)
    check_rows(odd_lake, postgres_catalog, odd_endpoint, kept)


def check_rows(
    odd_lake: Lake, catalog: CatalogDatabase, odd_endpoint: str, rows: list[tuple[int, str]]
) -> None:
    assert read_by_duckdb(catalog, odd_endpoint, f"FROM {TABLE} ORDER BY id") == rows
    assert sorted(odd_lake.read_arrow(TABLE)["k"].to_pylist()) == sorted(value for _, value in rows)
    assert odd_lake.verify() == []


@pytest.mark.submits
@pytest.mark.timeout(1800)
def test_keys_that_expire_while_spark_writes_are_told(odd_lake, store, tmp_path: Path, monkeypatch):
    recorded(tmp_path / "bin", monkeypatch)
    before = file_sizes(
        f"s3://{ODD_BUCKET}/the lake%2B/", odd_lake.opened.storage_options
    )  # moto keeps those of other tests
    store.expires = True

    with pytest.raises((StorageError, SparkJobError), match="credentials have expired"):
        run(DuckLakeSparkInsertOperator(task_id="insert", source=SOURCE, **SPARK))

    store.expires = store.has_expired = False
    assert odd_lake.row_count(TABLE) == 0
    left = file_sizes(f"s3://{ODD_BUCKET}/the lake%2B/", odd_lake.opened.storage_options)
    assert [name for name in left if name not in before and name.endswith(".parquet")] == []
