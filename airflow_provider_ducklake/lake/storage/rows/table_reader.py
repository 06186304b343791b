"""Read the rows of a scan plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.planning.reading.scan import columns_to_read, paths_to_read
from airflow_provider_ducklake.lake.spec.names.identifiers import INTERNAL_PREFIX
from airflow_provider_ducklake.lake.spec.schema import Column, TableSchema
from airflow_provider_ducklake.lake.spec.snapshots import ColumnId
from airflow_provider_ducklake.lake.spec.types.ducklake_types import ScalarType
from airflow_provider_ducklake.lake.storage.deletes.delete_files import deleted_rows, row_count_of
from airflow_provider_ducklake.lake.storage.parquet.reader import NO_PATHS, naming_file, read_data_file
from airflow_provider_ducklake.lake.storage.parquet.reshape import ordinals
from airflow_provider_ducklake.lake.storage.rows.inlined_values import inlined_in_schema
from airflow_provider_ducklake.lake.storage.rows.row_filter import matching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from airflow_provider_ducklake.lake.planning.reading.scan import ScanPlan
    from airflow_provider_ducklake.lake.spec.files import LiveDataFile
    from airflow_provider_ducklake.lake.storage.files.filesystem import Location
    from airflow_provider_ducklake.lake.storage.parquet.reader import Paths, StoredRows


def read_rows(plan: ScanPlan, locate: Callable[[str], Location]) -> pa.Table:
    """Return all rows of the plan in the table's schema at its snapshot."""
    return pa.concat_tables([*_of_files(plan, locate), _inlined(plan)])


def _of_files(plan: ScanPlan, locate: Callable[[str], Location]) -> Iterator[pa.Table]:
    for file in plan.files:
        yield live_rows(plan, file, locate)


def live_rows(plan: ScanPlan, file: LiveDataFile, locate: Callable[[str], Location]) -> pa.Table:
    """Return the rows of a data file that the plan wants: the plan's columns, in file order."""
    rows = visible_rows(plan, file, locate, paths=paths_to_read(plan))
    with naming_file(file, str(plan.table.name), plan.table.snapshot.id):
        return _wanted(plan, rows)


def wanted_positions(plan: ScanPlan, file: LiveDataFile, locate: Callable[[str], Location]) -> pa.Array:
    """Return where the rows that the plan wants lie in a data file: int64, ascending, from 0."""
    rows = visible_rows(plan, file, locate, numbered=True, paths=paths_to_read(plan))
    with naming_file(file, str(plan.table.name), plan.table.snapshot.id):
        return _matching(plan, rows)[POSITION].combine_chunks()


def wanted_row_ids(plan: ScanPlan) -> pa.ChunkedArray:
    """Return the ids (int64) of the rows that the plan wants and the catalog keeps."""
    row_ids = [row_id for part in plan.inlined_rows for row_id in part.row_ids]
    rows = inlined_in_schema(plan.inlined_rows, TableSchema(columns_to_read(plan)))
    numbered = rows.append_column(ROW_ID.name, pa.array(row_ids, pa.int64()))
    return _matching(plan, numbered)[ROW_ID.name]


def visible_rows(
    plan: ScanPlan,
    file: LiveDataFile,
    locate: Callable[[str], Location],
    *,
    numbered: bool = False,
    paths: Paths = NO_PATHS,
) -> pa.Table:
    """Return the rows of a data file that the plan's snapshot has, in file order: ``columns_to_read``.

    ``numbered`` adds two columns at the end, int64: the row id and the position in the file. For ``paths``
    see ``read_data_file``: only who looks at nothing else in those columns gives them.
    """
    names = tuple(column.name for column in columns_to_read(plan))
    stored = _all_rows(plan, file, names, locate, numbered=numbered, paths=paths)
    keep = _live(plan, file, stored, locate)
    read = (stored if keep is None else stored.filter(keep)).cast()
    if not numbered:
        return read.select(names)
    places = ordinals(stored.row_count)
    kept = places if keep is None else places.filter(keep)
    return _numbered(read, names, kept, file.row_id_start or 0)


def _numbered(read: pa.Table, names: Sequence[str], places: pa.Array, row_id_start: int) -> pa.Table:
    row_ids = pc.coalesce(read[ROW_ID.name], pc.add(places, row_id_start))
    return read.select(names).append_column(ROW_ID.name, row_ids).append_column(POSITION, places)


