"""Make a DataFrame's columns those of a table: matched by name, widened where no value can change.

Types are checked before anything runs; values (ranges, NOT NULL, UUID texts) are checked while they are
written: the error names the column.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ...errors import SchemaMismatchError
from ...format.names.identifiers import fold
from ...format.types import ducklake_types as dl
from ...planning.writing.fit import Parts, Types, differences
from ..job.errors import marked, marks
from ..reading.row_filter import condition
from ..types import frames
from ..types.names import quoted
from ..types.spark_types import (
    FIELD_ID_KEY,
    INTERVAL,
    SPARK_SCALARS,
    SparkScalar,
    carrier_type,
    default_value,
    is_geometry,
    is_time,
    is_void,
    scalar_carrier,
    scalar_of_spark,
)

if TYPE_CHECKING:
    from ...format.schema import Column, TableSchema
    from ...planning.reading.predicates import Predicate

_UUID = r"^[0-9A-Fa-f]{8}-?[0-9A-Fa-f]{4}-?[0-9A-Fa-f]{4}-?[0-9A-Fa-f]{4}-?[0-9A-Fa-f]{12}$"
_CLOCK = r"^(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?|24:00:00(\.0{1,6})?)"
_NANOSECOND_RANGE = ("1677-09-21 00:12:43.145225", "2262-04-11 23:47:16.854775")
_LARGEST_DECIMAL = 10**38 - 1
_SHOWN = 300  # characters of a row in an error
_SRID = "; a lake keeps no SRID: convert it with st_asbinary"
_WITHOUT_ZONE = "; convert it with to_timestamp_ntz or CAST(… AS TIMESTAMP_NTZ)"
_WITH_ZONE = "; convert it with to_utc_timestamp or CAST(… AS TIMESTAMP)"


def assign(df: DataFrame, schema: TableSchema, table: str, *, fills: bool = False) -> DataFrame:
    """Return ``df`` with the columns of ``schema``, in their carriers, with field ids in the metadata.

    ``fills``: columns that are missing get their default, fields NULL; those of no type may be left over.
    """
    for column in schema.columns:
        carrier_type(column)
    incoming = [(field.name, field.dataType) for field in df.schema]
    if found := [*differences(incoming, schema.columns, Types(_parts, _misfit, is_void), fills=fills)]:
        raise SchemaMismatchError(table, found)
    given = {fold(field.name): index for index, field in enumerate(df.schema)}
    pairs = [
        (column, df.schema[given[fold(column.name)]])
        for column in schema.columns
        if fold(column.name) in given
    ]
    assigned = {column.id: _top_level(df, field, column) for column, field in pairs}
    return df.select(
        [
            assigned[column.id] if column.id in assigned else _filled(column)  # refuses some defaults
            for column in schema.columns
        ]
    )


def _filled(column: Column) -> SparkColumn:
    return default_value(column).alias(column.name, metadata={FIELD_ID_KEY: column.id})


def only_matching(df: DataFrame, where: Predicate, schema: TableSchema) -> DataFrame:
    """Return ``df``, which ``assign`` made; a row for which the condition is not true fails the task."""
    row = f.substring(f.to_json(f.struct("*")), 1, _SHOWN)
    before, after = marks()
    problem = f.concat(
        f.lit(f"{before}A row does not satisfy overwrite_where: "),
        row,
        f.lit(f"; nothing was written.{after}"),
    )
    refused = f.raise_error(problem).cast("boolean")
    return df.filter(f.when(condition(where, schema), f.lit(True)).otherwise(refused))  # noqa: FBT003


def _hint(found: dl.Scalar, wanted: dl.Scalar) -> str:
    if found.is_local_microseconds and wanted.kind is dl.ScalarKind.TIMESTAMP and wanted.zoned:
        return _WITH_ZONE
    is_instant = found.kind is dl.ScalarKind.TIMESTAMP and found.zoned
    return _WITHOUT_ZONE if is_instant and wanted.is_local_microseconds else ""


def _parts(type_: t.DataType) -> Parts[t.DataType] | None:
    match type_:
        case t.StructType():
            return dl.StructType, [(field.name, field.dataType) for field in type_]
        case t.ArrayType():
            return dl.ListType, [("element", type_.elementType)]
        case t.MapType():
            return dl.MapType, [("key", type_.keyType), ("value", type_.valueType)]
        case _:
            return None


def _misfit(incoming: t.DataType, column: Column, _where: str) -> str | None:
    if isinstance(incoming, t.NullType) or _fits(incoming, column.type):
        return None
    found = scalar_of_spark(incoming)
    hint = _hint(found.facts, column.type.facts) if found else _SRID if is_geometry(incoming) else ""
    return f"{found or incoming.simpleString()} does not fit without loss{hint}"


def _fits(incoming: t.DataType, target: dl.DuckLakeType) -> bool:
    if target.facts.kind is dl.ScalarKind.INTERVAL:
        return _same_shape(incoming, INTERVAL)
    found = scalar_of_spark(incoming)
    return found is not None and fits(found, target)


def fits(found: dl.DuckLakeType, target: dl.DuckLakeType) -> bool:
    """Return True if values of a type go into a column of another, if need be each value checked."""
    if dl.can_promote(found, target):
        return True
    is_integer = found.facts.kind is dl.ScalarKind.INTEGER and found.facts.signed
    match found, target:
        case _, dl.DecimalType(precision, scale):
            return is_integer and len(str(found.facts.physical_range[1])) <= precision - scale
        case dl.DecimalType(precision, 0), dl.ScalarType(name) if isinstance(
            carrier := SPARK_SCALARS[name].carrier, t.DecimalType
        ):
            return precision <= carrier.precision
        case dl.ScalarType(), dl.ScalarType(wanted):
            holds = dl.is_float(target) and is_integer and found.facts.bits <= target.facts.bits // 2
            return holds or found.name in SPARK_SCALARS[wanted].takes.split()
        case _:
            return False


def _top_level(df: DataFrame, field: t.StructField, column: Column) -> SparkColumn:
    value = _stored(df[quoted(field.name)], field.dataType, column, column.name)
    if not column.nullable and field.nullable:
        problem = marked(
            f"Column {column.name} is NOT NULL, but a row has no value in it; nothing was written."
        )
        value = f.coalesce(value, f.raise_error(f.lit(problem)).cast(carrier_type(column)))
    return value.alias(column.name, metadata={FIELD_ID_KEY: column.id})


def _stored(value: SparkColumn, incoming: t.DataType, column: Column, where: str) -> SparkColumn:
    """Return ``value`` in the carrier of ``column``."""
    carrier = carrier_type(column)
    if isinstance(incoming, t.NullType):
        return value.cast(carrier)
    if _same_shape(incoming, carrier) and not _is_checked(column):
        return value if incoming == carrier else value.cast(carrier)  # the cast puts members' field ids on
    match column.type:
        case dl.StructType():
            assert isinstance(incoming, t.StructType)
            return _stored_struct(value, incoming, column, where)
        case dl.ListType() | dl.MapType():
            types = frames.types_below(incoming)
            names = ["element"] if len(types) == 1 else ["key", "value"]
            return frames.with_values(
                value,
                incoming,
                lambda item, place: _stored(
                    item, types[place], column.children[place], f"{where}.{names[place]}"
                ),
            )
        case _:
            return _stored_scalar(value, incoming, column.type, where)


def _same_shape(incoming: t.DataType, carrier: t.DataType) -> bool:
    match incoming, carrier:
        case t.StructType(), t.StructType():
            return len(incoming.fields) == len(carrier.fields) and all(
                fold(mine.name) == fold(theirs.name) and _same_shape(mine.dataType, theirs.dataType)
                for mine, theirs in zip(incoming, carrier, strict=True)
            )
        case (t.ArrayType(), t.ArrayType()) | (t.MapType(), t.MapType()):
            return all(map(_same_shape, frames.types_below(incoming), frames.types_below(carrier)))
        case _:
            return incoming == carrier


def _is_checked(column: Column) -> bool:
    """Return True if the carrier has values outside the column's type; JSON strings are checked later."""
    return any(
        isinstance(leaf.type, dl.ScalarType)
        and not SPARK_SCALARS[leaf.type.name].is_exact
        and leaf.type.facts.kind is not dl.ScalarKind.JSON
        for leaf in column.leaves()
    )


