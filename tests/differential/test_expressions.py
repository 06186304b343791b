"""Whatever we take for an expression, DuckDB parses; and we print it as the reference does."""

import re

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.format.sql.parse import parse_expression
from airflow_provider_ducklake.lake.format.sql.printing import printed
from airflow_provider_ducklake.lake.format.sql.tokens import ExpressionError
from tests.differential.test_macros import CALLS, TABLE_CALLS
from tests.reference.catalogs import file_catalog
from tests.reference.duckdb_core import open_core
from tests.reference.duckdb_lake import open_lake

_BODY = re.compile(r"\) AS (?:TABLE )?(.*)\Z", re.DOTALL)
_PIECE = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*|\w+|\s+|[^\w\s]+")
EXPRESSIONS = [_BODY.search(one)[1] for one in CALLS if "), (" not in one and ", (a" not in one]
QUERIES = [_BODY.search(one)[1] for one in TABLE_CALLS if "), (a" not in one]
_MORE = (
    *("a", "1", "'x'", '"q"', "(", ")", "()", ",", ".", "-", "+", "*", "%", "=", "==", "<", ">=", "!="),
    *("||", "::", ":=", "=>", "->", "[", "]", "{", "}", ":", "~~", "!~~", "~", "!", "@", "#", "&", "^"),
    *("//", "**", "NOT", "AND", "IS", "NULL", "IN", "LIKE", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE"),
    *("END", "AS", "OVER", "SELECT", "FROM", "WHERE", "GROUP", "BY", "ORDER", "LIMIT", "JOIN", "ON"),
    *("LEFT", "UNION", "ALL", "WITH", "date", "DATE", "left", "values", "year", "interval", "time"),
    *("row", "map", "struct", "list", "end", "of", "f(", "count(*)", "distinct", "escape", "collate"),
    *("filter", "within", "array", "lambda", "1.5", ".5", "5.", "1e3", "1_0", "0x1", "$1", "?", "E'x'"),
    *("x'AB'", "--", "/*", "*/", " ", "\n", ";", "\u00a0", "\u00e9", "columns(*)", "exclude", "using"),
    *("tablesample", "pivot", "qualify", "window", "lateral", "try_cast", "at", "positional", "asof"),
)


def parses(sql: str) -> bool:
    try:
        return len(duckdb.extract_statements(sql)) == 1
    except duckdb.Error:
        return False


def takes(text: str) -> bool:
    try:
        parse_expression(text)
    except ExpressionError:
        return False
    return True


@st.composite
def mutated(draw: st.DrawFn, bodies: list[str]) -> str:
    """Draw a body of which some words are left out, doubled, moved or replaced."""
    pieces = _PIECE.findall(draw(st.sampled_from(bodies)))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(pieces) - 1))
        new = draw(st.sampled_from([*_MORE, *pieces]))
        match draw(st.integers(0, 3)):
            case 0:
                pieces[place] = ""
            case 1:
                pieces[place] = new
            case 2:
                pieces.insert(place, f" {new} " if draw(st.booleans()) else new)
            case _:
                other = draw(st.integers(0, len(pieces) - 1))
                pieces[place], pieces[other] = pieces[other], pieces[place]
    return "".join(pieces)


@given(body=mutated(EXPRESSIONS))
@settings(max_examples=150, deadline=None)
def test_an_expression_that_we_take_duckdb_parses(body):
    if takes(body):
        assert parses(f"SELECT {body}"), body


@pytest.mark.parametrize("body", EXPRESSIONS)
def test_duckdb_2_0_parses_expressions(body):
    with open_core() as core:
        assert core.parse_error(f"SELECT {body}") is None


@pytest.mark.parametrize("body", QUERIES)
def test_duckdb_2_0_parses_queries(body):
    with open_core() as core:
        assert core.parse_error(body) is None


_COLUMNS = ("i", "s", '"S x"', '"order"')
_LITERALS = ("1", "-2", "1.50", "'it''s'", "NULL", "TRUE", "DATE '2024-01-31'")


def _expressions() -> st.SearchStrategy[str]:
    """Draw texts of expressions; types do not matter, since sort keys are bound when rows come."""

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        one = st.one_of(inner, inner.map(lambda text: f"({text})"))
        operators = st.sampled_from(
            [
                "+",
                "-",
                "*",
                "/",
                "//",
                "%",
                "||",
                "=",
                "<>",
                "<",
                ">=",
                "AND",
                "OR",
                "LIKE",
                "NOT LIKE",
                "ILIKE",
            ]
        )
        return st.one_of(
            st.tuples(one, operators, one).map(" ".join),
            st.sampled_from(["lower", "ABS", "year", "coalesce", "substring", "date_trunc", "left"]).flatmap(
                lambda name: st.lists(inner, min_size=1, max_size=3).map(
                    lambda of: f"{name}({', '.join(of)})"
                )
            ),
            one.map(lambda text: f"- {text}"),
            one.map(lambda text: f"NOT {text}"),
            one.map(lambda text: f"{text} IS NOT NULL"),
            st.tuples(one, one, one).map(lambda of: "{} BETWEEN {} AND {}".format(*of)),
            st.tuples(one, one, one).map(lambda of: "{} NOT IN ({}, {})".format(*of)),
            st.tuples(one, one, one).map(lambda of: "CASE WHEN {} THEN {} ELSE {} END".format(*of)),
            st.tuples(one, one, one).map(lambda of: "CASE {} WHEN {} THEN {} END".format(*of)),
            st.tuples(inner, st.sampled_from(["VARCHAR", "int", "DECIMAL(9,2)", "DATE"])).map(
                lambda of: "CAST({} AS {})".format(*of)
            ),
            st.tuples(inner, st.sampled_from(["BIGINT", "double"])).map(lambda of: "({})::{}".format(*of)),
        )

    return st.recursive(st.sampled_from([*_COLUMNS, *_LITERALS]), larger, max_leaves=8)


@given(texts=st.lists(_expressions(), min_size=20, max_size=40))
@settings(max_examples=5, deadline=None)
def test_we_print_sort_keys_as_the_reference_does(tmp_path_factory, texts):
    catalog = file_catalog("sqlite", tmp_path_factory.mktemp("printed") / "lake")
    ours = {text: own for text in texts if (own := in_duckdbs_words(text)) is not None}
    keys = ", ".join(["i", *ours])
    with open_lake(catalog) as reference:
        reference.sql('CREATE TABLE t (i INTEGER, s VARCHAR, "S x" VARCHAR, "order" INTEGER)')
        reference.sql(f"ALTER TABLE t SET SORTED BY ({keys})")
        rows = reference.sql(
            "SELECT expression FROM __ducklake_metadata_lake.ducklake_sort_expression ORDER BY sort_key_index"
        )
    assert ["i", *ours.values()] == [expression for (expression,) in rows]


def in_duckdbs_words(text: str) -> str | None:
    """Return an expression as we print it; None where we cannot read it, or do not know."""
    try:
        return printed(parse_expression(text))
    except ExpressionError:
        return None
