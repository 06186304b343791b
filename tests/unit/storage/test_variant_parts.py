"""Variants that Arrow takes apart, beside the same that Python decodes."""

import math
import random
from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.format.types.variant_bytes import (
    DamagedVariantError,
    check_variant,
    value_end,
)
from airflow_provider_ducklake.lake.format.types.variants import Instant, decode_variant, encode_variant
from airflow_provider_ducklake.lake.storage.nested_values.variant_arrays import (
    VALUES,
    elements_of,
    objects_of,
)
from airflow_provider_ducklake.lake.storage.nested_values.variant_checks import are_sound

SCALARS = (
    True, False, 0, -1, 127, 300, -70_000, 2**40, 1.5, -math.inf, Decimal("1.25"), Decimal("-123456789.5"),
    Decimal("9" * 30 + ".5"), "", "a", "é" * 31, "é" * 32, "x" * 300, b"", b"\0\xff" * 40, date(1969, 12, 31),
    time(1, 2, 3, 4), datetime.fromisoformat("2024-01-01 01:00"), datetime(1, 1, 1, tzinfo=UTC), Instant(5),
    Instant(-5, zoned=True), UUID(int=5),
)  # fmt: skip
NAMES = ("a", "b", "", "é", "a.b", "x" * 300)


def made(rng: random.Random, depth: int = 2):
    chance = rng.random()
    if depth and chance < 0.4:
        names = rng.sample(NAMES, rng.randrange(len(NAMES)))
        return {name: made(rng, depth - 1) for name in names}
    if depth and chance < 0.5:
        return [made(rng, depth - 1) for _ in range(rng.choice((0, 1, 3, 300)))]
    return None if chance < 0.55 else rng.choice(SCALARS)


def arrays(found):
    metadata, values = zip(*map(encode_variant, found), strict=True)
    return pa.array(metadata, pa.binary()), pa.array(values, VALUES)


def decoded(metadata, values):
    pairs = zip(metadata.to_pylist(), values.to_pylist(), strict=True)
    return [None if value is None else decode_variant(name, value[: end_of(value)]) for name, value in pairs]


def end_of(value):
    return value_end(value, 0)


@pytest.fixture
def found(seed):
    rng = random.Random(seed)
    return [made(rng) for _ in range(150)]


def test_fields_are_those_of_the_objects(found):
    found = [one for one in found if isinstance(one, dict)]
    metadata, values = arrays(found)

    objects = objects_of(metadata, values)

    for name in (*NAMES, "none"):
        assert decoded(metadata, objects.field(name)) == [one.get(name) for one in found]


def test_elements_are_those_of_the_arrays(found):
    found = [one for one in found if isinstance(one, list)]
    metadata, values = arrays(found)

    counts, elements = elements_of(values)

    assert counts.to_pylist() == [len(one) for one in found]
    names = metadata.take(pa.array([row for row, one in enumerate(found) for _ in one], pa.int64()))
    assert decoded(names, elements) == [below for one in found for below in one]


def test_what_is_sound_python_finds_sound(found, seed):
    """One byte of a variant is changed, or its end cut off: whatever passes here must pass there."""
    rng = random.Random(seed)
    passed = {True: 0, False: 0}
    for one in found * 2:
        metadata, value = encode_variant(one)
        damaged = bytearray(value)
        damaged[rng.randrange(len(value))] ^= 1 << rng.randrange(8)
        given = bytes(damaged[: rng.choice((len(value), len(value), rng.randrange(len(value) + 1)))])
        sound = are_sound(pa.array([metadata], pa.binary()), pa.array([given], VALUES))
        passed[sound] += 1
        if sound:
            check_variant(metadata, given)
    assert min(passed.values()) > 20

    metadata, values = arrays(found)
    assert are_sound(metadata, values)
    assert not are_sound(metadata, pa.array([*values.to_pylist()[:-1], b"\x00\x00"], VALUES))


NAME_A = b"\x11\x01\x00\x01a"


@pytest.mark.parametrize(
    ("metadata", "value", "problem"),
    [
        (b"\x11\x00\x00", bytes([8 << 2, 39]) + bytes(4), "scale 39"),
        (b"\x11\x00\x00", bytes([10 << 2, 0]) + (10**38).to_bytes(16, "little"), "more than 38 digits"),
        (b"\x11\x00\x00", bytes([17 << 2]) + (86_400 * 10**6).to_bytes(8, "little"), "time of"),
        (b"\x11\x00\x00", bytes([17 << 2]) + b"\xff" * 8, "time of -1"),
        (b"\x11\x00\x00", bytes([30 << 2]), "type 30"),
        (NAME_A, bytes([2, 2, 0, 0, 0, 2, 4]) + b"\x0c\x01\x0c\x02", "two fields of one name"),
        (b"\x11\x00\x00", bytes([3, 2, 0, 0, 2]) + b"\x0c\x01", "lie in each other"),
        (
            b"\x11\x02\x00\x01\x02ab",
            bytes([2, 2, 0, 1, 0, 5, 7]) + bytes([3, 1, 0, 2]) + b"\x00" + b"\x0c\x01",
            "lie in each other",
        ),
        (NAME_A, bytes([3, 2, 0, 8, 10, 2, 1, 0, 3, 1, 0, 0]) + b"\x0c\x01\x00", "outside"),
    ],
)
def test_what_no_variant_has_is_found(metadata, value, problem):
    assert not are_sound(pa.array([metadata], pa.binary()), pa.array([value], VALUES))
    with pytest.raises(DamagedVariantError, match=problem):
        check_variant(metadata, value)


def test_an_array_that_claims_billions_of_elements_takes_no_memory():
    value = bytes([0x13]) + (2**32 - 1).to_bytes(4, "little") + bytes(20)
    with pytest.raises(DamagedVariantError, match="cut off"):
        elements_of(pa.array([value], VALUES))


def test_documents_with_thousands_of_places_are_left_to_python():
    document = {f"a{n}": {f"b{m}": m for m in range(40)} for n in range(40)}
    metadata, value = encode_variant(document)

    assert not are_sound(pa.array([metadata], pa.binary()), pa.array([value], VALUES))  # which took seconds
    check_variant(metadata, value)
