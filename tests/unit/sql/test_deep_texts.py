"""Texts that are nested deeper than Python's stack, or very long: errors of ours, and nothing in the log."""

import json
import logging
import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import pytest

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.ledger.restores import RestoreNote
from airflow_provider_ducklake.lake.errors import DuckLakeError, InvalidStatementError
from airflow_provider_ducklake.lake.format.schema import Column, TableSchema, assemble
from airflow_provider_ducklake.lake.format.snapshots import ColumnId
from airflow_provider_ducklake.lake.format.sorting import SortField, parse_sort_by
from airflow_provider_ducklake.lake.format.sql.parse import parse_expression
from airflow_provider_ducklake.lake.format.sql.printing import columns_of, printed
from airflow_provider_ducklake.lake.format.sql.tokens import ExpressionError
from airflow_provider_ducklake.lake.format.tags import FrozenMark, ViewDefinition
from airflow_provider_ducklake.lake.format.types.ducklake_types import ScalarType, parse_type
from airflow_provider_ducklake.lake.format.types.geometry import GeometryStats
from airflow_provider_ducklake.lake.sql.duckdb.create import stored_name
from airflow_provider_ducklake.lake.sql.duckdb.ddl import parse_ddl
from airflow_provider_ducklake.lake.sql.predicate import read_predicate
from airflow_provider_ducklake.lake.sql.spark import conditions
from airflow_provider_ducklake.lake.sql.spark import conditions as expressions
from airflow_provider_ducklake.lake.sql.spark.conditions import column_lineage
from airflow_provider_ducklake.lake.sql.spark.parse import parse_query, parse_spark_sql
from airflow_provider_ducklake.lake.writes.staged import uris_of, uris_of_ended
from tests.unit.sql.view_texts import HARMLESS, HOSTILE, ORDINARY

A, S = Column(ColumnId(1), "a", ScalarType("int64")), Column(ColumnId(2), "s", ScalarType("varchar"))
SCHEMA = TableSchema((A, S))


def around(before: str, after: str = "", inner: str = "a"):
    return lambda count: before * count + inner + after * count


EXPRESSIONS = {
    "parentheses": around("(", ")"),
    "not": around("NOT "),
    "signs": around("- "),
    "case": around("CASE WHEN a = 1 THEN ", " ELSE 2 END"),
    "calls": around("abs(", ")"),
    "lists": around("[", "]"),
    "casts": around("", "::BIGINT"),
    "indexes": around("", "[1]"),
    "sums": around("", " + a"),
    "texts": around("", " || s", "s"),
    "queries": around("(SELECT ", ")"),
    "conditions": around("a = 1 AND (", ")", "a = 1"),
    "exists": around("EXISTS (SELECT 1 FROM t WHERE ", ")"),
}
QUERIES = {
    "sources": around("SELECT * FROM (", ")", "SELECT 1"),
    "parentheses": around("(", ")", "SELECT 1"),
    "with": around("WITH x AS (", ") SELECT * FROM x", "SELECT 1"),
    "unions": around("", " UNION ALL SELECT 1", "SELECT 1"),
}
TYPES = {
    "lists": around("", "[]", "INTEGER"),
    "structs": around("STRUCT(a ", ")", "INTEGER"),
    "maps": around("MAP(INTEGER, ", ")", "INTEGER"),
}


def use_of_a_tree(text: str) -> None:
    tree = parse_expression(text)
    printed(tree)
    columns_of(tree)
    hash(tree)


def use_of_a_stored_key(text: str) -> None:
    key = SortField(text, "duckdb")
    key.mentions(A)


