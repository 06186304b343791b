"""DuckLake types ↔ Arrow types, and tables reshaped to a schema.

*Source:* the Arrow types of results are this package's contract (``docs/types.md``); field ids lie where
Arrow itself keeps them when it reads and writes Parquet, in the metadata key ``PARQUET:field_id``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from decimal import Context, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InvalidTypeError, SchemaMismatchError, UnsupportedFeatureError
from ...format.names.identifiers import fold
from ...format.types import ducklake_types as dl
from ...format.types.values import Physical, is_infinite
from ...planning.writing import fit
from ..nested_values.shredding import is_variant, variant_parts
from .reshape import FIELD_ID_KEY, Reshaping, by_name, is_list, nulls, reshape
from .scalars import (
    ARROW_INTERVAL,
    ARROW_SCALARS,
    INTERVAL_PARTS,
    PER_SECOND,
    STORED_INTERVAL,
    arrow_of_parts,
    interval_array,
    interval_values,
    name_of_arrow,
    stored_intervals,
)

if TYPE_CHECKING:
    from ...format.schema import Column, TableSchema
    from ...format.types.literals import Value


TypeOf: TypeAlias = Callable[[dl.ScalarType], pa.DataType]


def _scalar_type(type_: dl.ScalarType) -> pa.DataType:
    found = ARROW_SCALARS[type_.name].arrow
    if found is None:
        raise UnsupportedFeatureError(f"Values of type {type_} cannot be read or written by this release.")
    return found


def arrow_type(type_: dl.DuckLakeType) -> pa.DataType:
    """Return the Arrow type in which values of a DuckLake type come back, without field ids."""
    match type_:
        case dl.ScalarType():
            return _scalar_type(type_)
        case dl.DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case dl.ListType(element):
            return pa.list_(pa.field("element", arrow_type(element)))
        case dl.StructType(fields):
            return pa.struct([pa.field(field.name, arrow_type(field.type)) for field in fields])
        case dl.MapType(key, value):
            return pa.map_(arrow_type(key), arrow_type(value))


def stored_type(type_: dl.ScalarType) -> pa.DataType:
    """Return the Arrow type as which values of a scalar type are written to files."""
    return ARROW_SCALARS[type_.name].stored or arrow_type(type_)


@lru_cache
def arrow_schema(schema: TableSchema, *, field_ids: bool = True) -> pa.Schema:
    """Return the Arrow schema of a table's rows: names, order, types, nullability and field ids."""
    return pa.schema([arrow_field(column, field_ids=field_ids) for column in schema.columns])


@lru_cache(maxsize=4096)  # asked for every file of a scan
def arrow_field(column: Column, *, field_ids: bool = True, type_of: TypeOf = _scalar_type) -> pa.Field:
    """Return the Arrow field of a column; ``type_of`` chooses the type of scalars."""
    return _field(column, field_ids, type_of, nullable=column.nullable)


def _field(column: Column, field_ids: bool, type_of: TypeOf, *, nullable: bool = True) -> pa.Field:  # noqa: FBT001
    metadata = {FIELD_ID_KEY: str(column.id).encode()} if field_ids else None
    return pa.field(column.name, _nested_type(column, field_ids, type_of), nullable, metadata)


def _nested_type(column: Column, field_ids: bool, type_of: TypeOf) -> pa.DataType:  # noqa: FBT001
    # Nullability of nested fields is advisory in the catalog (docs/sources.md, DDL).
    match column.type:
        case dl.ScalarType():
            return type_of(column.type)
        case dl.ListType():
            return pa.list_(_field(column.children[0], field_ids, type_of))
        case dl.StructType():
            return pa.struct([_field(child, field_ids, type_of) for child in column.children])
        case dl.MapType():
            key, value = column.children
            return pa.map_(_field(key, field_ids, type_of, nullable=False), _field(value, field_ids, type_of))
        case _:
            return arrow_type(column.type)


