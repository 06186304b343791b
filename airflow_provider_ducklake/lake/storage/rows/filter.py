"""The rows of an Arrow table for which a filter is true, compared as DuckDB compares.

Where a condition is NULL it is not true, so every mask here may say false for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ...format.types.ducklake_types import DuckLakeType, ScalarKind, is_float
from ...planning.reading.predicates import (
    AllOf,
    AnyOf,
    Comparison,
    Condition,
    Likeness,
    Membership,
    NullTest,
    Operator,
    Predicate,
)
from ..arrow.arrow_types import from_physical

if TYPE_CHECKING:
    from ...format.schema import Column, TableSchema
    from ...format.snapshots import ColumnId
    from ...format.types.values import Physical


def matching(rows: pa.Table, predicate: Predicate, schema: TableSchema) -> pa.Table:
    """Return the rows for which a filter on columns of ``schema`` is true; they have the ones it needs."""
    return rows.filter(_mask(rows, predicate, schema))


def _mask(rows: pa.Table, predicate: Predicate, schema: TableSchema) -> pa.Array | pa.ChunkedArray:
    match predicate:
        case AllOf(parts):
            masks = (_mask(rows, part, schema) for part in parts)
            return reduce(pc.and_, masks, pa.repeat(pa.scalar(True), rows.num_rows))  # noqa: FBT003 - a value
        case AnyOf(parts):
            masks = (_mask(rows, part, schema) for part in parts)
            return reduce(pc.or_, masks, pa.repeat(pa.scalar(False), rows.num_rows))  # noqa: FBT003
        case _:
            path = path_to(schema, predicate.column_id)
            values = _values(rows, path)
            return pc.fill_null(_condition(predicate, values, path[-1].type), False)  # noqa: FBT003


def path_to(schema: TableSchema, column_id: ColumnId) -> tuple[Column, ...]:
    """Return a top-level column and the struct fields below it that lead to an id."""

    def below(column: Column) -> Iterator[tuple[Column, ...]]:
        if column.id == column_id:
            yield (column,)
        for child in column.children:
            for path in below(child):
                yield (column, *path)

    return next(path for column in schema.columns for path in below(column))


def _values(rows: pa.Table, path: tuple[Column, ...]) -> pa.ChunkedArray:
    """Return the values of a column or struct field; NULL where a struct around it is."""
    top, *fields = path
    values = rows[top.name]
    for column, child in zip(path, fields, strict=False):
        values = pc.struct_field(values, [column.children.index(child)])
    return values


def _condition(condition: Condition, values: pa.ChunkedArray, type_: DuckLakeType) -> pa.ChunkedArray:
    match condition:
        case NullTest(_, negated):
            return pc.is_valid(values) if negated else pc.is_null(values)
        case Likeness(_, pattern, negated):
            found = pc.match_substring_regex(values, regex(pattern))
            return pc.invert(found) if negated else found
        case Membership(_, wanted, negated):
            found = pc.is_in(_plain(values, type_), value_set=_array(type_, wanted))
            return pc.and_(pc.invert(found), pc.is_valid(values)) if negated else found
        case Comparison(_, operator, value) if is_float(type_):
            return _compare_floats(_plain(values, type_), operator, float(value))
        case Comparison(_, operator, value):
            return _COMPUTE[operator](_plain(values, type_), _array(type_, (value,))[0])


_COMPUTE = {
    Operator.EQUAL: pc.equal,
    Operator.UNEQUAL: pc.not_equal,
    Operator.LESS: pc.less,
    Operator.AT_MOST: pc.less_equal,
    Operator.GREATER: pc.greater,
    Operator.AT_LEAST: pc.greater_equal,
}


def _plain(values: pa.ChunkedArray, type_: DuckLakeType) -> pa.ChunkedArray:
    """Return values that Arrow compares as DuckDB does: uuids as bytes, floats with one zero and one NaN."""
    if isinstance(values.type, pa.BaseExtensionType):
        return pa.chunked_array([chunk.storage for chunk in values.chunks], values.type.storage_type)
    if is_float(type_):
        numbers = pc.add(values.cast(pa.float64()), 0.0)
        return pc.if_else(pc.is_nan(numbers), math.nan, numbers)
    return values


def _array(type_: DuckLakeType, values: tuple[Physical, ...]) -> pa.Array:
    if is_float(type_):  # a value for a float32 may be a double
        numbers = [math.nan if math.isnan(float(one)) else float(one) + 0.0 for one in values]
        return pa.array(numbers, pa.float64())  # of none, too
    if type_.facts.kind is ScalarKind.BOOLEAN:
        return pa.array(values, pa.bool_())
    made = from_physical(type_, values)
    return made.storage if isinstance(made.type, pa.BaseExtensionType) else made


def _compare_floats(values: pa.ChunkedArray, operator: Operator, value: float) -> pa.ChunkedArray:
    """Compare floats where NaN equals itself and is greater than any other."""
    is_nan = pc.is_nan(values)
    goes_up = operator in (Operator.GREATER, Operator.AT_LEAST)
    if not math.isnan(value):
        found = _COMPUTE[operator](values, value)
        return pc.or_(found, is_nan) if goes_up else found
    match operator:
        case Operator.EQUAL | Operator.AT_LEAST:
            return is_nan
        case Operator.UNEQUAL | Operator.LESS:
            return pc.invert(is_nan)
        case Operator.AT_MOST:
            return pc.is_valid(values)
        case Operator.GREATER:
            return pc.and_(is_nan, pc.invert(is_nan))


def regex(pattern: str) -> str:
    """Return the RE2 expression of a LIKE pattern."""
    return rf"(?s)\A{''.join(map(_piece, pattern))}\z"


def _piece(char: str) -> str:
    if char == "%":
        return ".*"
    if char == "_":
        return "."
    return char if char.isalnum() or not char.isascii() else rf"\x{ord(char):02x}"
