"""Parse SQL into statements.

Everything is read before anything is run, and every word of a statement has to find its place: what a user
wrote is either in the value or in an error, never dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...spec.arguments import takes_arguments
from ...spec.names.identifiers import QualifiedName, written
from ...spec.versions import DEFAULT, WriteVersion, write_version
from .create import read_alter, read_create, read_restrict, schema_name
from .cursor import ANY_STATEMENT, STATEMENTS, Cursor, refuse_object, split_statements
from .statements import (
    CommentOnColumn,
    CommentOnTable,
    CommentOnView,
    DropMacro,
    DropSchema,
    DropTable,
    DropView,
    Statement,
    Truncate,
)


@dataclass(frozen=True, slots=True)
class ParsedStatement:
    """A statement, its text as written, and its place among all of them, from 1."""

    number: int
    text: str
    statement: Statement


@takes_arguments
def parse_ddl(
    statements: str | Sequence[str], writer: WriteVersion | None = None
) -> tuple[ParsedStatement, ...]:
    """Return the statements of one or more texts; each text may hold several, with semicolons between them.

    ``writer`` is the version of the lake that they are for; None: that of new lakes.

    >>> parse_ddl("CREATE SCHEMA sales; TRUNCATE sales.orders")[1].statement
    Truncate(table=QualifiedName(schema=SchemaPath(parts=('sales',)), name='orders'))

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
            statement = _read_statement(cursor)
        except RecursionError:
            raise cursor.error("it is nested too deeply here.") from None
        cursor.end()
        yield ParsedStatement(number, cursor.text_from(tokens[0]), statement)


def _read_statement(cursor: Cursor) -> Statement:
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
        return Truncate(cursor.qualified_name("table"))
    raise cursor.error(STATEMENTS.get(cursor.word, ANY_STATEMENT))


def _read_drop(cursor: Cursor) -> Statement:
    for kind, make in (("table", DropTable), ("view", DropView)):
        if cursor.accept(kind.upper()):
            if_exists = cursor.accept("IF", "EXISTS")
            dropped = make(cursor.qualified_name(kind), if_exists)
            read_restrict(cursor, kind)
            return dropped
    if cursor.accept("MACRO") or cursor.accept("FUNCTION"):
        is_table = cursor.accept("TABLE")
        if_exists = cursor.accept("IF", "EXISTS")
        macro = cursor.qualified_name("macro")
        read_restrict(cursor, "macro")
        return DropMacro(macro, is_table, if_exists)
    if cursor.accept("SCHEMA"):
        if_exists = cursor.accept("IF", "EXISTS")
        name = schema_name(cursor)
        cascade = cursor.accept("CASCADE")
        if not cascade:
            cursor.accept("RESTRICT")
        return DropSchema(name, if_exists, cascade)
    raise refuse_object(cursor, "DROP")


def _read_comment(cursor: Cursor) -> Statement:
    cursor.expect("ON")
    if cursor.accept("TABLE"):
        return CommentOnTable(cursor.qualified_name("table"), _read_comment_text(cursor))
    if cursor.accept("VIEW"):
        return CommentOnView(cursor.qualified_name("view"), _read_comment_text(cursor))
    if cursor.accept("COLUMN"):
        return _read_column_comment(cursor)
    raise cursor.error("comments are supported on TABLE, VIEW and COLUMN.")


def _read_column_comment(cursor: Cursor) -> CommentOnColumn:
    start = cursor.peek()
    *above, column = cursor.path("column")
    if not above or (len(above) > 2 and not cursor.has_nested_schemas):  # noqa: PLR2004 - schema and table
        raise cursor.error(
            "name a column and its table: COMMENT ON COLUMN schema.table.column. Nested fields have no "
            "comments.",
            at=start,
        )
    table = QualifiedName.of(tuple(above))
    return CommentOnColumn(table, written(column), _read_comment_text(cursor))


def _read_comment_text(cursor: Cursor) -> str | None:
    cursor.expect("IS")
    if cursor.accept("NULL"):
        return None
    text = cursor.string()
    if text is None:
        raise cursor.error("expected a string in single quotes, or NULL.")
    return text