def fields_of_arrow(schema: pa.Schema) -> tuple[dl.Field, ...]:
    """Return the columns that a table for such Arrow data has."""
    return tuple(dl.Field(field.name, ducklake_type(field.type, field.name)) for field in schema)


def ducklake_type(type_: pa.DataType, where: str) -> dl.DuckLakeType:
    """Return the DuckLake type for an Arrow type; ``where`` names the column in errors."""
    nested = _nested_ducklake_type(type_, where)
    if nested is not None:
        return nested
    if pa.types.is_decimal(type_) and 0 <= type_.scale <= type_.precision <= dl.MAX_DECIMAL_PRECISION:
        return dl.DecimalType(type_.precision, type_.scale)
    name = "int32" if pa.types.is_null(type_) else name_of_arrow(type_)  # as the reference has it
    if name is not None:
        return dl.ScalarType(name)
    cure = "int64" if pa.types.is_duration(type_) else "another type"
    if pa.types.is_decimal(type_):
        cure = f"one of 1 to {dl.MAX_DECIMAL_PRECISION} digits, 0 and more of them behind the point"
    raise InvalidTypeError(
        f"Column {where} has Arrow type {type_}, which DuckLake cannot store; cast it to {cure} first."
    )


def _nested_ducklake_type(type_: pa.DataType, where: str) -> dl.DuckLakeType | None:
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        return ducklake_type(type_.value_type, where)
    if is_list(type_):
        return dl.ListType(ducklake_type(type_.value_type, f"{where}.element"))
    if pa.types.is_map(type_):
        key = ducklake_type(type_.key_type, f"{where}.key")
        return dl.MapType(key, ducklake_type(type_.item_type, f"{where}.value"))
    if pa.types.is_struct(type_):
        return dl.StructType(_struct_fields(type_, where))
    return None


def _struct_fields(type_: pa.StructType, where: str) -> tuple[dl.Field, ...]:
    fields = tuple(
        dl.Field(field.name, ducklake_type(field.type, f"{where}.{field.name}")) for field in type_
    )
    if not fields:
        raise InvalidTypeError(f"Column {where} is a struct without fields, which Parquet cannot store.")
    if len({fold(field.name) for field in fields}) != len(fields):
        raise InvalidTypeError(
            f"Column {where} is a struct with two fields of the same name (names are case-insensitive)."
        )
    return fields


def check_and_cast(table: pa.Table, schema: TableSchema, table_name: str) -> pa.Table:
    """Bring ``table`` to ``schema``: match columns by name, and cast where no value changes."""
    given = [(field.name, field.type) for field in table.schema]
    places = {fold(name): place for place, (name, _) in enumerate(given)}
    pairs = [
        (column, table.column(places[fold(column.name)]))
        for column in schema.columns
        if fold(column.name) in places
    ]
    problems = [
        *fit.differences(given, schema.columns, _TYPES),
        *(
            f"column {column.name} is NOT NULL but has {values.null_count} null value(s)"
            for column, values in pairs
            if not column.nullable and values.null_count
        ),
    ]
    if problems:
        raise SchemaMismatchError(table_name, problems)
    arrays, failures = _cast_all(pairs)
    if failures:
        raise SchemaMismatchError(table_name, failures)
    return pa.Table.from_arrays(arrays, schema=arrow_schema(schema))


def type_differences(column: Column, given: pa.DataType, where: str) -> list[str]:
    """Explain why values of an Arrow type cannot be stored in ``column``, each nested field by itself."""
    return [*fit.type_differences(given, column, _TYPES, where)]


def _parts(type_: pa.DataType) -> fit.Parts[pa.DataType] | None:
    given = _value_type(type_)
    if pa.types.is_struct(given):
        return dl.StructType, [(field.name, field.type) for field in given]
    if is_list(given):
        return dl.ListType, [("element", given.value_type)]
    if pa.types.is_map(given):
        return dl.MapType, [("key", given.key_type), ("value", given.item_type)]
    return None


