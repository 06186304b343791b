"""Types of columns that are read: how a value travels through a read, and as what it arrives.

It travels in a carrier, as in ``spark_types``, that needs no conversion on the way from Parquet: nanoseconds
and times of day are numbers, a UUID is its 16 bytes. It arrives in a type that an insert takes.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f
from pyspark.sql import types as t

from airflow_provider_ducklake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.spark.types.local_times import INFINITE, local_time
from airflow_provider_ducklake.spark.types.spark_types import scalar_carrier
from airflow_provider_ducklake.spec.types import intervals
from airflow_provider_ducklake.spec.types.ducklake_types import (
    DecimalType,
    DuckLakeType,
    ListType,
    MapType,
    StructType,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_ducklake.spec.schema import Column
    from airflow_provider_ducklake.spec.types.values import Physical

INTERVAL = t.StructType(
    [
        t.StructField("months", t.IntegerType()),
        t.StructField("days", t.IntegerType()),
        t.StructField("microseconds", t.LongType()),
    ]
)
_CARRIERS: dict[str, t.DataType] = {
    "timetz": t.LongType(),
    "time_ns": t.LongType(),
    "timestamp_ms": t.LongType(),  # whose infinities would be too many microseconds for Spark
    "interval": INTERVAL,
    "geometry": t.BinaryType(),
}
_CONVERTED = frozenset({"time", "timetz", "time_ns", "timestamp_ms", "timestamp_ns", "uuid"})


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
        return _CARRIERS.get(str(type_)) or scalar_carrier(type_, where)
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
            return _ARRIVALS[str(column.type)](value)


def is_converted(column: Column) -> bool:
    """Whether values of the carrier are not what an insert takes."""
    return any(str(inner.type) in _CONVERTED for inner in column.walk())


def _presented_map(value: SparkColumn, column: Column) -> SparkColumn:
    key, item = column.children
    if is_converted(item):
        value = f.transform_values(value, lambda _, entry: presented(entry, item))
    if is_converted(key):
        value = f.transform_keys(value, lambda entry, _: presented(entry, key))
    return value


def _clock(units: SparkColumn, digits: int) -> SparkColumn:
    """Return a time of day, as ``12:30:00.500000``, of its units, ``10**digits`` of them a second."""
    per_second = 10**digits
    seconds = _divided(units, per_second)
    parts = [(_divided(seconds, 3600), 2), (_divided(seconds, 60) % 60, 2), (seconds % 60, 2)]
    clock = f.concat_ws(":", *(f.lpad(part.cast("string"), width, "0") for part, width in parts))
    return f.concat(clock, f.lit("."), f.lpad((units % per_second).cast("string"), digits, "0"))


def _divided(value: SparkColumn, by: int) -> SparkColumn:
    return f.call_function("div", value, f.lit(by).cast("bigint"))


def _time(micros: SparkColumn) -> SparkColumn:
    return _clock(micros, 6)


def _time_with_zone(micros: SparkColumn) -> SparkColumn:
    return f.concat(_clock(micros, 6), f.lit("+00"))


_DAY = 86_400 * 10**9


def _nanoseconds(value: SparkColumn) -> SparkColumn:
    before_midnight = f.when(value % _DAY < 0, 1).otherwise(0)
    days = _divided(value, _DAY) - before_midnight
    of_day = value % _DAY + before_midnight * _DAY
    date = f.date_from_unix_date(days.cast("int")).cast("string")
    text = f.concat(date, f.lit(" "), _clock(of_day, 9))
    return f.when(value == INFINITE, "infinity").when(value == -INFINITE, "-infinity").otherwise(text)


def _time_in_nanoseconds(nanos: SparkColumn) -> SparkColumn:
    return _clock(nanos, 9)


_DAY_MILLIS = 86_400 * 10**3


def _milliseconds(value: SparkColumn) -> SparkColumn:
    """Return timestamps without zone; the infinite ones are the same number in every unit."""
    days = _divided(value, _DAY_MILLIS)
    seconds = ((value - days * _DAY_MILLIS) * f.lit(Decimal("0.001"))).cast("decimal(18,6)")
    nothing = f.lit(0)
    finite = local_time(0) + f.make_dt_interval(days.cast("int"), nothing, nothing, seconds)
    infinite = f.when(value == INFINITE, local_time(INFINITE))
    return infinite.when(value == -INFINITE, local_time(-INFINITE)).otherwise(finite)


def _uuid(value: SparkColumn) -> SparkColumn:
    digits = f.lower(f.hex(value))
    parts = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    text = f.concat_ws("-", *(f.substring(digits, start, length) for start, length in parts))
    return f.when(value.isNotNull(), text)


def _null_if(text: SparkColumn, value: SparkColumn) -> SparkColumn:
    return f.when(value.isNotNull(), text)


_ARRIVALS: dict[str, Callable[[SparkColumn], SparkColumn]] = {
    "uuid": _uuid,
    "time": lambda value: _null_if(_time(value), value),
    "timetz": lambda value: _null_if(_time_with_zone(value), value),
    "time_ns": lambda value: _null_if(_time_in_nanoseconds(value), value),
    "timestamp_ms": _milliseconds,
    "timestamp_ns": lambda value: _null_if(_nanoseconds(value), value),
}


# --- single values


def literal(type_: DuckLakeType, value: Physical | None) -> SparkColumn:
    """Return a scalar in the physical form of ``spec.values`` as a constant in its carrier."""
    carrier = scalar_read_type(type_, "of a constant")
    if value is None:
        return f.lit(None).cast(carrier)
    if isinstance(type_, DecimalType):
        return f.lit(Decimal(int(value)).scaleb(-type_.scale, _ENOUGH_DIGITS)).cast(carrier)
    make = _CONSTANTS.get(str(type_))
    return f.lit(value).cast(carrier) if make is None else make(value)


def _text(value: Physical) -> SparkColumn:
    assert isinstance(value, bytes)
    return f.lit(value.decode())


def _interval(value: Physical) -> SparkColumn:
    assert isinstance(value, bytes)
    parts = zip(INTERVAL.fields, intervals.INTERVAL.unpack(value), strict=True)
    return f.struct(*(f.lit(part).cast(field.dataType).alias(field.name) for field, part in parts))


_ENOUGH_DIGITS = Context(prec=80)
_CONSTANTS: dict[str, Callable[[Any], SparkColumn]] = {
    "boolean": lambda value: f.lit(bool(value)),
    "varchar": _text,
    "json": _text,
    "uint64": lambda value: f.lit(Decimal(value)).cast("decimal(20,0)"),
    "date": lambda days: f.date_from_unix_date(f.lit(days)),
    "timestamptz": lambda micros: f.timestamp_micros(f.lit(micros).cast("bigint")),
    "timestamp": local_time,
    "timestamp_s": local_time,
    "interval": _interval,
}
