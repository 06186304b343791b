"""What calls of macros stand for in Spark SQL stays short: Spark's parser keeps memory for all shapes."""

from itertools import pairwise

import pytest

from airflow_provider_ducklake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.spec.macros import Macro, MacroDefinition, MacroOverload, MacroParameter
from airflow_provider_ducklake.spec.names.identifiers import QualifiedName
from airflow_provider_ducklake.sql.spark.macros import LakeMacros, with_macros


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
