"""What statistics say of the least and the greatest value of a column: where exactly, and what they cover.

Statistics may be wider than the values: texts are cut, rows were deleted, NaN is left out, another type was
written. Then nothing is said exactly. Statistics that are too narrow lose rows. *Source:* statistics that the
reference writes (docs/sources.md, inserts).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from airflow_provider_ducklake.lake.spec.defaults import initial_value
from airflow_provider_ducklake.lake.spec.files import STRING_BOUND_BYTES, blob_bounds, string_bounds
from airflow_provider_ducklake.lake.spec.types.ducklake_types import (
    TEXTS,
    DuckLakeType,
    Exact,
    Kind,
    children_of,
    is_float,
)
from airflow_provider_ducklake.lake.spec.types.values import Physical, order_key, parse_physical

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from airflow_provider_ducklake.lake.spec.files import ColumnStats, LiveDataFile
    from airflow_provider_ducklake.lake.spec.schema import Column


Bounds: TypeAlias = tuple[Physical, Physical] | None  # None: all are NULL


class InexactError(Exception):
    """Statistics do not say the bounds exactly."""


@dataclass(frozen=True, slots=True)
class ColumnHistory:
    """A column as a snapshot has it, the first snapshot that had it, and the types that it ever had."""

    column: Column
    since: int
    types: frozenset[str]


def bounds_of_files(history: ColumnHistory, files: Iterable[LiveDataFile], at: int) -> Bounds:
    """Return the exact bounds of a column over all rows of files at a snapshot.

    Raises:
        InexactError: the statistics do not say them.
    """
    _check_types(history)
    found: Bounds = None
    for file in files:
        found = widened(found, _bounds_of_file(history, file, at))
    return found


def widened(left: Bounds, right: Bounds) -> Bounds:
    """Return bounds around both."""
    if left is None or right is None:
        return left or right
    return min(left[0], right[0]), max(left[1], right[1])


def _check_types(history: ColumnHistory) -> None:
    type_ = history.column.type
    if type_.facts.exact_bounds is Exact.NEVER:
        raise InexactError
    if type_.facts.exact_bounds is Exact.OURS and history.types != {str(type_)}:
        raise InexactError


def _bounds_of_file(history: ColumnHistory, file: LiveDataFile, at: int) -> Bounds:
    has_other_rows = file.delete_file is not None or file.snapshot_counts or (file.partial_max or 0) > at
    if has_other_rows:
        raise InexactError
    stats = file.column_stats.get(history.column.id)
    if stats is None:
        return _initial(history, file)
    is_said = stats.min_is_exact is True and stats.max_is_exact is True
    if file.mapping_id is not None and history.column.type.facts.exact_bounds is Exact.OURS and not is_said:
        raise InexactError
    return _bounds_of_statistics(history.column.type, stats)


def _initial(history: ColumnHistory, file: LiveDataFile) -> Bounds:
    """Return the bounds of a file that was written before the column was added."""
    if file.mapping_id is not None or file.begin_snapshot >= history.since or not file.record_count:
        raise InexactError
    value = initial_value(history.column)
    return None if value is None else exact(value, value)


def _bounds_of_statistics(type_: DuckLakeType, stats: ColumnStats) -> Bounds:
    if not type_.facts.counts_nulls:
        raise InexactError
    if stats.value_count == 0:
        return None
    may_be_nan = is_float(type_) and stats.contains_nan is not False
    if stats.min_value is None or stats.max_value is None or may_be_nan:
        raise InexactError
    if stats.min_is_exact is False or stats.max_is_exact is False:
        raise InexactError
    try:
        return exact(parse_physical(type_, stats.min_value), parse_physical(type_, stats.max_value))
    except ValueError:
        raise InexactError from None


_MAY_BE_CUT = STRING_BOUND_BYTES - 3  # before a character of up to four bytes


def exact(low: Physical, high: Physical) -> Bounds:
    """Return two values as bounds.

    Raises:
        InexactError: one is a text that may have been cut, or NaN.
    """
    for one in (low, high):
        if (isinstance(one, bytes) and len(one) >= _MAY_BE_CUT) or one != one:  # noqa: PLR0124 - NaN
            raise InexactError
    return low, high


@dataclass(frozen=True, slots=True)
class TextBounds:
    """The least and the greatest value as catalog texts; None: not known, or no value at all."""

    low: str | None
    high: str | None


def has_bounds(type_: DuckLakeType) -> bool:
    """Whether the reference keeps bounds of columns of that type."""
    facts = type_.facts
    return not children_of(type_) and facts.storable and facts.comparable and facts.bounded


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

    What is not known of ``inner`` is not asked; of ``outer``, it covers everything. Whoever does not cut long
    texts may have the very value in ``outer`` whose cut is in ``inner``.
    """
    readable = [one for one in _readable(outer, types) if _is_readable(inner, one)]
    return not readable or any(_covers(one, outer, inner) for one in readable)


def _covers(type_: DuckLakeType, outer: TextBounds, inner: TextBounds) -> bool:
    cut = _cut(type_, outer)
    is_low = inner.low == cut.low or _is_below(type_, outer.low, inner.low)
    return is_low and (inner.high == cut.high or _is_below(type_, inner.high, outer.high))


def _cut(type_: DuckLakeType, bounds: TextBounds) -> TextBounds:
    """Return bounds cut to the length that statistics of files have."""
    low, high = bounds.low, bounds.high
    if low is None or high is None:
        return bounds
    if type_.facts.kind in TEXTS:
        return TextBounds(*string_bounds(low.encode(), high.encode()))
    if type_.facts.kind is Kind.BLOB:
        with suppress(ValueError):  # of inlined rows the reference keeps another text
            return TextBounds(*blob_bounds(bytes.fromhex(low), bytes.fromhex(high)))
    return bounds


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
