"""The stream job: new rows of a streaming DataFrame become data files of one table, batch by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.spark import sources
from airflow_provider_ducklake.spark.job.request import StreamSource
from airflow_provider_ducklake.spark.jobs.streaming import stage_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_provider_ducklake.planning.writing.write import WriteResult
    from airflow_provider_ducklake.spark.job.request import JobRequest


def run_stream(spark: SparkSession, request: JobRequest) -> tuple[WriteResult, ...]:
    """Stage all batches that there are by now; the result sums them up.

    Raises:
        InvalidInputError: the function returns no stream, or one that cannot be appended to a table.
        DuckLakeError: as the insert job, in one of the batches; those before it are staged.
    """
    (plan,), source = request.plans, request.source
    assert isinstance(source, StreamSource)
    df = sources.load(spark, source.rows, plan.schema)
    if not df.isStreaming:
        raise InvalidInputError(
            f"transform={source.rows.function!r} returned a DataFrame that is not streaming. Read with "
            "spark.readStream, or insert the rows with DuckLakeSparkInsertOperator."
        )
    return (stage_batches(df, plan, source, request.engine),)
