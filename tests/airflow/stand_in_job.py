"""What the stand-in for `spark-submit` runs, in a second: inserts of a file, SQL and deletes by DuckDB.

Other sources have no rows, and partitions are not split.

`STAND_IN_MEANWHILE` is Python that runs when the data files are written and the result is not: the moment
when something may happen to the lake, the job or the task. It sees `request`.
"""

import os
import sys
import uuid

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_ducklake.planning.row_changes import NewDeletes, RowChanges
from airflow_provider_ducklake.planning.scan import ScanPlan
from airflow_provider_ducklake.planning.write import WritePlan, WriteResult
from airflow_provider_ducklake.spark import job_io
from airflow_provider_ducklake.spark.job_request import JobRequest, LakeSource, RowChangeSource
from airflow_provider_ducklake.spec.partitioning import parse_partition_by
from airflow_provider_ducklake.spec.schema import new_columns
from airflow_provider_ducklake.storage.arrow_types import arrow_schema, check_and_cast, fields_of_arrow
from airflow_provider_ducklake.storage.change_reader import read_changes
from airflow_provider_ducklake.storage.delete_files import write_delete_file
from airflow_provider_ducklake.storage.filesystem import open_filesystem
from airflow_provider_ducklake.storage.parquet_writer import RollingWriter
from airflow_provider_ducklake.storage.table_reader import POSITION, read_rows, visible_rows


def main(uri: str, digest: str) -> None:
    request = job_io.read_request(uri, digest)
    if isinstance(request.source, RowChangeSource):
        changes = deleted_rows(request, request.source)
        exec(os.environ.get("STAND_IN_MEANWHILE", ""), {"request": request})
        job_io.write_row_changes(request, changes)
        return
    if isinstance(request.source, LakeSource):
        rows = rows_of_sql(request.source, len(request.plans))
    else:
        (plan,) = request.plans
        path = getattr(getattr(request.source, "dataset", None), "path", None)
        rows = [pq.read_table(path) if path else arrow_schema(plan.target).empty_table()]
    results = [write(plan, table) for plan, table in zip(request.plans, rows, strict=True)]
    exec(os.environ.get("STAND_IN_MEANWHILE", ""), {"request": request})
    job_io.write_results(request, results)


def deleted_rows(request: JobRequest, source: RowChangeSource) -> RowChanges:
    """Delete the rows of data files for which the only condition holds; it is one for DuckDB, too."""
    (clause,) = source.clauses
    connection, deletes = duckdb.connect(), []
    for file in source.target.files:
        connection.register("rows", visible_rows(source.target, file, open_filesystem, numbered=True))
        places = connection.sql(
            f'SELECT "{POSITION}" AS pos FROM rows WHERE {clause.condition} ORDER BY pos'
        ).to_arrow_table()
        path = f"{request.directory}deletes/{file.id}-delete.parquet"
        sizes = write_delete_file(open_filesystem(path), file.path, places)
        deletes.append(NewDeletes(file.id, path, places.num_rows, *sizes))
    nothing = [WriteResult(plan.target, plan.partition_fields, (), 0, "arrow", {}) for plan in request.plans]
    return RowChanges(tuple(one for one in deletes if one.count), (), *nothing)


def rows_of_sql(source: LakeSource, count: int) -> list[pa.Table]:
    connection = duckdb.connect()
    for name, plan in source.tables.items():
        if isinstance(plan, ScanPlan):
            table = read_rows(plan, open_filesystem)
        else:
            table = read_changes(plan, open_filesystem)
        if name in source.as_inserts:
            extra = {"snapshot_id": plan.table.snapshot.id, "rowid": -1, "change_type": "insert"}
            for column, value in reversed(extra.items()):
                table = table.add_column(0, column, pa.array([value] * table.num_rows))
        connection.register(name, table)
    rows: list[pa.Table | None] = [None] * count
    for step in source.steps:
        found = connection.sql(step.query.replace("`", '"')).to_arrow_table()
        if step.view is not None:
            connection.register(step.view, found)
        if step.plan is not None:
            rows[step.plan] = found if step.columns is None else found.rename_columns(list(step.columns))
    return rows


def write(plan: WritePlan, rows: pa.Table) -> WriteResult:
    schema = plan.schema or new_columns(fields_of_arrow(rows.schema))
    fields = plan.partition_fields or parse_partition_by(plan.partition_by, schema, plan.table)
    rows = check_and_cast(rows, schema, plan.table)
    with RollingWriter(
        schema, lambda: f"{plan.directory}{uuid.uuid4().hex}.parquet", plan.settings
    ) as writer:
        writer.write(rows)
    return WriteResult(schema, fields, tuple(writer.files), rows.num_rows, "arrow", {})


main(*sys.argv[-2:])
