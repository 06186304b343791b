"""Filters of a read: conditions on columns by their ids, with values of the columns' own types.

Only rows for which a filter is true are wanted; where it is NULL is no different from where it is false. So a
filter has no NOT: who builds one turns each condition around (``<`` into ``>=``), and NULL meets none of
them. A value that a column's type cannot hold is moved to the next one that it can, as ``i < 1.5`` is
``i <= 1``. *Source:* DuckDB's comparisons (probed on 1.5.5, ``tests/interop/test_filters.py``): NaN equals
itself and is the greatest float, -0.0 equals 0.0, strings compare by bytes, numbers without exponent and
times exactly. Times without a zone do not compare with times that have one: DuckDB asks the session's zone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

from ...errors import InvalidInputError
from ...format.defaults import literal_physical
from ...format.types import ducklake_types as dl
from ...format.types.values import Physical, as_float32, is_infinite, physical_range, units_per_second

if TYPE_CHECKING:
    from ...format.schema import Column
    from ...format.snapshots import ColumnId


OrderKey: TypeAlias = Any


def order(value: Physical) -> OrderKey:
    """Return a key that sorts the values of a column as DuckDB does: NaN is the greatest float.

    >>> order(float("nan")) > order(float("inf")), order(-0.0) == order(0.0)
    (True, True)
    """
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value


class Operator(StrEnum):
    """How a column compares with a value."""

    EQUAL = "="
    UNEQUAL = "<>"
    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="


_TURNED = {
    Operator.EQUAL: Operator.UNEQUAL,
    Operator.LESS: Operator.AT_LEAST,
    Operator.GREATER: Operator.AT_MOST,
}
NEGATED = _TURNED | {value: key for key, value in _TURNED.items()}
_FLIPPED = {Operator.LESS: Operator.GREATER, Operator.AT_MOST: Operator.AT_LEAST}
FLIPPED = {one: one for one in Operator} | _FLIPPED | {value: key for key, value in _FLIPPED.items()}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The column is not NULL and compares so with a value in physical form."""

    column_id: ColumnId
    operator: Operator
    value: Physical


