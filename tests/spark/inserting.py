"""Inserts as the operator makes them, without Airflow: plan, Spark job, commit."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from airflow_provider_ducklake.catalog.committing.planned import Stage
from airflow_provider_ducklake.catalog.drafting.row_changes import unused_files
from airflow_provider_ducklake.catalog.lake import Lake
from airflow_provider_ducklake.planning.writing.row_changes import RowChanges
from airflow_provider_ducklake.planning.writing.write import WritePlan, WriteResult, plan_write
from airflow_provider_ducklake.spark.job import job_io
from airflow_provider_ducklake.spark.job.codec import decode, encode
from airflow_provider_ducklake.spark.job.request import (
    Dataset,
    DatasetSource,
    JobRequest,
    OverwriteSource,
    found_rows,
    job_directory,
)
from airflow_provider_ducklake.spark.jobs.insert import write
from airflow_provider_ducklake.spark.jobs.overwrite import overwrite
from airflow_provider_ducklake.spec.snapshots import CommitInfo, CommittedSnapshot
from airflow_provider_ducklake.writes.insert_choice import InsertChoice
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake


def insert(
    lake: Lake,
    df: DataFrame,
    choice: InsertChoice,
    *,
    table: str = "t",
    engine: str = "auto",
    meanwhile: Callable[[], Any] = lambda: None,
) -> tuple[WriteResult, CommittedSnapshot | None]:
    """Insert the rows; ``meanwhile`` happens between the job and the commit."""
    target = lake.table_snapshot(table)
    job_id = str(uuid.uuid4())
    plan = choice.plan(lake, target, job_directory(target.root, job_id))
    replaced = choice.to_be_found(lake, target)
    if replaced is None:
        result, found = write(df, decode(encode(plan, WritePlan), WritePlan), engine), None
    else:
        plans = (plan_write(target, f"{plan.directory}updated/"), plan)
        job = JobRequest(job_id, OverwriteSource(stored(df, plan), replaced), plans, "overwrite", engine)
        done = overwritten(df.sparkSession, job)
        result, found = done.inserted, found_rows(job, done)
    meanwhile()
    changes = choice.changes(lake, target, result, found)
    stage = Stage(target.snapshot.id, changes, unused_files(changes, () if found is None else found.deletes))
    return result, lake.commit_stages([stage], CommitInfo())


def stored(df: DataFrame, plan: WritePlan) -> DatasetSource:
    """Return the rows as a job can load them; that replaces a directory which no snapshot names."""
    path = f"{plan.directory}source.parquet"
    df.write.mode("overwrite").parquet(path)
    return DatasetSource(Dataset.of(path))


def overwritten(spark: SparkSession, job: JobRequest) -> RowChanges:
    """Return what a job did that was told, and tells, what it does by files."""
    uri = job_io.write_request(job)
    job_io.write_row_changes(job, overwrite(spark, job_io.read_request(uri)))
    return job_io.read_row_changes(job)


@contextmanager
def new_lake(catalog: CatalogDatabase, *statements: str, **options: Any) -> Iterator[Lake]:
    """Open a lake that the reference made by statements."""
    with open_lake(catalog, **options) as reference:
        for statement in statements:
            reference.sql(statement)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        yield lake


def rows_of(catalog: CatalogDatabase, query: str = "FROM t ORDER BY ALL") -> list[tuple[Any, ...]]:
    """Read as the reference does."""
    with open_lake(catalog) as reference:
        return reference.sql(query)
