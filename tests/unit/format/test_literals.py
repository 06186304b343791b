"""Texts of nested values as the reference stores them, and defaults."""

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.format import defaults
from airflow_provider_ducklake.lake.format.defaults import SqlExpression, default_of
from airflow_provider_ducklake.lake.format.schema import Default
from airflow_provider_ducklake.lake.format.types.ducklake_types import parse_type
from airflow_provider_ducklake.lake.format.types.literals import format_literal, parse_literal


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ("struct(d date)", "{'d': CAST('2020-01-01' AS DATE)}", {"d": 18262}),
        ("struct(d date)", "{'d': '2020-01-01'::DATE}", {"d": 18262}),
        ("struct(d date)", "{'d': CAST('0044-03-15 (BC)' AS VARCHAR)}", {"d": -735160}),
        ("struct(d float64)", "{'d': CAST('-0.0' AS DOUBLE PRECISION)}", {"d": -0.0}),
        ("struct(t time)", "{'t': CAST('00:00:01' AS TIME)}", {"t": 10**6}),
        ("struct(b blob, i int64)", r"{'b': CAST('\xDEa' AS BLOB), 'i': 1}", {"b": b"\xdea", "i": 1}),
        ("struct(s varchar)", "{'s': 'it''s, }'}", {"s": b"it's, }"}),
        ("struct(s varchar)", r"{'s': 'a\b'}", {"s": rb"a\b"}),
        ("struct(s varchar)", r"{'s': '\'}", {"s": b"\\"}),
        ("struct(s varchar)", "{'s': CONCAT('m', chr(0), 'it''s')}", {"s": b"m\0it's"}),
        ("struct(s varchar)", "{'s': 'CAST('}", {"s": b"CAST("}),
        ('struct("it\'s" struct(a int64))', "{'it''s': {'a': 1}}", {"it's": {"a": 1}}),
        ("struct(s varchar[])", r"{'s': ['it\'s', 'a]']}", {"s": [b"it's", b"a]"]}),
        ("struct(s varchar)[]", r"[{'s': 'it\'s'}, NULL]", [{"s": b"it's"}, None]),
        ("struct(s varchar)[]", "[{'s': '}'}]", [{"s": b"}"}]),
    ],
)
def test_the_reference_s_expressions_mean_what_was_inserted(type_, text, value):
    assert repr(parse_literal(parse_type(type_), text)) == repr(value)


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ("struct(s varchar)", r"{'s': 'it\'s'}", {"s": b"it's"}),
        ("struct(s varchar, i int64)", "{'s': x y, 'i': null}", {"s": b"x y", "i": None}),
        ("struct(s varchar, i int64)", "{s: x, i: 2}", {"s": b"x", "i": 2}),
        ("map(varchar, int64)", "MAP {'a'= 1}", [(b"a", 1)]),
        ("int64[]", "[ 1 ,2]", [1, 2]),
    ],
)
def test_casts_and_other_writers_texts_are_read(type_, text, value):
    assert parse_literal(parse_type(type_), text) == value


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("int64[]", "[1"),
        ("int64[]", "[1] 2"),
        ("int64[]", "[a]"),
        ("int64[]", "{}"),
        ("struct(a int64)", "{'b': 1}"),
        ("struct(a varchar)", "{'a': 'x}"),
    ],
)
def test_other_texts_are_refused(type_, text):
    with pytest.raises(ValueError, match=r"cannot read|invalid literal"):
        parse_literal(parse_type(type_), text)


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        ("struct(a int64, s varchar)", {"a": 1, "s": b"x"}, "{'a': 1, 's': 'x'}"),
        ("struct(s varchar)", {"s": b"it's"}, """{'s': "it's"}"""),
        ("struct(d date, f float64)", {"d": 18262, "f": math.nan}, "{'d': 2020-01-01, 'f': nan}"),
        ("struct(s varchar[])", {"s": [b"a]"]}, """{'s': "['a]']"}"""),
        ("map(varchar, int64)", [(b"", None)], "{''=NULL}"),
    ],
)
def test_texts_are_the_reference_s_where_it_reads_them_right(type_, value, text):
    assert format_literal(parse_type(type_), value) == text


