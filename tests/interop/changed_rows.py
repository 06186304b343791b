"""What a job that changes rows hands over, written by this process."""

import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace

import pyarrow as pa

from airflow_provider_ducklake.catalog.lake import Lake
from airflow_provider_ducklake.planning.writing.row_changes import NewDeletes, RowChanges
from airflow_provider_ducklake.planning.writing.write import ParquetSettings, WriteResult
from airflow_provider_ducklake.spec.ids import ColumnId, DataFileId
from airflow_provider_ducklake.spec.schema import Column, TableSchema
from airflow_provider_ducklake.spec.snapshots import CommitInfo, CommittedSnapshot, TableSnapshot
from airflow_provider_ducklake.spec.types.ducklake_types import ScalarType
from airflow_provider_ducklake.storage.deletes.delete_files import write_delete_file
from airflow_provider_ducklake.storage.parquet.writer import RollingWriter
from airflow_provider_ducklake.storage.rows.row_ids import ROW_ID_COLUMN, ROW_ID_FIELD_ID

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
        _written(table, updated, TableSchema((*table.schema.columns, _ROW_ID))),
        _written(table, inserted, table.schema),
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


def _written(table: TableSnapshot, rows: pa.Table | None, schema: TableSchema) -> WriteResult:
    files = []
    if rows is not None:
        with RollingWriter(
            schema, lambda: f"{table.root}ducklake-{uuid.uuid4()}.parquet", ParquetSettings()
        ) as writer:
            writer.write(rows)
        files = [_without_row_id_stats(file) for file in writer.files]
    return WriteResult(table.schema, (), tuple(files), 0 if rows is None else rows.num_rows, "arrow", {})


def _without_row_id_stats(file):
    return replace(
        file, column_stats={one: stats for one, stats in file.column_stats.items() if one != ROW_ID_FIELD_ID}
    )


def commit_changes(lake: Lake, table: TableSnapshot, changes: RowChanges) -> CommittedSnapshot:
    """Commit as an operator does."""
    return lake.commit_stages([lake.row_changes(table, changes)], _INFO)
