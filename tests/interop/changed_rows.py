"""What a job that changes rows hands over, written by this process."""

import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

import pyarrow as pa

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.partitioning import hive_directory
from airflow_provider_ducklake.lake.format.schema import Column, TableSchema
from airflow_provider_ducklake.lake.format.snapshots import (
    ColumnId,
    CommitInfo,
    CommittedSnapshot,
    DataFileId,
    TableSnapshot,
)
from airflow_provider_ducklake.lake.format.types.ducklake_types import ScalarType
from airflow_provider_ducklake.lake.planning.writing.write import (
    NewDeletes,
    ParquetSettings,
    RowChanges,
    WriteResult,
)
from airflow_provider_ducklake.lake.storage.arrow.rows import split_by_partition
from airflow_provider_ducklake.lake.storage.deletes.deletes import write_delete_file
from airflow_provider_ducklake.lake.storage.parquet.writer import RollingWriter
from airflow_provider_ducklake.lake.storage.rows.table_reader import ROW_ID_COLUMN, ROW_ID_FIELD_ID

_ROW_ID = Column(ColumnId(ROW_ID_FIELD_ID), ROW_ID_COLUMN, ScalarType("int64"))
_INFO = CommitInfo()


def row_changes(
    lake: Lake,
    table: TableSnapshot,
    deleted: Mapping[int, Collection[int]],
    *,
    inlined: Collection[int] = (),
    updated: pa.Table | None = None,
    inserted: pa.Table | None = None,
) -> RowChanges:
    """Write the files of a job; `deleted` are positions by data file, `updated` have a column of row ids."""
    paths = {file.id: file.path for file in table.files or ()}
    return RowChanges(
        tuple(_new_deletes(lake, table, one, paths[one], places) for one, places in deleted.items()),
        tuple(inlined),
        _written(lake, table, updated, TableSchema((*table.schema.columns, _ROW_ID))),
        _written(lake, table, inserted, table.schema),
    )


def _new_deletes(
    lake: Lake, table: TableSnapshot, file_id: DataFileId, data_file: str, places: Collection[int]
) -> NewDeletes:
    path = f"{table.root}ducklake-{uuid.uuid4()}-delete.parquet"
    positions = pa.table({"pos": pa.array(sorted(places), pa.int64())})
    written = write_delete_file(lake.locate(path), data_file, positions)
    return NewDeletes(
        file_id, path, len(places), written.file_size_bytes, written.footer_size, written.encryption_key
    )


def _written(lake: Lake, table: TableSnapshot, rows: pa.Table | None, schema: TableSchema) -> WriteResult:
    keys = table.partition_spec.fields if table.partition_spec is not None else ()
    files = []
    for values, part in () if rows is None else split_by_partition(rows, schema, keys):
        folder = hive_directory(keys, table.schema, values)
        path = f"{table.root}{folder}ducklake-{uuid.uuid4()}.parquet"
        with RollingWriter(schema, partial(str, path), ParquetSettings(), locate=lake.locate) as writer:
            writer.write(part)
        files += [replace(_without_row_id_stats(one), partition_values=values) for one in writer.files]
    count = 0 if rows is None else rows.num_rows
    return WriteResult(table.schema, keys, tuple(files), count, {})


def _without_row_id_stats(file):
    return replace(
        file, column_stats={one: stats for one, stats in file.column_stats.items() if one != ROW_ID_FIELD_ID}
    )


def commit_changes(lake: Lake, table: TableSnapshot, changes: RowChanges) -> CommittedSnapshot:
    """Commit as an operator does."""
    return lake.committer.commit_change_sets([lake.writes.row_changes(table, changes)], _INFO)
