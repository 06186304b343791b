"""A lake on S3 as `docs/connection.md` sets it up: each verb by a Spark of its own, and Hadoop's S3A."""

import gc
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.operators.delete import DuckLakeSparkDeleteOperator
from tests.airflow.conftest import SetConnection, connection_fields
from tests.airflow.dags import FakeTaskInstance, parse, state_of, sync_dag, xcom
from tests.airflow.spark_submit import ROOT, SparkSubmit, recorded
from tests.reference import s3
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import load_extension

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


@pytest.fixture
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


def read_by_duckdb(catalog: CatalogDatabase, endpoint: str, query: str) -> list[tuple[Any, ...]]:
    import duckdb  # noqa: PLC0415

    with duckdb.connect(config={"allow_unsigned_extensions": True}) as connection:
        for extension in ("httpfs", "ducklake", "postgres_scanner"):
            load_extension(connection, extension)
        connection.execute(
            "CREATE SECRET (TYPE s3, KEY_ID 'id', SECRET 'x', URL_STYLE 'path', USE_SSL false, ENDPOINT "
            f"'{endpoint.removeprefix('http://')}')"
        )
        connection.execute(f"ATTACH '{catalog.attach_string}' AS lake; USE lake")
        return connection.execute(query).fetchall()


@pytest.mark.submits
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
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
    gc.collect()  # SparkSubmitHook leaves spark-submit's pipe


def check_without_the_package(lake: Lake, *, in_job: bool) -> None:
    """What reads the lake says which package it lacks, and is not retried.

    If the binary may be anybody's, Spark is asked; else the error comes before Spark starts.
    """
    delete = DuckLakeSparkDeleteOperator(task_id="delete", table="sales.orders", where="id = 1")

    with pytest.raises(AirflowFailException, match=r'packages="(org.apache.hadoop:\S+)"') as caught:
        delete.execute({"ti": FakeTaskInstance("delete"), "logical_date": None})

    assert ("Spark has no file system" in str(caught.value)) is in_job
    package = re.search(r'packages="(\S+)"', str(caught.value))
    assert f'"{package[1]},' in PAGE  # with which the DAG has run
    assert lake.row_count("sales.orders") == 3
