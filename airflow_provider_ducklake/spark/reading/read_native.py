"""Data files read by Spark's own Parquet reader: each group of files with one layout is one scan.

Fields are found by field id, or by name in files with a name mapping. The schema is the files' own, never
inferred: their names, since Spark compares filters with Parquet's statistics by name, and their types, from
which Spark casts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f
from pyspark.sql import types as t

from airflow_provider_ducklake.spark.types.hadoop_paths import hadoop_path
from airflow_provider_ducklake.spark.types.identifiers import quoted
from airflow_provider_ducklake.spark.types.object_store import require_file_system
from airflow_provider_ducklake.spark.types.read_types import literal, read_type
from airflow_provider_ducklake.spark.types.selecting import renamed
from airflow_provider_ducklake.spark.types.spark_types import FIELD_ID_KEY
from airflow_provider_ducklake.spec.types.ducklake_types import ListType, MapType, StructType
from airflow_provider_ducklake.spec.types.literals import parse_scalar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.errors import AnalysisException
    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_ducklake.spark.reading.read_layout import Layout, StoredField
    from airflow_provider_ducklake.spark.types.selecting import Expression
    from airflow_provider_ducklake.spec.ids import ColumnId
    from airflow_provider_ducklake.spec.schema import Column
    from airflow_provider_ducklake.spec.types.values import Physical

# Where the user's session says otherwise, files would silently be left out or their values changed.
_OPTIONS = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
_GLOB = re.compile(r"([{}\[\]*?\\])")


def scan(
    spark: SparkSession,
    paths: Sequence[str],
    layout: Layout,
    columns: Sequence[Column],
    reserved: Sequence[Column] = (),
) -> DataFrame:
    """Return all rows of files with one layout as they are stored, ``reserved`` columns behind the others.

    Raises:
        InvalidInputError: Spark lacks the jar that opens their store.
    """
    require_file_system(spark, paths[0])
    fields = [
        _field(stored.name, stored, column, is_mapped=layout.is_mapped)
        for stored, column in zip(layout.columns, columns, strict=True)
        if stored is not None
    ]
    fields += [
        t.StructField(column.name, read_type(column), metadata={FIELD_ID_KEY: column.id})
        for column in reserved
    ]
    if not fields:  # Spark takes a schema without fields for none given
        fields.append(t.StructField("_ducklake_nothing", t.BooleanType()))
    reader = spark.read.schema(t.StructType(fields)).options(**_OPTIONS)
    return reader.parquet(*(_GLOB.sub(r"\\\1", hadoop_path(path)) for path in paths))


def _field(name: str, stored: StoredField, column: Column, *, is_mapped: bool) -> t.StructField:
    metadata = {} if is_mapped else {FIELD_ID_KEY: column.id}
    return t.StructField(name, _type(stored, column, is_mapped=is_mapped), metadata=metadata)


def _type(stored: StoredField, column: Column, *, is_mapped: bool) -> t.DataType:
    children = [
        None if child is None else _field(child.name, child, below, is_mapped=is_mapped)
        for child, below in zip(stored.children, column.children, strict=True)
    ]
    known = [child for child in children if child is not None]
    match column.type:
        case ListType():
            return t.ArrayType(known[0].dataType)
        case MapType():
            return t.MapType(known[0].dataType, known[1].dataType)
        case StructType():
            return t.StructType(known)
        case _:
            return stored.type


def carried(
    layout: Layout, columns: Sequence[Column], constants: Mapping[ColumnId, Physical | None]
) -> list[Expression]:
    """Return the columns of a scan in their carriers, with the table's names.

    ``constants`` are the values of columns that lie outside the files.
    """
    return [
        renamed(stored.name, column.name)
        if stored is not None and stored.type == read_type(column) and column.id not in constants
        else _value(stored, column, constants).alias(column.name)
        for stored, column in zip(layout.columns, columns, strict=True)
    ]


def _value(
    stored: StoredField | None, column: Column, constants: Mapping[ColumnId, Physical | None]
) -> SparkColumn:
    if column.id in constants:
        return literal(column.type, constants[column.id])
    return _missing(column) if stored is None else _carried(f.col(quoted(stored.name)), stored, column)


def _missing(column: Column) -> SparkColumn:
    """Return the value of rows that were written before the column existed."""
    if column.initial_default is None or column.children:
        return f.lit(None).cast(read_type(column))
    return literal(column.type, parse_scalar(column.type, column.initial_default))


def _carried(value: SparkColumn, stored: StoredField, column: Column) -> SparkColumn:
    if stored.type == read_type(column):
        return value
    match column.type:
        case StructType():
            members = [
                _missing(child) if below is None else _carried(value.getField(below.name), below, child)
                for below, child in zip(stored.children, column.children, strict=True)
            ]
            named = [one.alias(child.name) for one, child in zip(members, column.children, strict=True)]
            made = f.when(value.isNotNull(), f.struct(*named))
            return made.cast(read_type(column))  # whose fields may all be NULL, unlike a default
        case ListType():
            below, (child,) = _only(stored), column.children
            return f.transform(value, lambda item: _carried(item, below, child))
        case MapType():
            below, child = _item(stored), column.children[1]
            return f.transform_values(value, lambda _, item: _carried(item, below, child))
        case _:
            return value.cast(read_type(column))


def _only(stored: StoredField) -> StoredField:
    (below,) = stored.children
    assert below is not None
    return below


def _item(stored: StoredField) -> StoredField:
    below = stored.children[1]
    assert below is not None
    return below


def is_path_missing(error: AnalysisException) -> bool:
    """Whether Spark found no file at a path."""
    return error.getCondition() == "PATH_NOT_FOUND"
