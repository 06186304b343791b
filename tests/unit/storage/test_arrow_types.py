"""Intervals in Arrow's types and Parquet's: whatever lies before, between and behind them."""

from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.errors import (
    InvalidInputError,
    InvalidTypeError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.format.types.ducklake_types import (
    NOT_STORABLE,
    SCALARS,
    ScalarType,
    parse_type,
)
from airflow_provider_ducklake.lake.format.types.texts import INTERVAL
from airflow_provider_ducklake.lake.format.types.values import parse_physical
from airflow_provider_ducklake.lake.storage.arrow.arrow_types import (
    arrow_schema,
    arrow_type,
    check_and_cast,
    fields_of_arrow,
    from_physical,
)
from airflow_provider_ducklake.lake.storage.arrow.reshape import field_id
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

# (DuckLake type, Arrow type): each the other's
BOTH_WAYS = [
    ("boolean", pa.bool_()),
    ("int8", pa.int8()),
    ("int64", pa.int64()),
    ("uint8", pa.uint8()),
    ("uint64", pa.uint64()),
    ("float32", pa.float32()),
    ("float64", pa.float64()),
    ("decimal(38,10)", pa.decimal128(38, 10)),
    ("interval", pa.month_day_nano_interval()),
    ("date", pa.date32()),
    ("time", pa.time64("us")),
    ("timestamp_s", pa.timestamp("s")),
    ("timestamp_ms", pa.timestamp("ms")),
    ("timestamp", pa.timestamp("us")),
    ("timestamp_ns", pa.timestamp("ns")),
    ("timestamptz", pa.timestamp("us", "UTC")),
    ("varchar", pa.string()),
    ("blob", pa.binary()),
    ("uuid", pa.uuid()),
    ("int32[]", pa.list_(pa.int32())),
    ("struct(a int32, b varchar[])", pa.struct({"a": pa.int32(), "b": pa.list_(pa.string())})),
    ("map(varchar, int8)", pa.map_(pa.string(), pa.int8())),
]
# (Arrow type, DuckLake type it becomes)
ALSO_TAKEN = [
    (pa.float16(), "float32"),
    (pa.large_string(), "varchar"),
    (pa.string_view(), "varchar"),
    (pa.large_binary(), "blob"),
    (pa.binary_view(), "blob"),
    (pa.binary(16), "blob"),
    (pa.json_(), "json"),
    (pa.dictionary(pa.int8(), pa.string()), "varchar"),
    (pa.run_end_encoded(pa.int32(), pa.int64()), "int64"),
    (pa.date64(), "date"),
    (pa.time32("s"), "time"),
    (pa.time64("ns"), "time"),
    (pa.timestamp("ns", "Europe/Berlin"), "timestamptz"),
    (pa.decimal32(5, 2), "decimal(5,2)"),
    (pa.decimal64(15, 2), "decimal(15,2)"),
    (pa.decimal256(38, 0), "decimal(38,0)"),
    (pa.large_list(pa.int8()), "int8[]"),
    (pa.list_(pa.int8(), 3), "int8[]"),
    (pa.list_view(pa.int8()), "int8[]"),
    (pa.null(), "int32"),
    (pa.map_(pa.string(), pa.list_(pa.null())), "map(varchar, int32[])"),
]
REFUSED = [
    pa.duration("s"),
    pa.decimal256(39, 0),
    pa.decimal128(5, -2),
    pa.decimal128(2, 5),
    pa.struct([]),
    pa.struct([("a", pa.int8()), ("A", pa.int8())]),
    pa.list_(pa.duration("s")),
    pa.map_(pa.string(), pa.duration("us")),
    pa.sparse_union([pa.field("a", pa.int8())]),
]


@pytest.mark.parametrize(("text", "type_"), BOTH_WAYS)
def test_types_translate_both_ways(text, type_):
    assert arrow_type(parse_type(text)) == type_
    (field,) = fields_of_arrow(pa.schema({"c": type_}))
    assert field.type == parse_type(text)


@pytest.mark.parametrize(("type_", "text"), ALSO_TAKEN)
def test_other_arrow_types_become_their_plain_ones(type_, text):
    (field,) = fields_of_arrow(pa.schema({"c": type_}))

    assert field.type == parse_type(text)


@pytest.mark.parametrize("type_", REFUSED, ids=str)
def test_what_cannot_be_stored_is_refused_by_name(type_):
    with pytest.raises(InvalidTypeError, match="Column odd"):
        fields_of_arrow(pa.schema({"odd": type_}))


def test_every_storable_scalar_has_an_arrow_type():
    assert all(arrow_type(ScalarType(name)) for name in SCALARS.keys() - NOT_STORABLE)
    with pytest.raises(UnsupportedFeatureError, match="unknown"):
        arrow_type(ScalarType("unknown"))


def test_field_ids_lie_at_every_level():
    schema = new_columns({"a": "int64", "m": "map(varchar, struct(l int64[])[])"}, not_null=["a"])

    arrow = arrow_schema(schema)

    entry = arrow.field("m").type
    element = entry.item_field.type.value_field
    inner = element.type.field("l")
    found = [
        arrow.field("a"),
        arrow.field("m"),
        entry.key_field,
        entry.item_field,
        element,
        inner,
        inner.type.value_field,
    ]
    assert [field_id(field) for field in found] == [1, 2, 3, 4, 5, 6, 7]
    assert [field.nullable for field in arrow] == [False, True]
    assert arrow_schema(schema, field_ids=False).field("m").metadata is None


def cast(table: pa.Table, not_null: tuple[str, ...] = (), **types: str) -> pa.Table:
    return check_and_cast(table, new_columns(types, not_null=not_null), "main.t")


def test_columns_are_matched_by_name_whatever_their_case_and_order():
    table = pa.table({"B": ["x"], "a": pa.array([1], pa.int8())})

    rows = cast(table, A="int64", b="varchar")

    assert rows.schema == arrow_schema(new_columns({"A": "int64", "b": "varchar"}))
    assert rows.to_pylist() == [{"A": 1, "b": "x"}]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_times_in_a_finer_unit_go_into_a_column_of_seconds_if_no_value_changes(unit):
    per_second = {"ms": 10**3, "us": 10**6, "ns": 10**9}[unit]

    rows = cast(pa.table({"a": pa.array([2 * per_second], pa.timestamp(unit))}), a="timestamp_s")

    assert rows.column("a").cast(pa.int64()).to_pylist() == [2]
    with pytest.raises(SchemaMismatchError, match="would lose data"):
        cast(pa.table({"a": pa.array([per_second + 1], pa.timestamp(unit))}), a="timestamp_s")


def test_only_ascii_letters_ignore_case():
    with pytest.raises(SchemaMismatchError, match="column ü is missing"):
        cast(pa.table({"Ü": [1]}), ü="int64")


def test_every_difference_is_listed_at_once():
    table = pa.table(
        {"wide": [1], "extra": [1], "empty": pa.array([None], pa.int64()), "s": [{"x": 1, "z": 2}]}
    )

    with pytest.raises(SchemaMismatchError) as caught:
        cast(table, ("empty",), wide="int32", gone="varchar", empty="int64", s="struct(x varchar, y int64)")

    assert set(caught.value.differences) == {
        "column extra is not in the table",
        "column gone is missing",
        "column wide is int32 in the table; int64 does not fit without loss",
        "column empty is NOT NULL but has 1 null value(s)",
        "column s.x is varchar in the table; int64 does not fit without loss",
        "column s.y is missing",
        "column s.z is not in the table",
    }


def test_a_name_given_twice_is_a_difference():
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "A"])

    with pytest.raises(SchemaMismatchError, match="column a appears twice"):
        cast(table, a="int64")


