"""The scalar types in Spark: a row for each of ``spec/types/ducklake_types.py``.

A DuckLake type travels through Spark in its *carrier*: the Spark type itself where there is one, else one
that holds every value (``uint8`` in smallint, ``uuid`` in binary, ``time`` in microseconds as bigint,
``timestamp_ns`` in nanoseconds). What is read needs no conversion on the way from Parquet, and arrives in a
type that an insert takes. *Source:* DuckLake spec "Data Types"; ``docs/types.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f
from pyspark.sql import types as t

from airflow_provider_ducklake.lake.spark.types.local_times import INFINITE, local_time
from airflow_provider_ducklake.lake.spec.types.texts import INTERVAL as PACKED_INTERVAL

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.spec.types.values import Physical

Conversion: TypeAlias = Callable[[SparkColumn], SparkColumn]

INTERVAL = t.StructType(
    [
        t.StructField("months", t.IntegerType()),
        t.StructField("days", t.IntegerType()),
        t.StructField("microseconds", t.LongType()),
    ]
)

# --- how values arrive


def _null_if(text: SparkColumn, value: SparkColumn) -> SparkColumn:
    return f.when(value.isNotNull(), text)


def _clock_text(digits: int, zone: str = "") -> Conversion:
    return lambda units: _null_if(f.concat(_clock(units, digits), f.lit(zone)), units)


def _clock(units: SparkColumn, digits: int) -> SparkColumn:
    """Return a time of day, as ``12:30:00.500000``, of its units, ``10**digits`` of them a second."""
    per_second = 10**digits
    seconds = _divided(units, per_second)
    parts = [(_divided(seconds, 3600), 2), (_divided(seconds, 60) % 60, 2), (seconds % 60, 2)]
    clock = f.concat_ws(":", *(f.lpad(part.cast("string"), width, "0") for part, width in parts))
    return f.concat(clock, f.lit("."), f.lpad((units % per_second).cast("string"), digits, "0"))


def _divided(value: SparkColumn, by: int) -> SparkColumn:
    return f.call_function("div", value, f.lit(by).cast("bigint"))


_DAY = 86_400 * 10**9


def _nanoseconds(value: SparkColumn, zone: str = "") -> SparkColumn:
    before_midnight = f.when(value % _DAY < 0, 1).otherwise(0)
    days = _divided(value, _DAY) - before_midnight
    of_day = value % _DAY + before_midnight * _DAY
    date = f.date_from_unix_date(days.cast("int")).cast("string")
    text = f.concat(date, f.lit(" "), _clock(of_day, 9), f.lit(zone))
    shown = f.when(value == INFINITE, "infinity").when(value == -INFINITE, "-infinity").otherwise(text)
    return _null_if(shown, value)


_DAY_MILLIS = 86_400 * 10**3


def _milliseconds(value: SparkColumn) -> SparkColumn:
    """Return timestamps without zone; the infinite ones are the same number in every unit."""
    days = _divided(value, _DAY_MILLIS)
    seconds = ((value - days * _DAY_MILLIS) * f.lit(Decimal("0.001"))).cast("decimal(18,6)")
    nothing = f.lit(0)
    finite = local_time(0) + f.make_dt_interval(days.cast("int"), nothing, nothing, seconds)
    infinite = f.when(value == INFINITE, local_time(INFINITE))
    return infinite.when(value == -INFINITE, local_time(-INFINITE)).otherwise(finite)


def uuid_text(value: SparkColumn) -> SparkColumn:
    digits = f.lower(f.hex(value))
    parts = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    text = f.concat_ws("-", *(f.substring(digits, start, length) for start, length in parts))
    return f.when(value.isNotNull(), text)


# --- constants


def _text(value: Physical) -> SparkColumn:
    assert isinstance(value, bytes)
    return f.lit(value.decode())


def _interval(value: Physical) -> SparkColumn:
    assert isinstance(value, bytes)
    parts = zip(INTERVAL.fields, PACKED_INTERVAL.unpack(value), strict=True)
    return f.struct(*(f.lit(part).cast(field.dataType).alias(field.name) for field, part in parts))


def _whole(digits: int) -> Callable[[Any], SparkColumn]:
    return lambda value: f.lit(Decimal(value)).cast(t.DecimalType(digits, 0))


@dataclass(frozen=True, slots=True)
class SparkScalar:
    """A scalar type in Spark; ``carrier`` is that of values to write, None where Spark can write none.

    ``native``: Spark's own Parquet writer stores the carrier as that type. ``takes`` are DuckLake types of
    which values go into a column of this one, each value checked. ``read`` is the carrier of values that are
    read, and ``from_text`` that of text files, each None where it is the same. ``arrival`` makes of ``read``
    what an insert takes, where that is another type; ``constant`` makes of a physical value one of the
    carrier, where a cast does not.
    """

    carrier: t.DataType | None = None
    native: bool = False
    takes: str = ""
    read: t.DataType | None = None
    from_text: t.DataType | None = None
    arrival: Conversion | None = None
    constant: Callable[[Any], SparkColumn] | None = None
    only_by_arrow: bool = False  # Spark's reader knows the type but not the values, or not even that


_STRING, _LONG, _LOCAL, _BINARY = t.StringType(), t.LongType(), t.TimestampNTZType(), t.BinaryType()
_DECIMAL = t.DecimalType(38, 0)
_INTEGERS = "int8 int16 int32 int64"

SPARK_SCALARS = {
    "boolean": SparkScalar(t.BooleanType(), native=True, constant=lambda value: f.lit(bool(value))),
    "int8": SparkScalar(t.ByteType(), native=True),
    "int16": SparkScalar(t.ShortType(), native=True),
    "int32": SparkScalar(t.IntegerType(), native=True),
    "int64": SparkScalar(_LONG, native=True),
    "int128": SparkScalar(_DECIMAL, takes=_INTEGERS, constant=_whole(38), only_by_arrow=True),
    "uint8": SparkScalar(t.ShortType(), takes=_INTEGERS),
    "uint16": SparkScalar(t.IntegerType(), takes=_INTEGERS),
    "uint32": SparkScalar(_LONG, takes=_INTEGERS),
    "uint64": SparkScalar(
        t.DecimalType(20, 0),
        takes=_INTEGERS,
        constant=_whole(20),
    ),
    "uint128": SparkScalar(_DECIMAL, takes=_INTEGERS, constant=_whole(38), only_by_arrow=True),
    "float32": SparkScalar(t.FloatType(), native=True),
    "float64": SparkScalar(t.DoubleType(), native=True),
    "varchar": SparkScalar(_STRING, native=True, constant=_text),
    "json": SparkScalar(_STRING, takes="varchar", constant=_text),
    "blob": SparkScalar(_BINARY, native=True),
    "uuid": SparkScalar(_BINARY, takes="varchar", from_text=_STRING, arrival=uuid_text),
    "date": SparkScalar(t.DateType(), native=True, constant=lambda days: f.date_from_unix_date(f.lit(days))),
    "time": SparkScalar(_LONG, takes="varchar", from_text=_STRING, arrival=_clock_text(6)),
    "timetz": SparkScalar(_LONG, takes="varchar", from_text=_STRING, arrival=_clock_text(6, "+00")),
    "time_ns": SparkScalar(read=_LONG, arrival=_clock_text(9)),
    "timestamp": SparkScalar(_LOCAL, native=True, constant=local_time),
    "timestamp_s": SparkScalar(_LOCAL, takes="timestamp date", constant=local_time),
    # whose infinities would be too many microseconds for Spark
    "timestamp_ms": SparkScalar(_LOCAL, takes="timestamp date", read=_LONG, arrival=_milliseconds),
    # of text files, Spark knows the user's own timestamp format
    "timestamp_ns": SparkScalar(
        _LONG, takes="varchar timestamp date", from_text=_LOCAL, arrival=_nanoseconds
    ),
    "timestamptz": SparkScalar(
        t.TimestampType(),
        native=True,
        constant=lambda micros: f.timestamp_micros(f.lit(micros).cast("bigint")),
    ),
    "timestamptz_ns": SparkScalar(
        _LONG, takes="varchar timestamptz", arrival=lambda value: _nanoseconds(value, "+00")
    ),
    "interval": SparkScalar(INTERVAL, constant=_interval, only_by_arrow=True),
    "variant": SparkScalar(t.VariantType(), only_by_arrow=True),
    "geometry": SparkScalar(_BINARY, takes="blob"),
    "null": SparkScalar(t.NullType(), only_by_arrow=True),
    "unknown": SparkScalar(),
}
