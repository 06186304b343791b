"""Read the rows of a scan plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider_ducklake.storage.arrow_types import arrow_field
from airflow_provider_ducklake.storage.parquet_reader import read_data_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_ducklake.planning.scan import ScanPlan
    from airflow_provider_ducklake.storage.filesystem import Location


def read_files(plan: ScanPlan, locate: Callable[[str], Location]) -> pa.Table:
    """Return all rows of the plan's files in the table's schema at its snapshot."""
    table = plan.table
    empty = pa.schema([arrow_field(table.schema.find(name)) for name in plan.columns]).empty_table()
    parts = [
        read_data_file(
            file,
            table.schema,
            table=str(table.name),
            snapshot_id=table.snapshot.id,
            columns=plan.columns,
            locate=locate,
        )
        for file in plan.files
    ]
    return pa.concat_tables([empty, *parts])
