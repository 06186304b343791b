"""The query of a view: cut from the statement as written, after a look at whether it is one.

The reference stores its own rendering of the query, which only DuckDB can make. Stored as written, it reads
the same (observed on 1.5.5). It looks an unqualified table name up in the view's own schema first, then where
the reading session looks, and ``{DUCKLAKE_CATALOG}`` stands for the name under which a lake is attached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.sql.lexer import Kind

if TYPE_CHECKING:
    from airflow_provider_ducklake.sql.duckdb.cursor import Cursor

_FIRST_WORDS = frozenset({"SELECT", "FROM", "WITH", "VALUES", "TABLE"})


def read_query(cursor: Cursor) -> str:
    """Read a query up to the statement's end and return its text."""
    start = cursor.position
    if not cursor.sees("(") and cursor.word not in _FIRST_WORDS:
        raise cursor.error("expected a query: SELECT, FROM, WITH, VALUES or TABLE.")
    while (token := cursor.token) is not None:
        if token.kind is Kind.SYMBOL and token.text[0] in "?$":
            raise cursor.error("a view has no parameters. Write the value instead.")
        cursor.advance()
    text = cursor.text_from(start)
    problem = _problem(text)
    if problem:
        raise cursor.error(problem, at=start)
    return text


def _problem(text: str) -> str | None:
    """Return what is wrong with a view's query; None if it looks right."""
    import sqlglot  # noqa: PLC0415 - a third of a second, and DAG files import operators over and over
    from sqlglot import exp  # noqa: PLC0415

    try:
        trees = sqlglot.parse(text, dialect="duckdb")
    except sqlglot.errors.ParseError as error:
        return f"cannot read this query at {error.errors[0].get('highlight')!r}."
    except sqlglot.errors.SqlglotError as error:
        return f"cannot read this query: {error}"
    tree = trees[0]
    if len(trees) != 1 or not isinstance(tree, exp.Query | exp.Values):
        return "this is not a single query."
    if tree.find(exp.Into, exp.Command, exp.Insert, exp.Update, exp.Delete, exp.Merge):
        return "a view can only read."
    for table in tree.find_all(exp.Table):
        if table.catalog:
            return (
                f"{table.catalog}.{table.db}.{table.name} names a catalog, but a lake gets its name when it "
                "is attached. Name tables as schema.table."
            )
    return None