# --- defaults that fit no column; those that do are compared in tests/differential ---


@pytest.mark.parametrize(
    ("type_text", "value"),
    [
        ("boolean", 2),
        ("boolean", "maybe"),
        ("boolean", 1.0),
        ("int32", True),
        ("int32", Decimal("1.5")),
        ("int32", "1.0"),
        ("int32", "1_000"),
        ("int32", "\u0661"),
        ("int32", float("nan")),
        ("int32", Decimal("1e999999999")),
        ("int32", date(2024, 1, 1)),
        ("decimal(18,3)", Decimal("1.2345")),
        ("decimal(18,3)", "1e2"),
        ("decimal(3,3)", 1),
        ("decimal(5,2)", float("inf")),
        ("float32", Decimal("3.5e38")),
        ("float64", Decimal("1e399")),
        ("float64", "1e400"),
        ("float64", 10**500),
        ("float64", "Infinity"),
        ("varchar", "NULL"),
        ("varchar", "a\0b"),
        ("varchar", True),
        ("varchar", date(2024, 1, 1)),
        ("json", "not json"),
        ("json", "nan"),
        ("json", 7),
        ("blob", b"NULL"),
        ("blob", "\\"),
        ("blob", "\\xG0"),
        ("uuid", "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}"),
        ("uuid", "a0eebc999c0b4ef8bb6d6bb9bd380a11"),
        ("date", "2024-1-1"),
        ("date", "2024-01-01 10:00:00"),
        ("date", "9999999-01-01"),
        ("date", datetime.fromisoformat("2024-01-01")),
        ("time", "10:00"),
        ("time", "24:00:00"),
        ("time", "infinity"),
        ("time", time(10, tzinfo=UTC)),
        ("timestamp", date(2024, 1, 1)),
        ("timestamp", datetime(2024, 1, 1, tzinfo=UTC)),
        ("timestamp", "2024-01-01 10:00:00+02"),
        ("timestamp", "2024-01-01 10:00:00.1234567"),
        ("timestamp", "999999-01-01"),
        ("timestamp_s", "2024-01-01 10:00:00.5"),
        ("timestamp_s", datetime.fromisoformat("2024-01-01T00:00:00.000005")),
        ("timestamp_ns", "2300-01-01"),
        ("timestamptz", datetime.fromisoformat("2024-01-01")),
        ("timestamptz", "2024-01-01 10:00:00"),
        ("timestamptz", "2024-01-01"),
        ("int32[]", 7),
        ("struct(a int32)", SqlExpression("now()")),
        ("int128", "1.5"),
        ("interval", "1 day"),
    ],
)
def test_a_literal_that_does_not_fit_is_refused(type_text, value):
    with pytest.raises(InvalidInputError, match="default"):
        default_of(value, parse_type(type_text))


@pytest.mark.parametrize("type_text", ["int32", "varchar", "int32[]", "struct(a int32)", "int128"])
def test_no_default_fits_every_type(type_text):
    assert default_of(None, parse_type(type_text)) == (Default(), None)


@given(
    st.from_type(defaults.Literal),
    st.sampled_from(["int32", "varchar", "float32", "date", "timestamptz", "blob"]),
)
def test_any_literal_is_kept_or_refused(value, type_text):
    type_ = parse_type(type_text)
    try:
        default, initial = default_of(value, type_)
    except InvalidInputError:
        return

    assert default.value is not None
    assert default.kind == "literal"
    assert initial is not None
    assert default_of(initial, type_)[1] == initial


@given(st.uuids() | st.datetimes() | st.binary(max_size=3) | st.booleans())
def test_typed_literals_are_kept_as_their_own_text(value):
    types = {UUID: "uuid", datetime: "timestamp", bytes: "blob", bool: "boolean"}

    default, initial = default_of(value, parse_type(types[type(value)]))

    assert default.value == initial
