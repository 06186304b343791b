"""Intervals in Arrow's types and Parquet's: whatever lies before, between and behind them."""

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.format.types.texts import INTERVAL
from airflow_provider_ducklake.lake.storage.arrow.scalars import (
    ARROW_INTERVAL,
    INTERVAL_PARTS,
    STORED_INTERVAL,
    arrow_of_parts,
    from_stored,
    interval_array,
    parts_of_arrow,
    stored_intervals,
    unstorable,
)

ROWS = [
    (1, 2, 3_000),
    None,
    (2**31 - 1, 2**31 - 1, (2**32 - 1) * 1000),
    (0, 0, 0),
    None,
    (14, 0, 86_400 * 10**6),
]
BYTES = [
    None if one is None else b"".join(n.to_bytes(4, "little") for n in (*one[:2], one[2] // 1000))
    for one in ROWS
]
WHOLE = interval_array([None if one is None else INTERVAL.pack(*one) for one in ROWS])
SLICES = [slice(None), slice(1, 5), slice(2, 4), slice(1, 2), slice(3, 3)]


@pytest.mark.parametrize("part", SLICES)
def test_every_form_holds_the_same_intervals(part):
    values = WHOLE[part]
    stored = stored_intervals(values)
    parts = parts_of_arrow(values)

    assert stored.type == STORED_INTERVAL
    assert stored.to_pylist() == BYTES[part]
    assert pa.array(BYTES, STORED_INTERVAL)[part].equals(stored)
    assert from_stored(pa.array(BYTES, STORED_INTERVAL)[part]).equals(values)
    assert parts.type == INTERVAL_PARTS
    assert [None if one is None else tuple(one.values()) for one in parts.to_pylist()] == ROWS[part]
    assert parts_of_arrow(WHOLE)[part].equals(parts)
    assert stored_intervals(parts_of_arrow(WHOLE)[part]).equals(stored)
    assert arrow_of_parts(parts).equals(values)
    for found in (stored, parts, from_stored(stored)):
        found.validate(full=True)


def test_what_lies_below_a_null_is_nobody_s():
    dirty = pa.Array.from_buffers(
        STORED_INTERVAL, 2, [pa.py_buffer(b"\x02"), pa.py_buffer(b"\xff" * 12 + b"\x01" + b"\0" * 11)]
    )

    assert from_stored(dirty).to_pylist() == [None, pa.MonthDayNano([1, 0, 0])]


REFUSED = [
    ((-1, 0, 0), "'-1 month'"),
    ((0, -2, 0), "'-2 days'"),
    ((0, 0, -1000), "'-00:00:00.001'"),
    ((0, 0, 1), "'00:00:00.000001'"),
    ((0, 0, 2**32 * 1000), "'1193:02:47.296'"),
    ((13, -1, 0), "'1 year 1 month -1 day'"),
]


@pytest.mark.parametrize(("value", "shown"), REFUSED)
def test_what_files_do_not_hold_is_refused_with_its_row(value, shown):
    values = interval_array([None, INTERVAL.pack(1, 1, 1000), INTERVAL.pack(*value)])

    for array in (values, parts_of_arrow(values)):
        assert unstorable(array) == [(2, shown)]
        assert unstorable(array[1:]) == [(1, shown)]
        assert unstorable(array[:2]) == []
        with pytest.raises(InvalidInputError, match="row 3 of those written together"):
            stored_intervals(array)


def test_nanoseconds_and_parts_that_are_null_are_refused():
    assert unstorable(pa.array([pa.MonthDayNano([0, 0, 1])])) == [(0, "'0 months 0 days 1 nanoseconds'")]
    parts = pa.array([{"months": None, "days": 1, "microseconds": 0}], INTERVAL_PARTS)
    assert unstorable(parts) == [(0, "{'months': None, 'days': 1, 'microseconds': 0}")]


def test_more_than_arrow_holds_is_no_interval_of_it():
    with pytest.raises(ValueError, match="Arrow counts nanoseconds, and has none of 3000000:00:00"):
        interval_array([INTERVAL.pack(0, 0, 3_000_000 * 3600 * 10**6)])
    with pytest.raises(pa.ArrowInvalid):
        from_stored(pa.array([b"\xff" * 12], STORED_INTERVAL))
    assert interval_array([]).type == ARROW_INTERVAL
