"""Texts that somebody broke: errors of ours, whatever sqlglot raises, and steps in proportion to length."""

import random
import sys
from collections.abc import Callable
from types import FrameType

import pytest

from airflow_provider_ducklake.lake.errors import DuckLakeError, InvalidStatementError
from airflow_provider_ducklake.lake.format.sql.tokens import ExpressionError
from airflow_provider_ducklake.lake.sql.spark.parse import parse_query, parse_spark_sql
from tests.unit.sql.test_deep_texts import OF_EXPRESSIONS, OF_QUERIES
from tests.unit.sql.view_texts import HARMLESS, HOSTILE, ORDINARY

JUNK = [
    "(",
    ")",
    ",",
    ".",
    "[",
    "]",
    "{",
    "}",
    "'x'",
    "1",
    "map(",
    "date_trunc",
    "INCREMENT",
    "=>",
    "->",
    "::",
    "*",
    "CASE",
    "END",
    "AS",
    "SELECT",
    "FROM",
    "LATERAL",
    "OVER",
    "IN",
    "INTERVAL",
    "EXTRACT(",
    "TRIM(",
    "CAST(",
    "PIVOT",
    "VALUES",
    "WITH",
    "DATE",
    "STRUCT<",
    "ARRAY<",
    ":",
    "|",
    "@",
    "$x",
    "?",
    "\\",
    "'",
    "`",
    "/*",
]


def broken(text: str, draw: random.Random) -> str:
    words = text.replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()
    for _ in range(min(3, len(words))):
        place = draw.randrange(len(words))
        words[place : place + draw.randrange(2)] = draw.sample(JUNK, draw.randrange(2))
        words = words or [""]
    return " ".join(words)


TEXTS = sorted({broken(text, random.Random(text)) for text in (*ORDINARY, *HOSTILE, *HARMLESS)})
KNOWN = (
    "SELECT map ( , 1 ) FROM t",
    "SELECT map('k' INCREMENT, 1) FROM t",
    "SELECT date_trunc() FROM t",
    "date_trunc 'unterminated FROM t",
    "",
)
READERS = {
    **OF_QUERIES,
    **{
        name: lambda text, read=read: read(text.removeprefix("SELECT "))
        for name, read in OF_EXPRESSIONS.items()
    },
}


@pytest.mark.parametrize("reader", READERS)
def test_broken_texts_are_read_or_refused_by_an_error_of_ours(reader):
    for text in (*KNOWN, *TEXTS):
        try:
            READERS[reader](text)
        except (DuckLakeError, ExpressionError):
            pass
        except Exception as error:  # noqa: BLE001 - names the text
            pytest.fail(f"{text!r}: {error!r}")


def test_a_statement_that_breaks_sqlglot_is_named():
    with pytest.raises(
        InvalidStatementError, match=r"Statement 1, line 1, .* cannot be read; correct it there"
    ):
        parse_spark_sql("INSERT INTO t SELECT date_trunc() FROM u")


def steps_of(read: Callable[[], object]) -> int:
    """Return how many lines of Python something takes: unlike its time, that depends on no other process."""
    count = 0

    def trace(_frame: FrameType, event: str, _arg: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        read()
    except DuckLakeError:
        pass
    finally:
        sys.settrace(before)
    return count


def in_view(text: str) -> object:
    query = parse_query(text)
    return query.with_views({key: f"`{key}`" for key in query.reads})


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (parse_query, lambda count: "SELECT " + "a.b(1), " * count + "1"),
        (in_view, lambda count: "SELECT 1 FROM " + ", ".join(["a.b"] * count)),
        (in_view, lambda count: "SELECT " + "a.b.c, " * count + "1 FROM " + ", ".join(["a.b"] * count)),
        (in_view, lambda count: "SELECT a.b.c FROM a.b UNION ALL " * count + "SELECT 1"),
        (
            in_view,
            lambda count: (
                "WITH c0 AS (SELECT 1 AS x)"
                + "".join(f", c{n} AS (SELECT x FROM c{n - 1})" for n in range(1, count))
                + " SELECT x FROM c0"
            ),
        ),
    ],
    ids=["calls", "tables", "columns", "unions", "common table expressions"],
)
def test_a_text_twice_as_long_takes_about_twice_the_steps(read, text):
    once, twice = (steps_of(lambda count=count: read(text(count))) for count in (60, 120))

    assert twice < 2.4 * once
