"""Filters as Spark conditions, compared as DuckDB compares; columns are in the carriers of ``spark_types``.

Spark compares NaN and -0.0 as DuckDB does, where no bounds of files come between: see ``unbounded``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ...format.types.ducklake_types import DuckLakeType, is_float
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
from ...storage.rows.table_reader import path_to, regex
from ..types.frames import DAY, folded, number_of
from ..types.names import quoted
from ..types.spark_types import literal, scalar_read_type

if TYPE_CHECKING:
    from ...format.schema import Column, TableSchema
    from ...format.types.values import Physical

_COMPARE = {
    Operator.EQUAL: SparkColumn.__eq__,
    Operator.UNEQUAL: SparkColumn.__ne__,
    Operator.LESS: SparkColumn.__lt__,
    Operator.AT_MOST: SparkColumn.__le__,
    Operator.GREATER: SparkColumn.__gt__,
    Operator.AT_LEAST: SparkColumn.__ge__,
}


def condition(predicate: Predicate, schema: TableSchema) -> SparkColumn:
    """Return the condition that is true for the rows that a filter wants; elsewhere it is false or NULL."""
    match predicate:
        case AllOf(parts):
            met = [condition(part, schema) for part in parts]
            return folded(SparkColumn.__and__, met or [f.lit(True)])  # noqa: FBT003 - a value
        case AnyOf(parts):
            met = [condition(part, schema) for part in parts]
            return folded(SparkColumn.__or__, met or [f.lit(False)])  # noqa: FBT003 - a value
        case _:
            path = path_to(schema, predicate.column_id)
            return _condition(predicate, _value(path), path[-1].type)


def _value(path: tuple[Column, ...]) -> SparkColumn:
    top, *fields = path
    return reduce(lambda value, child: value.getField(child.name), fields, f.col(quoted(top.name)))


def _condition(predicate: Condition, value: SparkColumn, type_: DuckLakeType) -> SparkColumn:
    match predicate:
        case NullTest(_, negated):
            return value.isNotNull() if negated else value.isNull()
        case Likeness(_, pattern, negated):
            found = value.rlike(regex(pattern))
            return ~found if negated else found
        case Membership(_, wanted, negated):
            return _member(value, wanted, type_, negated=negated)
        case Comparison(_, operator, one):
            return _compared(value, operator, one, type_)


def _member(
    value: SparkColumn, wanted: tuple[Physical, ...], type_: DuckLakeType, *, negated: bool
) -> SparkColumn:
    if is_float(type_):  # Spark's set of many values separates 0.0 from -0.0
        nothing = value.isNotNull() & f.lit(False)  # noqa: FBT003 - a value
        equal = [_compared(value, Operator.EQUAL, one, type_) for one in wanted]
        found = folded(SparkColumn.__or__, [nothing, *equal])
        return value.isNotNull() & ~found if negated else found
    value, constants = _operands(value, wanted, type_)
    found = value.isin(constants)
    return value.isNotNull() & ~found if negated else found


def _compared(value: SparkColumn, operator: Operator, one: Physical, type_: DuckLakeType) -> SparkColumn:
    if not is_float(type_):
        value, (constant,) = _operands(value, (one,), type_)
        return _COMPARE[operator](value, constant)
    return _COMPARE[operator](value.cast("double"), float(one))


_YEAR_1 = -719_162  # days since 1970
_EARLIEST: dict[t.DataType, int] = {t.DateType(): _YEAR_1, t.TimestampType(): _YEAR_1 * DAY}


def _operands(
    value: SparkColumn, wanted: Sequence[Physical], type_: DuckLakeType
) -> tuple[SparkColumn, list[SparkColumn]]:
    """Return the sides of a comparison: numbers, which Spark does not push down, for early times.

    Spark moves dates and moments that it pushes down into the Julian calendar, ``-infinity`` out of range.
    """
    carrier = scalar_read_type(type_, "of a filter")
    if carrier in _EARLIEST and any(int(one) < _EARLIEST[carrier] for one in wanted):
        return number_of(value, carrier), [f.lit(one) for one in wanted]
    return value, [literal(type_, one) for one in wanted]
