r"""Defaults of columns: what the catalog keeps for a value or an SQL expression.

``default_value`` is the text of the literal as it was written, ``initial_default`` the column type's own text
of the same value, which rows of files written before the column take. An expression has no initial default.
*Source:* what the reference stores for ``DEFAULT`` (probed on 1.5.5); docs/sources.md, DDL. Unlike the
reference we round nothing: a literal that its column cannot hold exactly is refused. And where it makes an
expression of a typed literal (``true``, ``DATE '2024-01-01'``), we store what it stores for the same text in
quotes, which every client can read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import TypeAlias
from uuid import UUID

from ..errors import CatalogError, InvalidInputError
from .schema import NO_DEFAULT, Column, Default
from .types.ducklake_types import DecimalType, DuckLakeType, Scalar, ScalarKind, ScalarType, children_of
from .types.literals import parse_scalar
from .types.texts import MOST_LEVELS, is_json, is_too_deep
from .types.values import Physical, format_date, format_float64, identity_text, is_short, parse_physical


@dataclass(frozen=True, slots=True)
class SqlExpression:
    """A default that is computed for each insert, as DuckDB SQL: ``now()``."""

    text: str


Literal: TypeAlias = bool | int | float | Decimal | str | bytes | date | datetime | time | UUID
SqlDefault: TypeAlias = Literal | SqlExpression


def initial_value(column: Column) -> Physical | None:
    """Return the value of rows that were written before the column existed; None: NULL.

    Raises:
        CatalogError: the catalog has a text there that is not a value of the column's type.
    """
    if column.initial_default is None or column.children:
        return None
    try:
        return parse_scalar(column.type, column.initial_default)
    except (ValueError, ArithmeticError):
        raise CatalogError(
            f"The initial_default {column.initial_default!r:.80} of column {column.name} (id {column.id}) is "
            f"not a valid {column.type}: correct it in ducklake_column; lake.verify() names such columns "
            "(columns-unreadable)."
        ) from None


def default_of(value: SqlDefault | None, type_: DuckLakeType) -> tuple[Default, str | None]:
    """Return the default of a column of ``type_``, and its initial default; None is no default.

    A text stands for the value that it spells: ``"2024-01-01"`` for a date.

    >>> default_of(Decimal("1.5"), DecimalType(18, 3))
    (Default(value='1.5', kind='literal', dialect='duckdb'), '1.500')
    >>> default_of(SqlExpression("now()"), ScalarType("timestamptz"))
    (Default(value='now()', kind='expression', dialect='duckdb'), None)

    Raises:
        InvalidInputError: a column of that type cannot hold the value.
    """
    if value is None:
        return Default(), None
    if children_of(type_) or not (type_.facts.storable and type_.facts.comparable):
        raise InvalidInputError(f"A column of type {type_} cannot have a default; leave it out.")
    if isinstance(value, SqlExpression):
        return Default(value.text, "expression"), None
    try:
        initial = identity_text(type_, literal_physical(type_, value))
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"{value!r} is not a valid default for a column of type {type_}: {error}."
        ) from error
    return Default(_checked(_literal_text(value, initial))), initial


def _literal_text(value: Literal, initial: str) -> str:
    match value:
        case bool():
            return initial
        case int():
            return str(value)
        case float():
            return format_float64(value)
        case Decimal():
            return f"{value or abs(value):f}"
        case str():
            return value
        case _:
            return initial


def _checked(text: str) -> str:
    if text == NO_DEFAULT:
        raise InvalidInputError(
            f"The string {text!r} cannot be a default: the catalog uses it for 'no default'. Choose another "
            "string, or write the null without a default."
        )
    if "\0" in text:
        raise InvalidInputError(f"The default {text!r} holds a NUL character, which no catalog can store.")
    return text


def literal_physical(type_: DuckLakeType, value: Literal) -> Physical:
    """Return the physical form of a value that a type holds exactly (floats: nearly).

    Raises:
        ValueError, OverflowError: says what is expected instead.
    """
    row = type_.facts
    if row.kind is ScalarKind.NESTED:
        raise ValueError(f"{type_} is an unknown type")
    read = _READERS.get(row.kind)
    if read is None or not row.storable:
        raise _unfit(type_, value)
    return read(type_, value)


def _unfit(type_: DuckLakeType, value: Literal) -> ValueError:
    given = "this text" if isinstance(value, str) else f"a {type(value).__name__}"
    return ValueError(f"{given} is no {type_}")


_INTEGER_TEXT = re.compile(r"-?\d+", re.ASCII)
_DECIMAL_TEXT = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_FLOAT_TEXT = re.compile(r"-?(\d+(\.\d+)?([eE][+-]?\d+)?|inf)|nan", re.ASCII)


def _number(value: Literal, spelling: re.Pattern[str]) -> Fraction:
    if isinstance(value, str) and not spelling.fullmatch(value):
        raise ValueError("this string is not such a number")
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise ValueError("expected a number")  # noqa: TRY004 - the caller translates it
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not is_short(number):
        raise ValueError("out of range")
    return Fraction(number)


def _integer(type_: DuckLakeType, value: Literal) -> int:
    number = _number(value, _INTEGER_TEXT)
    low, high = type_.facts.physical_range
    if number.denominator != 1 or not low <= number <= high:
        raise ValueError(f"expected a whole number from {low} to {high}")
    return int(number)


def _decimal(type_: DuckLakeType, value: Literal) -> int:
    assert isinstance(type_, DecimalType)
    unscaled = _number(value, _DECIMAL_TEXT) * 10**type_.scale
    if unscaled.denominator != 1:
        raise ValueError(f"it has more than {type_.scale} digits after the point")
    if abs(unscaled) >= 10**type_.precision:
        raise ValueError(f"it has more than {type_.precision - type_.scale} digits before the point")
    return int(unscaled)


def _float(type_: DuckLakeType, value: Literal) -> float:
    """Return the nearest float; only here a value may change, since few decimal texts name a float."""
    if isinstance(value, float):
        number = value
    elif isinstance(value, str) and _FLOAT_TEXT.fullmatch(value):
        number = float(value)
    else:
        number = float(_number(value, _FLOAT_TEXT))
    parsed = float(parse_physical(type_, repr(number)))
    if math.isinf(parsed) and "inf" not in str(value):
        raise ValueError("out of range")
    return parsed


_BOOLEAN_TEXTS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def _boolean(type_: DuckLakeType, value: Literal) -> bool:
    match value:
        case str() if value.lower() in _BOOLEAN_TEXTS:
            return _BOOLEAN_TEXTS[value.lower()]
        case int() if value in (0, 1):
            return bool(value)
        case _:
            raise _unfit(type_, value)


def _string(type_: DuckLakeType, value: Literal) -> bytes:
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise _unfit(type_, value)
    return _literal_text(value, "").encode()


def _uuid(type_: DuckLakeType, value: Literal) -> bytes:
    match value:
        case str() if _UUID_TEXT.fullmatch(value):
            return UUID(value).bytes
        case UUID():
            return value.bytes
        case _:
            raise _unfit(type_, value)


_UUID_TEXT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def _json(type_: DuckLakeType, text: Literal) -> bytes:
    if not isinstance(text, str):
        raise _unfit(type_, text)
    if is_too_deep(text):
        raise ValueError(f"it has more than {MOST_LEVELS} levels")
    if not is_json(text):
        raise ValueError("it is not valid JSON")
    return text.encode()


_BLOB_TEXT = re.compile(r"(?:[\x00-\x5b\x5d-\x7f]|\\x[0-9A-Fa-f]{2})*")


def _blob(type_: DuckLakeType, text: Literal) -> bytes:
    if isinstance(text, bytes):
        return text
    if not isinstance(text, str):
        raise _unfit(type_, text)
    if not _BLOB_TEXT.fullmatch(text):
        raise ValueError(r"write bytes that are not ASCII, and the backslash, as in '\xC3\x5C'")
    return re.sub(r"\\x(..)", lambda escape: chr(int(escape[1], 16)), text).encode("latin-1")


_DATE = r"(?P<date>\d{4,}-\d\d-\d\d(?: \(BC\))?)"
_MINUTE = r"(?:[01]\d|2[0-3]):[0-5]\d"
_ZONE = r"[+-](?:0\d|1[0-5])(?::?[0-5]\d)?"


_INFINITE = ("infinity", "-infinity")
_MOST_FRACTION = ".123456789"


@cache
def _spelling(row: Scalar) -> tuple[re.Pattern[str], str]:
    """Return the pattern for times of a type, and an example; finer times than the type's do not match."""
    digits = len(str(row.per_second // row.step)) - 1
    clock = rf"{_MINUTE}:[0-5]\d" + (rf"(?:\.\d{{1,{digits}}})?" if digits else "")
    fraction = _MOST_FRACTION[: digits + 1] if digits else ""
    pattern, example = {
        ScalarKind.DATE: (_DATE, "2024-01-31"),
        ScalarKind.TIME: (clock, "10:30:00"),
        ScalarKind.TIMESTAMP: (rf"{_DATE}(?:[ T]{clock})?", f"2024-01-31 10:30:00{fraction}"),
    }[row.kind]
    if row.zoned and row.kind is ScalarKind.TIME:
        pattern, example = rf"{clock}{_ZONE}", "10:30:00+00"
    elif row.zoned:
        pattern, example = rf"{_DATE}[ T]{clock}{_ZONE}", "2024-01-31 10:30:00+00"
    return re.compile(pattern, re.ASCII), example


def _moment(type_: DuckLakeType, value: Literal) -> int:
    row, text = type_.facts, _moment_text(type_, value)
    pattern, example = _spelling(row)
    found = pattern.fullmatch(text)
    if found is None and (row.kind is ScalarKind.TIME or text not in _INFINITE):
        raise ValueError(f"write it like {example!r}")
    day = found.groupdict().get("date") if found else None
    if day is not None and format_date(int(parse_physical(ScalarType("date"), day))) != day:
        raise ValueError(f"there is no day {day}")
    parsed = int(parse_physical(type_, text))
    if found is not None and abs(parsed) >= row.infinity:
        raise ValueError("out of range")
    return parsed


def _moment_text(type_: DuckLakeType, value: Literal) -> str:
    match value, type_.facts.kind:
        case str(), _:
            return value
        case datetime(), ScalarKind.TIMESTAMP:
            if (value.tzinfo is None) == type_.facts.zoned:
                raise ValueError("a timestamptz has a time zone, the other timestamps have none")
            return value.isoformat(sep=" ")
        case date(), ScalarKind.DATE if not isinstance(value, datetime):
            return value.isoformat()
        case time(), ScalarKind.TIME if value.tzinfo is None:
            return value.isoformat()
        case _:
            raise _unfit(type_, value)


_READERS: dict[ScalarKind, Callable[[DuckLakeType, Literal], Physical]] = {
    ScalarKind.BOOLEAN: _boolean,
    ScalarKind.INTEGER: _integer,
    ScalarKind.DECIMAL: _decimal,
    ScalarKind.FLOAT: _float,
    ScalarKind.STRING: _string,
    ScalarKind.JSON: _json,
    ScalarKind.BLOB: _blob,
    ScalarKind.UUID: _uuid,
    ScalarKind.DATE: _moment,
    ScalarKind.TIME: _moment,
    ScalarKind.TIMESTAMP: _moment,
}
