"""Describe files that Spark's own writer committed: footers, partition values, float bounds beside NaN."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_ducklake.planning.writing.write import WritePlan
from airflow_provider_ducklake.spark.job.codec import Json, decode, encode
from airflow_provider_ducklake.spec.files import DataFile
from airflow_provider_ducklake.spec.schema import Column, TableSchema
from airflow_provider_ducklake.spec.types.ducklake_types import is_float
from airflow_provider_ducklake.spec.types.values import format_physical
from airflow_provider_ducklake.storage.files.filesystem import open_filesystem, open_input
from airflow_provider_ducklake.storage.parquet.footer import NanRule, read_footer
from airflow_provider_ducklake.storage.parquet.partition_split import values_of_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from airflow_provider_ducklake.spec.ids import ColumnId
    from airflow_provider_ducklake.spec.partitioning import PartitionField
    from airflow_provider_ducklake.spec.stats import ColumnStats

_FILES_ON_DRIVER = 64
_FILES_PER_TASK = 16


def describe_files(spark: SparkSession, paths: Sequence[str], plan: WritePlan) -> list[DataFile]:
    """Return the finished files in the order of ``paths``; many of them are read by tasks."""
    if len(paths) <= _FILES_ON_DRIVER:
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
            return list(threads.map(lambda path: describe_file(path, plan), paths))
    document = encode(plan, WritePlan)

    def describe(path: str) -> Json:
        found: Json = encode(describe_file(path, decode(document, WritePlan)), DataFile)
        return found

    tasks = -(-len(paths) // _FILES_PER_TASK)
    found = spark.sparkContext.parallelize(list(paths), tasks).map(describe).collect()
    return [decode(item, DataFile) for item in found]


def describe_file(path: str, plan: WritePlan) -> DataFile:
    """Return one finished file as the catalog wants it."""
    schema, fields = plan.target, plan.partition_fields
    location = open_filesystem(path)
    file = read_footer(location, schema, NanRule.GREATEST)
    hidden = [stats for stats in file.column_stats.values() if stats.contains_nan and stats.bounds_unknown]
    if not file.record_count or not (fields or hidden):
        return file
    with open_input(location) as source, pq.ParquetFile(source) as reader:
        values = _partition_values(reader, schema, fields)
        bounds = {stats.column_id: _bounds_beside_nan(reader, schema, stats) for stats in hidden}
    return replace(file, partition_values=values, column_stats={**file.column_stats, **bounds})


def _partition_values(
    reader: pq.ParquetFile, schema: TableSchema, fields: tuple[PartitionField, ...]
) -> tuple[str | None, ...]:
    if not fields:
        return ()
    keys = {field.column_id for field in fields}
    columns = tuple(column for column in schema.columns if column.id in keys)
    names = [column.name for column in columns]
    row = next(reader.iter_batches(batch_size=1, row_groups=[0], columns=names))
    return values_of_row(row.select(names), TableSchema(columns), fields)


def _bounds_beside_nan(reader: pq.ParquetFile, schema: TableSchema, stats: ColumnStats) -> ColumnStats:
    """Return ``stats`` with the bounds of the numbers, which the footer hides behind NaN."""
    path = _path_to(schema, stats.column_id)
    assert is_float(path[-1].type)
    values = reader.read(columns=[".".join(column.name for column in path)]).column(0)
    for column in path[1:]:
        values = pc.struct_field(values, column.name)
    extremes = pc.min_max(values.filter(pc.invert(pc.is_nan(values))))
    low, high = extremes["min"].as_py(), extremes["max"].as_py()
    if low is None:
        return stats
    return replace(
        stats,
        min_value=format_physical(path[-1].type, low),
        max_value=format_physical(path[-1].type, high),
    )


def _path_to(schema: TableSchema, column_id: ColumnId) -> tuple[Column, ...]:
    """Return the columns from the top level down to the one with that id."""

    def search(columns: Sequence[Column]) -> tuple[Column, ...]:
        for column in columns:
            if column.id == column_id:
                return (column,)
            below = search(column.children)
            if below:
                return (column, *below)
        return ()

    return search(schema.columns)
