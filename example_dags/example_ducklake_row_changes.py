"""Rows of a table that are deleted, updated, and merged with what another table says of them.

Needs two connections: ``ducklake_default`` (type ``ducklake``) and ``spark_default`` (type ``spark``, for
example with host ``local[2]``). Each run changes a few customers, as a feed of another system asks for.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
from airflow.sdk import DAG, task

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.operators.ddl import DuckLakeDDLOperator
from airflow_provider_ducklake.operators.delete import DuckLakeSparkDeleteOperator
from airflow_provider_ducklake.operators.merge import DuckLakeSparkMergeOperator
from airflow_provider_ducklake.operators.update import DuckLakeSparkUpdateOperator


@task
def new_feed() -> None:
    """Write customers, and what another system says of them since."""
    hook = DuckLakeHook()
    ids = pa.array(range(1, 7), pa.int64())
    customers = {"id": ids, "name": list("abcdef"), "city": ["Bern", "Basel", None] * 2}
    feed = {
        "id": pa.array([2, 3, 8], pa.int64()),
        "name": ["B", None, "H"],
        "city": ["Berlin", None, "Hamburg"],
        "operation": ["change", "remove", "change"],
    }
    with hook.transaction(message="a new feed") as tx:
        tx.truncate("customers")
        tx.truncate("feed")
        tx.append_arrow("customers", pa.table(customers))
        tx.append_arrow("feed", pa.table(feed))
    hook.close()


with DAG(
    "example_ducklake_row_changes",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    schedule=None,
    tags=["ducklake"],
):
    tables = DuckLakeDDLOperator(
        task_id="tables",
        sql=[
            "CREATE TABLE IF NOT EXISTS customers (id BIGINT, name VARCHAR, city VARCHAR)",
            "CREATE TABLE IF NOT EXISTS feed (id BIGINT, name VARCHAR, city VARCHAR, operation VARCHAR)",
        ],
        create_lake=True,
    )
    merge = DuckLakeSparkMergeOperator(
        task_id="merge",
        table="customers",
        source_table="feed",
        on="target.id = source.id",
        when_matched=[
            {"condition": "source.operation = 'remove'", "delete": True},
            {"update": "*"},
        ],
        when_not_matched=[{"condition": "source.operation <> 'remove'", "insert": "*"}],
    )
    update = DuckLakeSparkUpdateOperator(
        task_id="update", table="customers", set={"city": "upper(city)"}, where="city LIKE 'B%'"
    )
    forget = DuckLakeSparkDeleteOperator(task_id="forget", table="customers", where="id = 6")

    tables >> new_feed() >> merge >> update >> forget
