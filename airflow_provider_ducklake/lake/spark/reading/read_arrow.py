"""Rows that Spark's own reader cannot read: through pyarrow, on the executors for files.

It serves types and layouts that Spark has no reader for, and rows that lie in the catalog. Tasks import this
package from the job's zip and reach the files with what the executors have: storage options, or their
environment.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import types as t

from airflow_provider_ducklake.lake.planning.reading.scan import ScanPlan, columns_to_read
from airflow_provider_ducklake.lake.spark.job.codec import decode, encode
from airflow_provider_ducklake.lake.spark.sessions.kind import from_tasks
from airflow_provider_ducklake.lake.spark.types.spark_types import read_type
from airflow_provider_ducklake.lake.spec.files import LiveDataFile
from airflow_provider_ducklake.lake.spec.schema import TableSchema
from airflow_provider_ducklake.lake.storage.files.filesystem import open_filesystem
from airflow_provider_ducklake.lake.storage.parquet.carriers import carrier_schema, in_carriers
from airflow_provider_ducklake.lake.storage.rows.inlined_values import inlined_in_schema
from airflow_provider_ducklake.lake.storage.rows.table_reader import visible_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_ducklake.lake.spark.job.codec import Json
    from airflow_provider_ducklake.lake.spec.schema import Column
    from airflow_provider_ducklake.lake.storage.files.filesystem import StorageOptions

_BATCH_ROWS = 65_536


def carrier_types(columns: Sequence[Column], numbers: Sequence[str]) -> t.StructType:
    """Return the Spark schema of rows in their carriers, with columns of numbers at the end."""
    fields = [t.StructField(column.name, read_type(column)) for column in columns]
    return t.StructType([*fields, *(t.StructField(name, t.LongType()) for name in numbers)])


def rows_of_files(
    spark: SparkSession,
    plan: ScanPlan,
    columns: Sequence[Column],
    numbers: Sequence[str],
    *,
    storage_options: StorageOptions | None,
) -> DataFrame:
    """Return the live rows of the plan's files in their carriers, then row id, file id and position.

    ``numbers`` are the names of those; without names rows have none of them.
    """
    scan = encode(replace(plan, files=(), inlined_rows=()), ScanPlan)
    documents = [json.dumps(encode(file, LiveDataFile)) for file in plan.files]
    options = None if storage_options is None else dict(storage_options)

    def rows(document: Json) -> Iterator[pa.RecordBatch]:
        return rows_of_file(decode(scan, ScanPlan), document, numbers, options)

    return from_tasks(spark, documents, rows, carrier_types(columns, numbers))


def rows_of_file(
    plan: ScanPlan, document: Json, numbers: Sequence[str], options: StorageOptions | None
) -> Iterator[pa.RecordBatch]:
    """Yield what ``rows_of_files`` returns of one file."""
    file = decode(document, LiveDataFile)
    columns = columns_to_read(plan)
    rows = visible_rows(plan, file, lambda path: open_filesystem(path, options), numbered=bool(numbers))
    if not numbers:
        yield from in_carriers(rows, columns).to_batches(_BATCH_ROWS)
        return
    row_ids, places = rows.columns[-2:]
    file_ids = pa.repeat(pa.scalar(file.id, pa.int64()), rows.num_rows)
    named = dict(zip(numbers, (row_ids, file_ids, places), strict=True))
    yield from _with_numbers(rows, columns, named).to_batches(_BATCH_ROWS)


def inlined_rows(
    spark: SparkSession, plan: ScanPlan, columns: Sequence[Column], numbers: Sequence[str]
) -> DataFrame:
    """Return the rows that lie in the catalog as ``rows_of_files`` returns others: of no file."""
    rows = inlined_in_schema(plan.inlined_rows, TableSchema(tuple(columns)))
    row_ids = pa.array([one for part in plan.inlined_rows for one in part.row_ids], pa.int64())
    nowhere = pa.nulls(len(row_ids), pa.int64())
    table = _with_numbers(rows, columns, dict(zip(numbers, (row_ids, nowhere, nowhere), strict=True)))
    return spark.createDataFrame(table, carrier_types(columns, numbers))


def _with_numbers(rows: pa.Table, columns: Sequence[Column], named: Mapping[str, pa.Array]) -> pa.Table:
    carried = in_carriers(rows.select(list(range(len(columns)))), columns)
    numbers = pa.table(dict(named))
    arrays = [*carried.columns, *numbers.columns] if columns else numbers.columns
    return pa.Table.from_arrays(arrays, schema=pa.schema([*carrier_schema(columns), *numbers.schema]))
