"""Every night: forget old snapshots but releases, then delete the files that nobody needs any more.

Needs one connection: ``ducklake_default`` (type ``ducklake``). Start it with ``{"dry_run": true}`` to see
what each task would do.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, Param

from airflow_provider_ducklake.operators.cleanup import (
    DuckLakeCleanupOldFilesOperator,
    DuckLakeDeleteOrphanedFilesOperator,
)
from airflow_provider_ducklake.operators.expire_snapshots import DuckLakeExpireSnapshotsOperator

DRY_RUN = "{{ params.dry_run }}"

with DAG(
    "example_ducklake_retention",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    schedule="@daily",
    catchup=False,
    params={"dry_run": Param(default=False, type="boolean")},
    tags=["ducklake"],
):
    expire = DuckLakeExpireSnapshotsOperator(
        task_id="expire",
        older_than=timedelta(days=30),
        keep_last=10,
        keep_message="release *",
        dry_run=DRY_RUN,
    )
    clean_up = DuckLakeCleanupOldFilesOperator(task_id="clean_up", older_than="2 days", dry_run=DRY_RUN)
    orphans = DuckLakeDeleteOrphanedFilesOperator(task_id="orphans", older_than="3 days", dry_run=DRY_RUN)

    expire >> clean_up >> orphans
