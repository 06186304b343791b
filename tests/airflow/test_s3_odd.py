"""Spark and a lake on S3 whose names need escaping, and whose keys expire while Spark writes."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import SparkJobError, StorageError
from airflow_provider_ducklake.lake.storage.files.filesystem import file_sizes, write_bytes
from airflow_provider_ducklake.operators.delete import DuckLakeSparkDeleteOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from tests.airflow.conftest import SetConnection
from tests.airflow.dags import FakeTaskInstance
from tests.airflow.s3_lakes import s3_lake
from tests.airflow.spark_submit import ROOT, recorded
from tests.airflow.test_s3 import read_by_duckdb
from tests.reference import s3
from tests.reference.catalogs import CatalogDatabase
from tests.reference.s3_proxy import Fault, Refuse, Request, proxy

BUCKET = "odd-names"
SOURCE = f"s3://{BUCKET}/landing day=1 +ü/in.csv"
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
def endpoint(store: Store) -> Iterator[str]:
    with s3.bucket(BUCKET) as upstream, proxy(upstream, store.fault) as url:
        yield url


@pytest.fixture
def lake(postgres_catalog: CatalogDatabase, endpoint: str, set_connection: SetConnection) -> Iterator[Lake]:
    set_connection("spark_default", conn_type="spark", host="local[2]")
    with s3_lake(postgres_catalog, f"s3://{BUCKET}/the lake%2B/", endpoint, set_connection) as lake:
        with lake.transaction() as tx:
            tx.create_schema("o dd+?#%")
            tx.create_table(TABLE, {"id": "int32", "k": "varchar"}, ["k"])
        rows = "".join(f'{number},"{value}"\n' for number, value in enumerate(VALUES))
        write_bytes(SOURCE, f"id,k\n{rows}".encode(), lake.opened.storage_options)
        yield lake


def run(operator: Any) -> dict[str, Any]:
    done: dict[str, Any] = operator.execute({"ti": FakeTaskInstance(operator.task_id), "logical_date": None})
    gc.collect()  # SparkSubmitHook leaves spark-submit's pipe
    return done


pytestmark = [
    pytest.mark.drawn(one_in=3),
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),  # SparkSubmitHook's pipe
]


@pytest.mark.submits
def test_names_that_need_escaping_come_back(lake, postgres_catalog, endpoint, tmp_path: Path, monkeypatch):
    recorded(tmp_path / "bin", monkeypatch)

    added = run(DuckLakeSparkInsertOperator(task_id="insert", source=SOURCE, **SPARK))

    assert added["rows_added"] == len(VALUES)
    check_rows(lake, postgres_catalog, endpoint, list(enumerate(VALUES)))


@pytest.mark.submits
def test_rows_of_names_that_need_escaping_are_deleted(
    lake, postgres_catalog, endpoint, tmp_path: Path, monkeypatch
):
    recorded(tmp_path / "bin", monkeypatch)
    rows = {"id": pa.array(range(len(VALUES)), pa.int32()), "k": VALUES}
    lake.append_arrow(TABLE, pa.table(rows))

    gone = run(DuckLakeSparkDeleteOperator(task_id="delete", where="id % 3 = 0", **SPARK))

    kept = [(number, value) for number, value in enumerate(VALUES) if number % 3]
    assert gone["rows_deleted"] == len(VALUES) - len(kept)
    check_rows(lake, postgres_catalog, endpoint, kept)


def check_rows(lake: Lake, catalog: CatalogDatabase, endpoint: str, rows: list[tuple[int, str]]) -> None:
    assert read_by_duckdb(catalog, endpoint, f"FROM {TABLE} ORDER BY id") == rows
    assert sorted(lake.read_arrow(TABLE)["k"].to_pylist()) == sorted(value for _, value in rows)
    assert lake.verify() == []


@pytest.mark.submits
def test_keys_that_expire_while_spark_writes_are_told(lake, store, tmp_path: Path, monkeypatch):
    recorded(tmp_path / "bin", monkeypatch)
    before = file_sizes(
        f"s3://{BUCKET}/the lake%2B/", lake.opened.storage_options
    )  # moto keeps those of other tests
    store.expires = True

    with pytest.raises((StorageError, SparkJobError), match="credentials have expired"):
        run(DuckLakeSparkInsertOperator(task_id="insert", source=SOURCE, **SPARK))

    store.expires = store.has_expired = False
    gc.collect()
    assert lake.row_count(TABLE) == 0
    left = file_sizes(f"s3://{BUCKET}/the lake%2B/", lake.opened.storage_options)
    assert [name for name in left if name not in before and name.endswith(".parquet")] == []
