"""The overwrite job: find the rows to be replaced, and write the new ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.spark import sources
from airflow_provider_ducklake.spark.job.request import OverwriteSource
from airflow_provider_ducklake.spark.jobs.insert import write
from airflow_provider_ducklake.spark.jobs.row_changes import change_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_provider_ducklake.planning.writing.row_changes import RowChanges
    from airflow_provider_ducklake.spark.job.request import JobRequest


def overwrite(spark: SparkSession, request: JobRequest) -> RowChanges:
    """Return where the rows are that go, and the files of those that come.

    Raises:
        StorageError: a file of the table is missing or damaged.
        SchemaMismatchError, InvalidInputError, SparkJobError: as ``insert``.
    """
    source = request.source
    assert isinstance(source, OverwriteSource)
    *_, plan = request.plans
    gone = change_rows(spark, replace(request, source=source.replaced))
    return replace(gone, inserted=write(sources.load(spark, source.rows, plan.schema), plan, request.engine))
