"""DuckLake ↔ Spark types, nested ones too; the scalar ones are the table of ``spark.types.scalars``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as t

from airflow_provider_ducklake.errors import InvalidTypeError, UnsupportedFeatureError
from airflow_provider_ducklake.spark.types.scalars import SPARK_SCALARS
from airflow_provider_ducklake.spec.names.identifiers import fold
from airflow_provider_ducklake.spec.types.ducklake_types import (
    DecimalType,
    DuckLakeType,
    Field,
    ListType,
    MapType,
    ScalarType,
    StructType,
)

if TYPE_CHECKING:
    from airflow_provider_ducklake.spec.schema import Column, TableSchema

FIELD_ID_KEY = "parquet.field.id"

_DUCKLAKE = {type(row.carrier): name for name, row in SPARK_SCALARS.items() if row.native}


def carrier_type(column: Column) -> t.DataType:
    """Return the Spark type in which values of ``column`` travel, with field ids on struct members.

    Raises:
        UnsupportedFeatureError: Spark has no type that could carry the values.
    """
    match column.type:
        case ListType():
            return t.ArrayType(carrier_type(column.children[0]))
        case MapType():
            return t.MapType(carrier_type(column.children[0]), carrier_type(column.children[1]))
        case StructType():
            return t.StructType([carrier_field(child) for child in column.children])
        case _:
            return scalar_carrier(column.type, column.name)


def scalar_carrier(type_: DuckLakeType, where: str) -> t.DataType:
    """Return the carrier of a type that is not nested; ``where`` names the column in errors.

    Raises:
        UnsupportedFeatureError: Spark has no type that could carry the values.
    """
    if isinstance(type_, DecimalType):
        return t.DecimalType(type_.precision, type_.scale)
    carrier = SPARK_SCALARS[type_.name].carrier if isinstance(type_, ScalarType) else None
    if carrier is None:
        raise UnsupportedFeatureError(
            f"Column {where} has type {type_}, which Spark cannot write in this release."
        )
    return carrier


def carrier_field(column: Column) -> t.StructField:
    """Return the Spark field of a column; its metadata holds the Parquet field id."""
    return t.StructField(column.name, carrier_type(column), metadata={FIELD_ID_KEY: column.id})


def why_not_native(schema: TableSchema) -> str | None:
    """Return what keeps Spark's own Parquet writer from storing the table's columns, None if nothing does."""
    for column in schema.walk():
        match column.type:
            case ListType() | MapType():
                return f"column {column.name} is nested in a way that Spark writes without field ids"
            case ScalarType(name) if not SPARK_SCALARS[name].native:
                return f"column {column.name} has type {name}, which Spark cannot store as such"
    return None


def fields_of_spark(schema: t.StructType) -> tuple[Field, ...]:
    """Return the columns that a table for such rows has.

    Raises:
        InvalidTypeError: lists every column whose type DuckLake cannot store.
    """
    problems: list[str] = []
    fields = [Field(field.name, _ducklake_type(field.dataType, field.name, problems)) for field in schema]
    if problems:
        raise InvalidTypeError(
            f"Cannot create a table with these columns: {'; '.join(problems)}. Cast them to another type or "
            "leave them out."
        )
    return tuple(fields)


def _ducklake_type(type_: t.DataType, where: str, problems: list[str]) -> DuckLakeType:
    match type_:
        case t.ArrayType():
            return ListType(_ducklake_type(type_.elementType, f"{where}.element", problems))
        case t.MapType():
            key = _ducklake_type(type_.keyType, f"{where}.key", problems)
            return MapType(key, _ducklake_type(type_.valueType, f"{where}.value", problems))
        case t.StructType():
            return StructType(_struct_fields(type_, where, problems))
        case _:
            pass
    scalar = scalar_of_spark(type_)
    if scalar is None:
        problems.append(f"column {where} has Spark type {type_.simpleString()}, which DuckLake cannot store")
        return ScalarType("unknown")
    return scalar


def _struct_fields(type_: t.StructType, where: str, problems: list[str]) -> tuple[Field, ...]:
    if not type_.fields or len({fold(field.name) for field in type_}) != len(type_.fields):
        problems.append(f"column {where} is a struct without fields, or with two fields of one name")
    return tuple(
        Field(field.name, _ducklake_type(field.dataType, f"{where}.{field.name}", problems))
        for field in type_
    )


def without_nothing(schema: t.StructType) -> t.StructType:
    """Return a schema without the columns and fields of which nothing is known but that they are NULL."""
    return t.StructType(
        [
            t.StructField(field.name, _something(field.dataType), field.nullable)
            for field in schema
            if not is_nothing(field.dataType)
        ]
    )


def _something(type_: t.DataType) -> t.DataType:
    match type_:
        case t.StructType():
            return without_nothing(type_)
        case t.ArrayType():
            return t.ArrayType(_something(type_.elementType))
        case t.MapType():
            return t.MapType(_something(type_.keyType), _something(type_.valueType))
        case _:
            return type_


def is_nothing(type_: t.DataType) -> bool:
    """Whether values of the type can only be NULL, or hold nothing else."""
    match type_:
        case t.StructType():
            return all(is_nothing(field.dataType) for field in type_)
        case t.ArrayType():
            return is_nothing(type_.elementType)
        case t.MapType():
            return is_nothing(type_.keyType) or is_nothing(type_.valueType)
        case _:
            return isinstance(type_, t.NullType)


def scalar_of_spark(type_: t.DataType) -> DecimalType | ScalarType | None:
    """Return the DuckLake type with just the values of a Spark type; None for others and nested ones."""
    if isinstance(type_, t.DecimalType):
        return DecimalType(type_.precision, type_.scale)
    if isinstance(type_, (t.CharType, t.VarcharType)):
        return ScalarType("varchar")
    if is_time(type_):
        return ScalarType("time")
    name = _DUCKLAKE.get(type(type_))
    return None if name is None else ScalarType(name)


def is_time(type_: t.DataType) -> bool:
    """Whether it is Spark's time of day, a type that not all supported Sparks have."""
    return type(type_).__name__ == "TimeType"
