"""Which of the two kinds of sessions one is, and what its tasks do in Arrow."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider_ducklake.lake.errors import DuckLakeError
from airflow_provider_ducklake.lake.spark.job.errors import marked, secret
from airflow_provider_ducklake.lake.spark.sessions.protocol import is_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as t

    from airflow_provider_ducklake.lake.spark.job.codec import Json
    from airflow_provider_ducklake.lake.spark.sessions.protocol import BatchFunction, Kind

_MOST_TASKS = 1_000
_BATCH_BYTES = 64 * 2**20  # Spark's own buffers hold 2 GiB, and the memory of a small executor less


def kind_of(spark: SparkSession) -> Kind:
    """Return what a session offers besides DataFrames."""
    if is_remote(spark):
        from airflow_provider_ducklake.lake.spark.sessions.connect import Connect  # noqa: PLC0415 - needs grpc

        return Connect(spark)
    from airflow_provider_ducklake.lake.spark.sessions.classic import Classic  # noqa: PLC0415 - needs py4j

    return Classic(spark)


def map_in_arrow(df: DataFrame, function: BatchFunction, schema: t.StructType) -> DataFrame:
    """Return what a function makes of the rows' batches; see ``Kind``."""
    return kind_of(df.sparkSession).map_in_arrow(df, function, schema)


def _narrow(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch in batches of so many bytes."""
    count = max(1, batch.num_rows * _BATCH_BYTES // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, count):
        yield batch.slice(start, count)


def from_tasks(
    spark: SparkSession,
    documents: Sequence[str],
    rows: Callable[[Json], Iterator[pa.RecordBatch]],
    schema: t.StructType,
) -> DataFrame:
    """Return the rows that tasks make of JSON documents, a task for each of them.

    ``rows`` is sent to the tasks: it may hold plain values only; the job's zip brings the rest.
    """
    of_driver = secret()

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column(0).to_pylist():
                try:
                    for made in rows(json.loads(text)):
                        yield from _narrow(made)
                except DuckLakeError as error:
                    raise RuntimeError(marked(str(error), type(error), of_driver)) from error

    listed = spark.createDataFrame(pa.table({"document": list(documents)}), "document string")
    return map_in_arrow(listed.repartition(min(len(documents), _MOST_TASKS)), run, schema)
