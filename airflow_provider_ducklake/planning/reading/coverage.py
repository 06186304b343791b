"""Whether known statistics cover what they must: a bound that is too narrow loses rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ducklake.spec.types.ducklake_types import (
    DuckLakeType,
    children_of,
    is_float,
)
from airflow_provider_ducklake.spec.types.values import order_key

if TYPE_CHECKING:
    from collections.abc import Collection


@dataclass(frozen=True, slots=True)
class TextBounds:
    """The least and the greatest value as catalog texts; None: not known, or no value at all."""

    low: str | None
    high: str | None


def has_bounds(type_: DuckLakeType) -> bool:
    """Whether the reference keeps bounds of columns of that type."""
    return not children_of(type_) and type_.facts.storable


def are_readable(bounds: TextBounds, types: Collection[DuckLakeType]) -> bool:
    """Whether both texts are values of one of the types that the column has had."""
    return any(_is_readable(bounds, type_) for type_ in types)


def are_crossed(bounds: TextBounds, types: Collection[DuckLakeType]) -> bool:
    """Whether the least value lies above the greatest, whatever type the column had."""
    if bounds.low is None or bounds.high is None:
        return False
    readable = _readable(bounds, types)
    return bool(readable) and not any(_is_below(one, bounds.low, bounds.high) for one in readable)


def covers(outer: TextBounds, inner: TextBounds, types: Collection[DuckLakeType]) -> bool:
    """Whether known bounds lie within others, by one of the types that the column has had.

    What is not known of ``inner`` is not asked; of ``outer``, it covers everything.
    """
    readable = [one for one in _readable(outer, types) if _is_readable(inner, one)]
    return not readable or any(
        _is_below(one, outer.low, inner.low) and _is_below(one, inner.high, outer.high) for one in readable
    )


def _readable(bounds: TextBounds, types: Collection[DuckLakeType]) -> list[DuckLakeType]:
    return [one for one in types if _is_readable(bounds, one)]


def _is_readable(bounds: TextBounds, type_: DuckLakeType) -> bool:
    try:
        for text in (bounds.low, bounds.high):
            if text is not None:
                order_key(type_, text)
    except (ValueError, ArithmeticError):
        return False
    return True


def _is_below(type_: DuckLakeType, low: str | None, high: str | None) -> bool:
    if low is None or high is None or (is_float(type_) and "nan" in high.lower()):
        return True  # NaN lies above all numbers
    return bool(order_key(type_, low) <= order_key(type_, high))
