"""Refuses strings that are not UTF-8 in what Spark's own writer writes: Spark takes any bytes for a string.

The first one fails its task. Then the rows are counted by another job: to count while writing would cost each
write as much as a third of its time.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from airflow_provider_ducklake.spark.job.errors import marked
from airflow_provider_ducklake.spark.types.identifiers import quoted
from airflow_provider_ducklake.spark.types.spark_types import FIELD_ID_KEY, carrier_type
from airflow_provider_ducklake.storage.parquet.string_checks import (
    SHOWN_BYTES,
    UTF8,
    BadStrings,
    error_of,
    shown,
    string_leaves,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_ducklake.errors import InvalidValueError
    from airflow_provider_ducklake.spec.schema import Column, TableSchema

_PROBLEM = "a string is not valid UTF-8; nothing was written."


def checked(df: DataFrame, schema: TableSchema) -> DataFrame:
    """Return ``df``, which has the columns of ``schema`` and may have others; a bad string fails its task."""
    replaced = {column.name: _checked(column) for column in schema.columns if any(string_leaves(column))}
    if not replaced:
        return df
    return df.select([replaced.get(name, f.col(quoted(name))) for name in df.columns])


def counted(error: Exception, df: DataFrame, schema: TableSchema, table: str) -> InvalidValueError | None:
    """Return what is wrong with all strings of ``df`` if ``error`` is that of a row that ``checked`` refused.

    None also where another read of the rows finds nothing wrong with them.
    """
    if _PROBLEM not in str(error):
        return None
    paths = [path for column in schema.columns for path in string_leaves(column)]
    (values,) = df.agg(*(one for path in paths for one in _counts(_value(path)))).collect()
    found = [
        BadStrings(".".join(one.name for one in path), UTF8, count, shown(bytes(example)))
        for path, count, example in zip(paths, values[::2], values[1::2], strict=True)
        if count
    ]
    return error_of(found, table) if found else None


def _checked(column: Column) -> SparkColumn:
    value = f.col(quoted(column.name))
    problem = f.lit(marked(f"Column {column.name}: {_PROBLEM}"))
    refused = f.raise_error(problem).cast(carrier_type(column))
    return (
        f.when(reduce(SparkColumn.__and__, _are_valid(column)), value)
        .otherwise(refused)
        .alias(column.name, metadata={FIELD_ID_KEY: column.id})
    )


def _are_valid(column: Column) -> Iterator[SparkColumn]:
    for path in string_leaves(column):
        yield f.coalesce(f.is_valid_utf8(_value(path)), f.lit(True))  # noqa: FBT003 - a value


def _value(path: tuple[Column, ...]) -> SparkColumn:
    top, *fields = path
    return reduce(lambda value, child: value.getField(child.name), fields, f.col(quoted(top.name)))


def _counts(value: SparkColumn) -> tuple[SparkColumn, SparkColumn]:
    is_bad = ~f.is_valid_utf8(value)
    start = f.substring(value.cast("binary"), 1, SHOWN_BYTES + 1)
    return f.count_if(is_bad), f.max(f.when(is_bad, start))