# (Arrow values, DuckLake type of the column, what is stored)
TAKEN = [
    (pa.array([1], pa.int32()), "int64", 1),
    (pa.array([255], pa.uint8()), "int16", 255),
    (pa.array([1.5], pa.float16()), "float32", 1.5),
    (pa.array([1.5], pa.float32()), "float64", 1.5),
    (pa.array([Decimal("1.5")], pa.decimal128(3, 1)), "decimal(10,2)", Decimal("1.50")),
    (pa.array([Decimal("1.5")], pa.decimal256(3, 1)), "decimal(3,1)", Decimal("1.5")),
    (
        pa.array([1], pa.timestamp("ns", "Europe/Berlin")).cast(pa.timestamp("us", "Asia/Tokyo"), safe=False),
        "timestamptz",
        None,
    ),
    (pa.array(["x"], pa.large_string()), "varchar", "x"),
    (pa.array(["x"]).dictionary_encode(), "varchar", "x"),
    (pa.array(["{}"]), "json", "{}"),
    (pa.array([None], pa.null()), "int64", None),
    (pa.array([[None]], pa.list_(pa.null())), "int64[]", [None]),
    (pa.array([[None]], pa.list_(pa.null())), "uuid[]", [None]),
    (pa.array([None], pa.null()), "struct(a interval)", None),
    (pa.array([[1, None]], pa.large_list(pa.int8())), "int64[]", [1, None]),
    (pa.array([[9], [1, None]], pa.list_view(pa.int8()))[1:], "int64[]", [1, None]),
    (pa.array([[1, None]], pa.large_list_view(pa.int8())), "int64[]", [1, None]),
    (pa.array([[1, 2]], pa.list_(pa.int8(), 2)), "int64[]", [1, 2]),
    (pa.array([b"\0" * 16], pa.uuid().storage_type).cast(pa.uuid()), "uuid", UUID(int=0)),
    (pa.array([{"b": 1, "A": None}]), "struct(a varchar, b int64)", {"a": None, "b": 1}),
    (
        pa.array([[("k", {"x": 1})]], pa.map_(pa.string(), pa.struct({"x": pa.int8()}))),
        "map(varchar, struct(x int64))",
        [("k", {"x": 1})],
    ),
]