def _misfit(type_: pa.DataType, column: Column, where: str) -> str | None:
    given, facts = _value_type(type_), column.type.facts
    if pa.types.is_null(given) or (facts.kind is dl.ScalarKind.VARIANT and is_variant(given)):
        return None
    if facts.is_double_in_files and bool(pa.types.is_decimal(given) and given.scale == 0):
        return None
    found = None
    with suppress(InvalidTypeError):
        found = ducklake_type(given, where)
    if found is not None and (dl.can_promote(found, column.type) or _is_cast(found, column.type)):
        return None
    return f"{given} does not fit without loss"


def _value_type(given: pa.DataType) -> pa.DataType:
    """Return the type behind a dictionary or run-end encoding."""
    while pa.types.is_dictionary(given) or pa.types.is_run_end_encoded(given):
        given = given.value_type
    return given


_TYPES = fit.Types(_parts, _misfit, pa.types.is_null)


def _is_cast(found: dl.DuckLakeType, wanted: dl.DuckLakeType) -> bool:
    """Return True if values are cast, with an error if one would change: times, strings, WKB, integers."""
    rows = (found.facts, wanted.facts)
    if all(row.kind is dl.ScalarKind.TIMESTAMP for row in rows):
        return rows[0].zoned == rows[1].zoned
    if all(row.kind is dl.ScalarKind.TIME for row in rows):
        return True  # Arrow has no zones of them: those of a timetz are in UTC
    if rows[1].is_double_in_files and rows[0].kind is dl.ScalarKind.INTEGER:
        return True
    return all(row.kind in dl.TEXTS for row in rows) or (found.facts.kind, wanted.facts.kind) == _AS_WKB


_AS_WKB = (dl.ScalarKind.BLOB, dl.ScalarKind.GEOMETRY)  # a writer of files parses each value


def _cast_all(pairs: Iterable[tuple[Column, pa.ChunkedArray]]) -> tuple[list[pa.ChunkedArray], list[str]]:
    arrays: list[pa.ChunkedArray] = []
    failures: list[str] = []
    for column, values in pairs:
        try:
            arrays.append(
                reshape(values, column, arrow_field(column).type, Reshaping(by_name, nulls, cast_leaf))
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            failures.append(f"column {column.name} ({column.type}): {error}")
    return arrays, failures


def cast_leaf(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return values of a scalar column in another type; never changes a value."""
    if isinstance(array.type, pa.BaseExtensionType) and array.type != target:
        array = array.storage
    if array.type == target:
        return array
    if is_variant(target) and is_variant(array.type):
        return variant_parts(array, target)
    if target == STORED_INTERVAL:
        return stored_intervals(array)
    if (array.type, target) == (INTERVAL_PARTS, ARROW_INTERVAL):
        return arrow_of_parts(array)
    if isinstance(target, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(target, array.cast(target.storage_type))
    if pa.types.is_timestamp(array.type) and pa.types.is_timestamp(target):
        return _in_unit(array, target)
    if pa.types.is_date(array.type) and pa.types.is_timestamp(target):
        return _first_moments(array, target)
    return array.cast(target)


def _in_unit(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return times in another unit; the infinite ones are the same number in every unit."""
    units = array.cast(pa.int64())
    is_infinite = pc.is_in(units, value_set=pa.array(_INFINITE))
    finite = pc.if_else(is_infinite, pa.scalar(None, array.type), array).cast(target)
    return pc.if_else(is_infinite, units.cast(target), finite)


_INFINITE = (1 - 2**63, 2**63 - 1)
_INFINITE_DATES = (86_400 * (1 - 2**31), 86_400 * (2**31 - 1))  # seconds since 1970


def _first_moments(dates: pa.Array, target: pa.DataType) -> pa.Array:
    """Return the times at which dates begin; infinite dates are infinite times."""
    seconds = dates.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    is_infinite = pc.is_in(seconds, value_set=pa.array(_INFINITE_DATES))
    finite = pc.if_else(is_infinite, pa.scalar(None, dates.type), dates).cast(pa.timestamp(target.unit))
    infinite = pc.if_else(pc.less(seconds, 0), *_INFINITE)
    return pc.if_else(is_infinite, infinite.cast(target), finite.cast(target))


def in_coarser_unit(array: pa.Array, target: pa.TimestampType) -> pa.Array:
    """Return times of a file of others, which may have more digits than their column, with its digits.

    Times that have no more are returned as they are. *Source:* the reference cuts nanoseconds off toward
    1970, and rounds to milliseconds and seconds, halves away from 1970.
    """
    factor = PER_SECOND[array.type.unit] // PER_SECOND[target.unit]
    if factor <= 1:
        return array
    units = array.cast(pa.int64())
    whole = pc.divide(units, factor)
    if target.unit != "us":
        rest = pc.subtract(units, pc.multiply(whole, factor))
        whole = pc.add(whole, pc.divide(rest, factor // 2))
    return pc.if_else(pc.is_in(units, value_set=pa.array(_INFINITE)), units, whole).cast(target)


def in_fewest_digits(rows: pa.Table) -> pa.Table:
    """Return rows with 128-bit integers as ``decimal128(38, 0)`` in each column whose values all fit.

    DuckDB, Spark and others have no ``decimal256(39, 0)``, which holds every one.
    """
    for place, column in enumerate(rows.columns):
        narrow = _with_38_digits(column.type)
        if narrow != column.type:
            with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):  # one has 39 digits
                rows = rows.set_column(place, rows.field(place).with_type(narrow), column.cast(narrow))
    return rows


def _with_38_digits(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal256(type_):
        return pa.decimal128(38, 0)
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_with_38_digits(field.type)) for field in type_])
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_with_38_digits(type_.value_type)))
    if pa.types.is_map(type_):
        key, item = (one.with_type(_with_38_digits(one.type)) for one in (type_.key_field, type_.item_field))
        return pa.map_(key, item)
    return type_


