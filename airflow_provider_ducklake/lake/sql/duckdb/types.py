"""Column types as DuckDB's SQL spells them.

Not the spelling of ``format.types``: SQL's ``int8`` has eight bytes, the catalog's eight bits. *Source:* the
reference's ``duckdb_types()``, with which a test compares.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

from ...errors import InvalidTypeError
from ...format.defaults import Literal, SqlDefault, SqlExpression
from ...format.names.identifiers import fold
from ...format.sql.tokens import TokenKind
from ...format.types import ducklake_types as dl

if TYPE_CHECKING:
    from .cursor import Cursor


SCALAR_SPELLINGS = {word: row.name for row in dl.SCALARS.values() for word in row.sql.split()}
DECIMAL_SPELLINGS = frozenset({"decimal", "dec", "numeric"})
STRUCT_SPELLINGS = frozenset({"struct", "row"})
_MOST_DIGITS = 9  # of a length or a precision
_DEFAULT_DECIMAL = (18, 3)
_NULL = '"null"'  # the one type whose name needs quotes
NOT_IN_THE_FORMAT = {
    "enum": "DuckLake has no enum types. Use VARCHAR.",
    "union": "DuckLake has no union types. Use a STRUCT with a field for each kind.",
    "bit": "DuckLake has no bit strings. Use VARCHAR or BLOB.",
    "bitstring": "DuckLake has no bit strings. Use VARCHAR or BLOB.",
    "bignum": "DuckLake has no numbers of unlimited length. Use DECIMAL(38, 0) or VARCHAR.",
    "varint": "DuckLake has no numbers of unlimited length. Use DECIMAL(38, 0) or VARCHAR.",
    "array": "write a list with the type of its elements: INTEGER[].",
    "list": "write a list with the type of its elements: INTEGER[].",
    "null": 'the type of a column of only NULLs has quotes: "NULL". DuckLake has it since 1.1.',
    "type": "DuckLake cannot store types as values. Use VARCHAR.",
    "serial": "DuckLake has no sequences. Use BIGINT.",
    "bigserial": "DuckLake has no sequences. Use BIGINT.",
}


def read_column_type(cursor: Cursor, column: str) -> dl.DuckLakeType:
    """Read the type of a column, and refuse one whose values do not survive."""
    start = cursor.peek()
    type_ = read_type(cursor)
    try:
        dl.check_depth(type_, column)
        dl.check_storable(type_, column)
    except InvalidTypeError as error:
        raise cursor.error(str(error), at=start) from error
    return type_


def read_type(cursor: Cursor) -> dl.DuckLakeType:
    """Read a type, nested ones too."""
    parsed = _read_element(cursor)
    while cursor.accept("["):
        if cursor.peek().kind is TokenKind.NUMBER:
            raise cursor.error("DuckLake has no fixed-length lists. Leave the number out: INTEGER[].")
        cursor.expect("]")
        parsed = dl.ListType(parsed)
    if cursor.word == "ARRAY":
        raise cursor.error("write a list with brackets: INTEGER[].")
    return parsed


def _read_element(cursor: Cursor) -> dl.DuckLakeType:
    if fold(cursor.peek().text) == _NULL:
        cursor.take()
        return dl.ScalarType("null")
    word = cursor.word.lower()
    if not word or word in NOT_IN_THE_FORMAT:
        raise cursor.error(NOT_IN_THE_FORMAT.get(word, "expected a type, such as BIGINT or VARCHAR."))
    cursor.take()
    if word in STRUCT_SPELLINGS:
        return _read_struct(cursor)
    if word == "map":
        return _read_map(cursor)
    if word in DECIMAL_SPELLINGS:
        return _read_decimal(cursor)
    return _read_scalar(cursor, word)


def _read_scalar(cursor: Cursor, word: str) -> dl.ScalarType:
    if word == "character":
        word = "varchar" if cursor.accept("VARYING") else "char"
    name = SCALAR_SPELLINGS.get(word)
    if name is None:
        raise cursor.error(
            "DuckLake has no such type. Types look like BIGINT, DECIMAL(18, 2), VARCHAR[], "
            "STRUCT(a BIGINT, b VARCHAR), MAP(VARCHAR, BIGINT).",
            at=cursor.peek(-1),
        )
    if word == "double":
        cursor.accept("PRECISION")
    elif word in ("time", "timestamp"):
        cursor.accept("WITHOUT", "TIME", "ZONE")
        name += "tz" if cursor.accept("WITH", "TIME", "ZONE") else ""
    elif dl.SCALARS[name].kind is dl.ScalarKind.STRING and cursor.accept("("):
        _read_integer(cursor)  # DuckDB allows a length and does not keep it
        cursor.expect(")")
    return dl.ScalarType(name)


def _read_integer(cursor: Cursor) -> int:
    text = cursor.accept_kind(TokenKind.NUMBER)
    if text is None or not text.isdigit() or len(text) > _MOST_DIGITS:
        raise cursor.error("expected a whole number.", at=None if text is None else cursor.peek(-1))
    return int(text)


def _read_decimal(cursor: Cursor) -> dl.DecimalType:
    start = cursor.peek(-1)
    numbers = cursor.in_list(lambda: _read_integer(cursor)) if cursor.sees("(") else _DEFAULT_DECIMAL
    precision, scale = (*numbers, 0)[:2]
    if len(numbers) > 2 or not 1 <= precision <= dl.MAX_DECIMAL_PRECISION or scale > precision:  # noqa: PLR2004
        raise cursor.error(
            f"write a decimal as DECIMAL(18, 2): a precision of 1 to {dl.MAX_DECIMAL_PRECISION}, and a scale "
            "that is at most the precision.",
            at=start,
        )
    return dl.DecimalType(precision, scale)


def _read_map(cursor: Cursor) -> dl.MapType:
    start = cursor.peek(-1)
    types = cursor.in_list(lambda: read_type(cursor))
    if len(types) != 2:  # noqa: PLR2004 - key and value
        raise cursor.error("a map has one type for keys and one for values: MAP(VARCHAR, BIGINT).", at=start)
    return dl.MapType(*types)


def _read_struct(cursor: Cursor) -> dl.StructType:
    start = cursor.peek(-1)
    fields = cursor.in_list(lambda: dl.Field(cursor.name("field"), read_type(cursor)))
    names = [fold(field.name) for field in fields]
    if len(set(names)) != len(names):
        raise cursor.error(
            "two fields of this struct have the same name (names are case-insensitive).", at=start
        )
    return dl.StructType(fields)


# What may follow DEFAULT: a literal, or an expression that DuckDB certainly parses.
#
# A default that DuckDB cannot parse makes it refuse the whole lake (observed on 1.5.5: even ATTACH's
# ``USE`` fails), and one that it cannot bind makes inserts fail. So the grammar here is a small part of
# DuckDB's, and its functions are named one by one.


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
_MOST_DIGITS_OF_NUMBERS = 39  # of a number before that
_CONSTANTS: dict[str, bool | None] = {"NULL": None, "TRUE": True, "FALSE": False}


class _NoLiteral:
    """What follows is no literal; not None, which is NULL."""


def read_default(cursor: Cursor) -> SqlDefault | None:
    """Read what follows DEFAULT; None for NULL."""
    start, position = cursor.peek(), cursor.position
    literal = _read_literal(cursor)
    if not isinstance(literal, _NoLiteral) and not _goes_on(cursor):
        return literal
    cursor.position = position
    _read_expression(cursor)
    return SqlExpression(cursor.text_from(start))


def read_literal_default(cursor: Cursor) -> Literal | None:
    """Read the DEFAULT of a column that is added, which also stands for the rows that are there."""
    start = cursor.peek()
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
        return _CONSTANTS[cursor.take().word.upper()]
    negative = cursor.accept("-")
    digits = cursor.accept_kind(TokenKind.NUMBER)
    if digits is None:
        return _NoLiteral()
    number = read_number(digits)
    return -number if negative else number


def read_number(text: str) -> int | Decimal | float:
    """Return a number as DuckDB types it: what is too long for a decimal is a double."""
    plain = text.replace("_", "")
    if _WHOLE.fullmatch(text):
        digits = plain.lstrip("0") or "0"
        if len(digits) <= _MOST_DIGITS_OF_NUMBERS and int(digits) < _INTEGERS_END:
            return int(digits)
    if _FIXED.fullmatch(text) and len(plain.replace(".", "").lstrip("0")) <= dl.MAX_DECIMAL_PRECISION:
        return Decimal(plain)
    return float(plain)


def _read_expression(cursor: Cursor) -> None:
    """Pass an expression without columns: operands with operators between them."""
    _read_operand(cursor)
    while any(map(cursor.accept, _OPERATORS)):
        _read_operand(cursor)


def _read_operand(cursor: Cursor) -> None:
    cursor.accept("-")
    if cursor.accept("("):
        _read_expression(cursor)
        cursor.expect(")")
    elif isinstance(_read_literal(cursor), _NoLiteral):
        _read_word(cursor)
    while cursor.accept("::"):
        read_type(cursor)


def _read_word(cursor: Cursor) -> None:
    """Pass a cast, a typed literal or a function."""
    word = cursor.word
    if word == "CAST":
        cursor.take()
        cursor.expect("(")
        _read_expression(cursor)
        cursor.expect("AS")
        read_type(cursor)
        cursor.expect(")")
        return
    if not word:
        raise cursor.error("expected a literal or a function, such as 7, 'x' or now().")
    cursor.take()
    if fold(word) in SCALAR_SPELLINGS and cursor.string() is not None:
        return
    if cursor.sees("(") and fold(word) in FUNCTIONS:
        _read_arguments(cursor)
    elif fold(word) not in BARE_FUNCTIONS:
        raise cursor.error(
            f"a default may use literals, operators and these functions: {', '.join(sorted(FUNCTIONS))}. It "
            "cannot refer to columns or tables.",
            at=cursor.peek(-1),
        )


def _read_arguments(cursor: Cursor) -> None:
    cursor.expect("(")
    if cursor.accept(")"):
        return
    _read_expression(cursor)
    while cursor.accept(","):
        _read_expression(cursor)
    cursor.expect(")")
