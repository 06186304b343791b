"""Shredded variants put together: groups in every place of a type, with and without a value."""

import math
import random
from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.format.schema import Column
from airflow_provider_ducklake.lake.format.snapshots import ColumnId
from airflow_provider_ducklake.lake.format.types.ducklake_types import parse_type
from airflow_provider_ducklake.lake.format.types.variant_bytes import (
    DamagedVariantError,
    check_variant,
    value_end,
)
from airflow_provider_ducklake.lake.format.types.variants import Instant, decode_variant, encode_variant
from airflow_provider_ducklake.lake.storage.nested_values.shredding import VARIANT, read_variants
from airflow_provider_ducklake.lake.storage.nested_values.variant_arrays import (
    VALUES,
    elements_of,
    objects_of,
)
from airflow_provider_ducklake.lake.storage.nested_values.variant_checks import are_sound
from airflow_provider_ducklake.lake.storage.parquet.reader import in_schema

METADATA = encode_variant({"a": 0, "b": 0, "c": 0})[0]
UUIDS = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([UUID(int=7).bytes], pa.binary(16)))


def encoded(value: object) -> bytes:
    return encode_variant(value)[1] if not isinstance(value, dict) else _object(value)


def _object(value: dict[str, object]) -> bytes:
    """Return an object whose ids are those of METADATA."""
    assert list(value) == ["c"]
    bytes_ = encode_variant(value["c"])[1]
    return bytes([2, 1, 2, 0, len(bytes_)]) + bytes_


def group(
    typed: pa.Array | None = None, value: list[bytes | None] | None = None, **more: pa.Array
) -> pa.Array:
    parts = dict(more)
    if value is not None:
        parts["value"] = pa.array(value, pa.binary())
    if typed is not None:
        parts["typed_value"] = typed
    return pa.StructArray.from_arrays(list(parts.values()), list(parts))


def shredded(typed: pa.Array, value: list[bytes | None] | None = None) -> pa.StructArray:
    count = len(typed)
    return group(typed, value or [None] * count, metadata=pa.array([METADATA] * count, pa.binary()))


def python_values(array: pa.StructArray) -> list[object]:
    rows = read_variants(array).to_pylist()
    return [row and decode_variant(row["metadata"], row["value"]) for row in rows]


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        (pa.array([True, False]), [True, False]),
        (pa.array([1, -1], pa.int8()), [1, -1]),
        (pa.array([1, -1], pa.int16()), [1, -1]),
        (pa.array([1, -1], pa.int32()), [1, -1]),
        (pa.array([2**40, -1], pa.int64()), [2**40, -1]),
        (pa.array([1.5, -0.25], pa.float32()), [1.5, -0.25]),
        (pa.array([1.1, -0.25], pa.float64()), [1.1, -0.25]),
        (pa.array([Decimal("1.25"), Decimal("-1.00")], pa.decimal128(9, 2)), [Decimal("1.25"), Decimal(-1)]),
        (pa.array([Decimal("1.25"), Decimal("-1.00")], pa.decimal128(18, 2)), [Decimal("1.25"), Decimal(-1)]),
        (pa.array([Decimal("1.25"), Decimal("-1.00")], pa.decimal128(38, 2)), [Decimal("1.25"), Decimal(-1)]),
        (pa.array([Decimal("1.25"), Decimal("-1.00")], pa.decimal32(9, 2)), [Decimal("1.25"), Decimal(-1)]),
        (pa.array([date(1969, 1, 1)]), [date(1969, 1, 1)]),
        (pa.array([time(1, 2, 3, 4)], pa.time64("us")), [time(1, 2, 3, 4)]),
        (pa.array([0], pa.timestamp("us")), [datetime.fromisoformat("1970-01-01")]),
        (pa.array([0], pa.timestamp("us", "UTC")), [datetime(1970, 1, 1, tzinfo=UTC)]),
        (pa.array([5], pa.timestamp("ns")), [Instant(5)]),
        (pa.array([5], pa.timestamp("ns", "UTC")), [Instant(5, zoned=True)]),
        (pa.array(["", "é" * 20, "x" * 63]), ["", "é" * 20, "x" * 63]),
        (pa.array(["x" * 64, "y" * 70_000]), ["x" * 64, "y" * 70_000]),
        (pa.array(["x", "y" * 64]), ["x", "y" * 64]),
        (pa.array([b"", b"\x00\xff"]), [b"", b"\x00\xff"]),
        (UUIDS, [UUID(int=7)]),
    ],
    ids=lambda one: str(one.type) if isinstance(one, pa.Array) else "",
)
def test_scalars_of_each_type(typed, value):
    assert python_values(shredded(typed)) == value
    assert python_values(shredded(typed).slice(len(value) - 1)) == value[-1:]


