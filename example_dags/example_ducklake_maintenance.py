"""Every night: the whole maintenance of a lake, with a mapped task for each table that needs it.

Needs two connections: ``ducklake_default`` (type ``ducklake``) and ``spark_default``. Start it with
``{"dry_run": true}`` to see what each task would do.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG, Param

from airflow_provider_ducklake.operators.maintenance import ducklake_maintenance

with DAG(
    "example_ducklake_maintenance",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    schedule="@daily",
    catchup=False,
    max_active_runs=1,
    params={"dry_run": Param(default=False, type="boolean")},
    tags=["ducklake"],
):
    ducklake_maintenance(
        arguments={
            "expire": {"older_than": "14 days", "keep_message": "release *"},
            "merge": {"max_file_size": "64MB"},
        },
        max_tables_at_once=4,
        dry_run="{{ params.dry_run }}",
    )
