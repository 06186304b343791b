"""The words and symbols of DuckDB's SQL, and where one statement ends.

Texts are cut, never written anew: a token knows where it stands. Written by hand, since a tokenizer for many
dialects reads some texts otherwise than DuckDB does (``{# … #}`` as a comment, the rest of a line after
``CALL`` as one string). *Source:* DuckDB's own splitting, with which a property test compares.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import InvalidStatementError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Kind(Enum):
    """What a token is."""

    WORD = auto()  # keyword or bare name
    QUOTED_NAME = auto()
    STRING = auto()
    NUMBER = auto()
    SYMBOL = auto()


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


_SPACE = re.compile(r"\s+|--[^\r\n]*")
_TOKEN = re.compile(
    r"""(?P<STRING> [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | \$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$ )
    | (?P<QUOTED_NAME> "(?:[^"]|"")+" )
    | (?P<NUMBER> (?: [0-9]++(?:_[0-9]++)*+ (?:\.[0-9]*+)? | \.[0-9]++ ) (?:[eE][+-]?[0-9]++)? (?!\w) )
    | (?P<WORD> [^\W\d][\w$]* )
    | (?P<SYMBOL> :: | \|\| | \$\w+ | (?!/\*|--)[^'"$\s] )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_MARK = re.compile(r"/\*|\*/")


def split_statements(text: str, first_number: int = 1) -> Iterator[tuple[Token, ...]]:
    """Yield the tokens of each statement between semicolons, without comments; empty ones are left out.

    Raises:
        InvalidStatementError: a string, a quoted name or a comment does not end.
    """
    number, position = first_number, 0
    tokens: list[Token] = []
    while position < len(text):
        token = _token_at(text, position)
        position = token.end if token else _end_of_space(text, position, number)
        if token is not None and not token.is_symbol(";"):
            tokens.append(token)
        elif token is not None and tokens:
            yield tuple(tokens)
            number, tokens = number + 1, []
    if tokens:
        yield tuple(tokens)


def _token_at(text: str, position: int) -> Token | None:
    found = _TOKEN.match(text, position)
    return Token(Kind[found.lastgroup or ""], found[0], position) if found else None


def _end_of_space(text: str, start: int, number: int) -> int:
    """Return where what is no token ends: spaces or a comment."""
    space = _SPACE.match(text, start)
    end = space.end() if space else _end_of_comment(text, start)
    if end is None:
        raise error_at(
            number,
            text,
            start,
            text[start],
            "this quote or comment does not end, or holds nothing. Close it.",
        )
    return end


def _end_of_comment(text: str, start: int) -> int | None:
    """Return where a block comment ends; they nest."""
    if not text.startswith("/*", start):
        return None
    depth = 0
    for mark in _COMMENT_MARK.finditer(text, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return None


def error_at(number: int, text: str, position: int, near: str, problem: str) -> InvalidStatementError:
    """Return the error for what stands at a position of a text, given as the user sees it."""
    before = text[:position]
    line = before.count("\n") + 1
    return InvalidStatementError(number, line, position - before.rfind("\n"), near, problem)
