"""What the words of an expression in Spark SQL certainly say, before Spark is asked.

Stars and queries are refused: rows have columns of ours beside their own, and an expression is computed more
than once. Which columns a join says are equal, and that the rows of a table are not looked at, only saves
work: what is not certain is left out.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from sqlglot import TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from airflow_provider_ducklake.lake.errors import InvalidInputError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.spec.names.identifiers import fold
from airflow_provider_ducklake.lake.sql.spark.conditions import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from sqlglot import Token

Name = tuple[str, ...]  # its parts, as they were written

_FACTOR = re.compile(
    r"(?!(?:DISTINCT|ALL|\.)\Z).*[\w.)\]'\"`]", re.DOTALL
)  # what a product's star stands behind
_BOXES_MEET = "&&"
_QUERIES = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE"})
# A word that is one is another token for sqlglot where it has a meaning of its own, as date has.
_NAME = re.compile(r"[^\W\d]\w*")
_VALUES = frozenset([*FUNCTIONS, "null", "true", "false"])
_OPENING, _CLOSING = ("(", "[", "CASE"), (")", "]", "END")


def check_expression(text: str, what: str) -> None:
    """Refuse an expression that looks at more than the columns that it names; ``what`` is how errors call it.

    Raises:
        InvalidInputError: it has a star, or a subquery, or its quotes are not closed.
        UnsupportedFeatureError: it compares boxes of geometries.
    """
    try:
        tokens = _tokens(text)
    except TokenError as error:
        raise InvalidInputError(
            f"{what}: {text!r} cannot be run: its quotes or comments are not closed."
        ) from error
    words = [_word(text, token) for token in tokens]
    if _BOXES_MEET in words:
        raise UnsupportedFeatureError(
            f"{what}: {text!r} has &&, which Spark SQL does not. Only filters, and where of a delete or an "
            "update, compare boxes of geometries: select the rows in the source, or delete or update them."
        )
    if any(word == "*" and not _FACTOR.fullmatch(before) for before, word in pairwise(["(", *words])):
        raise InvalidInputError(f"{what}: {text!r} uses * for all columns. Name the columns.")
    places = [place for place, pair in enumerate(pairwise(words)) if pair[0] == "(" and pair[1] in _QUERIES]
    if any(_is_query(words, place + 1) for place in places):
        raise InvalidInputError(f"{what}: {text!r} contains a subquery. Merge with that query as the source.")


def compares_boxes(text: str) -> bool:
    """Whether a condition has ``&&``: it is a filter of ours then, as Spark SQL has no such operator.

    >>> compares_boxes("id < 5 AND g && 'POINT(1 2)'"), compares_boxes("name = 'a && b'")
    (True, False)
    """
    try:
        return any(_word(text, token) == _BOXES_MEET for token in _tokens(text))
    except TokenError:
        return False  # check_expression says what is wrong


def _is_query(words: Sequence[str], place: int) -> bool:
    """Whether the word behind a parenthesis begins a query: other words are functions' or columns' names."""
    following = words[place + 1] if place + 1 < len(words) else ""
    is_call = following == "(" and words[place] != "VALUES"
    return words[place] == "SELECT" or not (is_call or following in {")", ",", ".", "=", "<", ">", ""})


def _tokens(text: str) -> list[Token]:
    return list(Spark().tokenize(text))


def _word(text: str, token: Token) -> str:
    """Return a token as it was written, in capitals; names in backticks keep those."""
    return text[token.start : token.end + 1].upper()


def equal_columns(condition: str) -> tuple[tuple[Name, Name], ...]:
    """Return the names that a condition says are equal wherever it holds.

    >>> equal_columns("target.id = source.id AND (day = `the day`) AND n > 1")
    ((('target', 'id'), ('source', 'id')), (('day',), ('the day',)))
    >>> equal_columns("a = b OR c = d")
    ()
    """
    try:
        tokens = _tokens(condition)
    except TokenError:
        return ()
    try:
        return tuple(
            pair for part in _parts(condition, tokens) if (pair := _equal(condition, part)) is not None
        )
    except RecursionError:
        return ()  # nested too deeply to be looked at


def _parts(condition: str, tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Yield what the ANDs of a condition connect, without parentheses; nothing where an OR is among them."""
    tokens = _without_parentheses(condition, tokens)
    words = [_word(condition, token) for token in tokens]
    outer = [not depth for depth in _depths(words)]
    joined = {word for word, is_outer in zip(words, outer, strict=True) if is_outer}
    if joined & {"OR", "BETWEEN"}:
        return
    ands = [place for place, word in enumerate(words) if word == "AND" and outer[place]]
    if not ands:
        yield tokens
        return
    for start, end in pairwise([-1, *ands, len(tokens)]):
        yield from _parts(condition, tokens[start + 1 : end])


def _without_parentheses(condition: str, tokens: Sequence[Token]) -> Sequence[Token]:
    words = [_word(condition, token) for token in tokens]
    depths = _depths(words)
    while len(words) > 1 and words[0] == "(" and words[-1] == ")" and all(depths[1:-1]):
        tokens, words = tokens[1:-1], words[1:-1]
        depths = _depths(words)
    return tokens


def _depths(words: Sequence[str]) -> list[int]:
    """Return how many parentheses each word lies in; a parenthesis lies in those around it."""
    depths, depth = [], 0
    for word in words:
        depth -= word in _CLOSING
        depths.append(depth)
        depth += word in _OPENING
    return depths


def _equal(condition: str, tokens: Sequence[Token]) -> tuple[Name, Name] | None:
    words = [_word(condition, token) for token in tokens]
    places = [place for place, word in enumerate(words) if word in ("=", "==")]
    if len(places) != 1:
        return None
    sides = _name(condition, tokens[: places[0]]), _name(condition, tokens[places[0] + 1 :])
    return None if sides[0] is None or sides[1] is None else (sides[0], sides[1])


def _name(condition: str, tokens: Sequence[Token]) -> Name | None:
    """Return the name that the tokens are, and nothing else."""
    names, dots = tokens[::2], tokens[1::2]
    if len(tokens) % 2 == 0 or any(_word(condition, dot) != "." for dot in dots):
        return None
    are_names = [
        one.token_type is TokenType.IDENTIFIER or _NAME.fullmatch(_word(condition, one)) for one in names
    ]
    is_value = len(names) == 1 and _word(condition, names[0]).lower() in _VALUES
    return None if is_value or not all(are_names) else tuple(one.text for one in names)


def may_look_at(text: str, columns: Collection[str], *, alias: str, other: str) -> bool:
    """Whether an expression may need the columns of a table that it calls ``alias``.

    What it says behind the name of the ``other`` table is that one's.

    >>> may_look_at("source.price + fee", ["price"], alias="target", other="source")
    False
    >>> may_look_at("price + 1", ["price"], alias="target", other="source")
    True
    """
    known = {one.casefold() for one in (alias, *columns)}
    try:
        tokens = _tokens(text)
    except TokenError:
        return True
    heads_of_other = other.casefold() not in known
    before = ""
    is_of_other = False  # the chain of names that the token is in
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        word = _word(text, token)
        if before != "." and word != ".":
            is_dotted = following is not None and _word(text, following) == "."
            is_of_other = heads_of_other and is_dotted and fold(token.text) == fold(other)
        if word != "." and not is_of_other and token.text.casefold() in known:
            return True
        before = word
    return False
