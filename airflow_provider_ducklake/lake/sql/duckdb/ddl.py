"""Parse SQL into statements.

Everything is read before anything is run, and every word of a statement has to find its place: what a user
wrote is either in the value or in an error, never dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...format.arguments import takes_arguments
from ...format.names.identifiers import QualifiedName, written
from ...format.versions import DEFAULT, WriteVersion, write_version
from .create import read_alter, read_create, read_restrict, schema_name
from .cursor import ANY_STATEMENT, STATEMENTS, Call, Cursor, call, refuse_object, split_statements


@dataclass(frozen=True, slots=True)
class ParsedStatement:
    """A statement's place among all of them, from 1, its text as written, and what it does."""

    number: int
    text: str
    calls: tuple[Call, ...]


@takes_arguments
def parse_ddl(
    statements: str | Sequence[str], writer: WriteVersion | None = None
) -> tuple[ParsedStatement, ...]:
    """Return the statements of one or more texts; each text may hold several, with semicolons between them.

    ``writer`` is the version of the lake that they are for; None: that of new lakes.

    >>> [one.calls[0].method for one in parse_ddl("CREATE SCHEMA sales; TRUNCATE sales.orders")]
    ['create_schema', 'truncate']

    Raises:
        InvalidStatementError: cannot be read, or asks for what the format does not have.
        UnsupportedFeatureError: the format has it, this release does not.
    """
    parsed: list[ParsedStatement] = []
    for text in [statements] if isinstance(statements, str) else statements:
        parsed.extend(_parse_text(text, len(parsed) + 1, writer or write_version(DEFAULT)))
    return tuple(parsed)


def _parse_text(text: str, first_number: int, writer: WriteVersion) -> Iterator[ParsedStatement]:
    for number, tokens in enumerate(split_statements(text, first_number), first_number):
        cursor = Cursor(text, tokens, number, writer)
        try:
            found = _read_statement(cursor)
        except RecursionError:
            raise cursor.error("it is nested too deeply here.") from None
        cursor.end()
        calls = found if isinstance(found, tuple) else (found,)
        yield ParsedStatement(number, cursor.text_from(tokens[0]), calls)


def _read_statement(cursor: Cursor) -> Call | tuple[Call, ...]:
    if cursor.accept("CREATE"):
        return read_create(cursor)
    if cursor.accept("ALTER"):
        return read_alter(cursor)
    if cursor.accept("DROP"):
        return _read_drop(cursor)
    if cursor.accept("COMMENT"):
        return _read_comment(cursor)
    if cursor.accept("TRUNCATE"):
        cursor.accept("TABLE")
        return call("truncate", cursor.qualified_name("table"))
    raise cursor.error(STATEMENTS.get(cursor.word, ANY_STATEMENT))


def _read_drop(cursor: Cursor) -> Call:
    for kind in ("table", "view"):
        if cursor.accept(kind.upper()):
            if_exists = cursor.accept("IF", "EXISTS")
            name = cursor.qualified_name(kind)
            read_restrict(cursor, kind)
            return call(f"drop_{kind}", name, if_exists=if_exists)
    if cursor.accept("MACRO") or cursor.accept("FUNCTION"):
        is_table = cursor.accept("TABLE")
        if_exists = cursor.accept("IF", "EXISTS")
        macro = cursor.qualified_name("macro")
        read_restrict(cursor, "macro")
        return call("drop_macro", macro, table=is_table, if_exists=if_exists)
    if cursor.accept("SCHEMA"):
        if_exists = cursor.accept("IF", "EXISTS")
        schema = schema_name(cursor)
        cascade = cursor.accept("CASCADE")
        if not cascade:
            cursor.accept("RESTRICT")
        return call("drop_schema", schema, if_exists=if_exists, cascade=cascade)
    raise refuse_object(cursor, "DROP")


def _read_comment(cursor: Cursor) -> Call:
    cursor.expect("ON")
    if cursor.accept("TABLE"):
        return call("comment_on_table", cursor.qualified_name("table"), _read_comment_text(cursor))
    if cursor.accept("VIEW"):
        return call("comment_on_view", cursor.qualified_name("view"), _read_comment_text(cursor))
    if cursor.accept("COLUMN"):
        return _read_column_comment(cursor)
    raise cursor.error("comments are supported on TABLE, VIEW and COLUMN.")


def _read_column_comment(cursor: Cursor) -> Call:
    start = cursor.peek()
    *above, column = cursor.path("column")
    if not above or (len(above) > 2 and not cursor.has_nested_schemas):  # noqa: PLR2004 - schema and table
        raise cursor.error(
            "name a column and its table: COMMENT ON COLUMN schema.table.column. Nested fields have no "
            "comments.",
            at=start,
        )
    table = QualifiedName.of(tuple(above))
    return call("comment_on_column", table, written(column), _read_comment_text(cursor))


def _read_comment_text(cursor: Cursor) -> str | None:
    cursor.expect("IS")
    if cursor.accept("NULL"):
        return None
    text = cursor.string()
    if text is None:
        raise cursor.error("expected a string in single quotes, or NULL.")
    return text
