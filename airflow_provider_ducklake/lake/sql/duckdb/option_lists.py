"""Options between parentheses: ``(name = value, …)``. *Source:* docs/sources.md, DDL and options of 2.0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.spec.names.identifiers import fold
from airflow_provider_ducklake.lake.sql.lexer import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_ducklake.lake.sql.duckdb.cursor import Cursor
    from airflow_provider_ducklake.lake.sql.duckdb.statements import OptionValue


def read_option_name(cursor: Cursor) -> str:
    """Read the name of an option, bare, quoted or a string, and return it folded."""
    text = cursor.string()
    return fold(cursor.name("table option") if text is None else text)


def read_option(cursor: Cursor) -> tuple[str, OptionValue]:
    """Read an option and its value; one without a value is true."""
    name = read_option_name(cursor)
    if not cursor.accept_symbol("="):
        return name, True
    return name, _read_value(cursor)


def refuse_repeated(cursor: Cursor, names: Sequence[str]) -> None:
    """Refuse an option that is named twice."""
    twice = next((one for one in names if names.count(one) > 1), None)
    if twice is not None:
        raise cursor.error(f"option {twice} is given twice. Keep one.", back=1)


def _read_value(cursor: Cursor) -> OptionValue:
    if cursor.accept_symbol("["):
        return _read_list(cursor)
    if cursor.accept("NULL"):
        return None
    if cursor.word in ("TRUE", "FALSE"):
        cursor.advance()
        return cursor.text_from(cursor.position - 1).upper() == "TRUE"
    sign = "-" if cursor.accept_symbol("-") else ""
    number = cursor.accept_kind(Kind.NUMBER)
    if number is not None:
        return sign + number.replace("_", "")
    if sign:
        raise cursor.error("expected a number.")
    text = cursor.string()
    return cursor.name("value") if text is None else text


def _read_list(cursor: Cursor) -> tuple[str, ...]:
    found: list[str] = []
    while not cursor.accept_symbol("]"):
        text = cursor.string()
        if text is None:
            raise cursor.error("expected a string in single quotes: a list holds names, ['a', 'b'].")
        found.append(text)
        if not cursor.sees("]"):
            cursor.expect_symbol(",")
    return tuple(found)
