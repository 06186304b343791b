"""Read the rows of a scan plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.spec.ids import ColumnId
from airflow_provider_ducklake.spec.schema import Column, TableSchema
from airflow_provider_ducklake.spec.types import ScalarType
from airflow_provider_ducklake.storage.delete_files import deleted_rows
from airflow_provider_ducklake.storage.inlined_values import inlined_in_schema
from airflow_provider_ducklake.storage.parquet_reader import read_data_file
from airflow_provider_ducklake.storage.row_filter import matching, needed_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_provider_ducklake.planning.scan import ScanPlan
    from airflow_provider_ducklake.spec.files import LiveDataFile
    from airflow_provider_ducklake.storage.filesystem import Location


def read_rows(plan: ScanPlan, locate: Callable[[str], Location]) -> pa.Table:
    """Return all rows of the plan in the table's schema at its snapshot."""
    return pa.concat_tables([*_of_files(plan, locate), _inlined(plan)])


def _of_files(plan: ScanPlan, locate: Callable[[str], Location]) -> Iterator[pa.Table]:
    for file in plan.files:
        yield live_rows(plan, file, locate)


def live_rows(plan: ScanPlan, file: LiveDataFile, locate: Callable[[str], Location]) -> pa.Table:
    """Return the rows of a data file that the plan wants: the plan's columns, in file order."""
    table = plan.table
    stamps = () if file.partial_max is None else (SNAPSHOT_ID,)
    names = _columns_to_read(plan)
    rows = read_data_file(
        file,
        TableSchema((*table.schema.columns, *stamps)),
        table=str(table.name),
        snapshot_id=table.snapshot.id,
        columns=(*names, *(one.name for one in stamps)),
        locate=locate,
    )
    rows, keep = rows.select(names), _visible(rows, table.snapshot.id)
    if file.snapshot_counts:
        keep = _and(keep, pc.less(ordinals(rows.num_rows), _count_at(file, table.snapshot.id)))
    gone = _deleted_positions(plan, file, locate)
    if len(gone):
        keep = _and(keep, pc.invert(pc.is_in(ordinals(rows.num_rows), value_set=gone)))
    return _wanted(plan, rows if keep is None else rows.filter(keep))


def _inlined(plan: ScanPlan) -> pa.Table:
    columns = TableSchema(tuple(plan.table.schema.find(name) for name in _columns_to_read(plan)))
    return _wanted(plan, inlined_in_schema(plan.inlined_rows, columns))


def _columns_to_read(plan: ScanPlan) -> tuple[str, ...]:
    """Return the plan's columns, and behind them those that only its filter looks at."""
    if plan.where is None:
        return plan.columns
    needed = needed_columns(plan.where, plan.table.schema)
    return (*plan.columns, *(name for name in needed if name not in plan.columns))


def _wanted(plan: ScanPlan, rows: pa.Table) -> pa.Table:
    if plan.where is None:
        return rows
    return matching(rows, plan.where, plan.table.schema).select(plan.columns)


# Rows of several snapshots in one file (merged, or flushed from the catalog) say which each of them is.
SNAPSHOT_ID = Column(ColumnId(2147483539), "_ducklake_internal_snapshot_id", ScalarType("int64"))


def _visible(rows: pa.Table, snapshot_id: int) -> pa.ChunkedArray | None:
    if SNAPSHOT_ID.name not in rows.column_names:
        return None
    return pc.fill_null(pc.less_equal(rows[SNAPSHOT_ID.name], snapshot_id), True)  # noqa: FBT003 - the filling


def _count_at(file: LiveDataFile, snapshot_id: int) -> int:
    return max((count for snapshot, count in file.snapshot_counts if snapshot <= snapshot_id), default=0)


def _deleted_positions(plan: ScanPlan, file: LiveDataFile, locate: Callable[[str], Location]) -> pa.Array:
    """Return the positions that were deleted by the plan's snapshot, in a delete file or in the catalog."""
    marked = pa.array(plan.inlined_deletes.get(file.id, ()), pa.int64())
    if file.delete_file is None:
        return marked
    delete = file.delete_file
    rows = deleted_rows(locate(delete.path), delete.format, delete.begin_snapshot)
    by_now = rows.filter(pc.less_equal(rows["snapshot_id"], plan.table.snapshot.id))
    return pa.concat_arrays([*by_now["pos"].chunks, marked])


def ordinals(count: int) -> pa.Array:
    """Return the numbers from 0 to before ``count``, int64."""
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count)), 1)


def _and(left: pa.ChunkedArray | None, right: pa.Array) -> pa.ChunkedArray | pa.Array:
    return right if left is None else pc.and_(left, right)
