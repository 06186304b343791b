"""Types of columns that are read: how a value travels through a read, and as what it arrives.

It travels in a carrier, as in ``spark_types``, that needs no conversion on the way from Parquet: nanoseconds
and times of day are numbers, a UUID is its 16 bytes. It arrives in a type that an insert takes.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import TYPE_CHECKING

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f
from pyspark.sql import types as t

from airflow_provider_ducklake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.spark.types.scalars import SPARK_SCALARS, Conversion
from airflow_provider_ducklake.spark.types.spark_types import scalar_carrier
from airflow_provider_ducklake.spec.types.ducklake_types import (
    DecimalType,
    DuckLakeType,
    ListType,
    MapType,
    ScalarType,
    StructType,
)

if TYPE_CHECKING:
    from airflow_provider_ducklake.spec.schema import Column
    from airflow_provider_ducklake.spec.types.values import Physical


def read_type(column: Column) -> t.DataType:
    """Return the carrier of a column that is read, nested ones with the table's names.

    Raises:
        UnsupportedFeatureError: a type whose values cannot be read.
    """
    match column.type:
        case ListType():
            return t.ArrayType(read_type(column.children[0]))
        case MapType():
            return t.MapType(read_type(column.children[0]), read_type(column.children[1]))
        case StructType():
            return t.StructType([t.StructField(child.name, read_type(child)) for child in column.children])
        case _:
            return scalar_read_type(column.type, column.name)


def scalar_read_type(type_: DuckLakeType, where: str) -> t.DataType:
    """Return the carrier of a type that is not nested; ``where`` names the column in errors.

    Raises:
        UnsupportedFeatureError: a type whose values cannot be read.
    """
    try:
        read = SPARK_SCALARS[type_.name].read if isinstance(type_, ScalarType) else None
        return read or scalar_carrier(type_, where)
    except UnsupportedFeatureError:
        raise UnsupportedFeatureError(
            f"Column {where} has type {type_}, whose values this release cannot read; leave it out of the "
            "columns to read."
        ) from None


# --- a value as it arrives


def presented(value: SparkColumn, column: Column) -> SparkColumn:
    """Return values of a carrier as an insert takes them: UUIDs and times of day as text, and so on."""
    if not is_converted(column):
        return value
    match column.type:
        case ListType():
            (element,) = column.children
            return f.transform(value, lambda item: presented(item, element))
        case MapType():
            return _presented_map(value, column)
        case StructType():
            members = [
                presented(value.getField(child.name), child).alias(child.name) for child in column.children
            ]
            return f.when(value.isNotNull(), f.struct(*members))
        case _:
            arrival = _arrival(column.type)
            return value if arrival is None else arrival(value)


def is_converted(column: Column) -> bool:
    """Whether values of the carrier are not what an insert takes."""
    return any(_arrival(inner.type) is not None for inner in column.walk())


def _presented_map(value: SparkColumn, column: Column) -> SparkColumn:
    key, item = column.children
    if is_converted(item):
        value = f.transform_values(value, lambda _, entry: presented(entry, item))
    if is_converted(key):
        value = f.transform_keys(value, lambda entry, _: presented(entry, key))
    return value


def _arrival(type_: DuckLakeType) -> Conversion | None:
    return SPARK_SCALARS[type_.name].arrival if isinstance(type_, ScalarType) else None


# --- single values


def literal(type_: DuckLakeType, value: Physical | None) -> SparkColumn:
    """Return a scalar in the physical form of ``spec.values`` as a constant in its carrier."""
    carrier = scalar_read_type(type_, "of a constant")
    if value is None:
        return f.lit(None).cast(carrier)
    if isinstance(type_, DecimalType):
        return f.lit(Decimal(int(value)).scaleb(-type_.scale, _ENOUGH_DIGITS)).cast(carrier)
    assert isinstance(type_, ScalarType)
    make = SPARK_SCALARS[type_.name].constant
    return f.lit(value).cast(carrier) if make is None else make(value)


_ENOUGH_DIGITS = Context(prec=80)
