"""sqlglot's parser, as all of this package calls it.

Where sqlglot does not read a statement, it logs a piece of its text, which may have a secret in it: that line
is left out. Text that is nested deeper than Python's stack, or at which its parser itself fails, is an error
of sqlglot's kind.

In some places sqlglot reads what follows twice: behind a type's name and a parenthesis, first as a type and
then as a function; behind a JOIN without ON, an IF without parentheses, a LIMIT. Where such places lie within
each other, each doubles the time. So texts are measured before they are parsed. *Source:* a parser that
counts its steps, over drawn texts; of sqlglot's compiled parser no such class can be derived.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import sqlglot
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError, TokenError

if TYPE_CHECKING:
    from sqlglot import Token, exp

# of sqlglot: an IndexError at "map(, 1)", a ValueError at "date_trunc()"
_OWN_MISTAKES = (AssertionError, AttributeError, LookupError, TypeError, ValueError)
TOO_DEEP = "it is nested too deeply."
_MOST_READ = 50_000  # tokens, each as often as it may be read, besides once: a second or less
_SEARCHED = 300  # pairs of characters, in the time of one token
_OPENING, _CLOSING = (frozenset(f"{side}_{one}" for one in ("PAREN", "BRACKET", "BRACE")) for side in "LR")
_OF_TYPES = frozenset({"ARRAY", "LIST", "MAP"})
_NO_TYPES = frozenset({"L_PAREN", "NUMBER", "STRING"})
_JOINS, _CONDITIONS = frozenset({"JOIN", "STRAIGHT_JOIN"}), frozenset({"ON", "USING"})
_LIMITS = frozenset({"LIMIT", "OFFSET"})
_ENDS = frozenset({"WHERE", "GROUP_BY", "HAVING", "ORDER_BY", "UNION", "EXCEPT", "INTERSECT", "SEMICOLON"})


class TooDeepError(SqlglotError):
    """A text is nested deeper than Python's stack, or so that sqlglot would read it over and over."""


def parse_one(text: str, dialect: str, into: type[exp.Expr] | None = None) -> exp.Expr:
    """Return the tree of a text that is one statement, or that is ``into``."""
    with typed_and_quiet():
        check_cost(text, dialect)
        return sqlglot.parse_one(text, dialect=dialect, into=into)


def parse(text: str, dialect: str) -> list[exp.Expr | None]:
    """Return the trees of the statements of a text."""
    with typed_and_quiet():
        check_cost(text, dialect)
        return sqlglot.parse(text, dialect=dialect)


def check_cost(text: str, dialect: str) -> None:
    """Refuse a text that sqlglot would not have read for minutes, or ever."""
    reader = Dialect.get_or_raise(dialect)
    tokens = reader.tokenize(text)
    if _readings(tokens, reader, 0) > _MOST_READ + len(tokens):
        raise TooDeepError(TOO_DEEP)


def _readings(tokens: Sequence[Token], dialect: Dialect, level: int) -> int:
    """Estimate how often tokens are read at most, all together; those around them are read 2**level times."""
    found, base, calls = 0, level, 0  # calls of methods in a row: each is built of all those before it
    opened: list[tuple[int, int, int]] = []
    before = None
    are_types = _are_types(tokens, dialect)
    for place, token in enumerate(tokens):
        kind = token.token_type.name
        inner = _within(token, dialect) if kind == "IDENTIFIER" else []
        found += _weight(token, before) * 2**level + _readings(inner, dialect, level)
        if found > _MOST_READ + len(tokens):
            break
        is_method = kind == "DOT" and before is not None and before.token_type.name == "R_PAREN"
        if is_method:
            calls += 1
            found += 2 * calls
        elif before is not None and before.token_type.name != "DOT" and kind not in _OPENING | _CLOSING:
            calls = 0
        if kind in _OPENING:
            opened.append((level, base, calls))
            level += before is not None and (are_types[place - 1] or before.text.upper() == "LATERAL")
            base = level
        elif kind in _CLOSING and opened:
            level, base, calls = opened.pop()
        elif kind in _CONDITIONS:
            level = max(base, level - 1)
        elif kind in _ENDS:
            level = base
        elif _is_read_twice_behind(token, before, next(iter(tokens[place + 1 : place + 2]), None)):
            level += 1
        before = token
    return found


def _are_types(tokens: Sequence[Token], dialect: Dialect) -> list[bool]:
    """Return for each token if it may be read as a type.

    ARRAY(…), and in Spark STRUCT(…), is none where its parentheses begin with a value or with others.
    """
    types, nested = dialect.parser_class.TYPE_TOKENS, _OF_TYPES
    if not dialect.SUPPORTS_USER_DEFINED_TYPES:
        nested = nested | {one.name for one in dialect.parser_class.NESTED_TYPE_TOKENS}
    found = [False] * len(tokens)
    for place in reversed(range(len(tokens))):
        kind = tokens[place].token_type.name
        if kind in nested and [one.token_type.name for one in tokens[place + 1 : place + 2]] == ["L_PAREN"]:
            inner = tokens[place + 2].token_type.name if place + 2 < len(tokens) else "L_PAREN"
            is_passed_on = kind in _OF_TYPES and inner in nested
            found[place] = found[place + 2] if is_passed_on else inner not in _NO_TYPES
        else:
            found[place] = tokens[place].token_type in types or kind == "IDENTIFIER"
    return found


def _weight(token: Token, before: Token | None) -> int:
    """Return the cost of a token in tokens: sqlglot looks for numbers at each place of an interval."""
    is_interval = before is not None and before.token_type.name == "INTERVAL"
    return 1 + len(token.text) ** 2 // _SEARCHED if is_interval else 1


def _is_read_twice_behind(token: Token, before: Token | None, following: Token | None) -> bool:
    """Return True if what comes behind a word is, up to where a condition follows or all around it ends."""
    kind = token.token_type.name
    if kind in _JOINS:
        return before is None or before.token_type.name != "CROSS"
    if token.text.upper() == "IF":
        return following is None or following.token_type.name != "L_PAREN"
    return kind in _LIMITS or kind == "APPLY"


def _within(name: Token, dialect: Dialect) -> list[Token]:
    """Return the tokens of a name in quotes: where it is a type, it is read as one."""
    try:
        return dialect.tokenize(name.text)
    except TokenError:
        return []


@contextmanager
def typed_and_quiet() -> Iterator[None]:
    """Keep what sqlglot logs in this thread out of the log."""
    logger, own = logging.getLogger("sqlglot"), threading.get_ident()

    def is_of_others(record: logging.LogRecord) -> bool:
        return record.thread != own

    logger.addFilter(is_of_others)
    try:
        yield
    except RecursionError:
        raise TooDeepError(TOO_DEEP) from None
    except SqlglotError:
        raise
    except _OWN_MISTAKES as error:
        raise ParseError.new("It cannot be read.") from error
    finally:
        logger.removeFilter(is_of_others)