OF_EXPRESSIONS = {
    "a tree": use_of_a_tree,
    "a stored sort key": use_of_a_stored_key,
    "a sort key": lambda text: parse_sort_by([text], SCHEMA, "t"),
    "DDL of a sort key": lambda text: parse_ddl(f"ALTER TABLE t SET SORTED BY ({text})"),
    "DDL of a macro": lambda text: parse_ddl(f"CREATE MACRO m(a, s) AS {text}"),
    "DDL of a default": lambda text: parse_ddl(f"CREATE TABLE t (a INTEGER DEFAULT {text})"),
    "functions of it": lambda text: conditions.functions_in(f"main.m({text}, 's')"),
    "a filter": lambda text: read_predicate(text, SCHEMA, "t"),
    "equal columns of it": lambda text: expressions.equal_columns(f"a = s AND {text}"),
    "a condition": lambda text: conditions.readable_filter(text, SCHEMA, "t", alias="t"),
    "columns of it": lambda text: conditions.unknown_column(text, ["a"], alias="t", is_alone=True),
    "an assignment": lambda text: expressions.check_expression(text, "x"),
    "an insert": lambda text: parse_spark_sql(f"INSERT INTO t SELECT {text}"),
    "a view": lambda text: parse_query(f"SELECT {text}"),
    "lineage": lambda text: column_lineage(f"SELECT {text} AS z FROM t", {"t": ["a", "s"]}),
    "columns of a view": lambda text: stored_name("v", ViewDefinition(f"SELECT {text} AS x", ()), "x"),
}
OF_QUERIES = {
    "an insert": lambda text: parse_spark_sql(f"INSERT INTO t {text}"),
    "a view": parse_query,
    "DDL of a view": lambda text: parse_ddl(f"CREATE VIEW v AS {text}"),
    "DDL of a macro": lambda text: parse_ddl(f"CREATE MACRO m(a) AS TABLE {text}"),
    "lineage": lambda text: column_lineage(text, {"t": ["a"]}),
}
OF_TYPES = {
    "DDL": lambda text: parse_ddl(f"CREATE TABLE t (a {text})"),
    "an API": lambda text: hash(parse_type(text)),
}


def cases(readers, shapes, count=400):
    return [
        pytest.param(read, shape(count), id=f"{count}, {reader}, {name}")
        for reader, read in readers.items()
        for name, shape in shapes.items()
    ]


GO_THROUGH_TREES = {name: OF_EXPRESSIONS[name] for name in ("a tree", "a stored sort key", "a view")}


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *cases(OF_EXPRESSIONS, EXPRESSIONS),
        *cases(GO_THROUGH_TREES, EXPRESSIONS, 99),  # of which we make a tree
        *cases(OF_QUERIES, QUERIES),
        *cases(OF_TYPES, TYPES),
    ],
)
def test_deep_texts_are_read_or_refused_by_an_error_of_ours(read, text):
    try:
        read(text)
    except (errors.DuckLakeError, ExpressionError) as error:
        assert len(str(error)) < len(text) + 1000  # noqa: PT017 - or it is read


READ_OVER_AND_OVER = {
    "types as functions": around("timestamp(", ")"),
    "types of types as functions": around("array(struct(", "))"),
    "structs as functions": around("struct(", ")", "1"),
    "types in brackets": around("ARRAY[", "]"),
    "a type's name in quotes": lambda count: f"CAST(a AS `struct<a:{around('timestamp(', ')')(count)}>`)",
    "ifs": around("+ if "),
    "limits": around("(SELECT 1 LIMIT ", ")"),
    "offsets": around("(SELECT 1 OFFSET ", ")"),
    "applies": around("CROSS APPLY SELECT * FROM (a, ", ")} :int)"),
    "joins without conditions": lambda count: f"(SELECT 1 FROM t{' JOIN t' * count})",
    "methods": lambda count: "a" + ".b(1, c)" * 100 * count,
    "an interval": lambda count: f"INTERVAL '{'9' * count * 1_000}' DAY",
}
# by sqlglot's parser alone
PARSED = ("a filter", "columns of it", "functions of it", "an insert", "a view", "lineage")


@pytest.mark.parametrize("text", [shape(40) for shape in READ_OVER_AND_OVER.values()], ids=READ_OVER_AND_OVER)
@pytest.mark.parametrize("reader", PARSED)
def test_texts_that_sqlglot_would_read_over_and_over_are_refused(reader, text):
    """Each level took twice the time of the one before: 461 characters had no end."""
    started = time.monotonic()
    with suppress(errors.DuckLakeError):  # lineage is left out
        OF_EXPRESSIONS[reader](text)
    assert time.monotonic() - started < 5


def test_ordinary_levels_of_types_and_joins_are_read():
    types = around("date(timestamp(", "))")(4)
    joins = " ".join(f"CROSS JOIN t AS t{one} JOIN t AS u{one} ON a = b" for one in range(40))

    assert parse_query(f"SELECT {types}, array(struct(1, array(struct(2)))) FROM t {joins} LIMIT 5")


def test_a_hundred_methods_in_a_row_are_read_and_fields_of_calls_wherever_they_stand():
    methods, fields = "a" + ".b(1)" * 100, ", ".join(f"f({one}).x" for one in range(2_000))

    assert parse_query(f"SELECT {methods}, {fields} FROM t")


