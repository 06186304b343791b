"""Intervals in Arrow: Arrow's own type for users, their parts for Spark, and the 12 bytes of Parquet.

Files count milliseconds, and nothing below zero. DuckDB refuses negative intervals; it drops microseconds
without a word, and 2**32 milliseconds, too (observed on 1.5.5): we write none of these.
*Source:* Apache Parquet, ``LogicalTypes.md``, "INTERVAL"; Arrow's columnar format,
"MonthDayNano", on a machine whose numbers begin with the lowest byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.spec.types.texts import INTERVAL, format_interval
from airflow_provider_ducklake.lake.storage.parquet.reshape import in_turn, ordinals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_ducklake.lake.spec.types.values import Physical

ARROW_INTERVAL = pa.month_day_nano_interval()
INTERVAL_PARTS = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("microseconds", pa.int64())])
STORED_INTERVAL = pa.binary(12)  # months, days and milliseconds, each of 32 bits without a sign
_MOST_MILLISECONDS = 2**32 - 1


def interval_array(values: Sequence[Physical | None]) -> pa.Array:
    """Return intervals that are in physical form.

    Raises:
        ValueError: one has more microseconds than Arrow has nanoseconds.
    """
    return pa.array([None if value is None else _arrow_value(value) for value in values], ARROW_INTERVAL)


def _arrow_value(value: Physical) -> pa.MonthDayNano:
    assert isinstance(value, bytes)
    months, days, microseconds = INTERVAL.unpack(value)
    if abs(microseconds) >= 2**63 // 1000:
        raise ValueError(f"Arrow counts nanoseconds, and has none of {format_interval(value)}")
    return pa.MonthDayNano([months, days, microseconds * 1000])


def interval_values(array: pa.Array) -> list[bytes | None]:
    """Return the physical form of intervals in Arrow's own type."""
    found = array.to_pylist()
    return [None if one is None else INTERVAL.pack(one[0], one[1], one[2] // 1000) for one in found]


def parts_of_arrow(array: pa.Array) -> pa.StructArray:
    """Return months, days and microseconds of intervals in Arrow's own type."""
    months, days, nanos = _numbers(array)
    mask = array.is_null() if array.null_count else None
    arrays = [months, days, pc.divide(nanos, 1000)]
    return pa.StructArray.from_arrays(arrays, fields=list(INTERVAL_PARTS), mask=mask)


def arrow_of_parts(array: pa.StructArray) -> pa.Array:
    """Return intervals, one by one, in Arrow's own type."""
    found = [None if one is None else INTERVAL.pack(*one.values()) for one in array.to_pylist()]
    return interval_array(found)


def _numbers(array: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the months, days and nanoseconds: Arrow keeps two words of 32 bits, and one of 64."""
    places = pc.add(ordinals(len(array)), array.offset)
    words, longs = _words(array, pa.int32(), 4), _words(array, pa.int64(), 2)
    first = pc.multiply(places, 4)
    nanos = longs.take(pc.add(pc.multiply(places, 2), 1))
    return words.take(first), words.take(pc.add(first, 1)), nanos


def _words(array: pa.Array, type_: pa.DataType, count: int) -> pa.Array:
    """Return the values of an array, and those before its offset, as ``count`` numbers each."""
    if not len(array):
        return pa.array([], type_)
    return pa.Array.from_buffers(type_, count * (array.offset + len(array)), [None, array.buffers()[1]])


def from_stored(array: pa.FixedSizeBinaryArray) -> pa.Array:
    """Return the intervals of a file in Arrow's own type.

    Raises:
        pa.ArrowInvalid: one has more months or days than Arrow holds.
    """
    words, valid = _words(array, pa.uint32(), 3), pc.invert(array.is_null())
    first = pc.multiply(pc.add(ordinals(len(array)), array.offset), 3)
    months, days, millis = (
        pc.if_else(valid, words.take(pc.add(first, place)), pa.scalar(0, pa.uint32())) for place in range(3)
    )
    low, high = months.cast(pa.int32()).cast(pa.int64()), days.cast(pa.int32()).cast(pa.int64())
    nanos = pc.multiply(millis.cast(pa.int64()), 10**6)
    return _of_words(ARROW_INTERVAL, [pc.bit_wise_or(low, pc.shift_left(high, 32)), nanos], valid)


def stored_intervals(array: pa.Array) -> pa.FixedSizeBinaryArray:
    """Return intervals, in Arrow's own type or their parts, as files have them.

    Raises:
        InvalidInputError: a file has no such interval; shows the first.
    """
    wrong = unstorable(array)
    if wrong:
        place, shown = wrong[0]
        raise InvalidInputError(
            f"The interval {shown}, in row {place + 1} of those written together, cannot be written: files "
            f"have whole milliseconds up to {_MOST_MILLISECONDS}, and no negative ones."
        )
    months, days, fine, per_millisecond = _counted(array)
    valid = pc.invert(array.is_null())
    zero = pa.scalar(0, pa.int64())
    words = [
        pc.if_else(valid, one.cast(pa.int64()), zero).cast(pa.uint32())
        for one in (months, days, pc.divide(fine, per_millisecond))
    ]
    return _of_words(STORED_INTERVAL, words, valid)


def _of_words(type_: pa.DataType, words: Sequence[pa.Array], valid: pa.BooleanArray) -> pa.Array:
    """Return an array of values that each consist of one of each of ``words``, in turn."""
    bits = None if pc.all(valid).as_py() else valid.buffers()[1]
    return pa.Array.from_buffers(type_, len(valid), [bits, in_turn(words)])


def unstorable(array: pa.Array) -> list[tuple[int, str]]:
    """Return the places of intervals, in either type, that files cannot hold, and DuckDB's texts of them."""
    months, days, fine, per_millisecond = _counted(array)
    whole = pc.multiply(pc.divide(fine, per_millisecond), per_millisecond)
    is_held = pc.and_(
        pc.and_(pc.greater_equal(months, 0), pc.greater_equal(days, 0)),
        pc.and_(
            pc.and_(pc.equal(whole, fine), pc.greater_equal(fine, 0)),
            pc.less_equal(pc.divide(fine, per_millisecond), _MOST_MILLISECONDS),
        ),
    )
    is_wrong = pc.and_(array.is_valid(), pc.invert(pc.fill_null(is_held, fill_value=False)))
    places = pc.indices_nonzero(is_wrong).to_pylist()
    return [(place, _shown(array[place])) for place in places]


def _counted(array: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array, int]:
    """Return months, days, and the rest in units of which there are so many in a millisecond."""
    if array.type == ARROW_INTERVAL:
        return *_numbers(array), 10**6
    months, days, microseconds = (array.field(place) for place in range(3))
    return months, days, microseconds, 10**3


def _shown(value: pa.Scalar) -> str:
    if value.type == ARROW_INTERVAL:
        months, days, nanos = value.as_py()
        if nanos % 1000:
            return repr(f"{months} months {days} days {nanos} nanoseconds")
        parts = (months, days, nanos // 1000)
    else:
        parts = tuple(value.as_py().values())
    if None in parts:
        return repr(value.as_py())
    return repr(format_interval(INTERVAL.pack(*parts)))