@pytest.mark.parametrize(("values", "type_", "stored"), TAKEN)
def test_values_that_fit_are_taken(values, type_, stored):
    rows = cast(pa.table({"c": values}), c=type_)

    rows.validate(full=True)
    assert stored is None or rows.column("c").to_pylist() == [stored]


# (Arrow values, DuckLake type they must not be squeezed into)
NOT_TAKEN = [
    (pa.array([1], pa.int64()), "int32"),
    (pa.array([1], pa.int64()), "float64"),
    (pa.array([1], pa.int64()), "varchar"),
    (pa.array([1], pa.uint64()), "int64"),
    (pa.array([1.0]), "float32"),
    (pa.array(["1"]), "int64"),
    (pa.array([Decimal("1.50")]), "decimal(3,1)"),
    (pa.array([0], pa.timestamp("us")), "timestamptz"),
    (pa.array([0], pa.timestamp("us", "UTC")), "timestamp"),
    (pa.array([0], pa.timestamp("us")), "date"),
    (pa.array([b"x"]), "varchar"),
    (pa.array(["x"]), "blob"),
    (pa.array([[1]]), "int64"),
    (pa.array([1]), "int64[]"),
    (pa.array([1], pa.duration("s")), "int64"),
]


@pytest.mark.parametrize(("values", "type_"), NOT_TAKEN)
def test_values_of_a_wider_or_other_type_are_refused(values, type_):
    with pytest.raises(SchemaMismatchError, match="column c"):
        cast(pa.table({"c": values}), c=type_)


@pytest.mark.parametrize("type_", ["timestamp", "timestamp_ms", "timestamp_s"])
def test_a_finer_time_unit_is_taken_unless_a_value_needs_it(type_):
    whole = pa.table({"c": pa.array([10**9], pa.timestamp("ns"))})
    broken = pa.table({"c": pa.array([10**9 + 1], pa.timestamp("ns"))})

    assert cast(whole, c=type_).num_rows == 1
    with pytest.raises(SchemaMismatchError, match="would lose data"):
        cast(broken, c=type_)


def test_slices_of_nested_columns_are_cast_in_place():
    type_ = pa.list_(pa.struct({"x": pa.int8(), "m": pa.map_(pa.string(), pa.int8())}))
    values = [[{"x": 1, "m": [("a", 1)]}], None, [], [None, {"x": 3, "m": None}], [{"x": 4, "m": []}]]
    table = pa.table({"c": pa.array(values, type_)}).slice(1, 3)

    rows = cast(table, c="struct(x int64, m map(varchar, int64))[]")

    rows.validate(full=True)
    assert rows.column("c").to_pylist() == values[1:4]


def test_a_table_without_rows_or_chunks_is_cast():
    empty = pa.table({"c": pa.chunked_array([], pa.int8())})

    assert cast(empty, c="int64").num_rows == 0


# (type, text as the catalog spells it, Python value)
PHYSICAL = [
    (
        "decimal(38,2)",
        "-999999999999999999999999999999999999.99",
        Decimal("-999999999999999999999999999999999999.99"),
    ),
    ("uuid", "00000000-0000-0000-0000-000000000001", UUID(int=1)),
    ("varchar", "é", "é"),
    ("boolean", "1", True),
]


@pytest.mark.parametrize(("type_", "text", "value"), PHYSICAL)
def test_physical_values_become_arrow_values(type_, text, value):
    parsed = parse_type(type_)

    assert from_physical(parsed, [parse_physical(parsed, text), None]).to_pylist() == [value, None]


# --- intervals: whatever lies before, between and behind them ---

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


NO_INTERVALS = [
    ((-1, 0, 0), "'-1 month'"),
    ((0, -2, 0), "'-2 days'"),
    ((0, 0, -1000), "'-00:00:00.001'"),
    ((0, 0, 1), "'00:00:00.000001'"),
    ((0, 0, 2**32 * 1000), "'1193:02:47.296'"),
    ((13, -1, 0), "'1 year 1 month -1 day'"),
]


@pytest.mark.parametrize(("value", "shown"), NO_INTERVALS)
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
