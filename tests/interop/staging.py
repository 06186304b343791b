"""Writes staged without Spark: the files of a job, and what the operator leaves beside them."""

import uuid

import pyarrow as pa
from uuid6 import uuid7

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.format.partitioning import parse_partition_by
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.planning.writing.staged import StagedWrite
from airflow_provider_ducklake.lake.planning.writing.write import WriteResult, plan_create, plan_write
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spark.job.request import Dataset, DatasetSource, JobRequest, job_directory
from airflow_provider_ducklake.lake.storage.arrow.arrow_types import fields_of_arrow
from airflow_provider_ducklake.lake.storage.parquet.writer import RollingWriter


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
