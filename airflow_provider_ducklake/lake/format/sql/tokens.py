"""The words and symbols of DuckDB's SQL, and how they are read from left to right.

Texts are cut, never rewritten: each token has its place in the text. A statement is cut as DuckDB cuts it,
since the query of a view may have all that DuckDB has. An expression has fewer tokens: what DuckDB would cut
otherwise than it seems, such as ``%-`` in ``a %-1``, is refused. *Source:* DuckDB's own splitting, with which
a property test compares.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeVar

from ..names.identifiers import fold

Read = TypeVar("Read")


class TokenKind(Enum):
    """What a token is."""

    WORD = auto()  # keyword or bare name
    QUOTED = auto()
    STRING = auto()
    NUMBER = auto()
    SYMBOL = auto()  # and whatever has no place in what we read
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text as written, and where it starts."""

    kind: TokenKind
    text: str
    start: int

    @property
    def end(self) -> int:
        """Where the next character stands."""
        return self.start + len(self.text)

    @property
    def word(self) -> str:
        """A bare word in small letters; empty for anything else."""
        return fold(self.text) if self.kind is TokenKind.WORD else ""

    @property
    def symbol(self) -> str:
        """A symbol; empty for anything else."""
        return self.text if self.kind is TokenKind.SYMBOL else ""

    @property
    def shown(self) -> str:
        """The token as an error names it."""
        return repr(self.text) if self.text else "its end"

    @property
    def sign(self) -> str:
        """A bare word in small letters, or a symbol."""
        return self.word or self.symbol

    @property
    def value(self) -> str:
        """What a string or a name says."""
        if self.kind is TokenKind.QUOTED:
            return self.text[1:-1].replace('""', '"')
        if self.kind is not TokenKind.STRING:
            return self.text
        if self.text[0] == "$":
            tag = self.text.index("$", 1) + 1
            return self.text[tag:-tag]
        return self.text[1:-1].replace("''", "'")


