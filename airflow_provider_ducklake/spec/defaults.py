r"""Defaults of columns: what the catalog keeps for a value or an SQL expression.

``default_value`` is the text of the literal as it was written, ``initial_default`` the column type's own text
of the same value, which rows of files written before the column take. An expression has no initial default.
*Source:* what the reference stores for ``DEFAULT`` (probed on 1.5.5); dossier §3.1. Unlike the reference we
round nothing: a literal that its column cannot hold exactly is refused. And where it makes an expression of
a typed literal (``true``, ``DATE '2024-01-01'``), we store what it stores for the same text in quotes, which
every client can read.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias
from uuid import UUID

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.spec.schema import NO_DEFAULT, Default
from airflow_provider_ducklake.spec.types.ducklake_types import (
    FLOATS,
    NOT_STORABLE,
    TIMESTAMPS,
    DecimalType,
    DuckLakeType,
    ScalarType,
    children_of,
)
from airflow_provider_ducklake.spec.types.json_texts import MOST_LEVELS, is_json, is_too_deep
from airflow_provider_ducklake.spec.types.values import (
    Physical,
    format_date,
    format_float64,
    identity_text,
    parse_physical,
)


@dataclass(frozen=True, slots=True)
class SqlExpression:
    """A default that is computed for each insert, as DuckDB SQL: ``now()``."""

    text: str


Literal: TypeAlias = bool | int | float | Decimal | str | bytes | date | datetime | time | UUID
SqlDefault: TypeAlias = Literal | SqlExpression


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
    if children_of(type_) or str(type_) in NOT_STORABLE:
        raise InvalidInputError(f"A column of type {type_} cannot have a default; leave it out.")
    if isinstance(value, SqlExpression):
        return Default(value.text, "expression"), None
    try:
        initial = identity_text(type_, literal_physical(type_, value))
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(f"{value!r} is no default for a column of type {type_}: {error}.") from error
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
            f"The text {text!r} cannot be a default: it is the catalog's word for no default. Choose another "
            "text, or write the null without a default."
        )
    if "\0" in text:
        raise InvalidInputError(f"The default {text!r} holds a NUL character, which no catalog can store.")
    return text


def literal_physical(type_: DuckLakeType, value: Literal) -> Physical:
    """Return the physical form of a value that a type holds exactly (floats: nearly).

    Raises:
        ValueError, OverflowError: says what is expected instead.
    """
    number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    match type_:
        case DecimalType():
            return _decimal(type_, _number(value, _DECIMAL_TEXT))
        case ScalarType(name) if name in _INTEGER_RANGES:
            return _integer(name, _number(value, _INTEGER_TEXT))
        case ScalarType(name) if name in FLOATS:
            return _float(type_, value)
        case ScalarType("varchar") if number:
            return _literal_text(value, "").encode()
        case ScalarType(name) if isinstance(value, str):
            return _from_text(name, value)
        case ScalarType(name):
            return _of_own_class(name, value)
        case _:
            raise ValueError(f"nothing is known of {type_}")


_INTEGER_TEXT = re.compile(r"-?\d+", re.ASCII)
_DECIMAL_TEXT = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_FLOAT_TEXT = re.compile(r"-?(\d+(\.\d+)?([eE][+-]?\d+)?|inf)|nan", re.ASCII)
_MOST_DIGITS = 400  # more than any type holds; keeps arithmetic on texts like 1e999999999 short


def _number(value: Literal, spelling: re.Pattern[str]) -> Fraction:
    if isinstance(value, str) and not spelling.fullmatch(value):
        raise ValueError("this text is no such number")
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise ValueError("expected a number")  # noqa: TRY004 - the caller translates it
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not number.is_finite() or abs(number.adjusted()) > _MOST_DIGITS:
        raise ValueError("out of range")
    return Fraction(number)


_INTEGER_RANGES = {
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
}


def _integer(name: str, number: Fraction) -> int:
    low, high = _INTEGER_RANGES[name]
    if number.denominator != 1 or not low <= number <= high:
        raise ValueError(f"expected a whole number from {low} to {high}")
    return int(number)


def _decimal(type_: DecimalType, number: Fraction) -> int:
    unscaled = number * 10**type_.scale
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


def _from_text(name: str, text: str) -> Physical:
    match name:
        case "varchar":
            return text.encode()
        case "boolean" if text.lower() in _BOOLEAN_TEXTS:
            return _BOOLEAN_TEXTS[text.lower()]
        case "json":
            return _json(text)
        case "blob":
            return _blob(text)
        case "uuid" if _UUID_TEXT.fullmatch(text):
            return UUID(text).bytes
        case _ if name in _MOMENTS:
            return _moment(name, text)
        case _:
            raise ValueError(f"this text is no {name}")


_UUID_TEXT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def _json(text: str) -> bytes:
    if is_too_deep(text):
        raise ValueError(f"it has more than {MOST_LEVELS} levels")
    if not is_json(text):
        raise ValueError("it is not valid JSON")
    return text.encode()


_BLOB_TEXT = re.compile(r"(?:[\x00-\x5b\x5d-\x7f]|\\x[0-9A-Fa-f]{2})*")


def _blob(text: str) -> bytes:
    if not _BLOB_TEXT.fullmatch(text):
        raise ValueError(r"write bytes that are not ASCII, and the backslash, as in '\xC3\x5C'")
    return re.sub(r"\\x(..)", lambda escape: chr(int(escape[1], 16)), text).encode("latin-1")


_DATE = r"(?P<date>\d{4,}-\d\d-\d\d(?: \(BC\))?)"
_MINUTE = r"(?:[01]\d|2[0-3]):[0-5]\d"
_ZONE = r"[+-](?:0\d|1[0-5])(?::?[0-5]\d)?"


def _clock(digits: int) -> str:
    """Return the pattern of a time of day with at most that many ``digits`` after the second."""
    return rf"{_MINUTE}:[0-5]\d" + (rf"(?:\.\d{{1,{digits}}})?" if digits else "")


_MOMENTS = {  # pattern and example; what is finer than the type would be rounded, so it does not match
    "date": (_DATE, "2024-01-31"),
    "time": (_clock(6), "10:30:00"),
    "timestamp_s": (rf"{_DATE}(?:[ T]{_clock(0)})?", "2024-01-31 10:30:00"),
    "timestamp_ms": (rf"{_DATE}(?:[ T]{_clock(3)})?", "2024-01-31 10:30:00.123"),
    "timestamp": (rf"{_DATE}(?:[ T]{_clock(6)})?", "2024-01-31 10:30:00.123456"),
    "timestamp_ns": (rf"{_DATE}(?:[ T]{_clock(9)})?", "2024-01-31 10:30:00.123456789"),
    "timestamptz": (rf"{_DATE}[ T]{_clock(6)}{_ZONE}", "2024-01-31 10:30:00+00"),
}
_INFINITE = ("infinity", "-infinity")


def _moment(name: str, text: str) -> int:
    pattern, example = _MOMENTS[name]
    found = re.fullmatch(pattern, text, re.ASCII)
    if found is None and (name == "time" or text not in _INFINITE):
        raise ValueError(f"write it like {example!r}")
    day = found.groupdict().get("date") if found else None
    if day is not None and format_date(_parsed("date", day)) != day:
        raise ValueError(f"there is no day {day}")
    value = _parsed(name, text)
    if found is not None and abs(value) >= (2**31 - 1 if name == "date" else 2**63 - 1):
        raise ValueError("out of range")
    return value


def _parsed(name: str, text: str) -> int:
    return int(parse_physical(ScalarType(name), text))


def _of_own_class(name: str, value: Literal) -> Physical:
    """Return the physical form of a value that is neither a text nor, but for booleans, a number."""
    match name, value:
        case ("boolean", bool()):
            return value
        case ("boolean", int()) if value in (0, 1):
            return bool(value)
        case ("blob", bytes()):
            return value
        case ("uuid", UUID()):
            return value.bytes
        case _ if name in _MOMENTS:
            return _moment(name, _moment_text(name, value))
        case _:
            raise ValueError(f"a {type(value).__name__} is no {name}")


def _moment_text(name: str, value: Literal) -> str:
    match value:
        case datetime() if name in (*TIMESTAMPS, "timestamptz"):
            if (value.tzinfo is None) == (name == "timestamptz"):
                raise ValueError("a timestamptz has a zone, the other timestamps have none")
            return value.isoformat(sep=" ")
        case date() if name == "date" and not isinstance(value, datetime):
            return value.isoformat()
        case time() if name == "time" and value.tzinfo is None:
            return value.isoformat()
        case _:
            raise ValueError(f"a {type(value).__name__} is no {name}")
