"""Iceberg's columns as DuckLake's: types that are the same, defaults, and the ids of files without ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyiceberg.types as iceberg

from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.planning.writing.source_table import SourceColumn
from airflow_provider_ducklake.lake.spec.defaults import default_of
from airflow_provider_ducklake.lake.spec.types.ducklake_types import (
    DecimalType,
    DuckLakeType,
    Field,
    ListType,
    MapType,
    ScalarType,
    StructType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyiceberg.table.name_mapping import MappedField, NameMapping

_TYPES: dict[type[Any], str] = {
    iceberg.BooleanType: "boolean",
    iceberg.IntegerType: "int32",
    iceberg.LongType: "int64",
    iceberg.FloatType: "float32",
    iceberg.DoubleType: "float64",
    iceberg.DateType: "date",
    iceberg.TimeType: "time",
    iceberg.TimestampType: "timestamp",
    iceberg.TimestamptzType: "timestamptz",
    iceberg.TimestampNanoType: "timestamp_ns",
    iceberg.StringType: "varchar",
    iceberg.UUIDType: "uuid",
    iceberg.BinaryType: "blob",
    iceberg.FixedType: "blob",
}


def columns_of(fields: Iterable[iceberg.NestedField], where: str) -> tuple[SourceColumn, ...]:
    """Return the columns of a schema.

    Raises:
        UnsupportedFeatureError: DuckLake has no such type, or cannot have a default there; names the column.
    """
    return tuple(_column(field, where, "", is_top=True) for field in fields)


def _column(field: iceberg.NestedField, where: str, prefix: str, *, is_top: bool = False) -> SourceColumn:
    name = f"{prefix}{field.name}"
    type_, children = _type(field.field_type, where, name)
    made = SourceColumn(field.field_id, field.name, type_, nullable=not field.required, children=children)
    if field.initial_default is None and field.write_default is None:
        return made
    if not is_top or children:
        raise UnsupportedFeatureError(
            f"{where}: the field {name} has a default, and DuckLake has defaults of top-level columns that "
            "are not nested only. Rewrite the table without it, or insert its rows instead."
        )
    _, initial = default_of(field.initial_default, type_)
    default, _ = default_of(field.write_default, type_)
    return SourceColumn(
        made.key, made.name, type_, nullable=made.nullable, initial_default=initial, default=default
    )


def _type(type_: iceberg.IcebergType, where: str, name: str) -> tuple[DuckLakeType, tuple[SourceColumn, ...]]:
    match type_:
        case iceberg.StructType():
            children = tuple(_column(one, where, f"{name}.") for one in type_.fields)
            return StructType(tuple(Field(one.name, one.type) for one in children)), children
        case iceberg.ListType():
            element = _column(type_.element_field, where, f"{name}.")
            return ListType(element.type), (element,)
        case iceberg.MapType():
            key, value = (_column(one, where, f"{name}.") for one in (type_.key_field, type_.value_field))
            return MapType(key.type, value.type), (key, value)
        case iceberg.DecimalType():
            return DecimalType(type_.precision, type_.scale), ()
        case _:
            return _scalar(type_, where, name), ()


def _scalar(type_: iceberg.IcebergType, where: str, name: str) -> DuckLakeType:
    found = _TYPES.get(type(type_))
    if found is None:
        raise UnsupportedFeatureError(
            f"{where}: column {name} is of Iceberg's type {type_}, which has no equal in DuckLake. Rewrite "
            "the table without the column, or insert its rows with the column converted."
        )
    return ScalarType(found)


def ids_of_names(mapping: NameMapping | None) -> dict[tuple[int | None, str], int]:
    """Return the ids that fields of files without ids have: by the id of the enclosing field and a name."""
    return dict(_ids(mapping.root, None)) if mapping is not None else {}


def _ids(fields: Iterable[MappedField], parent: int | None) -> Iterator[tuple[tuple[int | None, str], int]]:
    for one in fields:
        if one.field_id is None:
            continue
        for name in one.names:
            yield (parent, name), one.field_id
        yield from _ids(one.fields, one.field_id)
