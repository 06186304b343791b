"""Variants that Spark's own reader puts together, as its shredding has the same parts."""

from __future__ import annotations

import pyarrow as pa
from pyspark import __version__ as spark_version

from airflow_provider_ducklake.lake.storage.parquet.reshape import is_list

_FIRST = (4, 2)  # of which it was observed
_SCALARS = frozenset(
    {
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32(),
        pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.string(), pa.binary(),
    }
)  # fmt: skip


def is_read_by_spark(group: pa.DataType) -> bool:
    """Whether Spark's reader takes a file's group as a variant; it knows no times of day, nor UUIDs."""
    is_known = tuple(map(int, spark_version.split(".")[:2])) >= _FIRST
    return is_known and pa.types.is_struct(group) and all(map(_is_part, group))


def _is_part(part: pa.Field) -> bool:
    if part.name in ("metadata", "value"):
        return bool(pa.types.is_binary(part.type))
    return part.name == "typed_value" and _is_typed(part.type)


def _is_typed(type_: pa.DataType) -> bool:
    if pa.types.is_struct(type_):
        return all(_is_group(field.type) for field in type_)
    if is_list(type_):
        return _is_group(type_.value_type)
    return type_ in _SCALARS or bool(pa.types.is_decimal128(type_))


def _is_group(type_: pa.DataType) -> bool:
    return bool(pa.types.is_struct(type_)) and all(map(_is_part, type_))
