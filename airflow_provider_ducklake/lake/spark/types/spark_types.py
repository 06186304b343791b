"""DuckLake ↔ Spark types, nested ones too; the scalar ones are ``SPARK_SCALARS``.

A value that is read travels in a carrier that needs no conversion on the way from Parquet: nanoseconds and
times of day are numbers, a UUID is its 16 bytes. It arrives in a type that an insert takes. A row that does
not have a column holds its default, or NULL.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ...errors import InvalidTypeError, UnsupportedFeatureError
from ...format.defaults import literal_physical
from ...format.names.identifiers import fold
from ...format.types import ducklake_types as dl
from ...format.types.texts import INTERVAL as PACKED_INTERVAL
from ...format.types.variants import decode_variant, split_variant
from .frames import INFINITE, local_time, types_below, with_types, with_values
from .names import refuse_equal_names

if TYPE_CHECKING:
    from ...format.schema import Column
    from ...format.types.values import Physical


# The scalar types in Spark: a row for each of ``format/types/ducklake_types.py``.
#
# A DuckLake type travels through Spark in its *carrier*: the Spark type itself where there is one, else one
# that holds every value (``uint8`` in smallint, ``uuid`` in binary, ``time`` in microseconds as bigint,
# ``timestamp_ns`` in nanoseconds). What is read needs no conversion on the way from Parquet, and arrives in
# a type that an insert takes. *Source:* DuckLake spec "Data Types"; ``docs/types.md``.


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


def _variant(value: Physical) -> SparkColumn:
    assert isinstance(value, bytes)
    return f.parse_json(f.lit(json.dumps(decode_variant(*split_variant(value)))))  # a default is a string


def _whole(digits: int) -> Callable[[Any], SparkColumn]:
    return lambda value: f.lit(Decimal(value)).cast(t.DecimalType(digits, 0))


@dataclass(frozen=True, slots=True)
class SparkScalar:
    """A scalar type in Spark; ``carrier`` is that of values to write, None where Spark can write none.

    ``is_exact``: the carrier's values are those of the type, and no others. ``takes`` are DuckLake types of
    which values go into a column of this one, each value checked. ``read`` is the carrier of values that are
    read, and ``from_text`` that of text files, each None where it is the same; ``from_format`` is that of
    text files whose user gives a timestamp format, which has microseconds at most. ``arrival`` makes of
    ``read`` what an insert takes, where that is another type; ``constant`` makes of a physical value one of
    the carrier, where a cast does not.
    """

    carrier: t.DataType | None = None
    is_exact: bool = False
    takes: str = ""
    read: t.DataType | None = None
    from_text: t.DataType | None = None
    from_format: t.DataType | None = None
    arrival: Conversion | None = None
    constant: Callable[[Any], SparkColumn] | None = None
    only_by_arrow: bool = False  # Spark's reader supports the type but not the values, or not even that


_STRING, _LONG, _LOCAL, _BINARY = t.StringType(), t.LongType(), t.TimestampNTZType(), t.BinaryType()
_DECIMAL = t.DecimalType(38, 0)
_INTEGERS = "int8 int16 int32 int64"

SPARK_SCALARS = {
    "boolean": SparkScalar(t.BooleanType(), is_exact=True, constant=lambda value: f.lit(bool(value))),
    "int8": SparkScalar(t.ByteType(), is_exact=True),
    "int16": SparkScalar(t.ShortType(), is_exact=True),
    "int32": SparkScalar(t.IntegerType(), is_exact=True),
    "int64": SparkScalar(_LONG, is_exact=True),
    "int128": SparkScalar(_DECIMAL, takes=_INTEGERS, constant=_whole(38), only_by_arrow=True),
    "uint8": SparkScalar(t.ShortType(), takes=_INTEGERS),
    "uint16": SparkScalar(t.IntegerType(), takes=_INTEGERS),
    "uint32": SparkScalar(_LONG, takes=_INTEGERS),
    "uint64": SparkScalar(t.DecimalType(20, 0), takes=_INTEGERS, constant=_whole(20)),
    "uint128": SparkScalar(_DECIMAL, takes=_INTEGERS, constant=_whole(38), only_by_arrow=True),
    "float32": SparkScalar(t.FloatType(), is_exact=True),
    "float64": SparkScalar(t.DoubleType(), is_exact=True),
    "varchar": SparkScalar(_STRING, is_exact=True, constant=_text),
    "json": SparkScalar(_STRING, takes="varchar", constant=_text),
    "blob": SparkScalar(_BINARY, is_exact=True),
    "uuid": SparkScalar(_BINARY, takes="varchar", from_text=_STRING, arrival=uuid_text),
    "date": SparkScalar(
        t.DateType(), is_exact=True, constant=lambda days: f.date_from_unix_date(f.lit(days))
    ),
    "time": SparkScalar(_LONG, takes="varchar", from_text=_STRING, arrival=_clock_text(6)),
    "timetz": SparkScalar(_LONG, takes="varchar", from_text=_STRING, arrival=_clock_text(6, "+00")),
    "time_ns": SparkScalar(read=_LONG, arrival=_clock_text(9)),
    "timestamp": SparkScalar(_LOCAL, is_exact=True, constant=local_time),
    "timestamp_s": SparkScalar(_LOCAL, takes="timestamp date", constant=local_time),
    # Spark takes a file's milliseconds for microseconds, of which its infinities are too many
    "timestamp_ms": SparkScalar(_LONG, takes="timestamp date", from_text=_LOCAL, arrival=_milliseconds),
    "timestamp_ns": SparkScalar(
        _LONG, takes="varchar timestamp date", from_text=_STRING, from_format=_LOCAL, arrival=_nanoseconds
    ),
    "timestamptz": SparkScalar(
        t.TimestampType(),
        is_exact=True,
        constant=lambda micros: f.timestamp_micros(f.lit(micros).cast("bigint")),
    ),
    "timestamptz_ns": SparkScalar(
        _LONG,
        takes="varchar timestamptz",
        from_text=_STRING,
        from_format=t.TimestampType(),
        arrival=lambda value: _nanoseconds(value, "+00"),
    ),
    "interval": SparkScalar(INTERVAL, constant=_interval, only_by_arrow=True),
    "variant": SparkScalar(t.VariantType(), constant=_variant, only_by_arrow=True),
    "geometry": SparkScalar(_BINARY, takes="blob"),
    "null": SparkScalar(t.NullType(), only_by_arrow=True),
    "unknown": SparkScalar(),
}


FIELD_ID_KEY = "parquet.field.id"
TYPE_KEY = "ducklake.type"  # of a column whose type in Spark is not that of its table

_DUCKLAKE = {type(row.carrier): name for name, row in SPARK_SCALARS.items() if row.is_exact}
_DUCKLAKE[t.VariantType] = "variant"


def carrier_type(column: Column) -> t.DataType:
    """Return the Spark type in which values of ``column`` travel, with field ids on struct members."""
    match column.type:
        case dl.ListType():
            return t.ArrayType(carrier_type(column.children[0]))
        case dl.MapType():
            return t.MapType(carrier_type(column.children[0]), carrier_type(column.children[1]))
        case dl.StructType():
            return t.StructType([carrier_field(child) for child in column.children])
        case _:
            return scalar_carrier(column.type, column.name)


def scalar_carrier(type_: dl.DuckLakeType, where: str) -> t.DataType:
    """Return the carrier of a type that is not nested; ``where`` names the column in errors."""
    if isinstance(type_, dl.DecimalType):
        return t.DecimalType(type_.precision, type_.scale)
    carrier = SPARK_SCALARS[type_.name].carrier if isinstance(type_, dl.ScalarType) else None
    if carrier is None:
        raise UnsupportedFeatureError(
            f"Column {where} has type {type_}, which Spark cannot write in this release."
        )
    return carrier


def carrier_field(column: Column) -> t.StructField:
    """Return the Spark field of a column; its metadata holds the Parquet field id."""
    return t.StructField(column.name, carrier_type(column), metadata={FIELD_ID_KEY: column.id})


def fields_of_spark(schema: t.StructType) -> tuple[dl.Field, ...]:
    """Return the columns that a table for such rows has; ``TYPE_KEY`` in a field's metadata decides."""
    problems: list[str] = []
    fields = [
        dl.Field(
            field.name,
            dl.parse_type(field.metadata[TYPE_KEY])
            if TYPE_KEY in field.metadata
            else _ducklake_type(field.dataType, field.name, problems),
        )
        for field in schema
    ]
    if problems:
        raise InvalidTypeError(
            f"Cannot create a table with these columns: {'; '.join(problems)}. Cast them to another type or "
            "leave them out."
        )
    return tuple(fields)