def test_values_of_other_types_lie_beside_the_shredded_ones():
    typed = pa.array([1, None, None, None], pa.int64())

    assert python_values(shredded(typed, [None, encoded("x"), b"\x00", None])) == [1, "x", None, None]


@pytest.mark.parametrize("optional", [True, False])
def test_objects_miss_fields_have_nulls_and_others_besides(optional):
    a = group(pa.array([1, None, None, 4], pa.int64()), [None, None, b"\x00", None])
    b = group(pa.array(["x", None, "z", "w"]), [None] * 4)
    if optional:  # a group that is NULL, as DuckDB 1.5.5 may write a field that is missing
        a = pa.StructArray.from_arrays(
            a.flatten(), fields=list(a.type), mask=pa.array([False, True, False, False])
        )
    typed = pa.StructArray.from_arrays([a, b], ["a", "b"])
    rest = [None, None, None, encoded({"c": [1]})]

    assert python_values(shredded(typed, rest)) == [
        {"a": 1, "b": "x"},
        {},
        {"a": None, "b": "z"},
        {"a": 4, "b": "w", "c": [1]},
    ]


def test_an_object_may_be_another_value():
    typed = pa.array([{"a": {"value": None, "typed_value": 5}}, None], _object_type(pa.int64()))

    assert python_values(shredded(typed, [None, encoded([1])])) == [{"a": 5}, [1]]


def _object_type(type_: pa.DataType) -> pa.StructType:
    return pa.struct([("a", pa.struct([("value", pa.binary()), ("typed_value", type_)]))])


@pytest.mark.parametrize("list_type", [pa.list_, pa.large_list])
def test_arrays_are_null_empty_and_hold_nulls(list_type):
    element = pa.struct([("value", pa.binary()), ("typed_value", pa.int32())])
    one, null, missing = (
        {"value": None, "typed_value": 1},
        {"value": b"\x00", "typed_value": None},
        {"value": None, "typed_value": None},
    )
    typed = pa.array([[one, null], [], None, [missing, None, one] * 100], list_type(element))
    array = shredded(typed, [None, None, encoded("x"), None])

    assert python_values(array) == [[1, None], [], "x", [None, None, 1] * 100]
    assert python_values(array.slice(2)) == ["x", [None, None, 1] * 100]


def test_objects_and_arrays_lie_in_each_other():
    inner = group(pa.array(["y" * 300, None]), [None, encoded(5)])
    objects = pa.StructArray.from_arrays([inner], ["b"])
    lists = pa.ListArray.from_arrays([0, 1, 2], group(objects, [None, None]))
    typed = pa.StructArray.from_arrays([group(lists, [None, None])], ["a"])

    assert python_values(shredded(typed)) == [{"a": [{"b": "y" * 300}]}, {"a": [{"b": 5}]}]


def test_more_fields_than_a_byte_counts():
    names = [f"n{number}" for number in range(300)]
    typed = pa.StructArray.from_arrays([group(pa.array([1, None]), [None, None]) for _ in names], names)
    metadata = pa.array([encode_variant(dict.fromkeys(names))[0]] * 2)

    assert python_values(group(typed, [None, None], metadata=metadata)) == [dict.fromkeys(names, 1), {}]


def test_ids_of_names_are_those_of_each_rows_metadata():
    typed = pa.array([{"a": {"value": None, "typed_value": 5}}] * 2, _object_type(pa.int64()))
    unsorted = bytes.fromhex("010200010262") + b"a"

    array = group(typed, [None, None], metadata=pa.array([METADATA, unsorted]))

    assert python_values(array) == [{"a": 5}, {"a": 5}]


