"""A lake looked at every night: its tables' numbers, and whether it keeps every invariant of the format.

Needs the connection ``ducklake_default`` (type ``ducklake``).
"""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
from airflow.sdk import DAG, task

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.operators.ddl import DuckLakeDDLOperator
from airflow_provider_ducklake.operators.health import DuckLakeTableHealthOperator
from airflow_provider_ducklake.operators.verify import DuckLakeVerifyOperator


@task
def write_visits() -> None:
    """Add some rows to a table."""
    hook = DuckLakeHook()
    rows = {"page": ["home", "prices"], "seconds": pa.array([3, 40], pa.int32())}
    hook.append_arrow("visits", pa.table(rows))
    hook.close()


with DAG(
    "example_ducklake_verify",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    tags=["ducklake"],
    doc_md=__doc__,
):
    create = DuckLakeDDLOperator(
        task_id="create",
        sql="CREATE TABLE IF NOT EXISTS visits (page VARCHAR, seconds INTEGER)",
        create_lake=True,
    )
    health = DuckLakeTableHealthOperator(
        task_id="health", fail_above={"delete_ratio": 0.5, "scheduled_file_count": 10_000}
    )
    verify = DuckLakeVerifyOperator(task_id="verify", sample="{{ params.sample }}", params={"sample": 1.0})
    create >> write_visits() >> health >> verify
