"""Variants that are shredded are the same when they are put together again."""

import random
from datetime import date, time
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.spec.types.variants import decode_variant
from airflow_provider_ducklake.lake.storage.parquet.shredding import (
    WHOLE,
    Shape,
    read_variants,
    shape_of,
    shredded,
)
from airflow_provider_ducklake.lake.storage.parquet.variant_arrays import VALUES
from tests.unit.storage.test_variant_parts import NAMES, arrays, made


def put_together(metadata, groups):
    fields = [pa.field("metadata", pa.binary()), *groups.type]
    rows = read_variants(pa.StructArray.from_arrays([metadata, *groups.flatten()], fields=fields))
    return [row and decode_variant(row["metadata"], row["value"]) for row in rows.to_pylist()]


KINDS = (
    lambda rng: rng.randrange(-(2**40), 2**40),
    lambda rng: rng.choice((1, 300, Decimal("2.50"), Decimal("-0.125"))),
    lambda rng: rng.random(),
    lambda rng: "x" * rng.randrange(100),
    lambda rng: rng.random() < 0.5,
    lambda rng: date.fromordinal(rng.randrange(1, 700_000)),
    lambda rng: bytes(rng.randrange(5)),
    lambda rng: rng.choice((1, "x")),  # which stays in one piece
)


def template(rng: random.Random, depth: int, names=NAMES, kinds=KINDS):
    """Return what makes values of one shape."""
    chance = rng.random()
    if depth and chance < 0.4:
        fields = {
            name: template(rng, depth - 1, names, kinds) for name in rng.sample(names, rng.randrange(1, 4))
        }
        return lambda rng: {name: make(rng) for name, make in fields.items() if rng.random() < 0.8}
    if depth and chance < 0.6:
        element = template(rng, depth - 1, names, kinds)
        return lambda rng: [element(rng) for _ in range(rng.randrange(4))]
    scalar = rng.choice(kinds)
    return lambda rng: None if rng.random() < 0.1 else scalar(rng)


def test_shredded_variants_come_back_whatever_follows(seed):
    rng = random.Random(seed)
    whole = 0
    for _ in range(60):
        make = template(rng, 3)
        found = [make(rng) for _ in range(40)]
        metadata, values = arrays(found)
        shape = shape_of(metadata, values)
        whole += shape == WHOLE

        assert put_together(metadata, shredded(metadata, values, shape)) == found
        others = found[:5] + [made(rng) for _ in range(20)]  # of a later row group
        metadata, values = arrays(others)
        assert put_together(metadata, shredded(metadata, values, shape)) == others
    assert whole < 30


def test_what_has_no_common_shape_stays_whole(seed):
    rng = random.Random(seed)
    found = [1, "x", {"a": 1}, [1], *(made(rng) for _ in range(50))]
    metadata, values = arrays(found)

    assert shape_of(metadata, values) == WHOLE
    assert shape_of(*arrays([{str(n): 1} for n in range(65)])) == WHOLE
    assert shape_of(*arrays([None, None])) == WHOLE
    assert shape_of(*arrays([{}, {}])) == WHOLE
    assert shape_of(*arrays([{"b": {"a": 1, "A": 2}}])).fields == (("b", WHOLE),)
    assert {shape_of(*arrays([{name: 1}])) == WHOLE for name in ("", "a\0b")} == {True}
    assert put_together(metadata, shredded(metadata, values, WHOLE)) == found


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([1, -5], pa.int8()),
        ([1, 70_000], pa.int32()),
        ([1, Decimal("2.5")], pa.decimal128(9, 1)),
        ([Decimal("2.5"), Decimal("0.125")], pa.decimal128(18, 3)),
        ([2**62, Decimal("0.125")], pa.decimal128(38, 3)),
        ([Decimal("9" * 30 + ".1"), Decimal("0.1234567890123")], None),
        ([1, 1.5], None),
        ([UUID(int=1)], None),
        ([time(1, 2)], None),
    ],
)
def test_numbers_of_one_kind_share_a_type(values, type_):
    assert shape_of(*arrays(values)).scalar == type_


def test_objects_of_later_rows_are_shredded_as_far_as_they_go():
    """An object in one piece where a file has fields apart is damage to other readers."""
    first = [{"a": 1, "b": {"c": "x"}}]
    shape = shape_of(*arrays(first))
    later = [
        {"a": 2},
        {"z": 1},
        {"a": 3, "z": {"y": [1]}},
        {"b": {"c": "y", "d": None}},
        {"b": {"": 1}, "A": 2},
        {},
        None,
        [{"a": 1}],
        {str(n): n for n in range(70)} | {"a": 4},
    ]
    metadata, values = arrays(later)

    groups = shredded(metadata, values, shape)

    assert put_together(metadata, groups) == later
    is_object = [isinstance(one, dict) for one in later]
    assert groups.field("typed_value").is_valid().to_pylist() == is_object
    rest = zip(later, groups.field("value").to_pylist(), strict=True)
    assert [value is None for _, value in rest] == [
        isinstance(one, dict) and one.keys() <= {"a", "b"} for one in later
    ]


def test_decimals_with_a_digit_too_many_get_a_wider_type():
    """Four bytes hold ten digits, of which a decimal of four bytes may have nine; DuckDB reads them."""
    metadata = pa.array([b"\x11\x00\x00"] * 2, pa.binary())
    value = bytes([8 << 2, 1]) + (2**31 - 1).to_bytes(4, "little")
    values = pa.array([value, bytes([8 << 2, 1]) + bytes(4)], VALUES)

    shape = shape_of(metadata, values)

    assert shape.scalar == pa.decimal128(18, 1)
    assert put_together(metadata, shredded(metadata, values, shape)) == [Decimal("214748364.7"), Decimal(0)]


def test_of_large_documents_only_some_places_are_looked_at():
    """All 64,000 would take minutes."""
    document = {f"a{n}": {f"b{m}": {f"c{k}": 1 for k in range(40)} for m in range(40)} for n in range(40)}
    shape = shape_of(*arrays([{"a": 1, "b": document}]))

    assert shape.fields[0] == ("a", Shape(scalar=pa.int8()))
    assert shape.leaves <= 64
