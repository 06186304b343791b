"""Statements of a text, each read from left to right, and errors that name a place in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ...errors import InvalidNameError, InvalidStatementError, UnsupportedFeatureError
from ...format.names.identifiers import RESERVED, QualifiedName, check_name, written
from ...format.sql.tokens import (
    ExpressionError,
    Token,
    TokenKind,
    TokenReader,
    line_and_column,
    statement_tokens,
    without_comments,
)
from ...format.versions import Feature, WriteVersion

Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class Call:
    """What a statement does: a method of ``LakeTransaction`` by its name, and what it is called with.

    Columns go by dotted paths, quoted where SQL needs it, as ``format.schema.resolve_path`` reads them.
    """

    method: str
    arguments: tuple[Any, ...]
    flags: Mapping[str, Any]


def call(method: str, *arguments: Any, **flags: Any) -> Call:  # noqa: ANN401 - the method's
    """Return a call; what is false or empty of ``flags`` is left out.

    >>> call("drop_table", "t", if_exists=False)
    Call(method='drop_table', arguments=('t',), flags={})
    """
    return Call(method, arguments, {name: value for name, value in flags.items() if value})


def written_path(parts: tuple[str, ...]) -> str:
    """Return a dotted path as ``format.schema.resolve_path`` reads it."""
    return ".".join(map(written, parts))


def split_statements(text: str, first_number: int = 1) -> Iterator[tuple[Token, ...]]:
    """Yield the tokens of each statement between semicolons, without comments; empty ones are left out."""
    number = first_number
    tokens: list[Token] = []
    try:
        for token in statement_tokens(text):
            if token.text[:2] in ("e'", "E'"):
                raise error_at(number, text, token.start, repr(token.text), _ESCAPES)
            if token.symbol != ";":
                tokens.append(token)
            elif tokens:
                yield tuple(tokens)
                number, tokens = number + 1, []
    except ExpressionError as error:
        raise error_at(number, text, error.position, repr(text[error.position]), _NOT_CLOSED) from None
    if tokens:
        yield tuple(tokens)


_ESCAPES = (
    "strings with backslash escapes are not supported. Write the characters themselves, 'it''s', or chr(10)."
)
_NOT_CLOSED = "this quote or comment is not closed, or is not one in DuckDB's SQL. Close it, or leave it out."


def error_at(number: int, text: str, position: int, near: str, problem: str) -> InvalidStatementError:
    """Return the error for what stands at a position of a text, given as the user sees it."""
    return InvalidStatementError(number, *line_and_column(text, position), near, problem)


class Cursor(TokenReader):
    """Reads one statement from left to right; nothing is skipped, and ``end`` refuses what is left."""

    def __init__(self, source: str, tokens: tuple[Token, ...], number: int, writer: WriteVersion) -> None:
        self._end = Token(TokenKind.END, "", tokens[-1].end)
        super().__init__(iter((*tokens, self._end)))
        self._source = source
        self.writer = writer
        self._number = number

    @property
    def has_nested_schemas(self) -> bool:
        """Return True if schemas can lie in each other, so that names have any number of parts."""
        return Feature.NESTED_SCHEMAS in self.writer.features

    @property
    def without_nested_schemas(self) -> str:
        """What to say of a name with more parts than the lake's version allows."""
        return "Leave the catalog out: the connection defines it. If it is a schema: " + self.writer.lacking(
            Feature.NESTED_SCHEMAS
        )

    @property
    def word(self) -> str:
        """The next token as a keyword, in capitals; empty where it is none."""
        return self.peek().word.upper()

    def text_from(self, start: Token) -> str:
        """Return the text as written from an earlier token up to here, without what surrounds it."""
        return self._source[start.start : self.peek(-1).end]

    def query_from(self, start: Token) -> str:
        """Return the same text for sqlglot, which cuts comments otherwise than DuckDB."""
        passed = self._tokens[: self.position]
        return without_comments(self._source, passed[passed.index(start) :]).strip()

    @property
    def statement(self) -> str:
        """The text up to the end of this statement, in which tokens have their places."""
        return self._source[: self._end.start]

    def skip_to(self, place: int) -> None:
        """Pass all tokens before a place of the text."""
        while self.peek().start < place:
            self.take()

    def error_in_text(self, place: int, problem: str) -> InvalidStatementError:
        """Return the error for what stands at a place of the text."""
        near = self._source[place : self._end.start].split(maxsplit=1)
        return error_at(self._number, self._source, place, repr(near[0]) if near else "its end", problem)

    def accept_kind(self, kind: TokenKind) -> str | None:
        """Pass a token of that kind and return its text as written; None if another follows."""
        return self.take().text if self.peek().kind is kind else None

    def end(self) -> None:
        """Refuse anything that is left."""
        if self.peek().kind is not TokenKind.END:
            raise self.error("this does not belong here. Leave it out; end a statement with a semicolon.")

    def name(self, kind: str) -> str:
        """Read a name, bare or quoted."""
        token = self.peek()
        if token.kind not in (TokenKind.QUOTED, TokenKind.WORD):
            raise self.error(
                f'expected the name of a {kind}. Put special characters in straight quotes: "a name".'
            )
        if token.word in RESERVED:
            raise self.error(
                f'this word is a keyword. To name a {kind} like it, quote it: "{token.text.lower()}".'
            )
        try:
            return check_name(self.take().value, kind)
        except InvalidNameError as error:
            raise self.error(str(error), at=token) from error

    def path(self, kind: str) -> tuple[str, ...]:
        """Read a dotted name of any length."""
        parts = [self.name(kind)]
        while self.accept("."):
            parts.append(self.name(kind))
        return tuple(parts)

    def qualified_name(self, kind: str) -> QualifiedName:
        """Read the name of a table or view; one part alone lies in schema ``main``."""
        start = self.peek()
        parts = self.path(kind)
        if len(parts) > 2 and not self.has_nested_schemas:  # noqa: PLR2004 - schema and name
            raise self.error(
                f"name a {kind} with at most its schema. {self.without_nested_schemas}", at=start
            )
        return QualifiedName.of(parts)

    def in_list(self, read: Callable[[], Read], *, may_end_in_comma: bool = False) -> tuple[Read, ...]:
        """Read one or more things between parentheses, with commas between them."""
        self.expect("(")
        items = [read()]
        while self.accept(",") and not (may_end_in_comma and self.sees(")")):
            items.append(read())
        self.expect(")")
        return tuple(items)

    def string(self) -> str | None:
        """Pass a string and return its value; None if something else follows."""
        return self.take().value if self.peek().kind is TokenKind.STRING else None

    def error(self, problem: str, *, at: Token | None = None) -> InvalidStatementError:
        """Return the error for a token, or for what follows."""
        token = at or self.peek()
        return error_at(self._number, self._source, token.start, token.shown, problem)

    def unsupported(self, problem: str, *, at: Token | None = None) -> UnsupportedFeatureError:
        """Return the error for something that the format has and this release does not."""
        return UnsupportedFeatureError(str(self.error(problem, at=at)))


