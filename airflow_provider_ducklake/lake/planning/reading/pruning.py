"""May a data file hold a row for which a filter is true? Yes, unless its statistics say that it cannot.

Is the filter true for all of its rows? No, unless the same evidence says so: no row is NULL in the filter's
column, and none can meet the opposite condition.

What speaks of a file: the bounds and counts of its columns, the values of its partition, the folders that it
lies in. Each may be unknown, and then the file stays. Bounds were written for the column's type of that time,
which is unknown here; they are read so that they hold for every type that can have become the current one.
*Source:* docs/sources.md, DDL and inserts; statistics that the reference writes.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from ...format import partitioning as keys
from ...format.defaults import initial_value
from ...format.files import STRING_BOUND_BYTES, ColumnStats, LiveDataFile, blob_bounds, string_bounds
from ...format.types import values as physical
from ...format.types.ducklake_types import TEXTS, DuckLakeType, Exact, ScalarKind, children_of, is_float
from ...format.types.literals import parse_scalar
from . import predicates as terms

if TYPE_CHECKING:
    from ...format.schema import Column
    from ...format.snapshots import ColumnId, PartitionId


@dataclass(frozen=True, slots=True)
class Evidence:
    """Facts about a column's values in one file; None is unknown, which excludes nothing.

    ``transformed`` gives the partition values that a value can have; the file has ``part``.
    """

    low: terms.OrderKey | None = None
    high: terms.OrderKey | None = None
    has_nulls: bool = True
    has_values: bool = True
    part: str | None = None
    transformed: Callable[[physical.Physical], frozenset[str | None] | None] | None = None

    def admits(self, value: physical.Physical) -> bool:
        """Return True if the value may be there."""
        key = terms.order(value)
        if (self.low is not None and key < self.low) or (self.high is not None and key > self.high):
            return False
        possible = None if self.transformed is None else self.transformed(value)
        return possible is None or self.part in possible


def file_may_match(
    predicate: terms.Predicate,
    file: LiveDataFile,
    types: Mapping[ColumnId, DuckLakeType],
    partition_specs: Mapping[PartitionId, keys.PartitionSpec],
) -> bool:
    """Return True if a file may hold a row for which the filter is true, were none of its rows deleted."""

    def judge(condition: terms.Condition) -> bool:
        type_ = types[condition.column_id]
        spec = None if file.partition_id is None else partition_specs.get(file.partition_id)
        found = evidence(file, condition.column_id, type_, spec)
        return all(_may_hold(condition, one) for one in found)

    return terms.holds(predicate, judge)


def _may_hold(condition: terms.Condition, known: Evidence) -> bool:
    if isinstance(condition, terms.NullTest) and not condition.negated:
        return known.has_nulls
    if not known.has_values:
        return False
    match condition:
        case terms.Comparison(_, operator, value):
            return _may_compare(operator, value, known)
        case terms.Membership(_, values, negated):
            if negated:
                return (
                    known.low is None or known.low != known.high or known.low not in map(terms.order, values)
                )
            return any(map(known.admits, _between(values, known)))
        case terms.Likeness(_, pattern, negated):
            return negated or _may_begin(_beginning(pattern), known)
        case _:
            return True


def _may_compare(operator: terms.Operator, value: physical.Physical, known: Evidence) -> bool:
    key, low, high = terms.order(value), known.low, known.high
    match operator:
        case terms.Operator.EQUAL:
            return known.admits(value)
        case terms.Operator.UNEQUAL:
            return low is None or not low == high == key
        case terms.Operator.LESS:
            return low is None or bool(low < key)
        case terms.Operator.AT_MOST:
            return low is None or bool(low <= key)
        case terms.Operator.GREATER:
            return high is None or bool(high > key)
        case terms.Operator.AT_LEAST:
            return high is None or bool(high >= key)


def _between(values: tuple[physical.Physical, ...], known: Evidence) -> tuple[physical.Physical, ...]:
    """Return the values from the lower bound on: of ascending ones, as ``Membership`` has them."""
    return values if known.low is None else values[bisect_left(values, known.low, key=terms.order) :]


def _beginning(pattern: str) -> bytes:
    ends = [place for place in (pattern.find("%"), pattern.find("_")) if place >= 0]
    return pattern[: min(ends, default=len(pattern))].encode()


def _may_begin(start: bytes, known: Evidence) -> bool:
    if known.high is not None and known.high < start:
        return False
    return known.low is None or known.low[: len(start)] <= start


def evidence(
    file: LiveDataFile, column_id: ColumnId, type_: DuckLakeType, spec: keys.PartitionSpec | None
) -> Iterator[Evidence]:
    """Yield the facts about a column in a file, all of them true; ``spec`` are the keys of its partition."""
    folder = _folder(file, column_id)
    if folder is not None:
        yield from _folder_evidence(file, folder, type_)
        return
    stats = file.column_stats.get(column_id)
    if stats is not None:
        yield _statistics_evidence(file, stats, type_)
    if spec is None or len(spec.fields) != len(file.partition_values):
        return
    for field, text in zip(spec.fields, file.partition_values, strict=True):
        if field.column_id == column_id:
            yield _partition_evidence(field.transform, type_, text)


def _folder(file: LiveDataFile, column_id: ColumnId) -> str | None:
    found = (one.source_name for one in file.mapping or () if one.is_partition and one.column_id == column_id)
    return next(found, None)


def _folder_evidence(file: LiveDataFile, name: str, type_: DuckLakeType) -> Iterator[Evidence]:
    """Yield what the name of a folder says, read as the values of its rows are."""
    folders = keys.hive_values(file.path)
    if name not in folders:
        return
    text = folders[name]
    if text is None:
        yield Evidence(has_values=False)
        return
    try:
        value = keys.hive_value(type_, text)
    except (ValueError, ArithmeticError):
        return  # the reader says what is wrong with it
    yield Evidence(terms.order(value), terms.order(value), has_nulls=False)


def _statistics_evidence(file: LiveDataFile, stats: ColumnStats, type_: DuckLakeType) -> Evidence:
    nulls, values = stats.null_count, stats.value_count
    if nulls is None or values is None or nulls + values != file.record_count or not type_.facts.counts_nulls:
        nulls = values = None  # of types that are not counted; below lists there may be more or fewer
    is_foreign = file.mapping_id is not None  # a footer need not count NULLs or NaN
    low, high = _bounds(type_, stats.min_value, stats.max_value)
    if is_float(type_) and (stats.contains_nan is not False or is_foreign):
        high = None
    return Evidence(low, high, has_nulls=nulls != 0 or is_foreign, has_values=values != 0)


def _bounds(
    type_: DuckLakeType, low: str | None, high: str | None
) -> tuple[terms.OrderKey | None, terms.OrderKey | None]:
    """Return the bounds of two texts, whichever type they were written for."""
    if type_.facts.kind is ScalarKind.JSON:
        return None, None  # it may have been any type, and the texts of numbers are in another order
    low_value, high_value = _parsed(type_, low), _parsed(type_, high)
    if isinstance(low_value, float) or isinstance(high_value, float):
        return _below(low_value), _above(high_value)
    if isinstance(high_value, bytes) and len(high_value) >= STRING_BOUND_BYTES:
        high_value = None  # some writers cut a text without raising it
    return low_value, high_value


def _parsed(type_: DuckLakeType, text: str | None) -> physical.Physical | None:
    if text is None:
        return None
    try:
        return physical.parse_physical(type_, text)
    except (ValueError, ArithmeticError):
        return None


# The same number was another one if it was a float32, an integer or a decimal before, and rounded.
_SLACK, _LEAST_SLACK = 2.0**-22, 2e-45


def _below(value: physical.Physical | None) -> terms.OrderKey | None:
    if not isinstance(value, float) or math.isnan(value):
        return None
    number = min(value, physical.as_float32(value))
    return terms.order(number if math.isinf(number) else number - abs(number) * _SLACK - _LEAST_SLACK)


def _above(value: physical.Physical | None) -> terms.OrderKey | None:
    if not isinstance(value, float) or math.isnan(value):
        return None
    number = max(value, physical.as_float32(value))
    return terms.order(number if math.isinf(number) else number + abs(number) * _SLACK + _LEAST_SLACK)


def _partition_evidence(transform: keys.Transform, type_: DuckLakeType, text: str | None) -> Evidence:
    """Derive facts about a column from a partition value made of it."""
    match transform.kind:
        case keys.TransformKind.IDENTITY:
            return _identity_evidence(type_, text)
        case keys.TransformKind.BUCKET:
            assert transform.bucket_count is not None
            return _bucket_evidence(type_, text, transform.bucket_count)
        case kind if kind in keys.EPOCHS:
            return _epoch_evidence(kind, type_, text)
        case _ if keys.is_local(transform, type_):  # which only separates values outside the calendar
            return Evidence(has_nulls=text is None)
        case _:
            return _calendar_evidence(transform, type_, text)


def _identity_evidence(type_: DuckLakeType, text: str | None) -> Evidence:
    if text is None:
        return Evidence(has_values=False)
    if type_.facts.kind is ScalarKind.JSON:
        return Evidence(has_nulls=False)
    try:
        value = parse_scalar(type_, text)
    except (ValueError, ArithmeticError):
        return Evidence(has_nulls=False)
    if not isinstance(value, float):
        return Evidence(value, value, has_nulls=False)
    if math.isnan(value):
        return Evidence(terms.order(value), terms.order(value), has_nulls=False)
    return Evidence(_below(value), _above(value), has_nulls=False)


def _epoch_evidence(kind: keys.TransformKind, type_: DuckLakeType, text: str | None) -> Evidence:
    """Derive facts from a count of units since 1970; NULL stands for NULL and for the infinite times."""
    if text is None:
        own = keys.Transform(kind)
        return Evidence(transformed=lambda value: frozenset({keys.partition_value(own, type_, value)}))
    if not _COUNT.fullmatch(text):
        return Evidence()  # which is no count: it says nothing
    low, high = keys.epoch_range(kind, type_, int(text))
    return Evidence(low, high, has_nulls=False)


_COUNT = re.compile(r"-?\d{1,18}", re.ASCII)


def _calendar_evidence(transform: keys.Transform, type_: DuckLakeType, text: str | None) -> Evidence:
    """Derive facts from a year, month, day or hour; NULL stands for NULL and for the infinite times."""

    def transformed(value: physical.Physical) -> frozenset[str | None]:
        return frozenset({keys.partition_value(transform, type_, value)})

    if text is not None and transform.kind is keys.TransformKind.YEAR and _YEAR.fullmatch(text):
        low, high = year_range(type_, int(text))
        return Evidence(low, high, has_nulls=False)
    return Evidence(has_nulls=text is None, part=text, transformed=transformed)


_YEAR = re.compile(r"-?\d{1,9}", re.ASCII)


def year_range(type_: DuckLakeType, year: int) -> tuple[int, int]:
    """Return the first and the last moment of a year in units of the type."""
    per_day = physical.units_per_second(type_) * 86_400
    first, end = (int(physical.days_from_civil(one, 1, 1) * per_day) for one in (year, year + 1))
    return first - (999 if first <= 0 and keys.is_cast_to_micros(type_) else 0), end - 1


def _bucket_evidence(type_: DuckLakeType, text: str | None, count: int) -> Evidence:
    if text is None:
        return Evidence(has_values=False)

    def transformed(value: physical.Physical) -> frozenset[str | None] | None:
        hashed = _hashed(type_, value)
        return None if hashed is None else frozenset(str(keys.bucket(one, count)) for one in hashed)

    return Evidence(has_nulls=False, part=text, transformed=transformed)


_SECONDS = (1, 10**3, 10**6, 10**9)


def _hashed(type_: DuckLakeType, value: physical.Physical) -> list[bytes] | None:
    """List the bytes that may have been hashed for a value, by every type that can have become this one.

    None: there are too many.
    """
    match type_.facts.kind:
        case ScalarKind.STRING | ScalarKind.BLOB if isinstance(value, bytes):
            return [value]
        case ScalarKind.UUID:
            return [physical.format_physical(type_, value).encode()]
        case ScalarKind.BOOLEAN | ScalarKind.DATE | ScalarKind.TIME:
            return [_long(int(value))]
        case ScalarKind.INTEGER:
            return [_long(int(value)), str(value).encode()]
        case ScalarKind.TIMESTAMP if not physical.is_infinite(type_, int(value)):
            seconds = int(value) / physical.units_per_second(type_)
            counts = [seconds / 86_400, *(seconds * unit for unit in _SECONDS)]
            return [_long(int(count)) for count in counts if count.denominator == 1]
        case _:
            return None


def _long(value: int) -> bytes:
    return (value & 2**64 - 1).to_bytes(8, "little")


def all_match(
    predicate: terms.Predicate,
    file: LiveDataFile,
    types: Mapping[ColumnId, DuckLakeType],
    partition_specs: Mapping[PartitionId, keys.PartitionSpec],
) -> bool:
    """Return True if the filter is surely true for every row of a file, deleted ones too."""

    def judge(condition: terms.Condition) -> bool:
        match condition:
            case terms.NullTest(column_id, negated):
                opposite: terms.Predicate = terms.NullTest(column_id, not negated)
            case terms.Comparison(column_id, operator, value):
                opposite = terms.AnyOf(
                    (terms.Comparison(column_id, terms.NEGATED[operator], value), terms.NullTest(column_id))
                )
            case _:
                other = replace(condition, negated=not condition.negated)
                opposite = terms.AnyOf((other, terms.NullTest(condition.column_id)))
        return not file_may_match(opposite, file, types, partition_specs)

    return terms.holds(predicate, judge)


# What statistics say of the least and the greatest value of a column: where exactly, and what they cover.
#
# Statistics may be wider than the values: texts are cut, rows were deleted, NaN is left out, another type
# was written. Then no bound is exact. Statistics that are too narrow lose rows. *Source:* statistics
# that the reference writes (docs/sources.md, inserts).


Bounds: TypeAlias = tuple[physical.Physical, physical.Physical] | None  # None: all are NULL


class InexactError(Exception):
    """Statistics do not say the bounds exactly."""


@dataclass(frozen=True, slots=True)
class ColumnHistory:
    """A column as a snapshot has it, the first snapshot that had it, and the types that it ever had."""

    column: Column
    since: int
    types: frozenset[str]


def bounds_of_files(history: ColumnHistory, files: Iterable[LiveDataFile], at: int) -> Bounds:
    """Return the exact bounds of a column over all rows of files at a snapshot."""
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
    if file.delete_file is not None or (file.partial_max or 0) > at:
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
        return exact(
            physical.parse_physical(type_, stats.min_value), physical.parse_physical(type_, stats.max_value)
        )
    except ValueError:
        raise InexactError from None


_MAY_BE_CUT = STRING_BOUND_BYTES - 3  # before a character of up to four bytes


def exact(low: physical.Physical, high: physical.Physical) -> Bounds:
    """Return two values as bounds."""
    for one in (low, high):
        if (isinstance(one, bytes) and len(one) >= _MAY_BE_CUT) or one != one:  # noqa: PLR0124 - NaN
            raise InexactError
    return low, high


@dataclass(frozen=True, slots=True)
class TextBounds:
    """The least and the greatest value as catalog texts; None: unknown, or no value at all."""

    low: str | None
    high: str | None


def has_bounds(type_: DuckLakeType) -> bool:
    """Return True if the reference keeps bounds of columns of that type."""
    facts = type_.facts
    return not children_of(type_) and facts.storable and facts.comparable and facts.bounded


def are_readable(bounds: TextBounds, types: Collection[DuckLakeType]) -> bool:
    """Return True if both texts are values of one of the types that the column has had."""
    return any(_is_readable(bounds, type_) for type_ in types)


def are_crossed(bounds: TextBounds, types: Collection[DuckLakeType]) -> bool:
    """Return True if the least value lies above the greatest, whatever type the column had."""
    if bounds.low is None or bounds.high is None:
        return False
    readable = _readable(bounds, types)
    return bool(readable) and not any(_is_below(one, bounds.low, bounds.high) for one in readable)


def covers(outer: TextBounds, inner: TextBounds, types: Collection[DuckLakeType]) -> bool:
    """Return True if bounds lie within others, by one of the types that the column has had.

    An unknown bound of ``inner`` is ignored; one of ``outer`` covers everything. A client that does not
    truncate strings may have the full value in ``outer`` whose prefix is in ``inner``.
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
    if type_.facts.kind is ScalarKind.BLOB:
        with suppress(ValueError):  # of inlined rows the reference keeps another text
            return TextBounds(*blob_bounds(bytes.fromhex(low), bytes.fromhex(high)))
    return bounds


def _readable(bounds: TextBounds, types: Collection[DuckLakeType]) -> list[DuckLakeType]:
    return [one for one in types if _is_readable(bounds, one)]


def _is_readable(bounds: TextBounds, type_: DuckLakeType) -> bool:
    try:
        for text in (bounds.low, bounds.high):
            if text is not None:
                physical.order_key(type_, text)
    except (ValueError, ArithmeticError):
        return False
    return True


def _is_below(type_: DuckLakeType, low: str | None, high: str | None) -> bool:
    if low is None or high is None or (is_float(type_) and "nan" in high.lower()):
        return True  # NaN lies above all numbers
    return bool(physical.order_key(type_, low) <= physical.order_key(type_, high))
