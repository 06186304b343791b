"""Texts of nested values as the reference stores them."""

import math

import pytest

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
