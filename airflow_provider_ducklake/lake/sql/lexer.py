"""The words and symbols of DuckDB's SQL, and where one statement ends.

sqlglot's tokenizer reads the text; the grammar above it is our own, see ``docs/adr/0010-…``. What sqlglot
reads otherwise than DuckDB is put right or refused here. Texts are cut, never rewritten: a token knows
where it stands. *Source:* DuckDB's own splitting, with which a property test compares.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.errors import InvalidStatementError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlglot.tokens import Tokenizer


class Kind(Enum):
    """What a token is."""

    WORD = auto()  # keyword or bare name
    QUOTED_NAME = auto()
    STRING = auto()
    NUMBER = auto()
    SYMBOL = auto()  # and whatever has no place in DDL


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of SQL as written, and where it starts."""

    kind: Kind
    text: str
    start: int

    @property
    def end(self) -> int:
        """Where the next character stands."""
        return self.start + len(self.text)

    def is_word(self, word: str) -> bool:
        """Whether it is that keyword, in capital or small letters."""
        return self.kind is Kind.WORD and self.text.upper() == word

    def is_symbol(self, symbol: str) -> bool:
        """Whether it is that symbol."""
        return self.kind is Kind.SYMBOL and self.text == symbol


_KINDS = {
    "VAR": Kind.WORD,
    "IDENTIFIER": Kind.QUOTED_NAME,
    "STRING": Kind.STRING,
    "HEREDOC_STRING": Kind.STRING,  # $$text$$
    "NUMBER": Kind.NUMBER,
}
# sqlglot also makes words of typographic quotes, and numbers of "1e".
_SHAPES = {
    Kind.WORD: re.compile(r"[^\W\d][\w$]*"),
    Kind.NUMBER: re.compile(r"(\d+(_\d+)*(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII),
}
_SPACES = "\t\n\f\r \u00a0\u2000-\u200b\u202f\u205f\u2060\u3000\ufeff"  # DuckDB's
_SPACE = re.compile(rf"[{_SPACES}]+|--[^\r\n]*")
_SPACES_FOR_DUCKDB_ONLY = str.maketrans("\u200b\u2060\ufeff", "   ")
_COMMENT_MARK = re.compile(r"/\*|\*/")


def split_statements(text: str, first_number: int = 1) -> Iterator[tuple[Token, ...]]:
    """Yield the tokens of each statement between semicolons, without comments; empty ones are left out."""
    number, end = first_number, 0
    tokens: list[Token] = []
    for token in _tokens(text):
        _check_gap(text, end, token.start, number)
        _refuse_escapes(text, token, number)
        end = token.end
        if not token.is_symbol(";"):
            tokens.append(token)
        elif tokens:
            yield tuple(tokens)
            number, tokens = number + 1, []
    _check_gap(text, end, len(text), number)
    if tokens:
        yield tuple(tokens)


@cache
def _tokenizer_class() -> type[Tokenizer]:
    from sqlglot import TokenType  # noqa: PLC0415 - a second, and DAG files import operators over and over
    from sqlglot.dialects.duckdb import DuckDB  # noqa: PLC0415

    class WordByWord(DuckDB.Tokenizer):
        """Makes one token of each word (not of PARTITIONED BY), and of no command's text."""

        KEYWORDS = {"::": TokenType.DCOLON, "||": TokenType.DPIPE}  # noqa: RUF012 - sqlglot's
        COMMANDS = set()  # noqa: RUF012

    return WordByWord


def _tokens(text: str) -> list[Token]:
    """Return the tokens of a text, up to what cannot be read."""
    from sqlglot.errors import TokenError  # noqa: PLC0415

    tokenizer = _tokenizer_class()(dialect="duckdb")
    try:
        found = tokenizer.tokenize(text.translate(_SPACES_FOR_DUCKDB_ONLY))
    except TokenError:
        found = tokenizer.tokens
    tokens: list[Token] = []
    for one in found:
        start = one.start
        kind = _KINDS.get(one.token_type.name, Kind.SYMBOL)
        if kind is Kind.NUMBER and tokens and tokens[-1].is_symbol(".") and tokens[-1].end == start:
            start = tokens.pop().start  # .5 is one number
        tokens.append(_shaped(Token(kind, text[start : one.end + 1], start)))
    return tokens


def _shaped(token: Token) -> Token:
    shape = _SHAPES.get(token.kind)
    right = shape is None or shape.fullmatch(token.text)
    return token if right else Token(Kind.SYMBOL, token.text, token.start)


def _refuse_escapes(text: str, token: Token, number: int) -> None:
    """Refuse E'…': older releases of sqlglot end it at the wrong quote."""
    if token.kind is Kind.SYMBOL and token.text[:2] in ("e'", "E'"):
        raise error_at(
            number,
            text,
            token.start,
            repr(token.text),
            "strings with backslash escapes are not supported. Write the characters themselves, 'it''s', "
            "or chr(10).",
        )


def _check_gap(text: str, start: int, end: int, number: int) -> None:
    """Refuse what sqlglot passed over, or stopped at, if DuckDB sees no space and no comment there."""
    position = start
    while position < end:
        space = _SPACE.match(text, position, end)
        passed = space.end() if space else _end_of_comment(text, position, end)
        if passed is None:
            raise error_at(
                number,
                text,
                position,
                repr(text[position]),
                "this quote or comment is not closed, or is not one in DuckDB's SQL. Close it, or leave it "
                "out.",
            )
        position = passed


def _end_of_comment(text: str, start: int, end: int) -> int | None:
    """Return where a block comment ends; they nest."""
    if not text.startswith("/*", start):
        return None
    depth = 0
    for mark in _COMMENT_MARK.finditer(text, start, end):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return None


def error_at(number: int, text: str, position: int, near: str, problem: str) -> InvalidStatementError:
    """Return the error for what stands at a position of a text, given as the user sees it."""
    before = text[:position]
    line = before.count("\n") + 1
    return InvalidStatementError(number, line, position - before.rfind("\n"), near, problem)
