"""Every month: tag the newest snapshot, and freeze it into one file that DuckDB attaches without the catalog.

Needs one connection: ``ducklake_default`` (type ``ducklake``). The files go to the folder of the parameter
``folder``, which may be a bucket that the lake's storage options reach.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime

from airflow.sdk import DAG, Param

from airflow_provider_ducklake.operators.export_catalog import DuckLakeExportCatalogOperator
from airflow_provider_ducklake.operators.tag import DuckLakeTagOperator

with DAG(
    "example_ducklake_frozen",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    schedule="@monthly",
    catchup=False,
    params={"folder": Param(default=f"{tempfile.gettempdir()}/frozen_lakes", type="string")},
    tags=["ducklake"],
):
    tag = DuckLakeTagOperator(task_id="tag", name="{{ run_id }}", message="Shared")
    export = DuckLakeExportCatalogOperator(
        task_id="export",
        at="tag:{{ run_id }}",
        path="{{ params.folder }}/{{ run_id | replace(':', '-') }}.ducklake",
        copy_files=True,
    )
    untag = DuckLakeTagOperator(task_id="untag", name="{{ run_id }}", action="untag")

    tag >> export >> untag
