"""Arrow data of a table in the types that Spark takes from Arrow: the carriers of ``spark.types``."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.storage.parquet.arrow_types import arrow_field, arrow_type, cast_leaf
from airflow_provider_ducklake.lake.storage.parquet.reshape import Reshaping, by_position, nulls, reshape
from airflow_provider_ducklake.lake.storage.parquet.scalars import (
    ARROW_SCALARS,
    INTERVAL_PARTS,
    parts_of_arrow,
)
from airflow_provider_ducklake.lake.storage.parquet.shredding import VARIANT_OF_SPARK, variant_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_ducklake.lake.spec.schema import Column
    from airflow_provider_ducklake.lake.spec.types.ducklake_types import ScalarType


@cache
def _scalar(type_: ScalarType) -> pa.DataType:
    return ARROW_SCALARS[type_.name].carrier or arrow_type(type_)


def carrier_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema of rows in their carriers; everything may be NULL."""
    fields = (arrow_field(column, field_ids=False, type_of=_scalar) for column in columns)
    return pa.schema([field.with_nullable(nullable=True) for field in fields])


def in_carriers(rows: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """Return rows, which have the Arrow types of ``columns``, in their carriers."""
    schema = carrier_schema(columns)
    arrays = [
        _carried(values, column, field.type)
        for values, column, field in zip(rows.columns, columns, schema, strict=True)
    ]
    if not columns:
        return rows
    return pa.Table.from_arrays(arrays, schema=schema)


def _carried(values: pa.ChunkedArray, column: Column, target: pa.DataType) -> pa.ChunkedArray:
    try:
        return reshape(values, column, target, Reshaping(by_position, nulls, _cast))
    except pa.ArrowInvalid as error:
        raise UnsupportedFeatureError(
            f"Column {column.name} has type {column.type}, and a value that Spark does not have: {error}. "
            "Leave the column out of those to read, or read it without Spark."
        ) from error


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if target == INTERVAL_PARTS:
        return parts_of_arrow(array)
    if target == VARIANT_OF_SPARK:
        return variant_parts(array, target)
    return cast_leaf(array, target)
