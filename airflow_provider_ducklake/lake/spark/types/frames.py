"""Columns of DataFrames by few calls to the JVM."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TypeVar

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from .names import quoted

_Part = TypeVar("_Part")
Expression = SparkColumn | str  # a text is SQL: no call to the JVM, where each step of a Column is some


def select(rows: DataFrame, expressions: Sequence[Expression]) -> DataFrame:
    """Return the expressions' values, each with its name."""
    texts = [one for one in expressions if isinstance(one, str)]
    if len(texts) == len(expressions):
        return rows.selectExpr(*texts)
    return rows.select(*(f.expr(one) if isinstance(one, str) else one for one in expressions))


def folded(join: Callable[[_Part, _Part], _Part], parts: Sequence[_Part]) -> _Part:
    """Join one or more parts as a balanced tree: Spark Connect refuses plans that are nested 100 deep.

    >>> folded("({}{})".format, "abcde")
    '(((ab)(cd))e)'
    """
    while len(parts) > 1:
        pairs = [join(*parts[at : at + 2]) for at in range(0, len(parts) - 1, 2)]
        parts = [*pairs, *parts[2 * len(pairs) :]]
    return parts[0]


def analysed(df: DataFrame) -> DataFrame:
    """Return the DataFrame when Spark has looked at it: with Spark Connect it waits until it is asked."""
    _ = df.schema
    return df


def renamed(name: str, new: str) -> str:
    """Return the SQL of a column under another name.

    >>> renamed("a", "b c")
    '`a` AS `b c`'
    """
    return f"{quoted(name)} AS {quoted(new)}"


# Sizes as Spark has them: of rows by their types alone, and of settings.


_BYTES: dict[str, int] = {
    **dict.fromkeys(("boolean", "tinyint", "byte", "void"), 1),
    **dict.fromkeys(("short", "smallint"), 2),
    **dict.fromkeys(("integer", "float", "date", "yearmonthinterval"), 4),
    "string": 20,
    "binary": 100,
    "variant": 2048,
}
_OTHERS = 8
_SMALL_DECIMAL_DIGITS = 18


def row_bytes(type_: t.DataType) -> int:
    """Return the size in memory that Spark assumes for a value. *Source:* ``DataType.defaultSize``.

    >>> row_bytes(t.StructType([t.StructField("a", t.LongType()), t.StructField("b", t.StringType())]))
    28
    """
    match type_:
        case t.StructType() | t.ArrayType() | t.MapType():
            return sum(map(row_bytes, types_below(type_)))
        case t.DecimalType():
            return 8 if type_.precision <= _SMALL_DECIMAL_DIGITS else 16
        case _:
            return _BYTES.get(type_.typeName(), _OTHERS)


_SUFFIXES = {
    "": 0,
    "b": 0,
    "k": 1,
    "kb": 1,
    "m": 2,
    "mb": 2,
    "g": 3,
    "gb": 3,
    "t": 4,
    "tb": 4,
    "p": 5,
    "pb": 5,
}


def bytes_of(setting: str) -> int:
    """Return the bytes that a setting of Spark's means.

    >>> bytes_of("10485760b"), bytes_of("10MB"), bytes_of("-1")
    (10485760, 10485760, -1)
    """
    found = re.fullmatch(r"\s*(-?\d+)\s*([a-z]*)\s*", setting.lower())
    if found is None or found[2] not in _SUFFIXES:
        raise ValueError(f"{setting!r} is not a size.")
    return int(found[1]) << 10 * _SUFFIXES[found[2]]


# Timestamps without a time zone as numbers, for which Spark has no function, and times without end.
#
# DuckDB's ``infinity`` and ``-infinity`` are the numbers ``INFINITE`` and ``-INFINITE`` in every unit.


SECOND = 10**6  # microseconds
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


INFINITE = 2**63 - 1
INFINITE_DATE = 2**31 - 1


def local_time(micros: int) -> SparkColumn:
    """Return the timestamp without time zone that many microseconds after 1970."""
    sign = -1 if micros < 0 else 1
    days, rest = divmod(abs(micros), DAY)
    seconds = f.lit(Decimal(sign * rest).scaleb(-6)).cast("decimal(18,6)")
    nothing = f.lit(0)
    since = f.make_dt_interval(f.lit(sign * days), nothing, nothing, seconds)
    return f.lit("1970-01-01 00:00:00").cast("timestamp_ntz") + since


