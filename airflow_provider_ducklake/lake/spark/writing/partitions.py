"""Partitioned writes: keys that bring equal values together, and the catalog's text of each file's values.

Key columns only decide which rows share a file; the texts come from a row of the file itself, by
``format.partitioning.partition_value``. *Source:* docs/sources.md, DDL.

The ``bucket`` transform is murmur3_32 with seed 0, without leaving the JVM: Spark's ``hash`` is the same
function with seed 42, chained: each argument's hash is the next one's seed. A constant whose hash is 0
therefore resets the seed. For bytes Spark mixes the last, incomplete word in its own way, so the hash of the
whole words is taken, its final mixing undone, and the rest mixed in as murmur3 does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ...errors import UnsupportedFeatureError
from ...format import partitioning as keys
from ...format.types.ducklake_types import DecimalType, DuckLakeType, ScalarKind, is_float
from ..sessions.kind import kind_of
from ..types.frames import SECOND, is_infinite, number_of
from ..types.names import free_prefix, quoted
from ..types.spark_types import scalar_carrier, uuid_text

if TYPE_CHECKING:
    from ...format.schema import TableSchema


_SEED_ZERO = -1_693_959_553  # hash(_SEED_ZERO) is 0
_MASK = 0xFFFFFFFF
_C1, _C2 = 0xCC9E2D51, 0x1B873593
_F1, _F2 = 0x85EBCA6B, 0xC2B2AE35
_F1_INVERSE, _F2_INVERSE = pow(_F1, -1, 2**32), pow(_F2, -1, 2**32)
_HALF = 16


def bucket_of_long(value: SparkColumn, buckets: int) -> SparkColumn:
    """Return the bucket of a bigint, hashed as 8 little-endian bytes; null stays null."""
    return _bucket(f.hash(f.lit(_SEED_ZERO), value), buckets, value)


def bucket_of_double(value: SparkColumn, buckets: int) -> SparkColumn:
    """Return the bucket of a double, hashed as its bits with -0.0 as 0.0; null stays null."""
    return _bucket(f.hash(f.lit(_SEED_ZERO), value), buckets, value)


def _bucket(hashed: SparkColumn, buckets: int, value: SparkColumn) -> SparkColumn:
    number = hashed.bitwiseAND(f.lit(0x7FFFFFFF)) % f.lit(buckets)
    return f.when(value.isNotNull(), number)


def with_bucket_of_bytes(df: DataFrame, value: SparkColumn, buckets: int, name: str) -> DataFrame:
    """Return ``df`` with one more column: the bucket of a string's or binary's bytes; null stays null.

    No column has a name that begins with ``name``.

    Each step is a separate column, since an expression that uses a step several times would otherwise grow
    with every step; the steps are dropped again.
    """
    kept = [f.col(quoted(column)) for column in df.columns]
    numbers = count()

    def step(df: DataFrame, expression: SparkColumn) -> tuple[DataFrame, SparkColumn]:
        column = f"{name}_{next(numbers)}"
        return df.withColumn(column, expression), f.col(column)

    df, data = step(df, value.cast("binary"))
    df, length = step(df, f.octet_length(data).cast("bigint"))
    whole = length - length % 4
    df, hashed = step(df, _hash_of_bytes(f.substring(data, f.lit(1), whole.cast("int"))))
    df, state = step(df, _times(_xor_shift(hashed, 16), _F2_INVERSE))
    df, state = step(df, _times(_xor(_xor_shift(state, 13), f.shiftright(state, 26)), _F1_INVERSE))
    df, rest = step(df, _times(_little_endian(f.substring(data, (whole + 1).cast("int"), f.lit(3))), _C1))
    df, rest = step(df, _times(_rotate(rest, 15), _C2))
    df, state = step(df, _xor(_xor(_xor_shift(state, 16), whole), _xor(rest, length)))
    df, state = step(df, _times(_xor_shift(state, 16), _F1))
    df, state = step(df, _times(_xor_shift(state, 13), _F2))
    return df.select(*kept, _bucket(_xor_shift(state, 16), buckets, data).cast("int").alias(name))


def _hash_of_bytes(data: SparkColumn) -> SparkColumn:
    return f.hash(f.lit(_SEED_ZERO), data).cast("bigint").bitwiseAND(f.lit(_MASK))


def _xor(left: SparkColumn, right: SparkColumn) -> SparkColumn:
    return left.bitwiseXOR(right)


def _xor_shift(value: SparkColumn, bits: int) -> SparkColumn:
    return _xor(value, f.shiftright(value, bits))


def _rotate(value: SparkColumn, bits: int) -> SparkColumn:
    return f.shiftleft(value, bits).bitwiseOR(f.shiftright(value, 32 - bits)).bitwiseAND(f.lit(_MASK))


def _times(value: SparkColumn, factor: int) -> SparkColumn:
    """Return ``value * factor`` modulo 2**32 in two steps, none of which overflows a bigint."""
    low = value * f.lit(factor & 0xFFFF)
    high = (value * f.lit(factor >> _HALF)).bitwiseAND(f.lit(0xFFFF))
    return (low + f.shiftleft(high, _HALF)).bitwiseAND(f.lit(_MASK))


def _little_endian(data: SparkColumn) -> SparkColumn:
    """Return up to three bytes as a number; no byte at all is 0."""
    digits = f.hex(data)
    swapped = f.concat(
        f.lit("0"), f.substring(digits, 5, 2), f.substring(digits, 3, 2), f.substring(digits, 1, 2)
    )
    return f.conv(swapped, 16, 10).cast("bigint")


_ADVISORY_SIZE = "spark.sql.adaptive.advisoryPartitionSizeInBytes"


def with_keys(
    df: DataFrame, schema: TableSchema, fields: Sequence[keys.PartitionField]
) -> tuple[DataFrame, list[str]]:
    """Return ``df``, a table's columns in their carriers, with a key column of each field, and the names."""
    names: list[str] = []
    prefix = free_prefix(schema.names)
    for number, field in enumerate(fields):
        names.append(f"{prefix}key_{number}")
        column = schema.by_id(field.column_id)
        value = f.col(quoted(column.name))
        df = _with_key(df, value, column.type, field.transform, names[-1])
    return df, names