def count_live_rows(plan: ScanPlan, locate: Callable[[str], Location]) -> int:
    """Return how many rows the plan's files have, with none of its columns read and no filter applied."""
    count = 0
    for file in plan.files:
        rows = _all_rows(plan, file, (), locate)
        keep = _live(plan, file, rows, locate)
        count += rows.row_count if keep is None else pc.sum(keep).as_py() or 0
    return count


def _all_rows(  # noqa: PLR0913 - the last two have defaults
    plan: ScanPlan,
    file: LiveDataFile,
    names: tuple[str, ...],
    locate: Callable[[str], Location],
    *,
    numbered: bool = False,
    paths: Paths = NO_PATHS,
) -> StoredRows:
    """Return all rows of a file, with the column that says of which snapshot each is, where there is one.

    ``numbered`` adds the column of stored row ids, NULL where the file has none.
    """
    table = plan.table
    reserved = (*(() if file.partial_max is None else (SNAPSHOT_ID,)), *((ROW_ID,) if numbered else ()))
    return read_data_file(
        file,
        TableSchema((*table.schema.columns, *reserved)),
        table=str(table.name),
        snapshot_id=table.snapshot.id,
        columns=(*names, *(one.name for one in reserved)),
        paths=paths,
        locate=locate,
    )


def _live(
    plan: ScanPlan, file: LiveDataFile, rows: StoredRows, locate: Callable[[str], Location]
) -> pa.ChunkedArray | pa.Array | None:
    """Return which rows of a file the plan's snapshot shows; None: all."""
    keep = _visible(rows, plan.table.snapshot.id)
    gone = gone_positions(plan, file, locate)
    if len(gone):
        keep = _and(keep, pc.invert(pc.is_in(ordinals(rows.row_count), value_set=gone)))
    return keep


def _inlined(plan: ScanPlan) -> pa.Table:
    return _wanted(plan, inlined_in_schema(plan.inlined_rows, TableSchema(columns_to_read(plan))))


def _wanted(plan: ScanPlan, rows: pa.Table) -> pa.Table:
    return rows if plan.where is None else _matching(plan, rows).select(plan.columns)


def _matching(plan: ScanPlan, rows: pa.Table) -> pa.Table:
    return rows if plan.where is None else matching(rows, plan.where, plan.table.schema)


# Rows of several snapshots in one file (merged, or flushed from the catalog) say which each of them is.
SNAPSHOT_ID = Column(ColumnId(2147483539), "_ducklake_internal_snapshot_id", ScalarType("int64"))
POSITION = f"{INTERNAL_PREFIX}position"  # which no column of a table may be called
# Rows that moved from another file keep their ids.
ROW_ID = Column(ColumnId(2147483540), "_ducklake_internal_row_id", ScalarType("int64"))


def _visible(rows: StoredRows, snapshot_id: int) -> pa.ChunkedArray | None:
    if SNAPSHOT_ID not in rows.columns:
        return None
    came_by = rows.column(SNAPSHOT_ID)
    return pc.fill_null(pc.less_equal(came_by, snapshot_id), True)  # noqa: FBT003 - the filling


def _count_at(file: LiveDataFile, snapshot_id: int) -> int:
    return max((count for snapshot, count in file.snapshot_counts if snapshot <= snapshot_id), default=0)


def gone_positions(plan: ScanPlan, file: LiveDataFile, locate: Callable[[str], Location]) -> pa.Array:
    """Return the positions (int64) of rows that the plan's snapshot does not have, by delete file or catalog.

    Rows that say themselves which snapshot they came by are not among them.

    Raises:
        StorageError: the delete file is missing or damaged.
    """
    marked = pa.array(plan.inlined_deletes.get(file.id, ()), pa.int64())
    if file.snapshot_counts:
        later = ordinals(row_count_of(file, locate)).slice(_count_at(file, plan.table.snapshot.id))
        marked = pa.concat_arrays([marked, later])
    if file.delete_file is None:
        return marked
    gone, row_count = [marked], row_count_of(file, locate)
    for delete in (*file.older_delete_files, file.delete_file):
        place = locate(delete.path).with_key(delete.encryption_key)
        rows = deleted_rows(place, delete.format, delete.begin_snapshot, row_count)
        gone += rows.filter(pc.less_equal(rows["snapshot_id"], plan.table.snapshot.id))["pos"].chunks
    return pa.concat_arrays(gone)


def _and(left: pa.ChunkedArray | None, right: pa.Array) -> pa.ChunkedArray | pa.Array:
    return right if left is None else pc.and_(left, right)