def test_no_rows_and_null_rows():
    typed = pa.array([], _object_type(pa.list_(pa.struct([("typed_value", pa.int64())]))))
    assert python_values(shredded(typed)) == []
    full = shredded(pa.array([1, 2]))
    masked = pa.StructArray.from_arrays(full.flatten(), fields=list(full.type), mask=pa.array([True, False]))
    assert python_values(masked) == [None, 2]


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (shredded(pa.array([1], pa.uint32())), "shredded as uint32"),
        (shredded(pa.array([1], pa.time64("ns"))), "shredded as time64"),
        (shredded(pa.array([1], pa.timestamp("ms"))), "shredded as timestamp"),
        (shredded(pa.array([b"1234"], pa.binary(4))), "shredded as fixed_size_binary"),
        (shredded(pa.array([1]), [b"\x00"]), "in one piece, too"),
        (shredded(pa.array([{"a": {"typed_value": 1}}], _object_type(pa.int64())), [b"\x00"]), "no object"),
        (shredded(pa.array([{"z": {"value": b"\x00"}}])), "lacks the name 'z'"),
        (shredded(pa.array([{"a": 1}])), "instead of a group"),
        (shredded(pa.array([[1]])), "instead of a group"),
        (shredded(pa.array([{"a": {"other": 1}}])), "has a field other"),
        (group(pa.array([1]), [None]), "no metadata"),
        (group(pa.array([1]), [None], metadata=pa.array([None], pa.binary())), "has no metadata"),
        (group(pa.array([{"a": {"value": b"\x00"}}]), [None], metadata=pa.array([b"\x01\x05"])), "cut off"),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_are_refused_by_name(array, words):
    column = Column(ColumnId(1), "doc", parse_type("variant"))
    field = pa.field("doc", array.type, metadata={"PARQUET:field_id": "1"})
    rows = pa.Table.from_arrays([array], schema=pa.schema([field]))

    with pytest.raises(UnsupportedFeatureError, match=rf"file\.parquet: column doc .*{words}"):
        in_schema(rows, (column,), "file.parquet")


def test_variants_in_other_columns():
    """Lists, structs and maps of variants, which other writers than DuckDB make."""
    variants = shredded(pa.array([1, None, 3]), [None, encoded("x"), None])
    lists = pa.ListArray.from_arrays([0, 2, 3], variants)
    maps = pa.MapArray.from_arrays([0, 1, 3], pa.array(["k", "l", "m"]), variants)
    structs = pa.StructArray.from_arrays([variants.slice(1)], ["v"])
    rows, columns = _identified({"l": lists, "m": maps, "s": structs}, ("variant[]", "map(varchar, variant)",
                                                                      "struct(v variant)"))  # fmt: skip
    found = in_schema(rows, columns, "file.parquet")

    assert found.schema.field("l").type.value_type == VARIANT
    decode = lambda one: one and decode_variant(one["metadata"], one["value"])  # noqa: E731
    assert [[decode(one) for one in row] for row in found["l"].to_pylist()] == [[1, "x"], [3]]
    assert [[(k, decode(v)) for k, v in row] for row in found["m"].to_pylist()] == [
        [("k", 1)],
        [("l", "x"), ("m", 3)],
    ]
    assert [decode(row["v"]) for row in found["s"].to_pylist()] == ["x", 3]


def _identified(arrays: dict[str, pa.Array], types: tuple[str, ...]) -> tuple[pa.Table, tuple[Column, ...]]:
    marked = lambda field, id_: field.with_metadata({"PARQUET:field_id": str(id_)})  # noqa: E731
    lists, maps, structs = arrays.values()
    of = {
        "l": pa.list_(marked(lists.type.value_field, 2)),
        "m": pa.map_(marked(maps.type.key_field, 4), marked(maps.type.item_field, 5)),
        "s": pa.struct([marked(structs.type.field(0), 7)]),
    }
    fields = [marked(pa.field(name, of[name]), id_) for name, id_ in zip(of, (1, 3, 6), strict=True)]
    cast = [array.cast(field.type) for array, field in zip(arrays.values(), fields, strict=True)]
    rows = pa.Table.from_arrays(cast, schema=pa.schema(fields))
    variant = parse_type("variant")
    children = (
        (Column(ColumnId(2), "element", variant),),
        (Column(ColumnId(4), "key", parse_type("varchar")), Column(ColumnId(5), "value", variant)),
        (Column(ColumnId(7), "v", variant),),
    )
    columns = tuple(
        Column(ColumnId(id_), name, parse_type(type_), children=below)
        for name, id_, type_, below in zip(of, (1, 3, 6), types, children, strict=True)
    )
    return rows, columns


def test_changed_bytes_are_refused_or_another_value():
    draw = random.Random(43)
    outcomes = {"value": 0, "refused": 0}
    rest = encoded({"c": [1, "x"]})
    for _ in range(3000):
        metadata, value = bytearray(METADATA), bytearray(rest)
        part = draw.choice([metadata, value])
        part[draw.randrange(len(part))] = draw.randrange(256)
        typed = pa.array([{"a": {"value": None, "typed_value": 5}}], _object_type(pa.int64()))
        array = group(typed, [bytes(value)], metadata=pa.array([bytes(metadata)], pa.binary()))
        try:
            found = read_variants(array).to_pylist()[0]
            decode_variant(found["metadata"], found["value"])
        except (pa.ArrowInvalid, ValueError):
            outcomes["refused"] += 1
        else:
            outcomes["value"] += 1
    assert min(outcomes.values()) > 200


# --- variants that Arrow takes apart, beside the same that Python decodes ---

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
