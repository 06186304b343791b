"""INT96 of Parquet sources: times without zone, as DuckDB reads them, unless a table's column holds instants.

The same are timestamps of old writers that have a converted type alone. Schemas of sources have the type
``INT96`` for all of them, which pyarrow gives to nothing in a Parquet file.
*Source:* the types and values that DuckDB's ``read_parquet`` shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql import types as t

from airflow_provider_ducklake.lake.spec.names.identifiers import fold
from airflow_provider_ducklake.lake.spec.types.ducklake_types import Kind
from airflow_provider_ducklake.lake.storage.parquet.footer import children_of_field, is_without_zone
from airflow_provider_ducklake.lake.storage.parquet.reshape import is_list

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow.parquet as pq
    from pyspark.sql import Column as SparkColumn

    from airflow_provider_ducklake.lake.spec.schema import Column

INT96 = pa.timestamp("s")
_INSTANT = pa.timestamp("us", "UTC")


def marked(type_: pa.DataType, leaves: Iterator[pq.ColumnSchema]) -> pa.DataType:
    """Return a column's type with ``INT96`` for each of its leaves that is one."""
    below = [marked(one.type, leaves) for one in children_of_field(type_)]
    if not below and not pa.types.is_struct(type_):
        return INT96 if is_without_zone(next(leaves)) else type_
    return _with_children(type_, below)


def has_int96(type_: pa.DataType) -> bool:
    """Whether a column of a source has a leaf that is INT96."""
    return bool(type_ == INT96) or any(has_int96(one.type) for one in children_of_field(type_))


def as_instants(type_: pa.DataType) -> pa.DataType:
    """Return a type with an instant for each INT96."""
    if type_ == INT96:
        return _INSTANT
    below = [as_instants(one.type) for one in children_of_field(type_)]
    return _with_children(type_, below) if has_int96(type_) else type_


def as_in_table(type_: pa.DataType, column: Column | None) -> pa.DataType:
    """Return a type with an instant for each INT96 for which a table's column has one."""
    if column is None or not has_int96(type_):
        return type_
    if type_ == INT96:
        facts = column.type.facts
        return _INSTANT if facts.kind is Kind.TIMESTAMP and facts.zoned else type_
    fields = children_of_field(type_)
    columns: Sequence[Column | None] = column.children
    if pa.types.is_struct(type_) or len(columns) != len(fields):
        named = {fold(one.name): one for one in column.children}
        columns = [named.get(fold(one.name)) for one in fields]
    below = [as_in_table(one.type, child) for one, child in zip(fields, columns, strict=True)]
    return _with_children(type_, below)


def _with_children(type_: pa.DataType, types: Sequence[pa.DataType]) -> pa.DataType:
    below = [one.with_type(other) for one, other in zip(children_of_field(type_), types, strict=True)]
    if pa.types.is_struct(type_):
        return pa.struct(below)
    return pa.map_(*below) if pa.types.is_map(type_) else pa.list_(below[0])


def without_zone(spark: t.DataType, arrow: pa.DataType) -> t.DataType:
    """Return the type of Spark's reader with a timestamp without zone for each ``INT96`` of the other."""
    match spark:
        case t.TimestampType() if arrow == INT96:
            return t.TimestampNTZType()
        case t.ArrayType() if is_list(arrow):
            return t.ArrayType(without_zone(spark.elementType, arrow.value_type), spark.containsNull)
        case t.MapType() if pa.types.is_map(arrow):
            key = without_zone(spark.keyType, arrow.key_type)
            return t.MapType(key, without_zone(spark.valueType, arrow.item_type), spark.valueContainsNull)
        case t.StructType() if pa.types.is_struct(arrow):
            types = {one.name: one.type for one in arrow}
            return t.StructType(
                [
                    t.StructField(
                        one.name,
                        without_zone(one.dataType, types.get(one.name, pa.null())),
                        one.nullable,
                        one.metadata,
                    )
                    for one in spark
                ]
            )
        case _:
            return spark


def clock_in_utc(value: SparkColumn, given: t.DataType, wanted: t.DataType) -> SparkColumn:
    """Return instants as the times without zone that clocks in UTC show, whatever the session's zone is."""
    match given, wanted:
        case t.TimestampType(), t.TimestampNTZType():
            start = f.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
            return f.timestamp_add("MICROSECOND", f.unix_micros(value), start)
        case _ if given == wanted:
            return value
        case t.ArrayType(), t.ArrayType():
            return f.transform(value, lambda item: clock_in_utc(item, given.elementType, wanted.elementType))
        case t.MapType(), t.MapType():
            keys = f.transform(
                f.map_keys(value), lambda item: clock_in_utc(item, given.keyType, wanted.keyType)
            )
            items = f.transform(
                f.map_values(value), lambda item: clock_in_utc(item, given.valueType, wanted.valueType)
            )
            return f.map_from_arrays(keys, items)
        case t.StructType(), t.StructType():
            members = [
                clock_in_utc(value.getField(one.name), one.dataType, other.dataType).alias(one.name)
                for one, other in zip(given, wanted, strict=True)
            ]
            return f.when(value.isNotNull(), f.struct(*members))
        case _:
            raise AssertionError((given, wanted))
