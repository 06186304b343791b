"""The words and symbols of an expression.

Fewer than DuckDB has: what it would cut otherwise than it seems, such as ``%-`` in ``a %-1``, is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Kind(Enum):
    """What a token is."""

    WORD = auto()
    QUOTED = auto()
    STRING = auto()
    NUMBER = auto()
    SYMBOL = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text, and where it lies."""

    kind: Kind
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """A bare word in small letters; empty for anything else."""
        return self.text.lower() if self.kind is Kind.WORD else ""

    @property
    def symbol(self) -> str:
        """A symbol; empty for anything else."""
        return self.text if self.kind is Kind.SYMBOL else ""

    @property
    def value(self) -> str:
        """What a string or a name says."""
        match self.kind:
            case Kind.STRING:
                return self.text[1:-1].replace("''", "'")
            case Kind.QUOTED:
                return self.text[1:-1].replace('""', '"')
            case _:
                return self.text


class ExpressionError(ValueError):
    """What cannot be read, and where."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(position, problem)
        self.position = position
        self.problem = problem

    def __str__(self) -> str:
        return self.problem


_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\n\r\f]+|--[^\r\n]*)
    |(?P<comment>/\*)
    |(?P<WORD>[^\W\d]\w*)
    |(?P<QUOTED>"(?:[^"]|"")+")
    |(?P<STRING>'(?:[^']|'')*')
    |(?P<NUMBER>(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    |(?P<SYMBOL>!~~\*|->>|!~~|~~\*|~~|::|:=|=>|\|\||<=|>=|<>|!=|==|->|//|\*\*|[-+*/%(),.\[\]=<>^{}:;])
    """,
    re.VERBOSE | re.ASCII,
)
_WORD_BEFORE = (Kind.WORD, Kind.NUMBER)
_OPERATOR = frozenset("+-*/<>=~!@#%^&|?`")
_MAY_HAVE_A_SIGN_BEHIND = frozenset({"=", "==", "<", ">", "<=", ">=", "<>", "+", "*", "/", "//"})


def tokens(text: str, start: int = 0) -> Iterator[Token]:
    """Yield the tokens of a text, then one of the kind ``END``."""
    position, last = start, None
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None or found.lastgroup is None:
            raise ExpressionError(position, f"{text[position : position + 10]!r} cannot be read here.")
        if found.lastgroup == "comment":
            position = _end_of_comment(text, position)
            continue
        if found.lastgroup != "space":
            token = Token(Kind[found.lastgroup], found[0], position, found.end())
            if last is not None:
                _check_neighbours(last, token)
            last = token
            yield token
        position = found.end()
    yield Token(Kind.END, "", len(text), len(text))


_COMMENT_MARK = re.compile(r"/\*|\*/")


def _end_of_comment(text: str, start: int) -> int:
    """Return where a block comment ends; they nest."""
    depth = 0
    for mark in _COMMENT_MARK.finditer(text, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    raise ExpressionError(start, "this comment is not closed.")


def _check_neighbours(one: Token, other: Token) -> None:
    """Refuse two tokens that DuckDB could take for one, or for something else."""
    if one.end != other.start:
        return
    if one.kind in _WORD_BEFORE and other.kind in (Kind.STRING, Kind.QUOTED, *_WORD_BEFORE):
        raise ExpressionError(other.start, "put a space before it.")
    if one.kind in (Kind.STRING, Kind.QUOTED) and other.kind in (Kind.STRING, Kind.QUOTED, *_WORD_BEFORE):
        raise ExpressionError(other.start, "put a space before it.")
    are_operators = one.symbol and other.symbol and {one.text[-1], other.text[0]} <= _OPERATOR
    is_sign = other.text in ("-", "+") and one.text in _MAY_HAVE_A_SIGN_BEHIND
    if are_operators and not is_sign:
        raise ExpressionError(other.start, f"put a space between {one.text!r} and {other.text!r}.")