def from_physical(type_: dl.DuckLakeType, values: Sequence[Physical | None]) -> pa.Array:
    """Return scalar values, given in their physical form, as an Arrow array of their type."""
    target = arrow_type(type_)
    if isinstance(type_, dl.DecimalType):
        return pa.array([_decimal(value, type_.scale) for value in values], target)
    if type_.facts.kind is dl.ScalarKind.INTERVAL:
        return interval_array(values)
    if type_.facts.kind is dl.ScalarKind.VARIANT:
        return pa.array([None if value is None else _variant(value) for value in values], target)
    step = type_.facts.step
    if step > 1:
        values = [
            value if value is None or is_infinite(type_, int(value)) else int(value) // step
            for value in values
        ]
    return cast_leaf(pa.array(values, _physical_type(target)), target)


def _variant(value: Physical) -> dict[str, bytes] | None:
    from ...format.types.variant_bytes import NULL
    from ...format.types.variants import split_variant

    assert isinstance(value, bytes)
    metadata, encoded = split_variant(value)
    return None if encoded == NULL else {"metadata": metadata, "value": encoded}


def _physical_type(target: pa.DataType) -> pa.DataType:
    if isinstance(target, pa.BaseExtensionType):
        return target.storage_type
    if pa.types.is_string(target):
        return pa.binary()
    if pa.types.is_date(target):
        return pa.int32()
    return pa.int64() if pa.types.is_temporal(target) else target


def _decimal(unscaled: Physical | None, scale: int) -> Decimal | None:
    return None if unscaled is None else Decimal(int(unscaled)).scaleb(-scale, _ENOUGH_DIGITS)


_ENOUGH_DIGITS = Context(prec=80)


# Values of any nesting ↔ Arrow arrays; values are as in ``format.types.literals``: scalars in physical form.


def values_of(chunked: pa.ChunkedArray, type_: dl.DuckLakeType) -> list[Value]:
    """Return the values of a column whose Arrow type is the one of ``arrow_types.arrow_type``."""
    return [value for chunk in chunked.chunks for value in _values_of(chunk, type_)]