@dataclass(frozen=True, slots=True)
class Membership:
    """The column is not NULL and is one of the values, which ascend; or, ``negated``, none of them."""

    column_id: ColumnId
    values: tuple[Physical, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Likeness:
    """The text is not NULL and looks like the pattern; or, ``negated``, does not.

    ``%`` stands for any text, ``_`` for one character; nothing escapes them.
    """

    column_id: ColumnId
    pattern: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class NullTest:
    """The column is NULL; or, ``negated``, is not."""

    column_id: ColumnId
    negated: bool = False


@dataclass(frozen=True, slots=True)
class TypedValue:
    """A value in physical form that comes with its type, as ``DATE '2024-01-01'`` or ``1e0``."""

    type: dl.DuckLakeType
    value: Physical


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every part is true; without parts it always is."""

    parts: tuple[Predicate, ...] = ()


@dataclass(frozen=True, slots=True)
class AnyOf:
    """A part is true; without parts it never is."""

    parts: tuple[Predicate, ...] = ()


Condition: TypeAlias = Comparison | Membership | Likeness | NullTest
Predicate: TypeAlias = Condition | AllOf | AnyOf
ALWAYS, NEVER = AllOf(), AnyOf()


def column_ids(predicate: Predicate) -> list[ColumnId]:
    """Return the id of the column or struct field of each condition of a filter."""
    return [one.column_id for one in conditions(predicate)]


def holds(predicate: Predicate, judge: Callable[[Condition], bool]) -> bool:
    """Combine the verdicts of ``judge`` on each condition by AND and OR."""
    match predicate:
        case AllOf(parts):
            return all(holds(part, judge) for part in parts)
        case AnyOf(parts):
            return any(holds(part, judge) for part in parts)
        case _:
            return judge(predicate)


def conditions(predicate: Predicate) -> list[Condition]:
    """Return the conditions of a filter, without what connects them."""
    if isinstance(predicate, AllOf | AnyOf):
        return [one for part in predicate.parts for one in conditions(part)]
    return [predicate]


# A text takes the type of the column, a number without exponent is exact; None is NULL.
Value: TypeAlias = str | int | Decimal | TypedValue | None


def compare(column: Column, operator: Operator, value: Value) -> Predicate:
    """Return the filter for the rows whose column compares so with a value."""
    _check_comparable(column)
    if value is None:
        return NEVER
    if dl.is_float(column.type):
        return Comparison(column.id, operator, _as_float(column, value))
    if not _has_steps(column.type):
        return Comparison(column.id, operator, _as_stored(column, value))
    return _stepped(column, operator, _in_units(column, value))


def same(column: Column, value: Value, *, negated: bool = False) -> Predicate:
    """Return the filter for IS NOT DISTINCT FROM; or, ``negated``, for IS DISTINCT FROM."""
    if value is None:
        return NullTest(column.id, negated)
    if not negated:
        return compare(column, Operator.EQUAL, value)
    return AnyOf((compare(column, Operator.UNEQUAL, value), NullTest(column.id)))


def member(column: Column, values: Sequence[Value], *, negated: bool = False) -> Predicate:
    """Return the filter for IN; or, ``negated``, for NOT IN, which a NULL among the values rules out."""
    _check_comparable(column)
    found = [compare(column, Operator.EQUAL, value) for value in unified(column, values)]
    if negated and None in values:
        return NEVER
    physical = sorted((one.value for one in found if isinstance(one, Comparison)), key=order)
    return Membership(column.id, tuple(physical), negated)


def unified(column: Column, values: Sequence[Value]) -> Sequence[Value]:
    """Return the values as DuckDB compares a column with several at once: as doubles where one is."""
    doubles = any(isinstance(value, TypedValue) and value.type == _DOUBLE for value in values)
    if not doubles or column.type != _FLOAT:
        return values
    return [None if value is None else TypedValue(_DOUBLE, _float_of(_DOUBLE, value)) for value in values]


def null_test(column: Column, *, negated: bool = False) -> Predicate:
    """Return the filter for IS NULL; or, ``negated``, for IS NOT NULL."""
    return NullTest(column.id, negated)


def like(column: Column, pattern: Value, *, negated: bool = False) -> Predicate:
    """Return the filter for LIKE; or, ``negated``, for NOT LIKE."""
    if column.type.facts.kind not in dl.TEXTS:
        raise _refusal(column, "LIKE works on strings only")
    if pattern is None:
        return NEVER
    if not isinstance(pattern, str):
        raise _refusal(column, "a pattern must be a string in single quotes")
    return Likeness(column.id, pattern, negated)


_FLOAT = dl.ScalarType("float32")
_DOUBLE = dl.ScalarType("float64")
_EXACT_BELOW = {32: 2**24, 64: 2**53}  # by the bits of a float


def _refusal(column: Column, why: str) -> InvalidInputError:
    return InvalidInputError(f"column {column.name} is of type {column.type}: {why}.")


def _check_comparable(column: Column) -> None:
    facts = column.type.facts
    if dl.children_of(column.type) or not (facts.storable and facts.comparable):
        raise _refusal(column, "it can only be tested with IS NULL and IS NOT NULL")


def _physical(column: Column, text: str) -> Physical:
    """Return the value that a text spells in the column's type."""
    try:
        return literal_physical(column.type, text)
    except (ValueError, OverflowError) as error:
        raise _refusal(column, f"{text!r} is not a valid {column.type}: {error}") from error


def _has_steps(type_: dl.DuckLakeType) -> bool:
    """Return True if values are whole numbers of a unit: numbers and times."""
    return type_.facts.kind in dl.STEPPED


def _is_time(type_: dl.DuckLakeType) -> bool:
    return type_.facts.kind in dl.TIMES


def _as_stored(column: Column, value: Value) -> Physical:
    """Return the value for a column of truth values, texts, bytes or uuids."""
    match value:
        case str():
            return _physical(column, value)
        case int() if column.type.facts.kind is dl.ScalarKind.BOOLEAN and value in (0, 1):
            return bool(value)
        case TypedValue(type_, physical) if (
            type_ == column.type or {type_.facts.kind, column.type.facts.kind} <= dl.TEXTS
        ):
            return physical
        case _:
            raise _refusal(column, f"it cannot be compared with {_shown(value)}")


def _shown(value: Value) -> str:
    match value:
        case TypedValue(type_):
            return f"a {type_}"
        case str():
            return repr(value)
        case _:
            return f"the number {value}"


def _as_float(column: Column, value: Value) -> float:
    try:
        return _float_of(column.type, value)
    except (ValueError, OverflowError) as error:
        raise _refusal(column, f"it cannot be compared with {_shown(value)}: {error}") from error


def _float_of(type_: dl.DuckLakeType, value: Value) -> float:
    """Return the float to compare with; a number without exponent becomes one as DuckDB casts it."""
    match value:
        case str():
            return float(literal_physical(type_, value))
        case int() | Decimal():
            return _decimal_as_float(type_, *_unscaled(Decimal(value)))
        case TypedValue(given, physical) if dl.is_float(given):
            return float(physical)
        case TypedValue(dl.DecimalType(scale=scale), physical):
            return _decimal_as_float(type_, int(physical), scale)
        case TypedValue(given, physical) if given.facts.kind is dl.ScalarKind.INTEGER:
            return _decimal_as_float(type_, int(physical), 0)
        case _:
            raise ValueError("it is not a number")


def _unscaled(value: Decimal) -> tuple[int, int]:
    """Return a decimal, however long, as an integer and the number of its digits behind the point."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    found = int("".join(map(str, digits))) * 10 ** max(exponent, 0)
    return -found if sign else found, max(-exponent, 0)


def _decimal_as_float(type_: dl.DuckLakeType, unscaled: int, scale: int) -> float:
    """Return a decimal as DuckDB casts it, which is not always the nearest float."""
    nearest = as_float32 if type_ == _FLOAT else float
    if scale == 0 or abs(unscaled) <= _EXACT_BELOW[type_.facts.bits]:
        return nearest(nearest(float(unscaled)) / nearest(float(10**scale)))
    whole, rest = divmod(abs(unscaled), 10**scale)
    fraction = nearest(nearest(float(rest)) / nearest(float(10**scale)))
    return (-1 if unscaled < 0 else 1) * nearest(nearest(float(whole)) + fraction)


def _in_units(column: Column, value: Value) -> Fraction:
    """Return a value in units of the column's physical form, exactly."""
    match value:
        case str():
            return Fraction(int(_physical(column, value)))
        case TypedValue(type_, physical) if _is_time(column.type):
            return _time_in_units(column, type_, int(physical)) if _is_time(type_) else _no(column, value)
        case _ if _is_time(column.type):
            return _no(column, value)
        case int() | Decimal():
            return Fraction(value) * _scale(column.type)
        case TypedValue(type_, physical) if dl.is_float(type_):
            return _float_in_units(column, type_, float(physical))
        case TypedValue(type_, physical) if _has_steps(type_) and not _is_time(type_):
            return Fraction(int(physical) * _scale(column.type), _scale(type_))
        case _:
            return _no(column, value)


def _no(column: Column, value: Value) -> Fraction:
    raise _refusal(column, f"it cannot be compared with {_shown(value)}")


def _scale(type_: dl.DuckLakeType) -> int:
    return 10**type_.scale if isinstance(type_, dl.DecimalType) else 1


def _float_in_units(column: Column, type_: dl.DuckLakeType, value: float) -> Fraction:
    """Return a float for a column of exact numbers, which DuckDB compares as floats."""
    if _scale(column.type) > 1 or not abs(value) < _EXACT_BELOW[type_.facts.bits]:
        raise _refusal(
            column,
            f"it cannot be compared exactly with the float {value!r}; write the number in quotes, and "
            "without an exponent",
        )
    return Fraction(value)


def _is_moment(type_: dl.DuckLakeType) -> bool:
    return type_.facts.has_days


def _time_in_units(column: Column, type_: dl.DuckLakeType, value: int) -> Fraction:
    """Return a time of another type in units of the column's; a finite time stays between the infinities."""
    if type_ == column.type:
        return Fraction(value)
    if not (_is_moment(type_) and _is_moment(column.type)) or type_.facts.zoned != column.type.facts.zoned:
        raise _refusal(
            column, f"it cannot be compared with a {type_}; write a value with or without a time zone"
        )
    low, high = physical_range(column.type)
    if is_infinite(type_, value):
        return Fraction(high if value > 0 else low)
    wanted = value / units_per_second(type_) * units_per_second(column.type)
    return min(max(wanted, low + Fraction(1, 2)), high - Fraction(1, 2))


def _stepped(column: Column, operator: Operator, wanted: Fraction) -> Predicate:
    """Return the comparison with a value that the column's type has: the wanted one, or the next below it."""
    low, high = physical_range(column.type)
    step = 1 if is_infinite(column.type, int(wanted)) else column.type.facts.step
    below = int(wanted // step * step)
    if below == wanted and low <= below <= high:
        return Comparison(column.id, operator, below)
    if operator is Operator.UNEQUAL:
        return NullTest(column.id, negated=True)
    goes_down = operator in (Operator.LESS, Operator.AT_MOST)
    if operator is Operator.EQUAL or (goes_down and below < low):
        return NEVER
    if below < low:
        return NullTest(column.id, negated=True)
    return Comparison(column.id, Operator.AT_MOST if goes_down else Operator.GREATER, min(below, high))
