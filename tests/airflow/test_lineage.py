"""What OpenLineage is told of tasks: events of a real DAG run, written by its file transport."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from airflow_provider_ducklake.hooks.lineage import dataset_of_path, flow_of_sql
from airflow_provider_ducklake.spec.names.identifiers import QualifiedName
from tests.airflow.services import airflow

DAG_FILE = """
from datetime import UTC, datetime
from airflow.sdk import DAG
from airflow_provider_ducklake.operators.add_files import DuckLakeAddFilesOperator
from airflow_provider_ducklake.operators.ddl import DuckLakeDDLOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from airflow_provider_ducklake.operators.sql import DuckLakeSparkSQLOperator

with DAG("lineage", start_date=datetime(2024, 1, 1, tzinfo=UTC), schedule=None):
    create = DuckLakeDDLOperator(
        task_id="create",
        sql="CREATE TABLE orders (id INT, price DOUBLE); CREATE TABLE totals (id INT, total DOUBLE)",
        create_lake=True,
    )
    add = DuckLakeAddFilesOperator(task_id="add", table="orders", paths="FILES/added.parquet")
    insert = DuckLakeSparkInsertOperator(
        task_id="insert",
        table="orders",
        sql="SELECT CAST(i AS INT) AS id, CAST(j AS DOUBLE) AS price FROM raw",
        sources={"raw": "FILES/raw.parquet"},
    )
    sum_up = DuckLakeSparkSQLOperator(
        task_id="sum_up",
        sql="CREATE TEMPORARY VIEW big AS SELECT id, price FROM orders WHERE price > 0;"
        "INSERT INTO totals SELECT id, sum(price) FROM big GROUP BY id",
    )
    create >> add >> insert >> sum_up
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> tuple[list[dict[str, Any]], Path]:
    """Run the DAG; return the events of tasks that ended, and where its files are."""
    home = tmp_path_factory.mktemp("lineage")
    files, events = home / "files", home / "events.json"
    files.mkdir()
    for name, query in {
        "added": "SELECT 1::INT AS id, 2.5::DOUBLE AS price",
        "raw": "SELECT 3 AS i, 4 AS j",
    }.items():
        duckdb.sql(f"COPY ({query}) TO '{files / f'{name}.parquet'}'")
    lake = {"catalog_type": "sqlite", "data_path": f"{home}/data/", "foreign_files": True}
    environment = {
        "AIRFLOW_CONN_DUCKLAKE_DEFAULT": json.dumps(
            {"conn_type": "ducklake", "schema": str(home / "lake.sqlite"), "extra": lake}
        ),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
            {"type": "file", "log_file_path": str(events), "append": True}
        ),
        "AIRFLOW__OPENLINEAGE__NAMESPACE": "tests",
    }
    with airflow(home / "airflow", environment) as one:
        (one.dags / "lineage.py").write_text(DAG_FILE.replace("FILES", str(files)))
        one.run("dags", "reserialize")
        one.run("dags", "test", "lineage")
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    return [one for one in lines if one["eventType"] == "COMPLETE" and "." in one["job"]["name"]], home


def of_task(told, name: str) -> dict[str, Any]:
    events, _ = told
    (event,) = [one for one in events if one["job"]["name"] == f"lineage.{name}"]
    return event


def outputs(event: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in event["outputs"]}


def test_a_table_is_known_by_its_catalog_and_has_a_version(told):
    event = of_task(told, "create")
    _, home = told

    assert {one["namespace"] for one in event["outputs"]} == {f"ducklake:sqlite://{home}/lake.sqlite"}
    orders = outputs(event)["main.orders"]["facets"]
    assert orders["version"]["datasetVersion"] == "1"
    assert orders["lifecycleStateChange"]["lifecycleStateChange"] == "CREATE"
    fields = [(one["name"], one["type"]) for one in orders["schema"]["fields"]]
    assert fields == [("id", "int32"), ("price", "float64")]


def test_files_that_are_added_are_inputs(told):
    event = of_task(told, "add")
    _, home = told

    assert [(one["namespace"], one["name"]) for one in event["inputs"]] == [
        ("file", f"{home}/files/added.parquet")
    ]
    orders = outputs(event)["main.orders"]
    assert orders["outputFacets"]["outputStatistics"]["rowCount"] == 1
    assert "lifecycleStateChange" not in orders["facets"]


def test_columns_of_an_insert_come_from_its_source(told):
    event = of_task(told, "insert")
    _, home = told

    found = outputs(event)["main.orders"]["facets"]["columnLineage"]["fields"]
    raw = {"namespace": "file", "name": f"{home}/files/raw.parquet"}
    places = {
        column: [(one["namespace"], one["name"], one["field"]) for one in of["inputFields"]]
        for column, of in found.items()
    }
    assert places == {"id": [(*raw.values(), "i")], "price": [(*raw.values(), "j")]}
    assert "SELECT CAST(i AS INT)" in event["job"]["facets"]["sql"]["query"]


def test_spark_sql_reads_tables_at_a_snapshot(told):
    event = of_task(told, "sum_up")

    (orders,) = event["inputs"]
    assert (orders["name"], orders["facets"]["version"]["datasetVersion"]) == ("main.orders", "3")
    found = outputs(event)["main.totals"]["facets"]["columnLineage"]["fields"]
    assert {column: [one["field"] for one in of["inputFields"]] for column, of in found.items()} == {
        "id": ["id"],
        "total": ["price"],
    }


def test_no_event_has_a_secret_or_is_twice(told):
    events, _ = told

    assert sorted(one["job"]["name"] for one in events) == [
        f"lineage.{name}" for name in ("add", "create", "insert", "sum_up")
    ]


@pytest.mark.parametrize(
    ("path", "dataset"),
    [
        ("s3://bucket/a/b.parquet", ("s3://bucket", "a/b.parquet")),
        ("s3a://bucket/a/", ("s3://bucket", "a")),
        ("gs://bucket", ("gs://bucket", "/")),
        ("/data/x.csv", ("file", "/data/x.csv")),
        ("file:///data/x.csv", ("file", "/data/x.csv")),
        ("abfs://c@account.dfs.core.windows.net/x", ("abfs://c@account.dfs.core.windows.net", "x")),
    ],
)
def test_paths_are_named_as_everybody_names_them(path, dataset):
    assert dataset_of_path(path) == dataset


def test_sql_that_cannot_be_read_has_no_queries():
    flow = flow_of_sql("INSERT nonsense", {"raw": "/data/x"}, "main", 3)

    assert (flow.queries, flow.at, list(flow.reads)) == ((), 3, ["raw"])


def test_sql_names_what_it_reads():
    flow = flow_of_sql(
        "INSERT INTO s.t SELECT a FROM orders JOIN raw USING (a)", {"raw": "/data/x"}, "sales", 3
    )

    assert {name: read.table for name, read in flow.reads.items()} == {
        "lake_table_0": QualifiedName.of("sales.orders"),
        "raw": None,
    }
    assert [str(one.table) for one in flow.queries] == ["s.t"]