def _values_of(array: pa.Array, type_: dl.DuckLakeType) -> list[Value]:
    match type_:
        case dl.ListType(element):
            elements = _values_of(array.values, element)
            return [_part(span, elements) for span in _spans(array)]
        case dl.MapType(key, item):
            keys, items = _values_of(array.keys, key), _values_of(array.items, item)
            pairs = list(zip(keys, items, strict=True))
            return [_part(span, pairs) for span in _spans(array)]
        case dl.StructType(fields):
            columns = [
                _values_of(child, field.type) for child, field in zip(array.flatten(), fields, strict=True)
            ]
            names = [field.name for field in fields]
            members = (
                dict(zip(names, (one[index] for one in columns), strict=True)) for index in range(len(array))
            )
            valid = array.is_valid().to_pylist()
            return [value if is_valid else None for value, is_valid in zip(members, valid, strict=True)]
        case _:
            return physical_values(array, type_)


def _spans(array: pa.Array) -> Iterator[slice | None]:
    """Yield where in its children each list or map lies; None for NULL."""
    offsets = array.offsets.to_pylist()
    for index, is_valid in enumerate(array.is_valid().to_pylist()):
        yield slice(offsets[index], offsets[index + 1]) if is_valid else None


def _part(span: slice | None, children: list[Any]) -> list[Any] | None:
    return None if span is None else children[span]


def physical_values(array: pa.Array, type_: dl.DuckLakeType) -> list[Any]:
    """Return scalar values, whose Arrow type is the one of ``arrow_types.arrow_type``, in physical form."""
    if type_.facts.kind is dl.ScalarKind.VARIANT:
        return [None if one is None else one["metadata"] + one["value"] for one in array.to_pylist()]
    if type_.facts.kind is dl.ScalarKind.INTERVAL:
        return interval_values(array)
    if pa.types.is_decimal(array.type):
        return [None if value is None else _unscaled(value) for value in array.to_pylist()]
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_string(array.type):
        array = array.cast(pa.binary())
    if pa.types.is_date(array.type):
        array = array.cast(pa.int32())
    elif pa.types.is_temporal(array.type):
        array = array.cast(pa.int64())
    values: list[Any] = array.to_pylist()
    step = type_.facts.step
    if step > 1:
        return [value if value is None or is_infinite(type_, value) else value * step for value in values]
    return values


def _unscaled(value: Decimal) -> int:
    sign, digits, _ = value.as_tuple()
    return (-1 if sign else 1) * int("".join(map(str, digits)))


def array_of(column: Column, values: Sequence[Value], target: pa.DataType) -> pa.Array:
    """Return values as an Arrow array of ``target``, the type of ``column``."""
    match column.type:
        case dl.ListType():
            (element,) = column.children
            items = [item for value in values if value is not None for item in value]
            return _spanned(values, target, array_of(element, items, target.value_type))
        case dl.MapType():
            key, item = column.children
            pairs = [pair for value in values if value is not None for pair in value]
            arrays = [
                array_of(key, [pair[0] for pair in pairs], target.key_type),
                array_of(item, [pair[1] for pair in pairs], target.item_type),
            ]
            entries = pa.StructArray.from_arrays(arrays, fields=[target.key_field, target.item_field])
            return _spanned(values, target, entries)
        case dl.StructType():
            members = [
                array_of(
                    child, [None if value is None else value[child.name] for value in values], field.type
                )
                for child, field in zip(column.children, target, strict=True)
            ]
            mask = pa.array([value is None for value in values], pa.bool_())
            return pa.StructArray.from_arrays(members, fields=list(target), mask=mask)
        case _:
            return from_physical(column.type, values)


def _spanned(values: Sequence[Any], target: pa.DataType, children: pa.Array) -> pa.Array:
    lengths = pa.array(
        [None if value is None else [None] * len(value) for value in values], pa.list_(pa.null())
    )
    return pa.Array.from_buffers(target, len(values), lengths.buffers()[:2], children=[children])
