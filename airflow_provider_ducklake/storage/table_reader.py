"""Read the rows of a scan plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider_ducklake.spec.schema import TableSchema
from airflow_provider_ducklake.storage.inlined_values import inlined_in_schema
from airflow_provider_ducklake.storage.parquet_reader import read_data_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from airflow_provider_ducklake.planning.scan import ScanPlan
    from airflow_provider_ducklake.storage.filesystem import Location


def read_rows(plan: ScanPlan, locate: Callable[[str], Location]) -> pa.Table:
    """Return all rows of the plan in the table's schema at its snapshot."""
    columns = TableSchema(tuple(plan.table.schema.find(name) for name in plan.columns))
    return pa.concat_tables([*_of_files(plan, locate), inlined_in_schema(plan.inlined_rows, columns)])


def _of_files(plan: ScanPlan, locate: Callable[[str], Location]) -> Iterator[pa.Table]:
    table = plan.table
    for file in plan.files:
        rows = read_data_file(
            file,
            table.schema,
            table=str(table.name),
            snapshot_id=table.snapshot.id,
            columns=plan.columns,
            locate=locate,
        )
        yield _without(rows, plan.inlined_deletes.get(file.id, ()))


def _without(rows: pa.Table, positions: Sequence[int]) -> pa.Table:
    """Return the rows between some positions, which ascend."""
    if not positions:
        return rows
    starts = [0, *(position + 1 for position in positions)]
    ends = [*positions, rows.num_rows]
    return pa.concat_tables([rows.slice(start, end - start) for start, end in zip(starts, ends, strict=True)])
