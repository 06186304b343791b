"""Wherever a table or a schema can be named, one in a nested schema can: every operator, in one run."""

import gc
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.sdk import BaseOperator

from airflow_provider_ducklake import operators
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from airflow_provider_ducklake.operators.maintenance import DuckLakeMaintenancePlanOperator
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor
from tests.airflow.dags import new_dag, sync_dag, xcom
from tests.airflow.spark_submit import LEAVES_PROCESS, stand_in
from tests.reference import ducklakepy_lake
from tests.reference.catalogs import CatalogDatabase

TABLE, SCHEMA = "sales.europe.orders", "sales.europe"


@pytest.fixture
def lake(
    connect: Callable[..., str], set_connection: Any, sqlite_catalog: CatalogDatabase, tmp_path, monkeypatch
) -> Iterator[CatalogDatabase]:
    Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version="1.1").close()
    connect(sqlite_catalog)
    set_connection("spark_default", conn_type="spark", host="local[2]")
    stand_in(tmp_path / "bin", monkeypatch)
    pq.write_table(pa.table({"id": [1, 2], "n": [10, 20]}), tmp_path / "rows.parquet")
    yield sqlite_catalog
    gc.collect()


def tasks(rows: str) -> list[BaseOperator]:
    """Return a task for each place where a name can be given, in the order of their run."""
    return [
        operators.DuckLakeDDLOperator(
            task_id="ddl",
            sql=f"""
                CREATE SCHEMA sales; CREATE SCHEMA {SCHEMA};
                CREATE TABLE {TABLE} (id BIGINT, n BIGINT) PARTITIONED BY (bucket(2, id)) SORTED BY (id);
                ALTER TABLE {TABLE} SET (data_inlining_row_limit = 5);
                ALTER TABLE {TABLE} SET SORTED BY (id DESC);
                ALTER TABLE {TABLE} RESET PARTITIONED BY;
                COMMENT ON TABLE {TABLE} IS 'nested'; COMMENT ON COLUMN {TABLE}.id IS 'key';
                CREATE TABLE {SCHEMA}.empty (id BIGINT);
                CREATE VIEW {SCHEMA}.recent AS SELECT id FROM {TABLE};
                COMMENT ON COLUMN {SCHEMA}.recent.id IS 'key'
            """,
        ),
        operators.DuckLakeAddFilesOperator(task_id="add_files", table=TABLE, paths=[rows]),
        operators.DuckLakeSparkInsertOperator(task_id="insert", table=TABLE, source=rows),
        operators.DuckLakeSparkInsertOperator(
            task_id="insert_new", table=f"{SCHEMA}.copies", source=rows, create_table=True
        ),
        operators.DuckLakeSparkInsertOperator(
            task_id="insert_parts", table=("sales", "europe", "orders"), source=rows
        ),
        operators.DuckLakeSparkUpdateOperator(
            task_id="update", table=TABLE, set={"n": "n + 1"}, where="id = 1"
        ),
        operators.DuckLakeSparkDeleteOperator(task_id="delete", table=TABLE, where="id = 2"),
        operators.DuckLakeSparkMergeOperator(
            task_id="merge",
            table=TABLE,
            source_table=f"{SCHEMA}.copies",
            on="source.id = target.id",
            when_not_matched=[{"insert": "*"}],
        ),
        operators.DuckLakeSparkSQLOperator(
            task_id="sql", sql=f"INSERT INTO {SCHEMA}.copies SELECT id, n FROM {TABLE} WHERE id = 1"
        ),
        operators.DuckLakeSparkSQLOperator(
            task_id="sql_schema", default_schema=SCHEMA, sql="INSERT INTO copies SELECT id, n FROM orders"
        ),
        operators.DuckLakeFlushInlinedDataOperator(task_id="flush", table=TABLE),
        operators.DuckLakeFlushInlinedDataOperator(task_id="flush_schema", schema=SCHEMA),
        operators.DuckLakeSparkMergeAdjacentFilesOperator(task_id="merge_files", table=f"{SCHEMA}.empty"),
        operators.DuckLakeSparkRewriteDataFilesOperator(
            task_id="rewrite", table=f"{SCHEMA}.empty", delete_threshold=0.99
        ),
        operators.DuckLakeTableHealthOperator(task_id="health", tables=[TABLE]),
        operators.DuckLakeVerifyOperator(task_id="verify", tables=[TABLE]),
        DuckLakeMaintenancePlanOperator(task_id="plan", step="merge", tables=[TABLE]),
        DuckLakeSnapshotSensor(task_id="sensor", table=TABLE, since=0),
        operators.DuckLakeRestoreOperator(task_id="restore", table=TABLE, at=2),
        operators.DuckLakeRestoreOperator(task_id="restore_schema", schema=SCHEMA, at=2, dry_run=True),
    ]


@LEAVES_PROCESS
@pytest.mark.usefixtures("airflow_db")
def test_every_operator_takes_a_nested_name(lake, tmp_path):
    with new_dag("names") as dag:
        made = tasks(f"{tmp_path}/rows.parquet")
        for before, after in pairwise(made):
            before >> after

    run = sync_dag(dag).test()

    assert {one.task_id: str(one.state) for one in run.get_task_instances()} == {
        one.task_id: "success" for one in made
    }
    for task in ("insert", "insert_parts", "update", "delete", "merge"):
        assert xcom(run, task)["table"] == TABLE
    assert xcom(run, "sensor")["table"] == TABLE
    assert [one["name"] for one in xcom(run, "health")["tables"]] == [TABLE]
    assert xcom(run, "plan") in ([TABLE], [])
    with Lake.connect(lake.sqlalchemy_url) as ours:
        assert sorted(ours.read_arrow(TABLE)["id"].to_pylist()) == [1, 2]
        assert ours.verify() == []
        copies = sorted(ours.read_arrow(f"{SCHEMA}.copies")["id"].to_pylist())
    with ducklakepy_lake.open_lake(lake) as theirs:
        assert sorted(theirs.read((*SCHEMA.split("."), "copies"))["id"].to_pylist()) == copies
        assert sorted(theirs.read(tuple(TABLE.split(".")))["id"].to_pylist()) == [1, 2]


@pytest.mark.parametrize("name", ["sales.europe.orders", 'sales."eu.rope"."Or ders"', '"a.b".c.d.e'])
def test_every_call_on_a_lake_takes_a_nested_name(sqlite_catalog, name):
    table = QualifiedName.of(name)
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version="1.1") as lake:
        with lake.transaction() as tx:
            for depth in range(1, len(table.schema.parts) + 1):
                tx.create_schema(table.schema.parts[:depth])
            tx.create_table(name, {"id": "int64"})
        lake.append_arrow(name, pa.table({"id": [1, 2, 3]}))
        for calls in (
            lambda: lake.set_option("auto_compact", value=False, table=name),
            lambda: lake.set_option("auto_compact", value=True, schema=str(table.schema)),
            lambda: lake.reset_option("auto_compact", name),
            lambda: lake.flush_inlined_data(name),
            lambda: lake.column_bounds(name, "id"),
            lambda: lake.row_count(name),
            lambda: lake.table_info(name),
            lambda: lake.table_health([name]),
            lambda: lake.verify([name]),
            lambda: lake.changes(name, 0, 3),
        ):
            calls()

        assert str(lake.table_snapshot(name).name) == name
        assert lake.read_arrow(name, filter="id > 1").num_rows == 2
        assert [one.name for one in lake.table_health([name]).tables] == [name]
