"""Arrow data of a table in the types that Spark takes from Arrow: the carriers of ``spark.types``."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.storage.parquet.arrow_types import arrow_field, arrow_type, cast_leaf
from airflow_provider_ducklake.storage.parquet.reshape import Reshaping, by_position, nulls, reshape
from airflow_provider_ducklake.storage.parquet.scalars import ARROW_SCALARS, INTERVAL_PARTS
from airflow_provider_ducklake.storage.parquet.variants import VARIANT_OF_SPARK, variant_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_ducklake.spec.schema import Column
    from airflow_provider_ducklake.spec.types.ducklake_types import ScalarType


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
    how = Reshaping(by_position, nulls, _cast)
    arrays = [
        reshape(values, column, field.type, how)
        for values, column, field in zip(rows.columns, columns, schema, strict=True)
    ]
    if not columns:
        return rows
    return pa.Table.from_arrays(arrays, schema=schema)


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if target == INTERVAL_PARTS:
        return _interval_parts(array)
    if target == VARIANT_OF_SPARK:
        return variant_parts(array, target)
    return cast_leaf(array, target)


def _interval_parts(array: pa.Array) -> pa.StructArray:
    """Return months, days and microseconds; Arrow keeps months and days (int32), and nanoseconds (int64)."""
    words = pa.Array.from_buffers(pa.int32(), 4 * (len(array) + array.offset), [None, array.buffers()[1]])
    places = pc.multiply(pa.array(range(array.offset, array.offset + len(array)), pa.int64()), 4)
    longs = pa.Array.from_buffers(pa.int64(), 2 * (len(array) + array.offset), [None, array.buffers()[1]])
    months, days = words.take(places), words.take(pc.add(places, 1))
    nanos = longs.take(pc.add(pc.divide(places, 2), 1))
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(
        [months, days, pc.divide(nanos, 1000)], fields=list(INTERVAL_PARTS), mask=mask
    )
