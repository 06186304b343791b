"""Values of any nesting ↔ Arrow arrays; values are those of ``spec.literals``: scalars in physical form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_provider_ducklake.lake.spec.types.ducklake_types import (
    DuckLakeType,
    Kind,
    ListType,
    MapType,
    StructType,
)
from airflow_provider_ducklake.lake.spec.types.values import is_infinite
from airflow_provider_ducklake.lake.storage.parquet.arrow_types import from_physical
from airflow_provider_ducklake.lake.storage.parquet.intervals import interval_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from decimal import Decimal

    from airflow_provider_ducklake.lake.spec.schema import Column
    from airflow_provider_ducklake.lake.spec.types.literals import Value


def values_of(chunked: pa.ChunkedArray, type_: DuckLakeType) -> list[Value]:
    """Return the values of a column whose Arrow type is the one of ``arrow_types.arrow_type``."""
    return [value for chunk in chunked.chunks for value in _values_of(chunk, type_)]


def _values_of(array: pa.Array, type_: DuckLakeType) -> list[Value]:
    match type_:
        case ListType(element):
            elements = _values_of(array.values, element)
            return [_part(span, elements) for span in _spans(array)]
        case MapType(key, item):
            keys, items = _values_of(array.keys, key), _values_of(array.items, item)
            pairs = list(zip(keys, items, strict=True))
            return [_part(span, pairs) for span in _spans(array)]
        case StructType(fields):
            columns = [
                _values_of(child, field.type) for child, field in zip(array.flatten(), fields, strict=True)
            ]
            names = [field.name for field in fields]
            members = (
                dict(zip(names, (one[index] for one in columns), strict=True)) for index in range(len(array))
            )
            valid = array.is_valid().to_pylist()
            return [value if is_valid else None for value, is_valid in zip(members, valid, strict=True)]
        case _:
            return physical_values(array, type_)


def _spans(array: pa.Array) -> Iterator[slice | None]:
    """Yield where in its children each list or map lies; None for NULL."""
    offsets = array.offsets.to_pylist()
    for index, is_valid in enumerate(array.is_valid().to_pylist()):
        yield slice(offsets[index], offsets[index + 1]) if is_valid else None


def _part(span: slice | None, children: list[Any]) -> list[Any] | None:
    return None if span is None else children[span]


def physical_values(array: pa.Array, type_: DuckLakeType) -> list[Any]:
    """Return scalar values, whose Arrow type is the one of ``arrow_types.arrow_type``, in physical form."""
    if type_.facts.kind is Kind.VARIANT:
        return [None if one is None else one["metadata"] + one["value"] for one in array.to_pylist()]
    if type_.facts.kind is Kind.INTERVAL:
        return interval_values(array)
    if pa.types.is_decimal(array.type):
        return [None if value is None else _unscaled(value) for value in array.to_pylist()]
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_string(array.type):
        array = array.cast(pa.binary())
    if pa.types.is_date(array.type):
        array = array.cast(pa.int32())
    elif pa.types.is_temporal(array.type):
        array = array.cast(pa.int64())
    values: list[Any] = array.to_pylist()
    step = type_.facts.step
    if step > 1:
        return [value if value is None or is_infinite(type_, value) else value * step for value in values]
    return values


def _unscaled(value: Decimal) -> int:
    sign, digits, _ = value.as_tuple()
    return (-1 if sign else 1) * int("".join(map(str, digits)))


def array_of(column: Column, values: Sequence[Value], target: pa.DataType) -> pa.Array:
    """Return values as an Arrow array of ``target``, the type of ``column``.

    Raises:
        UnsupportedFeatureError: a type whose values this release cannot handle.
    """
    match column.type:
        case ListType():
            (element,) = column.children
            items = [item for value in values if value is not None for item in value]
            return _spanned(values, target, array_of(element, items, target.value_type))
        case MapType():
            key, item = column.children
            pairs = [pair for value in values if value is not None for pair in value]
            arrays = [
                array_of(key, [pair[0] for pair in pairs], target.key_type),
                array_of(item, [pair[1] for pair in pairs], target.item_type),
            ]
            entries = pa.StructArray.from_arrays(arrays, fields=[target.key_field, target.item_field])
            return _spanned(values, target, entries)
        case StructType():
            members = [
                array_of(
                    child, [None if value is None else value[child.name] for value in values], field.type
                )
                for child, field in zip(column.children, target, strict=True)
            ]
            mask = pa.array([value is None for value in values], pa.bool_())
            return pa.StructArray.from_arrays(members, fields=list(target), mask=mask)
        case _:
            return from_physical(column.type, values)


def _spanned(values: Sequence[Any], target: pa.DataType, children: pa.Array) -> pa.Array:
    lengths = pa.array(
        [None if value is None else [None] * len(value) for value in values], pa.list_(pa.null())
    )
    return pa.Array.from_buffers(target, len(values), lengths.buffers()[:2], children=[children])
