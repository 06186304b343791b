"""What a job that changes rows hands over, written by this process."""

import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

import pyarrow as pa
from uuid6 import uuid7

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.format.partitioning import hive_directory, parse_partition_by
from airflow_provider_ducklake.lake.format.schema import Column, TableSchema, new_columns
from airflow_provider_ducklake.lake.format.snapshots import (
    ColumnId,
    CommitInfo,
    CommittedSnapshot,
    DataFileId,
    TableSnapshot,
)
from airflow_provider_ducklake.lake.format.types.ducklake_types import ScalarType
from airflow_provider_ducklake.lake.planning.upkeep.compaction import Compaction, MergeRule, RewriteRule
from airflow_provider_ducklake.lake.planning.writing.staged import StagedWrite
from airflow_provider_ducklake.lake.planning.writing.write import (
    NewDeletes,
    ParquetSettings,
    RowChanges,
    WriteResult,
    plan_create,
    plan_write,
)
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spark.job.request import Dataset, DatasetSource, JobRequest, job_directory
from airflow_provider_ducklake.lake.storage.arrow.arrow_types import fields_of_arrow
from airflow_provider_ducklake.lake.storage.arrow.rows import split_by_partition
from airflow_provider_ducklake.lake.storage.deletes.deletes import write_delete_file
from airflow_provider_ducklake.lake.storage.moving.compact import compactor
from airflow_provider_ducklake.lake.storage.parquet.writer import RollingWriter
from airflow_provider_ducklake.lake.storage.rows.table_reader import ROW_ID_COLUMN, ROW_ID_FIELD_ID
from airflow_provider_ducklake.lake.transaction.changes import MergedFile, RewrittenFile

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


def compacted_files(lake: Lake, planned: Compaction) -> list[MergedFile | RewrittenFile]:
    """Write the files of a plan."""
    table = planned.table
    plan = plan_write(table, f"{table.root}ducklake-{uuid.uuid4()}/")
    making = replace(compactor(planned, plan.settings), locate=lake.locate)
    return [
        making.compact(one, f"{plan.directory}{number}.parquet") for number, one in enumerate(planned.bins)
    ]


def rewrite(
    lake: Lake, table: str | tuple[str, str] = "t", delete_threshold: float = 0.0, **limits: int
) -> CommittedSnapshot | None:
    """Rewrite the files of a table that lost rows; None: there are none."""
    planned = lake.maintenance.plan_rewrite(table, RewriteRule(delete_threshold, **limits))
    return lake.maintenance.commit_compacted(planned.table, compacted_files(lake, planned), CommitInfo())


def merge_adjacent(lake: Lake, table: str | tuple[str, str] = "t", **limits: int) -> CommittedSnapshot | None:
    """Merge the small files of a table; None: there is nothing to merge."""
    planned = lake.maintenance.plan_merge(table, MergeRule(**limits))
    return lake.maintenance.commit_compacted(planned.table, compacted_files(lake, planned), CommitInfo())


def stage(lake: Lake, table: str, rows: pa.Table, *, creates: bool = False) -> StagedWrite:
    """Stage rows for a table that is there, or that the commit is to create."""
    job_id = str(uuid7())
    name = QualifiedName.of(table)
    target = lake.reads.new_table(name, with_schema=True) if creates else lake.table_snapshot(table)
    directory = job_directory(target.root, job_id)
    plan = plan_create(target, directory, []) if creates else plan_write(target, directory)
    noted = job_io.target_of_stage(target)
    lake.jobs.register(job_id, directory, noted)
    schema = plan.schema or new_columns(fields_of_arrow(rows.schema))
    with RollingWriter(schema, lambda: f"{directory}{uuid.uuid4().hex}.parquet", plan.settings) as writer:
        writer.write(rows)
    fields = parse_partition_by(plan.partition_by, schema, table)
    result = WriteResult(schema, fields, tuple(writer.files), rows.num_rows, {})
    request = JobRequest(job_id, DatasetSource(Dataset("parquet", "rows")), (plan,))
    job_io.write_results(request, [result])
    staged = StagedWrite(job_id, directory, "insert", target, result)
    read = job_io.read_stage(job_io.write_stage(staged))
    assert (read.result, read.base, read.creates) == (result, staged.base, staged.creates)
    return read


def rows_of(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})
