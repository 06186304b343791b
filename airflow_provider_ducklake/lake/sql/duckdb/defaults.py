"""What may follow DEFAULT: a literal, or an expression that DuckDB certainly parses.

A default that DuckDB cannot parse makes it refuse the whole lake (observed on 1.5.5: even ATTACH's ``USE``
fails), and one that it cannot bind makes inserts fail. So the grammar here is a small part of DuckDB's, and
its functions are named one by one.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.spec.defaults import Literal, SqlDefault, SqlExpression
from airflow_provider_ducklake.lake.spec.names.identifiers import fold
from airflow_provider_ducklake.lake.spec.types.ducklake_types import MAX_DECIMAL_PRECISION
from airflow_provider_ducklake.lake.sql.duckdb.column_types import SCALAR_SPELLINGS, read_type
from airflow_provider_ducklake.lake.sql.lexer import Kind

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.sql.duckdb.cursor import Cursor

_BARE = "current_date current_time current_timestamp localtime localtimestamp current_user session_user user"
_CALLED = """
now today get_current_timestamp get_current_time transaction_timestamp
uuid gen_random_uuid uuidv4 uuidv7 random
concat upper lower md5 strftime date_trunc epoch epoch_ms epoch_us to_timestamp round floor ceil abs
"""
BARE_FUNCTIONS, FUNCTIONS = frozenset(_BARE.split()), frozenset(_CALLED.split())
_OPERATORS = ("+", "-", "*", "/", "%", "||")
_WHOLE = re.compile(r"\d+(_\d+)*")
_FIXED = re.compile(r"\d+(_\d+)*\.\d*|\.\d+")
_INTEGERS_END = 2**127
_MOST_DIGITS = 39  # of a number before that
_CONSTANTS: dict[str, bool | None] = {"NULL": None, "TRUE": True, "FALSE": False}


class _NoLiteral:
    """What follows is no literal; not None, which is NULL."""


def read_default(cursor: Cursor) -> SqlDefault | None:
    """Read what follows DEFAULT; None for NULL."""
    start = cursor.position
    literal = _read_literal(cursor)
    if not isinstance(literal, _NoLiteral) and not _goes_on(cursor):
        return literal
    cursor.position = start
    _read_expression(cursor)
    return SqlExpression(cursor.text_from(start))


def read_literal_default(cursor: Cursor) -> Literal | None:
    """Read the DEFAULT of a column that is added, which also stands for the rows that are there."""
    start = cursor.position
    default = read_default(cursor)
    if isinstance(default, SqlExpression):
        raise cursor.unsupported(
            "the default of ADD COLUMN must be a literal, because existing rows get it: 7, 'x', "
            "'2024-01-31'. Add the column without a default, then ALTER COLUMN … SET DEFAULT for new rows.",
            at=start,
        )
    return default


def _goes_on(cursor: Cursor) -> bool:
    return any(map(cursor.sees, (*_OPERATORS, "::", "[", "(", ".")))


def _read_literal(cursor: Cursor) -> Literal | _NoLiteral | None:
    string = cursor.string()
    if string is not None:
        return string
    if cursor.word in _CONSTANTS:
        constant = _CONSTANTS[cursor.word]
        cursor.advance()
        return constant
    negative = cursor.accept_symbol("-")
    digits = cursor.accept_kind(Kind.NUMBER)
    if digits is None:
        return _NoLiteral()
    number = read_number(digits)
    return -number if negative else number


def read_number(text: str) -> int | Decimal | float:
    """Return a number as DuckDB types it: what is too long for a decimal is a double."""
    plain = text.replace("_", "")
    if _WHOLE.fullmatch(text):
        digits = plain.lstrip("0") or "0"
        if len(digits) <= _MOST_DIGITS and int(digits) < _INTEGERS_END:
            return int(digits)
    if _FIXED.fullmatch(text) and len(plain.replace(".", "").lstrip("0")) <= MAX_DECIMAL_PRECISION:
        return Decimal(plain)
    return float(plain)


def _read_expression(cursor: Cursor) -> None:
    """Pass an expression without columns: operands with operators between them."""
    _read_operand(cursor)
    while any(map(cursor.accept_symbol, _OPERATORS)):
        _read_operand(cursor)


def _read_operand(cursor: Cursor) -> None:
    cursor.accept_symbol("-")
    if cursor.accept_symbol("("):
        _read_expression(cursor)
        cursor.expect_symbol(")")
    elif isinstance(_read_literal(cursor), _NoLiteral):
        _read_word(cursor)
    while cursor.accept_symbol("::"):
        read_type(cursor)


def _read_word(cursor: Cursor) -> None:
    """Pass a cast, a typed literal or a function."""
    word = cursor.word
    if word == "CAST":
        cursor.advance()
        cursor.expect_symbol("(")
        _read_expression(cursor)
        cursor.expect("AS")
        read_type(cursor)
        cursor.expect_symbol(")")
        return
    if not word:
        raise cursor.error("expected a literal or a function, such as 7, 'x' or now().")
    cursor.advance()
    if fold(word) in SCALAR_SPELLINGS and cursor.string() is not None:
        return
    if cursor.sees("(") and fold(word) in FUNCTIONS:
        _read_arguments(cursor)
    elif fold(word) not in BARE_FUNCTIONS:
        raise cursor.error(
            f"a default may use literals, operators and these functions: {', '.join(sorted(FUNCTIONS))}. It "
            "cannot refer to columns or tables.",
            back=1,
        )


def _read_arguments(cursor: Cursor) -> None:
    cursor.expect_symbol("(")
    if cursor.accept_symbol(")"):
        return
    _read_expression(cursor)
    while cursor.accept_symbol(","):
        _read_expression(cursor)
    cursor.expect_symbol(")")