def _stored_struct(value: SparkColumn, incoming: t.StructType, column: Column, where: str) -> SparkColumn:
    given = {fold(field.name): field for field in incoming}
    members = []
    for child in column.children:
        field = given.get(fold(child.name))
        if field is None:
            member = f.lit(None).cast(carrier_type(child))
        else:
            member = _stored(value.getField(field.name), field.dataType, child, f"{where}.{child.name}")
        members.append(member.alias(child.name, metadata={FIELD_ID_KEY: child.id}))
    return f.when(value.isNotNull(), f.struct(*members))


def _stored_scalar(
    value: SparkColumn, incoming: t.DataType, target: dl.DuckLakeType, where: str
) -> SparkColumn:
    carrier, row = scalar_carrier(target, where), target.facts
    match row.kind:
        case dl.ScalarKind.INTEGER if not row.signed:
            largest = min(row.physical_range[1], _LARGEST_DECIMAL)
            fits = (value >= 0) & (value <= f.lit(Decimal(largest)))
            return _checked(value, fits, value.cast(carrier), target, where)
        case dl.ScalarKind.UUID | dl.ScalarKind.TIME:
            text = value.cast("string") if is_time(incoming) else value
            return _checked(text, *_units_of_text(text, row), target, where)
        case dl.ScalarKind.TIMESTAMP if isinstance(incoming, t.StringType):
            return _checked(value, *_units_of_text(value, row), target, where)
        case dl.ScalarKind.TIMESTAMP if row.zoned and row.per_second > frames.SECOND:
            first, last = (f.lit(f"{text}+00").cast("timestamp") for text in _NANOSECOND_RANGE)
            micros = f.unix_micros(value)
            is_end = frames.is_infinite(value, t.TimestampType())
            stored = f.when(is_end, micros).otherwise(micros * 1000)
            return _checked(value, value.between(first, last) | is_end, stored, target, where)
        case dl.ScalarKind.TIMESTAMP if not row.zoned:
            is_date = isinstance(incoming, t.DateType)
            time = frames.first_moment(value) if is_date else value.cast("timestamp_ntz")
            if row.is_local_microseconds:
                return time
            stored = _in_unit(time, row.per_second) if isinstance(carrier, t.LongType) else time
            return _checked(time, _fits_unit(time, row), stored, target, where)
        case _:
            return f.st_asbinary(value) if is_geometry(incoming) else value.cast(carrier)