def _ducklake_type(type_: t.DataType, where: str, problems: list[str]) -> dl.DuckLakeType:
    match type_:
        case t.ArrayType():
            return dl.ListType(_ducklake_type(type_.elementType, f"{where}.element", problems))
        case t.MapType():
            key = _ducklake_type(type_.keyType, f"{where}.key", problems)
            return dl.MapType(key, _ducklake_type(type_.valueType, f"{where}.value", problems))
        case t.StructType():
            return dl.StructType(_struct_fields(type_, where, problems))
        case _:
            pass
    scalar = scalar_of_spark(type_)
    if scalar is None:
        problems.append(f"column {where} has Spark type {type_.simpleString()}, which DuckLake cannot store")
        return dl.ScalarType("unknown")
    return scalar


def _struct_fields(type_: t.StructType, where: str, problems: list[str]) -> tuple[dl.Field, ...]:
    if not type_.fields:
        problems.append(f"column {where} is a struct without fields")
    if len({fold(field.name) for field in type_}) != len(type_.fields):
        problems.append(f"column {where} is a struct with two fields of one name")
    return tuple(
        dl.Field(field.name, _ducklake_type(field.dataType, f"{where}.{field.name}", problems))
        for field in type_
    )


def without_void(schema: t.StructType) -> t.StructType:
    """Drop the columns and fields whose type is void: all of their values are NULL."""
    return t.StructType(
        [
            t.StructField(field.name, _without_void(field.dataType), field.nullable, field.metadata)
            for field in schema
            if not is_void(field.dataType)
        ]
    )