class ExpressionError(ValueError):
    """What cannot be read, and where."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(position, problem)
        self.position = position
        self.problem = problem

    def __str__(self) -> str:
        return self.problem


def line_and_column(text: str, position: int) -> tuple[int, int]:
    """Convert a position to a line and a column, as editors count them, from 1."""
    before = text[:position]
    return before.count("\n") + 1, position - before.rfind("\n")


_SPACES = "\t\n\f\r \u00a0\u2000-\u200b\u202f\u205f\u2060\u3000\ufeff"  # DuckDB's
_ENDS_WORD = r"\s\u200b\u2060\ufeff()\[\]{}&^:,.\-=><%!|+;/\\*~?@#'`\""
_OF_STATEMENTS = re.compile(
    rf"""
    (?P<space>[{_SPACES}]+|--[^\r\n]*)
    |(?P<comment>/\*)
    |(?P<QUOTED>"(?:[^"]|"")*"(?!"))
    |(?P<STRING>'(?:[^']|'')*'(?!')|\$(?P<tag>(?:[^\W\d]\w*)?)\$(?s:.*?)\$(?P=tag)\$)
    |(?P<NUMBER>\.?[0-9](?:_?[0-9])*(?:\.(?:[0-9](?:_?[0-9])*)?)?
        (?:[eE](?!_)(?:[0-9.]|[+-](?=[0-9])|(?<=[0-9])_(?=[0-9]))*)?)
    |(?P<SYMBOL>
        [nN]'(?:[^']|'')*'(?!')|[eE]'(?:[^'\\]|\\.|'')*'|::|\|\||[<>=!]+|&+
        |[()\[\]^:,.\-%|+;/\\*~?@#`}}]|{{(?!\#)|\$(?!(?:[^\W\d]\w*)?\$)
    )
    |(?P<WORD>(?![eEnN]')[^{_ENDS_WORD}$][^{_ENDS_WORD}]*)
    """,
    re.VERBOSE,
)
_SHAPES = {
    TokenKind.WORD: re.compile(r"[^\W\d][\w$]*"),  # not typographic quotes
    TokenKind.NUMBER: re.compile(r"(\d+(_\d+)*(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII),  # not 1e
}
_OF_EXPRESSIONS = re.compile(
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
_NO_LINE_BREAK = re.compile(r"[^\r\n]")
_COMMENT_MARK = re.compile(r"/\*|\*/")
_WORD_BEFORE = (TokenKind.WORD, TokenKind.NUMBER)
_OPERATOR = frozenset("+-*/<>=~!@#%^&|?`")
_MAY_HAVE_A_SIGN_BEHIND = frozenset({"=", "==", "<", ">", "<=", ">=", "<>", "+", "*", "/", "//"})


def statement_tokens(text: str) -> Iterator[Token]:
    """Yield all tokens of statements; a word or number that is none for DuckDB is a symbol."""
    for token in _cut(text, 0, _OF_STATEMENTS):
        shape = _SHAPES.get(token.kind)
        right = shape is None or shape.fullmatch(token.text)
        yield token if right else Token(TokenKind.SYMBOL, token.text, token.start)


def expression_tokens(text: str, start: int = 0) -> Iterator[Token]:
    """Yield the tokens of an expression, then one of the kind ``END``."""
    last = None
    for token in _cut(text, start, _OF_EXPRESSIONS):
        if last is not None and last.end == token.start:
            _check_neighbours(last, token)
        last = token
        yield token
    yield Token(TokenKind.END, "", len(text))


def without_comments(text: str, tokens: Sequence[Token]) -> str:
    """Return a text with spaces in place of all but the tokens: sqlglot cuts comments otherwise."""
    pieces, end = [], 0
    for token in tokens:
        pieces += [_NO_LINE_BREAK.sub(" ", text[end : token.start]), token.text]
        end = token.end
    return "".join(pieces)


def _cut(text: str, position: int, pattern: re.Pattern[str]) -> Iterator[Token]:
    while position < len(text):
        found = pattern.match(text, position)
        if found is None or found.lastgroup is None:
            raise ExpressionError(position, f"{text[position : position + 10]!r} cannot be read here.")
        if found.lastgroup in TokenKind.__members__:
            yield Token(TokenKind[found.lastgroup], found[0], position)
        is_comment = found.lastgroup == "comment"
        position = _end_of_comment(text, position) if is_comment else found.end()


def _end_of_comment(text: str, start: int) -> int:
    """Find the end of a block comment, which may have others in it; refuse one that is not closed."""
    depth = 0
    for mark in _COMMENT_MARK.finditer(text, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    raise ExpressionError(start, "this comment is not closed.")


def _check_neighbours(one: Token, other: Token) -> None:
    """Refuse two tokens that touch and that DuckDB could take for one, or for something else."""
    if one.kind in _WORD_BEFORE and other.kind in (TokenKind.STRING, TokenKind.QUOTED, *_WORD_BEFORE):
        raise ExpressionError(other.start, "put a space before it.")
    if one.kind in (TokenKind.STRING, TokenKind.QUOTED) and other.kind in (
        TokenKind.STRING,
        TokenKind.QUOTED,
        *_WORD_BEFORE,
    ):
        raise ExpressionError(other.start, "put a space before it.")
    are_operators = one.symbol and other.symbol and {one.text[-1], other.text[0]} <= _OPERATOR
    is_sign = other.text in ("-", "+") and one.text in _MAY_HAVE_A_SIGN_BEHIND
    if are_operators and not is_sign:
        raise ExpressionError(other.start, f"put a space between {one.text!r} and {other.text!r}.")


class TokenReader(ABC):
    """Reads tokens from left to right; the last is of the kind ``END``. Words match in any case."""

    def __init__(self, tokens: Iterator[Token]) -> None:
        self._coming = tokens
        self._tokens: list[Token] = []
        self.position = 0

    @abstractmethod
    def error(self, problem: str, *, at: Token | None = None) -> ValueError:
        """Return the error for a token, or for what follows."""

    def peek(self, ahead: int = 0) -> Token:
        """Return a token that follows, or, with -1, the one before."""
        while len(self._tokens) <= self.position + ahead:
            if self._tokens and self._tokens[-1].kind is TokenKind.END:
                return self._tokens[-1]
            self._tokens.append(next(self._coming))
        return self._tokens[self.position + ahead]

    def take(self) -> Token:
        """Pass the next token."""
        token = self.peek()
        self.position += token.kind is not TokenKind.END
        return token

    def sees(self, *texts: str) -> bool:
        """Return True if these words or symbols follow."""
        return all(self.peek(place).sign == text.lower() for place, text in enumerate(texts))

    def accept(self, *texts: str) -> bool:
        """Pass these words or symbols if all of them follow."""
        found = self.sees(*texts)
        self.position += len(texts) if found else 0
        return found

    def expect(self, *texts: str) -> None:
        """Pass these words, or this symbol."""
        if not self.accept(*texts):
            raise self.error(f"expected {' '.join(texts).upper() if texts[0].isalpha() else repr(texts[0])}.")

    def list_of(self, read: Callable[[], Read]) -> tuple[Read, ...]:
        """Read one or more things with commas between them."""
        items = [read()]
        while self.accept(","):
            items.append(read())
        return tuple(items)

    def in_parentheses(self, read: Callable[[], Read]) -> Read:
        """Read something between parentheses."""
        self.expect("(")
        found = read()
        self.expect(")")
        return found
