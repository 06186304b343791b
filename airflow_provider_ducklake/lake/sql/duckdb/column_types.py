"""Column types as DuckDB's SQL spells them.

Not the spelling of ``spec.types``: SQL's ``int8`` has eight bytes, the catalog's eight bits. *Source:* the
reference's ``duckdb_types()``, with which a test compares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.errors import InvalidTypeError
from airflow_provider_ducklake.lake.spec.names.identifiers import fold
from airflow_provider_ducklake.lake.spec.types.ducklake_types import (
    MAX_DECIMAL_PRECISION,
    SCALARS,
    DecimalType,
    DuckLakeType,
    Field,
    ListType,
    MapType,
    ScalarType,
    StructType,
    check_depth,
    check_storable,
)
from airflow_provider_ducklake.lake.spec.types.ducklake_types import Kind as ScalarKind
from airflow_provider_ducklake.lake.sql.lexer import Kind

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.sql.duckdb.cursor import Cursor

SCALAR_SPELLINGS = {word: row.name for row in SCALARS.values() for word in row.sql.split()}
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


def read_column_type(cursor: Cursor, column: str) -> DuckLakeType:
    """Read the type of a column, and refuse one whose values do not survive."""
    start = cursor.position
    type_ = read_type(cursor)
    try:
        check_depth(type_, column)
        check_storable(type_, column)
    except InvalidTypeError as error:
        raise cursor.error(str(error), at=start) from error
    return type_


def read_type(cursor: Cursor) -> DuckLakeType:
    """Read a type, nested ones too."""
    parsed = _read_element(cursor)
    while cursor.accept_symbol("["):
        if cursor.token is not None and cursor.token.kind is Kind.NUMBER:
            raise cursor.error("DuckLake has no fixed-length lists. Leave the number out: INTEGER[].")
        cursor.expect_symbol("]")
        parsed = ListType(parsed)
    if cursor.word == "ARRAY":
        raise cursor.error("write a list with brackets: INTEGER[].")
    return parsed


def _read_element(cursor: Cursor) -> DuckLakeType:
    if cursor.token is not None and fold(cursor.token.text) == _NULL:
        cursor.advance()
        return ScalarType("null")
    word = cursor.word.lower()
    if not word or word in NOT_IN_THE_FORMAT:
        raise cursor.error(NOT_IN_THE_FORMAT.get(word, "expected a type, such as BIGINT or VARCHAR."))
    cursor.advance()
    if word in STRUCT_SPELLINGS:
        return _read_struct(cursor)
    if word == "map":
        return _read_map(cursor)
    if word in DECIMAL_SPELLINGS:
        return _read_decimal(cursor)
    return _read_scalar(cursor, word)


def _read_scalar(cursor: Cursor, word: str) -> ScalarType:
    if word == "character":
        word = "varchar" if cursor.accept("VARYING") else "char"
    name = SCALAR_SPELLINGS.get(word)
    if name is None:
        raise cursor.error(
            "DuckLake has no such type. Types look like BIGINT, DECIMAL(18, 2), VARCHAR[], "
            "STRUCT(a BIGINT, b VARCHAR), MAP(VARCHAR, BIGINT).",
            back=1,
        )
    if word == "double":
        cursor.accept("PRECISION")
    elif word in ("time", "timestamp"):
        cursor.accept("WITHOUT", "TIME", "ZONE")
        name += "tz" if cursor.accept("WITH", "TIME", "ZONE") else ""
    elif SCALARS[name].kind is ScalarKind.STRING and cursor.accept_symbol("("):
        _read_integer(cursor)  # DuckDB allows a length and does not keep it
        cursor.expect_symbol(")")
    return ScalarType(name)


def _read_integer(cursor: Cursor) -> int:
    text = cursor.accept_kind(Kind.NUMBER)
    if text is None or not text.isdigit() or len(text) > _MOST_DIGITS:
        raise cursor.error("expected a whole number.", back=0 if text is None else 1)
    return int(text)


def _read_decimal(cursor: Cursor) -> DecimalType:
    start = cursor.position - 1
    numbers = cursor.list_of(lambda: _read_integer(cursor)) if cursor.sees("(") else _DEFAULT_DECIMAL
    precision, scale = (*numbers, 0)[:2]
    if len(numbers) > 2 or not 1 <= precision <= MAX_DECIMAL_PRECISION or scale > precision:  # noqa: PLR2004
        raise cursor.error(
            f"write a decimal as DECIMAL(18, 2): a precision of 1 to {MAX_DECIMAL_PRECISION}, and a scale "
            "that is at most the precision.",
            at=start,
        )
    return DecimalType(precision, scale)


def _read_map(cursor: Cursor) -> MapType:
    start = cursor.position - 1
    types = cursor.list_of(lambda: read_type(cursor))
    if len(types) != 2:  # noqa: PLR2004 - key and value
        raise cursor.error("a map has one type for keys and one for values: MAP(VARCHAR, BIGINT).", at=start)
    return MapType(*types)


def _read_struct(cursor: Cursor) -> StructType:
    start = cursor.position - 1
    fields = cursor.list_of(lambda: Field(cursor.name("field"), read_type(cursor)))
    names = [fold(field.name) for field in fields]
    if len(set(names)) != len(names):
        raise cursor.error(
            "two fields of this struct have the same name (names are case-insensitive).", at=start
        )
    return StructType(fields)