def _without_void(type_: t.DataType) -> t.DataType:
    if isinstance(type_, t.StructType):
        return without_void(type_)
    return with_types(type_, [_without_void(one) for one in types_below(type_)])


def is_void(type_: t.DataType) -> bool:
    """Return True if values of the type can only be NULL, or hold nothing else."""
    below = [is_void(one) for one in types_below(type_)]
    return all(below) if isinstance(type_, t.StructType) else any(below) or isinstance(type_, t.NullType)


def scalar_of_spark(type_: t.DataType) -> dl.DecimalType | dl.ScalarType | None:
    """Return the DuckLake type with just the values of a Spark type; None for others and nested ones."""
    if isinstance(type_, t.DecimalType):
        return dl.DecimalType(type_.precision, type_.scale)
    if isinstance(type_, (t.CharType, t.VarcharType)):
        return dl.ScalarType("varchar")
    if is_time(type_):
        return dl.ScalarType("time")
    if is_geometry(type_):
        return dl.ScalarType("geometry") if getattr(type_, "srid", None) == 0 else None
    name = _DUCKLAKE.get(type(type_))
    return None if name is None else dl.ScalarType(name)


def is_time(type_: t.DataType) -> bool:
    """Return True if it is Spark's time of day, a type that not all supported Sparks have."""
    return type(type_).__name__ == "TimeType"


def is_geometry(type_: t.DataType) -> bool:
    """Return True if it is Spark's geometry, a type since 4.2; a lake keeps none of its SRIDs but 0."""
    return type(type_).__name__ == "GeometryType"


def read_type(column: Column) -> t.DataType:
    """Return the carrier of a column that is read, nested ones with the table's names."""
    return _nested(column, scalar_read_type)


def check_readable(columns: Sequence[Column], table: object) -> None:
    """Refuse columns that Spark cannot have, by their types or names."""
    for column in columns:
        read_type(column)
    refuse_equal_names(columns, table)


def text_type(type_: dl.DuckLakeType, *, has_format: bool) -> dl.DuckLakeType:
    """Return the type in which texts of a file arrive for a type: as text where the write checks them.

    ``has_format``: the user gives a pattern for timestamps, which has microseconds at most.
    """

    def below(inner: dl.DuckLakeType) -> dl.DuckLakeType:
        return text_type(inner, has_format=has_format)

    match type_:
        case dl.ListType(element):
            return dl.ListType(below(element))
        case dl.MapType(key, item):
            return dl.MapType(below(key), below(item))
        case dl.StructType(fields):
            return dl.StructType(tuple(dl.Field(one.name, below(one.type)) for one in fields))
        case dl.ScalarType(name):
            row = SPARK_SCALARS[name]
            spark = (row.from_format if has_format else None) or row.from_text
            return _ARRIVALS.get(type(spark)) or _AS_TEXT.get(name, type_)
        case _:
            return type_


