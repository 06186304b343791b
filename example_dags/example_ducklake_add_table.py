"""Move an Iceberg table into the lake without copying it, check that every row is there, and say so.

Needs one connection: ``ducklake_default`` (type ``ducklake``), and the extra ``iceberg``. Trigger it with the
path of the table's metadata file, which its catalog names:

    {"metadata": "s3://shop/iceberg/orders/metadata/00012-….metadata.json"}

The files belong to the lake from then on: stop writing to the Iceberg table, and let nothing expire its
snapshots.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG, Param, task

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.operators.add_table import DuckLakeAddTableOperator

TABLE = "moved_orders"

with DAG(
    "example_ducklake_add_table",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    schedule=None,
    catchup=False,
    params={"metadata": Param("s3://shop/iceberg/orders/metadata/v1.metadata.json", type="string")},
    tags=["ducklake"],
):
    add = DuckLakeAddTableOperator(
        task_id="add",
        table=TABLE,
        source="{{ params.metadata }}",
        format="iceberg",
        create_table=True,
    )

    @task
    def compare(rows_added: str) -> int:
        """Count the rows as the lake shows them, which must be those that the Iceberg table had."""
        count = DuckLakeHook().lake().row_count(TABLE)
        if rows_added not in (str(count), "None"):  # None: an earlier try of the task had added them
            raise ValueError(f"{TABLE} has {count} rows instead of {rows_added}.")
        return count

    add >> compare("{{ ti.xcom_pull(task_ids='add')['rows_added'] }}")