def first_moment(date: SparkColumn) -> SparkColumn:
    """Return the timestamp without time zone at which a date begins; infinite dates are infinite times."""
    days = f.unix_date(date)
    infinite = f.when(days == INFINITE_DATE, local_time(INFINITE))
    return infinite.when(days == -INFINITE_DATE, local_time(-INFINITE)).otherwise(date.cast("timestamp_ntz"))


def is_infinite(value: SparkColumn, carrier: t.DataType) -> SparkColumn:
    """Return True if a date or a time, in its carrier, is DuckDB's ``infinity`` or ``-infinity``."""
    if isinstance(carrier, t.TimestampNTZType):
        return value.isin(local_time(INFINITE), local_time(-INFINITE))
    end = INFINITE_DATE if isinstance(carrier, t.DateType) else INFINITE
    return number_of(value, carrier).isin(end, -end)


def number_of(value: SparkColumn, carrier: t.DataType) -> SparkColumn:
    """Return the days of dates, the microseconds of timestamps; other values as they are."""
    match carrier:
        case t.DateType():
            return f.unix_date(value)
        case t.TimestampType():
            return f.unix_micros(value)
        case t.TimestampNTZType():
            return micros_of(value)
        case _:
            return value


def micros_of(value: SparkColumn) -> SparkColumn:
    """Return the microseconds since 1970 of a timestamp without time zone, whatever the session's is."""
    infinite = f.when(value == local_time(INFINITE), f.lit(INFINITE))
    infinite = infinite.when(value == local_time(-INFINITE), f.lit(-INFINITE))
    return infinite.otherwise(_finite_micros(value))


def _finite_micros(value: SparkColumn) -> SparkColumn:
    parts = ((f.unix_date(value.cast("date")), DAY), (f.hour(value), HOUR), (f.minute(value), MINUTE))
    seconds = (f.date_part(f.lit("SECOND"), value) * f.lit(SECOND)).cast("bigint")
    return sum((part.cast("bigint") * f.lit(unit) for part, unit in parts), start=seconds)


_DAY_OF = r"^\d{4}-\d\d-\d\d"
_TIME_OF = r"[ T](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?"
OFFSET = r"(?:Z|([+-])(0\d|1[0-5])(?::?([0-5]\d))?)$"
# the seconds of the first value that DuckDB takes, and those of the last one with what is beyond them
_FIRST, (_LAST, _BEYOND) = -9_223_286_400, divmod(INFINITE - 1, 10**9)


def fits_nanos(text: SparkColumn, *, zoned: bool = False) -> SparkColumn:
    """Return True if a text is a timestamp in nanoseconds, as ``2024-01-31 12:30:00.123456789``, or infinite.

    With ``zoned`` it ends with its offset from UTC, ``+00``, ``+05:30`` or ``Z``; else it may be a date.
    """
    is_day = f.substring(text, 1, 10).try_cast("date").isNotNull()
    is_time = text.rlike(_DAY_OF + (_TIME_OF + OFFSET if zoned else f"(?:{_TIME_OF})?$"))
    seconds, fraction = _seconds_and_nanos(text, zoned=zoned)
    is_last = (seconds == _LAST) & (fraction <= _BEYOND)
    is_between = ((seconds >= _FIRST) & (seconds < _LAST)) | is_last
    return text.isin("infinity", "-infinity") | (is_time & is_day & is_between)


def seconds_of_offset(text: SparkColumn) -> SparkColumn:
    """Return the offset from UTC, in seconds, of a time whose text ends with an ``OFFSET``."""
    sign, hours, minutes = (f.regexp_extract(text, OFFSET, place) for place in (1, 2, 3))
    seconds = sum(
        f.coalesce(part.try_cast("bigint"), f.lit(0)) * unit for part, unit in ((hours, 3600), (minutes, 60))
    )
    return f.when(sign == "-", -seconds).otherwise(seconds)


