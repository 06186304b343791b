"""A position in a statement: its token, what may follow, and errors that name it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.errors import (
    InvalidNameError,
    InvalidStatementError,
    UnsupportedFeatureError,
)
from airflow_provider_ducklake.lake.spec.names.identifiers import (
    RESERVED,
    QualifiedName,
    check_name,
    fold,
    written,
)
from airflow_provider_ducklake.lake.spec.versions import Feature
from airflow_provider_ducklake.lake.sql.lexer import Kind, Token, error_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from airflow_provider_ducklake.lake.spec.versions import WriteVersion

    Read = TypeVar("Read")


def written_path(parts: tuple[str, ...]) -> str:
    """Return a dotted path as ``spec.schema.resolve_path`` reads it."""
    return ".".join(map(written, parts))


class Cursor:
    """Reads one statement from left to right; nothing is skipped, and ``end`` refuses what is left."""

    def __init__(self, source: str, tokens: tuple[Token, ...], number: int, writer: WriteVersion) -> None:
        self._source = source
        self.writer = writer
        self._tokens = tokens
        self._number = number
        self.position = 0

    @property
    def has_nested_schemas(self) -> bool:
        """Whether schemas can lie in each other, so that names have any number of parts."""
        return Feature.NESTED_SCHEMAS in self.writer.features

    @property
    def without_nested_schemas(self) -> str:
        """What to say of a name with more parts than the lake's version allows."""
        return "Leave the catalog out: the connection defines it. If it is a schema: " + self.writer.lacking(
            Feature.NESTED_SCHEMAS
        )

    @property
    def token(self) -> Token | None:
        """The next token; None at the end."""
        return self._tokens[self.position] if self.position < len(self._tokens) else None

    @property
    def word(self) -> str:
        """The next token as a keyword, in capitals; empty where it is none."""
        token = self.token
        return token.text.upper() if token is not None and token.kind is Kind.WORD else ""

    def text_from(self, position: int) -> str:
        """Return the text as written between an earlier position and this one, without what surrounds it."""
        return self._source[self._tokens[position].start : self._tokens[self.position - 1].end]

    @property
    def place(self) -> int:
        """Where the next token starts in the text."""
        return self._source_end if self.token is None else self.token.start

    @property
    def _source_end(self) -> int:
        return self._tokens[-1].end

    @property
    def statement(self) -> str:
        """The text up to the end of this statement, in which tokens have their places."""
        return self._source[: self._source_end]

    def skip_to(self, place: int) -> None:
        """Pass all tokens before a place of the text."""
        while self.token is not None and self.token.start < place:
            self.advance()

    def error_in_text(self, place: int, problem: str) -> InvalidStatementError:
        """Return the error for what stands at a place of the text."""
        near = self._source[place : self._source_end].split(maxsplit=1)
        return error_at(self._number, self._source, place, repr(near[0]) if near else "its end", problem)

    def advance(self) -> None:
        """Pass the next token."""
        self.position += 1

    def accept(self, *words: str) -> bool:
        """Pass these keywords if all of them follow."""
        following = self._tokens[self.position : self.position + len(words)]
        matched = len(following) == len(words) and all(map(Token.is_word, following, words))
        if matched:
            self.position += len(words)
        return matched

    def sees(self, symbol: str) -> bool:
        """Whether that symbol follows."""
        return self.token is not None and self.token.is_symbol(symbol)

    def sees_call(self) -> bool:
        """Whether the next token has a parenthesis behind it."""
        behind = self._tokens[self.position + 1 : self.position + 2]
        return bool(behind) and behind[0].is_symbol("(")

    def accept_symbol(self, symbol: str) -> bool:
        """Pass that symbol if it follows."""
        matched = self.sees(symbol)
        self.position += matched
        return matched

    def expect(self, *words: str) -> None:
        """Pass these keywords."""
        if not self.accept(*words):
            raise self.error(f"expected {' '.join(words)}.")

    def expect_symbol(self, symbol: str) -> None:
        """Pass that symbol."""
        if not self.accept_symbol(symbol):
            raise self.error(f"expected {symbol!r}.")

    def accept_kind(self, kind: Kind) -> str | None:
        """Pass a token of that kind and return its text as written; None if another follows."""
        token = self.token
        if token is None or token.kind is not kind:
            return None
        self.advance()
        return token.text

    def end(self) -> None:
        """Refuse anything that is left."""
        if self.token is not None:
            raise self.error("this does not belong here. Leave it out; end a statement with a semicolon.")

    def name(self, kind: str) -> str:
        """Read a name, bare or quoted."""
        quoted = self.accept_kind(Kind.QUOTED_NAME)
        if quoted is not None:
            return self._checked(quoted[1:-1].replace('""', '"'), kind)
        if not self.word:
            raise self.error(
                f'expected the name of a {kind}. Put special characters in straight quotes: "a name".'
            )
        if fold(self.word) in RESERVED:
            raise self.error(
                f'this word is a keyword. To name a {kind} like it, quote it: "{self.word.lower()}".'
            )
        return self._checked(self.accept_kind(Kind.WORD) or "", kind)

    def _checked(self, name: str, kind: str) -> str:
        try:
            return check_name(name, kind)
        except InvalidNameError as error:
            raise self.error(str(error), back=1) from error

    def path(self, kind: str) -> tuple[str, ...]:
        """Read a dotted name of any length."""
        parts = [self.name(kind)]
        while self.accept_symbol("."):
            parts.append(self.name(kind))
        return tuple(parts)

    def qualified_name(self, kind: str) -> QualifiedName:
        """Read the name of a table or view; one part alone lies in schema ``main``."""
        start = self.position
        parts = self.path(kind)
        if len(parts) > 2 and not self.has_nested_schemas:  # noqa: PLR2004 - schema and name
            raise self.error(
                f"name a {kind} with at most its schema. {self.without_nested_schemas}", at=start
            )
        return QualifiedName.of(parts)

    def list_of(self, read: Callable[[], Read], *, may_end_in_comma: bool = False) -> tuple[Read, ...]:
        """Read one or more things between parentheses, with commas between them."""
        self.expect_symbol("(")
        items = [read()]
        while self.accept_symbol(",") and not (may_end_in_comma and self.sees(")")):
            items.append(read())
        self.expect_symbol(")")
        return tuple(items)

    def string(self) -> str | None:
        """Pass a string and return its value; None if something else follows."""
        text = self.accept_kind(Kind.STRING)
        if text is None:
            return None
        if text[0] == "$":
            tag = text.index("$", 1) + 1
            return text[tag:-tag]
        return text[1:-1].replace("''", "'")

    def error(self, problem: str, *, at: int | None = None, back: int = 0) -> InvalidStatementError:
        """Return the error for what follows, stands ``back`` tokens before, or stands ``at`` a position."""
        index = (self.position if at is None else at) - back
        if index < len(self._tokens):
            token = self._tokens[index]
            return error_at(self._number, self._source, token.start, repr(token.text), problem)
        return error_at(self._number, self._source, self._tokens[-1].end, "its end", problem)

    def unsupported(self, problem: str, *, at: int | None = None, back: int = 0) -> UnsupportedFeatureError:
        """Return the error for something that the format has and this release does not."""
        return UnsupportedFeatureError(str(self.error(problem, at=at, back=back)))


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
