"""Variants that are shredded are the same when they are put together again."""

import random
from datetime import date, time
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from airflow_provider_ducklake.spec.types.variants import decode_variant
from airflow_provider_ducklake.storage.parquet.shredding import WHOLE, shape_of, shredded
from airflow_provider_ducklake.storage.parquet.variants import read_variants
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