def test_the_error_says_which_statement_is_too_deep_and_where():
    deep = QUERIES["sources"](500)

    with pytest.raises(
        errors.InvalidStatementError, match=r"^Statement 2, line 2, column 1, at 'INSERT': it is nested"
    ):
        parse_spark_sql(f"INSERT INTO t SELECT 1;\nINSERT INTO t {deep}")
    with pytest.raises(
        errors.InvalidStatementError, match=r"^Statement 2, line 2, .*it is nested too deeply"
    ):
        parse_ddl(f"CREATE SCHEMA x;\nCREATE TABLE t (a {TYPES['structs'](2000)})")
    with pytest.raises(errors.InvalidStatementError, match=r"^Statement 1, line 1, .*more than 100 levels"):
        parse_ddl(f"ALTER TABLE t SET SORTED BY ({EXPRESSIONS['parentheses'](500)})")
    with pytest.raises(
        errors.InvalidInputError, match="more than 250 operators that each need the one before"
    ):
        parse_sort_by([EXPRESSIONS["sums"](251)], SCHEMA, "t")


def test_levels_of_types_have_an_end():
    assert str(parse_type("INTEGER" + "[]" * 99)) == "int32" + "[]" * 99
    for text in (TYPES["lists"](100), TYPES["structs"](100), TYPES["maps"](100)):
        with pytest.raises(errors.InvalidTypeError, match="more than 100 levels"):
            parse_type(text)
    deep = [
        (Column(ColumnId(one), "element", ScalarType("int32")), ColumnId(one - 1) if one else None, "list")
        for one in range(300)
    ]
    with pytest.raises(
        errors.InvalidTypeError, match="Column 100 of ducklake_column has 100 columns above it"
    ):
        assemble(deep)


def test_a_chain_of_any_length_is_one_operation():
    tree = parse_expression(" OR ".join(["a = 1 AND s = 'x'"] * 5_000))

    assert len(tree.operands) == 5_000
    assert parse_expression("(a OR b) OR c OR (d AND e)") == parse_expression("a OR b OR c OR (d AND e)")


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@pytest.fixture
def log():
    handler, logger = Lines(), logging.getLogger("sqlglot")
    logger.addHandler(handler)
    yield handler.lines
    logger.removeHandler(handler)


def test_texts_of_statements_are_not_logged(log):
    for text in ("SET x = 'hunter2'", "ALTER VIEW v SET s = 'hunter2'", "REFRESH TABLE t 'hunter2'"):
        with pytest.raises(errors.DuckLakeError):
            parse_spark_sql(text)
        with pytest.raises(errors.DuckLakeError):
            parse_query(f"WITH x AS (SELECT 1) {text}")
        assert column_lineage(text, {}) == {}

    assert log == []
    other = threading.Thread(target=logging.getLogger("sqlglot").warning, args=("of another thread",))
    other.start()
    other.join()
    assert log == ["of another thread"]


DEEP = f"{'[' * 100_000}{']' * 100_000}"
NOTES = {
    "of a restore": (RestoreNote.of, '{"restored": %s}'),
    "of a frozen lake": (FrozenMark.parse, '{"lake_id": %s}'),
    "of geometries": (GeometryStats.of_text, '{"bbox": %s}'),
}


@pytest.mark.parametrize(("read", "text"), NOTES.values(), ids=NOTES)
def test_json_of_anybody_that_is_nested_deeply_is_no_note_of_ours(read, text):
    assert read(text % DEEP) is None


@pytest.mark.parametrize(
    "said",
    [
        {"as_of": [1], "table_ids": [1]},
        {"as_of": "1", "table_ids": [1]},
        {"as_of": 1, "table_ids": [1, "a"]},
        {"as_of": 1, "table_ids": [True]},
        {"as_of": float("inf"), "table_ids": [1]},
    ],
)
def test_ids_that_are_no_numbers_are_no_note_of_a_restore(said):
    assert RestoreNote.of(json.dumps({"restored": {"as_of": 1, "table_ids": [1, 2]}})) is not None

    assert RestoreNote.of(json.dumps({"restored": said})) is None


@pytest.mark.parametrize("find", [uris_of, uris_of_ended])
def test_results_of_tasks_in_lists_that_are_nested_deeply_are_refused(find):
    assert find([[[]]]) == []
    deep: list[object] = []
    for _ in range(5_000):
        deep = [deep]

    with pytest.raises(errors.InvalidInputError, match="lists in lists"):
        find(deep)


# --- texts that are broken: errors of ours, whatever sqlglot raises ---

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
