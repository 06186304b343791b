"""Conditions on what lies at a path in a variant, as ``doc.user.id = 5``.

A path has the names of fields, each as it is written: ``doc.A`` is not ``doc.a``. Where a row has nothing
there, or a variant that is null, the condition is NULL. Numbers of all types compare with each other, so do
dates and timestamps; a value of another kind is an error, as for DuckDB.
*Source:* DuckDB's comparisons of variants (probed on 1.5.5, ``tests/interop/test_variant_paths.py``).
"""

from __future__ import annotations

from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.planning.reading.predicates import (
    NEVER,
    AllOf,
    AnyOf,
    Membership,
    Operator,
    PathComparison,
    PathNullTest,
    TypedValue,
    compare,
    unscaled,
)
from airflow_provider_ducklake.lake.spec.names.identifiers import quote
from airflow_provider_ducklake.lake.spec.schema import Column
from airflow_provider_ducklake.lake.spec.snapshots import ColumnId
from airflow_provider_ducklake.lake.spec.types.ducklake_types import (
    MAX_DECIMAL_PRECISION,
    NUMBERS,
    DecimalType,
    Kind,
    ScalarType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_provider_ducklake.lake.planning.reading.predicates import Predicate, Value, VariantPath
    from airflow_provider_ducklake.lake.spec.types.ducklake_types import DuckLakeType

_TEXT = ScalarType("varchar")
_INTEGER = ScalarType("int64")


def compare_at(path: VariantPath, operator: Operator, value: Value) -> Predicate:
    """Return the filter for the rows where what lies at a path compares so with a value.

    Raises:
        InvalidInputError: variants do not compare with such a value.
    """
    if value is None:
        return NEVER
    return PathComparison(path.column.id, path.names, operator, _typed(path, value))


def same_at(path: VariantPath, value: Value, *, negated: bool = False) -> Predicate:
    """Return the filter for IS NOT DISTINCT FROM; or, ``negated``, for IS DISTINCT FROM.

    It goes by ``=``, unlike that of DuckDB 1.5, which takes 0.0 for another number than 0.
    """
    if value is None:
        return null_at(path, negated=negated)
    if not negated:
        return compare_at(path, Operator.EQUAL, value)
    return AnyOf((null_at(path), compare_at(path, Operator.UNEQUAL, value)))


def member_at(path: VariantPath, values: Sequence[Value], *, negated: bool = False) -> Predicate:
    """Return the filter for IN; or, ``negated``, for NOT IN.

    Raises:
        InvalidInputError: variants do not compare with such a value.
    """
    if negated:
        parts = tuple(compare_at(path, Operator.UNEQUAL, value) for value in values)
        return NEVER if None in values else AllOf(parts)
    return AnyOf(tuple(compare_at(path, Operator.EQUAL, value) for value in values))


def null_at(path: VariantPath, *, negated: bool = False) -> Predicate:
    """Return the filter for IS NULL; or, ``negated``, for IS NOT NULL."""
    return PathNullTest(path.column.id, path.names, negated)


def _typed(path: VariantPath, value: Value) -> TypedValue:
    match value:
        case str():
            return TypedValue(_TEXT, value.encode())
        case int() | Decimal():
            return _number(path, Decimal(value))
        case TypedValue(type_) if type_.facts.kind in _COMPARABLE or type_.facts.has_days:
            return value
        case _:
            raise InvalidInputError(
                f"column {path.column.name} is a variant: compare what lies in it with a string, a number, a "
                "truth value, a date or a timestamp."
            )


_COMPARABLE = NUMBERS | {Kind.BOOLEAN, Kind.STRING}


def _number(path: VariantPath, value: Decimal) -> TypedValue:
    whole, scale = unscaled(value)
    digits = max(len(str(abs(whole))), scale)
    if digits > MAX_DECIMAL_PRECISION:
        raise InvalidInputError(
            f"column {path.column.name}: {value} has more than {MAX_DECIMAL_PRECISION} digits, which no "
            "variant holds."
        )
    return TypedValue(DecimalType(digits, scale), whole)


def as_of_column(condition: PathComparison, type_: DuckLakeType) -> Predicate:
    """Return what a condition says of values that are all of one type: a filter on a column ``ONLY``.

    Raises:
        InvalidInputError: values of that type do not compare with the condition's.
    """
    value = condition.value
    kinds = (value.type.facts.kind, type_.facts.kind)
    if kinds == (Kind.BOOLEAN, Kind.INTEGER):
        value = TypedValue(_INTEGER, int(value.value))
    elif (
        kinds == (Kind.DECIMAL, Kind.BOOLEAN) and isinstance(value.type, DecimalType) and not value.type.scale
    ):
        met = (one for one in (False, True) if _HOLDS[condition.operator](int(one), int(value.value)))
        return Membership(ONLY, tuple(met))
    elif not _compares(value.type, type_):
        raise InvalidInputError(
            f"{shown_path(condition.path)} is {_shown(type_)} in some rows, which does not compare with "
            f"{_shown(value.type)}. DuckDB refuses that, too: ask for one kind of value, or select the rows "
            "with Spark's variant_get."
        )
    return compare(Column(ONLY, shown_path(condition.path), type_), condition.operator, value)


ONLY = ColumnId(0)
_HOLDS: Mapping[Operator, Callable[[int, int], bool]] = {
    Operator.EQUAL: eq,
    Operator.UNEQUAL: ne,
    Operator.LESS: lt,
    Operator.AT_MOST: le,
    Operator.GREATER: gt,
    Operator.AT_LEAST: ge,
}


def _compares(one: DuckLakeType, other: DuckLakeType) -> bool:
    kinds = {one.facts.kind, other.facts.kind}
    return kinds <= NUMBERS or len(kinds) == 1 or (one.facts.has_days and other.facts.has_days)


def _shown(type_: DuckLakeType) -> str:
    return "a number" if type_.facts.kind in NUMBERS else f"a {type_}"


def shown_path(names: Sequence[str]) -> str:
    """Return a path as statistics name it.

    >>> shown_path(("user", "id"))
    '"user"."id"'
    """
    return ".".join(map(quote, names))