def _with_key(
    df: DataFrame, value: SparkColumn, type_: DuckLakeType, transform: keys.Transform, name: str
) -> DataFrame:
    match transform.kind:
        case keys.TransformKind.IDENTITY:
            return df.withColumn(name, _identity(value, type_))
        case keys.TransformKind.BUCKET:
            assert transform.bucket_count is not None
            return _with_bucket(df, value, type_, transform.bucket_count, name)
        case kind if kind in keys.EPOCHS:
            return df.withColumn(name, _epoch_unit(value, type_, kind))
        case kind:
            return df.withColumn(name, _calendar_part(value, type_, kind))


def _identity(value: SparkColumn, type_: DuckLakeType) -> SparkColumn:
    """Return a key that is equal for equal values only, in every session's zone: moments by their number."""
    if isinstance(scalar_carrier(type_, "of a key"), t.TimestampType):
        return f.unix_micros(value)
    is_text = is_float(type_) or type_.facts.kind is ScalarKind.INTERVAL
    return value.cast("string") if is_text else value


def _calendar_part(value: SparkColumn, type_: DuckLakeType, kind: keys.TransformKind) -> SparkColumn:
    """Return year, month, day or hour in UTC, whatever the session's zone is; NULL for infinite times."""
    given = f.call_function("div", value, f.lit(1_000)) * 1_000 if keys.is_cast_to_micros(type_) else value
    part = _hour(given, type_) if kind is keys.TransformKind.HOUR else _DATE_PARTS[kind](_date(given, type_))
    if kind is keys.TransformKind.YEAR and type_.facts.zoned:
        part = f.when(part < 1, 1 - part).otherwise(part)  # of its era, as the reference has it
    return f.when(~is_infinite(value, scalar_carrier(type_, "of a key")), part)


def _epoch_unit(value: SparkColumn, type_: DuckLakeType, kind: keys.TransformKind) -> SparkColumn:
    """Return years, months, days or hours since 1970 in UTC, rounded down; NULL for infinite times."""
    date = _date(value, type_)
    days, years = f.unix_date(date).cast("bigint"), f.year(date) - 1970
    match kind:
        case keys.TransformKind.EPOCH_YEAR:
            unit = years
        case keys.TransformKind.EPOCH_MONTH:
            unit = years * 12 + f.month(date) - 1
        case keys.TransformKind.EPOCH_DAY:
            unit = days
        case _:
            unit = days * 24 + _hour(value, type_)
    return f.when(~is_infinite(value, scalar_carrier(type_, "of a key")), unit)


_DATE_PARTS = {
    keys.TransformKind.YEAR: f.year,
    keys.TransformKind.MONTH: f.month,
    keys.TransformKind.DAY: f.dayofmonth,
}


def _hour(value: SparkColumn, type_: DuckLakeType) -> SparkColumn:
    if type_.facts.kind is ScalarKind.DATE:
        return f.lit(0)
    if isinstance(scalar_carrier(type_, "of a key"), t.TimestampNTZType):
        return f.hour(value)
    hours = _divided(_number(value, type_), 3_600 * type_.facts.per_second)
    # a time of day may be 24:00:00
    return (hours if type_.facts.kind is ScalarKind.TIME else f.pmod(hours, f.lit(24))).cast("int")


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
    if keys.hashed_as_long(type_):
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
    if keys.is_zoned_time(type_):
        return f.shiftleft(number, keys.OFFSET_BITS).bitwiseOR(f.lit(keys.NO_OFFSET))
    micros_each = SECOND * type_.facts.step // type_.facts.per_second
    if not isinstance(carrier, t.TimestampNTZType) or micros_each == 1:
        return number
    return f.when(is_infinite(value, carrier), number).otherwise(_divided(number, micros_each))


def _number(value: SparkColumn, type_: DuckLakeType) -> SparkColumn:
    return number_of(value, scalar_carrier(type_, "of a key"))


def _as_bytes(value: SparkColumn, type_: DuckLakeType) -> SparkColumn:
    """Return the bytes that ``hash_input`` hashes: the value's own, or those of the reference's text."""
    match type_.facts.kind:
        case ScalarKind.STRING | ScalarKind.JSON | ScalarKind.BLOB:
            return value
        case ScalarKind.UUID:
            return uuid_text(value)
        case ScalarKind.INTEGER:
            return value.cast("string")
        case ScalarKind.DECIMAL:
            assert isinstance(type_, DecimalType)
            text = value.cast("string")
            return f.regexp_replace(text, "^(-?)0", "$1") if type_.precision == type_.scale else text
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
    if _ADVISORY_SIZE not in kind_of(spark).configured():
        size = min(max(target_file_size_bytes // 4, 64 * 2**20), 256 * 2**20)
        spark.conf.set(_ADVISORY_SIZE, f"{size}b")
