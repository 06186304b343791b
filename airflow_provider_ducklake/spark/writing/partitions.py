"""Partitioned writes: keys that bring equal values together, and the catalog's text of each file's values.

Key columns only decide which rows share a file; the texts come from a row of the file itself, by
``spec.partitioning.partition_value``. *Source:* docs/sources.md, DDL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from airflow_provider_ducklake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.spark.types.hashing import (
    bucket_of_double,
    bucket_of_long,
    with_bucket_of_bytes,
)
from airflow_provider_ducklake.spark.types.identifiers import free_prefix, quoted
from airflow_provider_ducklake.spark.types.local_times import SECOND, is_infinite, number_of
from airflow_provider_ducklake.spark.types.scalars import uuid_text
from airflow_provider_ducklake.spark.types.spark_types import scalar_carrier
from airflow_provider_ducklake.spec.partitioning import (
    PartitionField,
    Transform,
    TransformKind,
    hashed_as_long,
)
from airflow_provider_ducklake.spec.types.ducklake_types import (
    DecimalType,
    DuckLakeType,
    is_float,
)
from airflow_provider_ducklake.spec.types.scalars import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_ducklake.spec.schema import TableSchema

_ADVISORY_SIZE = "spark.sql.adaptive.advisoryPartitionSizeInBytes"


def with_keys(
    df: DataFrame, schema: TableSchema, fields: Sequence[PartitionField]
) -> tuple[DataFrame, list[str]]:
    """Return ``df``, a table's columns in their carriers, with a key column for each field, and their names.

    Raises:
        UnsupportedFeatureError: the reference's hash of that type cannot be computed.
    """
    names: list[str] = []
    prefix = free_prefix(schema.names)
    for number, field in enumerate(fields):
        names.append(f"{prefix}key_{number}")
        column = schema.by_id(field.column_id)
        value = f.col(quoted(column.name))
        df = _with_key(df, value, column.type, field.transform, names[-1])
    return df, names


def _with_key(
    df: DataFrame, value: SparkColumn, type_: DuckLakeType, transform: Transform, name: str
) -> DataFrame:
    match transform.kind:
        case TransformKind.IDENTITY:
            return df.withColumn(name, _identity(value, type_))
        case TransformKind.BUCKET:
            assert transform.bucket_count is not None
            return _with_bucket(df, value, type_, transform.bucket_count, name)
        case _:
            return df.withColumn(name, _calendar_part(value, type_, transform.kind))


def _identity(value: SparkColumn, type_: DuckLakeType) -> SparkColumn:
    """Return what is equal for equal values only, in every zone of a session: moments by their number."""
    if isinstance(scalar_carrier(type_, "of a key"), t.TimestampType):
        return f.unix_micros(value)
    return value.cast("string") if is_float(type_) else value


def _calendar_part(value: SparkColumn, type_: DuckLakeType, kind: TransformKind) -> SparkColumn:
    """Return year, month, day or hour in UTC, whatever the session's zone is; NULL for infinite times."""
    part = _hour(value, type_) if kind is TransformKind.HOUR else _DATE_PARTS[kind](_date(value, type_))
    if kind is TransformKind.YEAR and type_.facts.zoned:
        part = f.when(part < 1, 1 - part).otherwise(part)  # of its era, as the reference has it
    return f.when(~is_infinite(value, scalar_carrier(type_, "of a key")), part)


_DATE_PARTS = {TransformKind.YEAR: f.year, TransformKind.MONTH: f.month, TransformKind.DAY: f.dayofmonth}


def _hour(value: SparkColumn, type_: DuckLakeType) -> SparkColumn:
    if type_.facts.kind is Kind.DATE:
        return f.lit(0)
    if isinstance(scalar_carrier(type_, "of a key"), t.TimestampNTZType):
        return f.hour(value)
    hours = _divided(_number(value, type_), 3_600 * type_.facts.per_second)
    # a time of day may be 24:00:00
    return (hours if type_.facts.kind is Kind.TIME else f.pmod(hours, f.lit(24))).cast("int")


def _date(value: SparkColumn, type_: DuckLakeType) -> SparkColumn:
    if isinstance(scalar_carrier(type_, "of a key"), t.DateType | t.TimestampNTZType):
        return value.cast("date")
    days = _divided(_number(value, type_), 86_400 * type_.facts.per_second)
    return f.date_from_unix_date(days.cast("int"))


def _divided(number: SparkColumn, divisor: int) -> SparkColumn:
    """Return ``number`` divided by ``divisor``, rounded down."""
    down = f.when(number % f.lit(divisor) < 0, f.lit(1)).otherwise(f.lit(0))
    return f.call_function("div", number, f.lit(divisor)) - down


def _with_bucket(
    df: DataFrame, value: SparkColumn, type_: DuckLakeType, buckets: int, name: str
) -> DataFrame:
    if hashed_as_long(type_):
        return df.withColumn(name, bucket_of_long(_as_long(value, type_), buckets))
    if is_float(type_):
        return df.withColumn(name, bucket_of_double(value.cast("double"), buckets))
    return with_bucket_of_bytes(df, _as_bytes(value, type_), buckets, name)


def _as_long(value: SparkColumn, type_: DuckLakeType) -> SparkColumn:
    """Return the number that ``hash_input`` hashes."""
    if isinstance(type_, DecimalType):
        precision, scale = type_.precision, type_.scale
        return (value.cast(f"decimal({precision},{scale})") * f.lit(10**scale)).cast("bigint")
    carrier, number = scalar_carrier(type_, "of a key"), _number(value, type_).cast("bigint")
    micros_each = SECOND * type_.facts.step // type_.facts.per_second
    if not isinstance(carrier, t.TimestampNTZType) or micros_each == 1:
        return number
    return f.when(is_infinite(value, carrier), number).otherwise(_divided(number, micros_each))


def _number(value: SparkColumn, type_: DuckLakeType) -> SparkColumn:
    return number_of(value, scalar_carrier(type_, "of a key"))


def _as_bytes(value: SparkColumn, type_: DuckLakeType) -> SparkColumn:
    """Return the bytes that ``hash_input`` hashes: the value's own, or those of the reference's text."""
    match type_.facts.kind:
        case Kind.STRING | Kind.JSON | Kind.BLOB:
            return value
        case Kind.UUID:
            return uuid_text(value)
        case Kind.INTEGER | Kind.DECIMAL:
            return value.cast("string")
        case _:
            raise UnsupportedFeatureError(
                f"bucket() of a column of type {type_} is not supported by this release."
            )


def rebalanced(df: DataFrame, keys: Sequence[str], target_file_size_bytes: int) -> DataFrame:
    """Return ``df`` with equal keys in one task, or without keys with rows in as few as their size needs.

    A group is split where its shuffled bytes pass a quarter of the target size (64 to 256 MiB), unless the
    user's own configuration says otherwise.
    """
    _set_task_size(df, target_file_size_bytes)
    return df.hint("rebalance", *keys)


def gathered(df: DataFrame, keys: Sequence[str], target_file_size_bytes: int) -> DataFrame:
    """Return ``df`` with a range of keys in each task. Spark reads the rows once more to find the ranges."""
    _set_task_size(df, target_file_size_bytes)
    return df.repartitionByRange(*keys)


def _set_task_size(df: DataFrame, target_file_size_bytes: int) -> None:
    spark = df.sparkSession
    if not spark.sparkContext.getConf().contains(_ADVISORY_SIZE):
        size = min(max(target_file_size_bytes // 4, 64 * 2**20), 256 * 2**20)
        spark.conf.set(_ADVISORY_SIZE, f"{size}b")
