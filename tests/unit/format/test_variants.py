"""Variants as bytes: encoded as the standard says, decoded to the same values, refused where damaged."""

import random
from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.format.types.variant_bytes import (
    DamagedVariantError,
    array_bytes,
    check_variant,
    write_names,
)
from airflow_provider_ducklake.lake.format.types.variants import Instant, decode_variant, encode_variant

names = st.text(st.characters(codec="utf-8"), max_size=4)
times = st.one_of(
    st.dates(),
    st.times(),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
    st.builds(Instant, st.integers(-(2**63), 2**63 - 1), st.booleans()),
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**38) + 1, 10**38 - 1),
    st.floats(allow_nan=False),
    st.decimals(-(10**12), 10**12, places=9),
    st.text(st.characters(codec="utf-8"), max_size=80),
    st.binary(max_size=80),
    st.uuids(),
    times,
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(names, inner, max_size=5),
    max_leaves=20,
)


@given(values)
def test_a_value_is_what_it_was(value):
    assert decode_variant(*encode_variant(value)) == value


@pytest.mark.parametrize("count", [0, 1, 255, 256, 300, 70_000])
def test_large_arrays_and_objects_are_what_they_were(count):
    assert decode_variant(*encode_variant([1] * count)) == [1] * count
    value = {f"field {n}": n for n in range(count)}
    assert decode_variant(*encode_variant(value)) == value


@pytest.mark.parametrize(
    ("value", "bytes_"),
    [
        (None, "00"),
        (True, "04"),
        (False, "08"),
        (-1, "0cff"),
        (128, "108000"),
        (2**31, "180000008000000000"),
        (10**18 * 10, "2800" + (10**19).to_bytes(16, "little").hex()),
        (1.5, "1c000000000000f83f"),
        (Decimal("1.25"), "20027d000000"),
        (Decimal("-1E+3"), "200018fcffff"),
        (date(1970, 1, 2), "2c01000000"),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "3040420f0000000000"),
        (datetime.fromisoformat("1970-01-01 00:00:01"), "3440420f0000000000"),
        (b"a", "3c0100000061"),
        ("a", "0561"),
        ("a" * 64, "4040000000" + "61" * 64),
        (time(0, 0, 1), "4440420f0000000000"),
        (Instant(5, zoned=True), "480500000000000000"),
        (Instant(5), "4c0500000000000000"),
        (UUID(int=1), "50" + "00" * 15 + "01"),
        ([1, "a"], "03020002040c010561"),
        ({"b": 1, "a": None}, "0202000100010300" + "0c01"),
    ],
)  # fmt: skip
def test_values_have_the_narrowest_form(value, bytes_):
    assert encode_variant(value)[1].hex() == bytes_


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), "of type object, which no variant holds"),
        ({1: 2}, "1 is not a string"),
        (10**38, "more than 38 digits"),
        (Decimal("NaN"), "not a number"),
        (time(1, tzinfo=UTC), "a time with a zone"),
        (Instant(2**63), "does not fit TIMESTAMP_NS"),
    ],
)
def test_what_no_variant_holds_is_refused(value, words):
    with pytest.raises(ValueError, match=words):
        encode_variant(value)


def test_levels_are_bounded_both_ways():
    deepest = value = []
    for _ in range(200):
        value = [value]
    assert decode_variant(*encode_variant(value)) == value
    with pytest.raises(ValueError, match="more than 200 levels"):
        encode_variant([value])
    bytes_ = encode_variant(deepest)[1]
    for _ in range(201):
        bytes_ = array_bytes([bytes_])
    with pytest.raises(DamagedVariantError, match="more than 200 levels"):
        decode_variant(b"\x11\x00\x00", bytes_)


def test_values_that_lie_in_each_other_are_not_followed():
    """An array of 200 elements that are all the same bytes, ten times over, would be 200**10 values."""
    bytes_ = b"\x00"
    for _ in range(10):
        head = bytes([0x03 | 1 << 2, 200])
        bytes_ = head + bytes(2 * 200) + len(bytes_).to_bytes(2, "little") + bytes_

    with pytest.raises(DamagedVariantError, match="lie in each other"):
        check_variant(b"\x11\x00\x00", bytes_)


@pytest.mark.parametrize(
    ("metadata", "value", "words"),
    [
        ("", "00", "version 1"),
        ("02", "00", "version 1"),
        ("01", "00", "cut off"),
        ("0101", "00", "cut off"),
        ("010105ff61", "00", "cut off, or damaged"),
        ("0101000161", "", "cut off"),
        ("0101000161", "0c", "cut off"),
        ("0101000161", "0000", "bytes follow"),
        ("0101000161", "54", "type 21"),
        ("0101000161", "4005000000", "cut off"),
        ("0101000161", "05ff", "not UTF-8"),
        ("01010001ff", "00", "not UTF-8"),
        ("0101000161", "020101000100", "whose name its metadata lacks"),
        ("0101000161", "020100050100", "outside"),
        ("0101000161", "0302000001", "cut off"),
        ("0101000161", "030205000100", "outside"),
        ("0101000161", "07ffffffff", "cut off"),
        ("0101000161", "202700000000", "scale 39"),
        ("0101000161", "44ffffffffffffffff", "time of -1"),
    ],
)
def test_damaged_bytes_are_refused(metadata, value, words):
    with pytest.raises(DamagedVariantError, match=words):
        decode_variant(bytes.fromhex(metadata), bytes.fromhex(value))


def test_changed_bytes_are_refused_or_another_value():
    draw = random.Random(41)
    documents = [{"a": [1, "text", {"b": None}], "c": 1.5}, ["x" * 70, date(2020, 1, 1), Decimal("1.5")]]
    outcomes = {"value": 0, "refused": 0}
    for _ in range(20_000):
        metadata, value = (bytearray(part) for part in encode_variant(draw.choice(documents)))
        part = draw.choice([metadata, value])
        part[draw.randrange(len(part))] = draw.randrange(256)
        cut = draw.randrange(len(part) + 1) if draw.random() < 0.2 else len(part)
        del part[cut:]
        try:
            decode_variant(bytes(metadata), bytes(value))
        except DamagedVariantError:
            outcomes["refused"] += 1
        else:
            outcomes["value"] += 1
    assert min(outcomes.values()) > 1000


def test_metadata_have_each_name_once_and_in_order():
    assert write_names(["b", "a", "b"]) == bytes.fromhex("1102000102") + b"ab"
