"""What calls of macros stand for in Spark SQL stays short: Spark's parser keeps memory for all shapes."""

from itertools import pairwise

import pytest

from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.spec.tags import (
    Macro,
    MacroDefault,
    MacroDefinition,
    MacroOverload,
    MacroParameter,
)
from airflow_provider_ducklake.lake.sql.spark.macros import LakeMacros, with_macros


def _macro(name: str, sql: str) -> Macro:
    return Macro(
        QualifiedName.of(name),
        MacroDefinition((MacroOverload(sql, (MacroParameter("a"), MacroParameter("b"))),)),
    )


ONE = LakeMacros([_macro("main.one", "a % 7 + abs(b)")])


def _call(depth: int) -> str:
    return f"main.one({_call(depth - 1)}, x + 1)" if depth else "x"


def test_each_call_within_long_arguments_adds_the_same_length():
    lengths = [len(with_macros(f"SELECT {_call(depth)}", ONE)) for depth in range(3, 9)]

    assert len({later - sooner for sooner, later in pairwise(lengths)}) == 1
    assert lengths[-1] < 20_000


def test_short_arguments_stand_where_the_parameters_stand():
    assert "transform" not in with_macros("SELECT main.one(`a b`.c, 5), main.one(x + 1, 'a')", ONE)


def test_parentheses_in_quotes_are_text_of_an_argument():
    joined = LakeMacros([_macro("main.joined", "a || b")])

    assert "('(') || (x)" in with_macros("SELECT main.joined('(', x)", joined)
    assert "(`)`) || (x)" in with_macros("SELECT main.joined(`)`, x)", joined)


def test_bodies_that_grow_beyond_bounds_are_refused():
    levels = [_macro(f"main.m{n}", f"m{n - 1}(a + a, b) + m{n - 1}(b, a)") for n in range(1, 40)]
    lake = LakeMacros([_macro("main.m0", "a + b"), *levels])

    assert with_macros("SELECT main.m2(x, 1)", lake)
    with pytest.raises(
        UnsupportedFeatureError, match=r"Macro main\.m\d+: a (call|part) of it is [\d,]+ characters long"
    ):
        with_macros("SELECT main.m39(x, 1)", lake)


def _constant(name: str, sql: str, *parameters: MacroParameter) -> Macro:
    return Macro(QualifiedName.of(name), MacroDefinition((MacroOverload(sql, parameters),)))


def test_calls_whose_arguments_are_dropped_have_an_end():
    """Each level doubled the calls, and a body that drops its arguments kept the text short."""
    levels = [_constant(f"main.m{n}", f"dropped(m{n - 1}(), m{n - 1}())") for n in range(1, 41)]
    lake = LakeMacros([_macro("main.dropped", "1"), _constant("main.m0", "1"), *levels])

    assert with_macros("SELECT main.m5()", lake) == "SELECT ((1))"
    with pytest.raises(UnsupportedFeatureError, match=r"^Macro main\.\w+: .* more than 10,000 calls"):
        with_macros("SELECT main.m40()", lake)


def test_a_statement_of_many_calls_is_not_written_without_end():
    lake = LakeMacros([_macro("main.sum", "+".join("a" * 12))])

    with pytest.raises(UnsupportedFeatureError, match=r"^Macro main\.sum: .* more than 5,000,000 characters"):
        with_macros(f"SELECT {', '.join(['main.sum(1, 2)'] * 2_000)}", lake)


LONG = "9" * 5_000


@pytest.mark.parametrize(
    ("sql", "default"),
    [
        (LONG, None),
        (f"1 % {LONG}", None),
        (f"round(1.5, {LONG})", None),
        ("a", MacroDefault(LONG, "int64")),
        ("a", MacroDefault("٣", "int32")),
        ("a", MacroDefault("maybe", "boolean")),
        ("a", MacroDefault("string", "boolean")),
    ],
)
def test_values_that_are_none_in_spark_are_refused(sql, default):
    lake = LakeMacros([_constant("main.m", sql, *([MacroParameter("a", None, default)] if default else []))])

    with pytest.raises(UnsupportedFeatureError, match=r"^Macro main\.m: ") as caught:
        with_macros("SELECT main.m()", lake)
    assert len(str(caught.value)) < 300