# What DuckDB's SQL has but DuckLake, or the DDL operator, does not: one plain sentence each.


_NO_KEYS = "DuckLake has no primary keys and no unique constraints. Leave it out."
CONSTRAINTS = {
    "PRIMARY": _NO_KEYS,
    "UNIQUE": _NO_KEYS,
    "CHECK": "DuckLake has no CHECK constraints. Leave it out.",
    "FOREIGN": "DuckLake has no foreign keys. Leave it out.",
    "REFERENCES": "DuckLake has no foreign keys. Leave it out.",
    "GENERATED": "DuckLake has no generated columns. Use a view.",
    "AS": "DuckLake has no generated columns. Use a view.",
    "COLLATE": "DuckLake has no collations. Leave it out.",
    "CONSTRAINT": "DuckLake has no named constraints. Leave the name out; NOT NULL is the only constraint.",
    "USING": "DuckLake has no compression per column. Leave it out.",
}
COLUMN_OPTIONS = {
    **CONSTRAINTS,
    "COMMENT": "write a comment as a statement of its own: COMMENT ON COLUMN schema.table.column IS 'text'.",
}
_ROWS = "this operator changes tables, not rows. Use the operator of that verb."
STATEMENTS = {
    "INSERT": "this operator changes tables, not rows. Use the insert operator.",
    "UPDATE": _ROWS,
    "DELETE": _ROWS,
    "MERGE": _ROWS,
    "COPY": _ROWS,
    "SELECT": "this operator changes tables and returns no rows. Use the SQL operator.",
    "FROM": "this operator changes tables and returns no rows. Use the SQL operator.",
    "WITH": "this operator changes tables and returns no rows. Use the SQL operator.",
    "CALL": "DuckDB's maintenance calls are not DDL. Use the operator of that task.",
    "BEGIN": "the operator runs all statements in one transaction. Leave it out.",
    "COMMIT": "the operator runs all statements in one transaction. Leave it out.",
    "ROLLBACK": "the operator runs all statements in one transaction. Leave it out.",
    "SET": "there is no session to change. Leave it out, and name tables with their schema.",
    "USE": "there is no session to change. Leave it out, and name tables with their schema.",
}
ANY_STATEMENT = (
    "this operator does not run this statement. It runs CREATE, ALTER and DROP of SCHEMA, TABLE and VIEW, "
    "CREATE and DROP of MACRO, COMMENT ON and TRUNCATE."
)
_TEMPORARY = "a temporary table or view belongs to a session, not to a lake. Leave the word out."
OBJECTS = {
    "TEMP": _TEMPORARY,
    "TEMPORARY": _TEMPORARY,
    "UNLOGGED": "DuckLake has no unlogged tables. Leave the word out.",
    "PERSISTENT": "every table of a lake is persistent. Leave the word out.",
    "INDEX": "DuckLake has no indexes. Partition or sort the table.",
    "UNIQUE": "DuckLake has no indexes. Partition or sort the table.",
    "SEQUENCE": "DuckLake has no sequences. Use uuid() as a default.",
    "TYPE": "DuckLake has no user-defined types. Write the type at each column.",
    "RECURSIVE": "write the recursion inside: CREATE VIEW v AS WITH RECURSIVE …",
    "MATERIALIZED": "DuckLake has no materialized views. Create a table and insert into it.",
    "SECRET": "secrets belong to the Airflow connection.",
    "DATABASE": "a lake is one database. Create another lake with its own connection.",
}
EXISTING = "IF EXISTS is not supported here yet. Leave it out; the statement fails if the name is not there."


def refuse_object(cursor: Cursor, verb: str) -> InvalidStatementError:
    """Return the error for an object after CREATE, ALTER, DROP or COMMENT ON that is not handled."""
    word = cursor.word
    return cursor.error(
        OBJECTS.get(word, f"{verb} of this is not DDL of a lake: expected SCHEMA, TABLE, VIEW or MACRO.")
    )