_ARRIVALS: dict[type, dl.DuckLakeType] = {
    t.StringType: dl.ScalarType("varchar"),
    t.TimestampNTZType: dl.ScalarType("timestamp"),
    t.TimestampType: dl.ScalarType("timestamptz"),
}
_AS_TEXT: dict[str, dl.DuckLakeType] = {
    "timestamp_s": dl.ScalarType("timestamp"),
    "variant": dl.ScalarType("json"),
    **dict.fromkeys(("interval", "geometry", "time_ns", "null", "unknown"), dl.ScalarType("varchar")),
}


# The types that ``inferSchema`` looks for in a CSV: the first one that all texts of a column have.
INFERRED = ("boolean", "int64", "float64", "date", "timestamp", "timestamptz")


def _nested(column: Column, scalar: Callable[[dl.DuckLakeType, str], t.DataType]) -> t.DataType:
    children = [_nested(child, scalar) for child in column.children]
    match column.type:
        case dl.ListType():
            return t.ArrayType(children[0])
        case dl.MapType():
            return t.MapType(children[0], children[1])
        case dl.StructType():
            return t.StructType([*map(t.StructField, (child.name for child in column.children), children)])
        case _:
            return scalar(column.type, column.name)


def scalar_read_type(type_: dl.DuckLakeType, where: str) -> t.DataType:
    """Return the carrier of a type that is not nested; ``where`` names the column in errors."""
    try:
        read = SPARK_SCALARS[type_.name].read if isinstance(type_, dl.ScalarType) else None
        return read or scalar_carrier(type_, where)
    except UnsupportedFeatureError:
        raise UnsupportedFeatureError(
            f"Column {where} has type {type_}, whose values this release cannot read; leave it out of the "
            "columns to read."
        ) from None


# --- a value as it arrives


def to_insertable(value: SparkColumn, column: Column) -> SparkColumn:
    """Return values of a carrier as an insert takes them: UUIDs and times of day as text, and so on."""
    if not is_converted(column):
        return value
    if (arrival := _arrival(column.type)) is not None:
        return arrival(value)
    return with_values(
        value, read_type(column), lambda item, place: to_insertable(item, column.children[place])
    )


def is_converted(column: Column) -> bool:
    """Return True if values of the carrier are not what an insert takes."""
    return any(_arrival(inner.type) is not None for inner in column.walk())


def _arrival(type_: dl.DuckLakeType) -> Conversion | None:
    return SPARK_SCALARS[type_.name].arrival if isinstance(type_, dl.ScalarType) else None


# --- single values


def literal(type_: dl.DuckLakeType, value: Physical | None) -> SparkColumn:
    """Return a scalar in the physical form of ``format.types.values`` as a constant in its carrier."""
    carrier = scalar_read_type(type_, "of a constant")
    if value is None:
        return f.lit(None).cast(carrier)
    if isinstance(type_, dl.DecimalType):
        return f.lit(Decimal(int(value)).scaleb(-type_.scale, _ENOUGH_DIGITS)).cast(carrier)
    assert isinstance(type_, dl.ScalarType)
    make = SPARK_SCALARS[type_.name].constant
    return f.lit(value).cast(carrier) if make is None else make(value)


_ENOUGH_DIGITS = Context(prec=80)


def default_value(column: Column) -> SparkColumn:
    """Return a column's default in its carrier."""
    carrier = carrier_type(column)
    if not column.has_default:
        return f.lit(None).cast(carrier)
    default = column.default
    if default.kind != "literal" or default.value is None:
        raise _not_ours(column)
    try:
        return literal(column.type, literal_physical(column.type, default.value)).cast(carrier)
    except (ValueError, ArithmeticError):
        raise _not_ours(column) from None


def _not_ours(column: Column) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"Column {column.name} is missing in the rows, and its default {column.default.value} is an "
        "expression that only DuckDB can compute. Add the column to the rows."
    )