def _units_of_text(text: SparkColumn, row: dl.Scalar) -> tuple[SparkColumn, SparkColumn]:
    """Return True if a text is a UUID, a time of day or one in nanoseconds; and its value in the carrier."""
    if row.kind is dl.ScalarKind.UUID:
        return text.rlike(_UUID), f.unhex(f.replace(text, f.lit("-"), f.lit("")))
    if row.kind is dl.ScalarKind.TIME:
        stored = _utc_microseconds(text) if row.zoned else _microseconds(text)
        return text.rlike(_CLOCK + (frames.OFFSET if row.zoned else "$")), stored
    return frames.fits_nanos(text, zoned=row.zoned), frames.nanos_of_text(text, zoned=row.zoned)


def as_target_shows(df: DataFrame, columns: Mapping[str, Column]) -> DataFrame:
    """Return a DataFrame with UUIDs, times and nanoseconds spelled as Spark spells the table's."""
    types = {field.name: field.dataType for field in df.schema}
    made = ((name, _shown(df[quoted(name)], types[name], column)) for name, column in columns.items())
    shown = {name: value for name, value in made if value is not None}
    return df.withColumns(shown) if shown else df  # Spark Connect refuses none


def _shown(value: SparkColumn, incoming: t.DataType, column: Column) -> SparkColumn | None:
    row = SPARK_SCALARS[column.type.name] if isinstance(column.type, dl.ScalarType) else SparkScalar()
    if row.arrival is None or row.from_text != t.StringType():
        return None
    if isinstance(incoming, t.StringType):
        fits, stored = _units_of_text(value, column.type.facts)
        return f.when(fits, row.arrival(stored)).otherwise(value)
    if _fits(incoming, column.type):
        return row.arrival(_stored_scalar(value, incoming, column.type, column.name))
    return None


def _microseconds(text: SparkColumn) -> SparkColumn:
    parts = f.split(text, "[:.]")
    hours, minutes, seconds = (parts.getItem(index).cast("bigint") for index in range(3))
    fraction = f.rpad(f.coalesce(f.get(parts, f.lit(3)), f.lit("")), 6, "0").cast("bigint")
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction


def _utc_microseconds(text: SparkColumn) -> SparkColumn:
    """Return the microseconds of a time in UTC: the day before or after is none of it."""
    local = _microseconds(f.regexp_replace(text, frames.OFFSET, ""))
    return f.pmod(local - frames.seconds_of_offset(text) * frames.SECOND, f.lit(frames.DAY))


def _in_unit(time: SparkColumn, per_second: int) -> SparkColumn:
    """Return a timestamp's units since 1970; infinite ones are the same number in every unit."""
    micros = frames.micros_of(time)
    finite = micros * (per_second // frames.SECOND)
    if per_second < frames.SECOND:
        finite = f.call_function("div", micros, f.lit(frames.SECOND // per_second))
    return f.when(frames.is_infinite(time, t.TimestampNTZType()), micros).otherwise(finite)


def _fits_unit(time: SparkColumn, row: dl.Scalar) -> SparkColumn:
    """Return True if a timestamp fits another unit; infinite ones do, which DuckDB reads in each unit."""
    if row.per_second > frames.SECOND:
        first, last = (f.lit(text).cast("timestamp_ntz") for text in _NANOSECOND_RANGE)
        return time.between(first, last) | frames.is_infinite(time, t.TimestampNTZType())
    units = f.date_part(f.lit("SECOND"), time) * (row.per_second // row.step)
    return (units == f.floor(units)) | frames.is_infinite(time, t.TimestampNTZType())


def _checked(
    value: SparkColumn, fits: SparkColumn, stored: SparkColumn, target: dl.DuckLakeType, where: str
) -> SparkColumn:
    """Return ``stored`` where ``fits``, null where ``value`` is null; anything else fails the task."""
    carrier = scalar_carrier(target, where)
    before, after = marks()
    problem = f.concat(
        f.lit(f"{before}Column {where}: value "),
        value.cast("string"),
        f.lit(f" does not fit {target}; nothing was written.{after}"),
    )
    return (
        f.when(value.isNull(), f.lit(None).cast(carrier))
        .when(fits, stored)
        .otherwise(f.raise_error(problem).cast(carrier))
    )