def nanos_of_text(text: SparkColumn, *, zoned: bool = False) -> SparkColumn:
    """Return the nanoseconds since 1970, in UTC if ``zoned``, of a text that ``fits_nanos``."""
    seconds, fraction = _seconds_and_nanos(text, zoned=zoned)
    nanos = seconds * 10**9 + fraction
    return f.when(text == "infinity", INFINITE).when(text == "-infinity", -INFINITE).otherwise(nanos)


def _seconds_and_nanos(text: SparkColumn, *, zoned: bool) -> tuple[SparkColumn, SparkColumn]:
    """Return the whole seconds since 1970, and the nanoseconds beyond them."""
    local = f.regexp_replace(text, OFFSET, "") if zoned else text
    days = f.unix_date(f.substring(local, 1, 10).try_cast("date")).cast("bigint")
    hours, minutes, seconds = (
        f.coalesce(f.substring(local, place, 2).try_cast("bigint"), f.lit(0)) for place in (12, 15, 18)
    )
    fraction = f.rpad(f.substring(local, 21, 9), 9, "0").try_cast("bigint")
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return (whole - seconds_of_offset(text) if zoned else whole), fraction


def has_floats(type_: t.DataType) -> bool:
    """Return True for a float, and for a struct with one at whatever level."""
    if isinstance(type_, t.StructType):
        return any(has_floats(one.dataType) for one in type_)
    return isinstance(type_, t.FloatType | t.DoubleType)


def unbounded(value: SparkColumn, type_: t.DataType) -> SparkColumn:
    """Return a value whose floats Spark compares itself, and not by bounds and dictionaries of files.

    By these no NaN is greater than a number, and -0.0 is no 0.0.
    """
    if isinstance(type_, t.StructType):
        for one in type_:
            if has_floats(one.dataType):
                value = value.withField(quoted(one.name), unbounded(value.getField(one.name), one.dataType))
        return value
    return f.nanvl(value, f.lit(float("nan")).cast(type_)) if has_floats(type_) else value


def without_bounds(rows: DataFrame) -> DataFrame:
    """Return rows of files of which Spark leaves none out by the bounds of their floats."""
    if not any(has_floats(one.dataType) for one in rows.schema):
        return rows
    columns = [
        unbounded(rows[quoted(one.name)], one.dataType).alias(one.name, metadata=one.metadata)
        if has_floats(one.dataType)
        else rows[quoted(one.name)]
        for one in rows.schema
    ]
    return rows.select(*columns)


def types_below(type_: t.DataType) -> list[t.DataType]:
    """Return the types right within one: of elements, of keys and values, of fields; none of a scalar."""
    match type_:
        case t.ArrayType():
            return [type_.elementType]
        case t.MapType():
            return [type_.keyType, type_.valueType]
        case t.StructType():
            return [one.dataType for one in type_]
        case _:
            return []


def with_types(type_: t.DataType, types: Sequence[t.DataType]) -> t.DataType:
    """Return a type with others in the place of its ``types_below``."""
    match type_:
        case t.ArrayType():
            return t.ArrayType(types[0], type_.containsNull)
        case t.MapType():
            return t.MapType(types[0], types[1], type_.valueContainsNull)
        case t.StructType():
            pairs = zip(type_, types, strict=True)
            return t.StructType(
                [t.StructField(one.name, own, one.nullable, one.metadata) for one, own in pairs]
            )
        case _:
            return type_


def with_values(
    value: SparkColumn, type_: t.DataType, make: Callable[[SparkColumn, int], SparkColumn]
) -> SparkColumn:
    """Return nested values of a type with others within them; NULL stays NULL.

    ``make`` gets what is there, and its place among the ``types_below``.
    """
    match type_:
        case t.ArrayType():
            return f.transform(value, lambda item: make(item, 0))
        case t.MapType():
            keys = f.transform(f.map_keys(value), lambda item: make(item, 0))
            return f.map_from_arrays(keys, f.transform(f.map_values(value), lambda item: make(item, 1)))
        case t.StructType():
            names = enumerate(type_.names)
            members = [make(value.getField(name), place).alias(name) for place, name in names]
            return f.when(value.isNotNull(), f.struct(*members))
        case _:
            raise AssertionError(type_)
