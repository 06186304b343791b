"""A lake on S3, and a standalone cluster whose machines share no disk: each verb by a Spark of its own."""

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa
import pytest

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.storage.files.filesystem import write_bytes
from tests.airflow.conftest import SetConnection, connection_fields
from tests.airflow.dags import parse, sync_dag, xcom
from tests.airflow.s3_lakes import read_by_duckdb
from tests.airflow.spark_submit import ROOT, SparkSubmit, recorded
from tests.reference import s3
from tests.reference.catalogs import CatalogDatabase
from tests.reference.standalone_cluster import Cluster, command_lines, standalone_cluster

BUCKET = "shared-nothing"
ROWS = 30_000  # more than a driver would write by itself

DAG_FILE = """
from datetime import UTC, datetime
from airflow.sdk import DAG, chain
from airflow_provider_ducklake.operators import (
    DuckLakeDDLOperator, DuckLakeFlushInlinedDataOperator, DuckLakeRestoreOperator,
    DuckLakeSparkDeleteOperator, DuckLakeSparkInsertOperator, DuckLakeSparkMergeAdjacentFilesOperator,
    DuckLakeSparkMergeOperator, DuckLakeSparkRewriteDataFilesOperator, DuckLakeSparkSQLOperator,
    DuckLakeSparkStreamOperator, DuckLakeSparkUpdateOperator, DuckLakeVerifyOperator, ducklake_maintenance,
)

{s3}

S3["conf"] = {conf}
ORDERS = {{"table": "sales.orders"}}

with DAG("cluster", start_date=datetime(2026, 1, 1, tzinfo=UTC), schedule=None, default_args=S3):
    chain(
        DuckLakeDDLOperator(
            task_id="create",
            sql=[
                "CREATE TABLE sales.clicks (page VARCHAR, clicked TIMESTAMP)",
                "CREATE TABLE sales.orders (id INTEGER, price DOUBLE)",
                "CREATE TABLE sales.totals (id INTEGER, price DOUBLE)",
            ],
        ),
        DuckLakeSparkInsertOperator(task_id="insert", source="s3://{bucket}/landing/orders.csv", **ORDERS),
        DuckLakeSparkDeleteOperator(task_id="delete", where="id % 10 = 0", **ORDERS),
        DuckLakeSparkUpdateOperator(
            task_id="update", set={{"price": "price + 1"}}, where="id % 10 = 1", **ORDERS
        ),
        DuckLakeSparkMergeOperator(
            task_id="merge",
            on=["id"],
            source={{
                "path": "s3://{bucket}/landing/changes.csv", "options": {{"schema": "id INT, price DOUBLE"}}
            }},
            update_all=True,
            insert_all=True,
            **ORDERS,
        ),
        DuckLakeSparkSQLOperator(
            task_id="query",
            sql="INSERT INTO sales.totals SELECT id % 7, sum(price) FROM sales.orders GROUP BY 1",
        ),
        DuckLakeSparkStreamOperator(
            task_id="stream",
            table="sales.clicks",
            transform="clicks_of_test:clicks",
            py_files="{folder}/clicks_of_test.py",
            checkpoint="s3://{bucket}/checkpoints/clicks/",
        ),
        DuckLakeFlushInlinedDataOperator(task_id="flush", table="sales.parts"),
        DuckLakeSparkRewriteDataFilesOperator(task_id="rewrite", delete_threshold=0.01, **ORDERS),
        DuckLakeSparkMergeAdjacentFilesOperator(task_id="compact", table="sales.parts"),
        DuckLakeDDLOperator(task_id="alter", sql="ALTER TABLE sales.totals DROP COLUMN price"),
        DuckLakeRestoreOperator(
            task_id="restore",
            table="sales.totals",
            at="{{{{ ti.xcom_pull(task_ids='query')['snapshot_id'] }}}}",
        ),
        ducklake_maintenance(
            min_files=2,
            arguments={{
                "expire": {{"keep_last": 1}},
                "clean_up": {{"older_than": "0 seconds", "min_retention": "0 seconds"}},
                "orphans": {{"older_than": "0 seconds", "min_retention": "0 seconds"}},
            }},
        ),
        DuckLakeVerifyOperator(task_id="verify"),
    )
"""
CLICKS = f"""
def clicks(spark, sources):
    reader = spark.readStream.schema("page STRING, clicked TIMESTAMP_NTZ").option("maxFilesPerTrigger", 1)
    return reader.json("s3a://{BUCKET}/landing/clicks/")
"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="cluster-") as folder:  # pytest's folders are closed to others
        Path(folder).chmod(0o755)
        with standalone_cluster(Path(folder, "spark")) as cluster:
            yield cluster


@pytest.fixture
def endpoint() -> Iterator[str]:
    with s3.bucket(BUCKET) as url:
        yield url


@pytest.fixture
def lake(
    postgres_catalog: CatalogDatabase, endpoint: str, cluster: Cluster, set_connection: SetConnection
) -> Iterator[Lake]:
    """The lake of the connections that the DAG uses, with three rows that are inlined and two small files."""
    fields = connection_fields(postgres_catalog)
    fields["extra"]["data_path"] = f"s3://{BUCKET}/lake/"
    fields["extra"]["storage_conn_id"] = "store"
    set_connection("store", conn_type="aws", login="id", password=s3.SECRET, extra={"endpoint_url": endpoint})
    set_connection("ducklake_default", **fields)
    set_connection("spark_default", conn_type="spark", host=cluster.url)
    hook = DuckLakeHook()
    lake = hook.get_or_create_lake()
    with lake.transaction() as tx:
        tx.create_schema("sales")
        tx.create_table("sales.parts", {"id": "int32"})
        for number in range(2):
            tx.append_arrow("sales.parts", pa.table({"id": pa.array([number] * 20, pa.int32())}))
    lake.append_arrow("sales.parts", pa.table({"id": pa.array([2] * 3, pa.int32())}))
    yield lake
    hook.close()


def put_sources(lake: Lake) -> None:
    root, options = f"s3://{BUCKET}/landing/", lake.opened.storage_options
    orders = "".join(f"{number},{number / 2}\n" for number in range(ROWS))
    write_bytes(f"{root}orders.csv", f"id,price\n{orders}".encode(), options)
    changes = "".join(f"{number},7\n" for number in range(ROWS - 9, ROWS + 10))
    write_bytes(f"{root}changes.csv", f"id,price\n{changes}".encode(), options)
    for page in ("home", "prices"):
        click = json.dumps({"page": page, "clicked": "2026-11-01T10:00:00"})
        write_bytes(f"{root}clicks/{page}.json", f"{click}\n".encode(), options)


def expected_orders() -> list[tuple[int, float]]:
    rows = {number: number / 2 + (number % 10 == 1) for number in range(ROWS) if number % 10}
    rows |= dict.fromkeys(range(ROWS - 9, ROWS + 10), 7.0)
    return sorted(rows.items())


class Watch(Thread):
    """Looks at the command lines of all processes of the machine, as any user can, for a secret."""

    def __init__(self, secret: str) -> None:
        super().__init__(daemon=True)
        self.found: set[str] = set()
        self.looks = 0
        self._secret = secret
        self._done = Event()

    def run(self) -> None:
        while not self._done.wait(0.2):
            self.found |= {line for _, line in command_lines() if self._secret in line}
            self.looks += 1

    def end(self) -> None:
        self._done.set()
        self.join()


@pytest.mark.cluster
@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("airflow_db")
def test_every_verb_works_where_machines_share_a_store_alone(
    lake, postgres_catalog, endpoint, cluster, tmp_path, monkeypatch, capfd
):
    put_sources(lake)
    submit: SparkSubmit = recorded(tmp_path / "bin", monkeypatch)
    events = tmp_path / "events"
    events.mkdir()
    conf = {
        "spark.jars.ivy": str(ROOT / "build" / "ivy"),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{events}",
        "spark.executor.memory": "700m",
        "spark.sql.shuffle.partitions": "2",
    }
    page = (ROOT / "docs" / "connection.md").read_text()
    settings = re.search(r"^S3 = \{.*?^\}", page, re.DOTALL | re.MULTILINE)[0]
    (tmp_path / "clicks_of_test.py").write_text(CLICKS)
    file = tmp_path / "cluster.py"
    file.write_text(DAG_FILE.format(s3=settings, conf=conf, folder=tmp_path, bucket=BUCKET))
    watch = Watch(s3.SECRET)
    watch.start()
    dag = sync_dag(parse(file))

    started = time.monotonic()
    run = dag.test()

    watch.end()
    with capfd.disabled():
        sys.stdout.write(f"\n{len(submit.calls)} jobs in {time.monotonic() - started:.0f} s\n")
    assert run.state == "success"
    assert read_by_duckdb(postgres_catalog, endpoint, "FROM sales.orders ORDER BY id") == expected_orders()
    totals = read_by_duckdb(postgres_catalog, endpoint, "SELECT sum(price), count(*) FROM sales.totals")
    assert totals == [(pytest.approx(sum(price for _, price in expected_orders())), 7)]
    clicks = read_by_duckdb(postgres_catalog, endpoint, "SELECT page FROM sales.clicks ORDER BY 1")
    assert clicks == [("home",), ("prices",)]
    parts = "SELECT id, count(*) FROM sales.parts GROUP BY 1 ORDER BY 1"
    assert read_by_duckdb(postgres_catalog, endpoint, parts) == [(0, 20), (1, 20), (2, 3)]
    assert xcom(run, "verify")["findings"] == 0
    check_no_secret(submit, watch, cluster, events, capfd.readouterr())


def check_no_secret(submit, watch, cluster, events, printed) -> None:
    assert watch.looks > 50
    assert watch.found == set()
    assert s3.SECRET not in "".join(printed)
    assert s3.SECRET not in cluster.logs
    logs = [file.read_text() for file in events.rglob("*") if file.is_file()]
    assert len(logs) >= len(submit.calls)
    assert not any(s3.SECRET in log for log in logs)
    for call in submit.calls:
        assert s3.SECRET in call.environment["DUCKLAKE_STORAGE_SECRETS"]
        assert not any(s3.SECRET in argument for argument in call.arguments)
    assert s3.SECRET not in str(os.environ.get("DUCKLAKE_STORAGE_SECRETS"))
