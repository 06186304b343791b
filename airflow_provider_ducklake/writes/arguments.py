"""Arguments as users and their templates give them.

Imports nothing heavy: operators check them while DAG files are read.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.spec.names.identifiers import fold
from airflow_provider_ducklake.spec.options import parse_bytes
from airflow_provider_ducklake.spec.types.times import parse_interval, parse_time, require_offset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from enum import StrEnum
    from typing import Any, TypeAlias

    Word = TypeVar("Word", bound=StrEnum)
    Clauses: TypeAlias = Sequence[Mapping[str, Any]]

TARGET_ALIAS = "target"
SOURCE_ALIAS = "source"
_ALIAS = re.compile(r"[^\W\d]\w*")


def parse_word(name: str, value: str, words: type[Word]) -> Word:
    """Return the word that a user gave.

    Raises:
        InvalidInputError: lists the words there are.
    """
    try:
        return words(value)
    except ValueError:
        raise InvalidInputError(f"{name} is {value!r}; choose one of {', '.join(words)}.") from None


def parse_flag(name: str, value: object) -> bool:
    """Return a flag, which a template renders as a string.

    Raises:
        InvalidInputError: neither true nor false.
    """
    word = str(value).strip().lower()
    if word not in ("true", "false"):
        raise InvalidInputError(f"{name} is {value!r}; give True or False.")
    return word == "true"


def parse_at(value: object) -> int | datetime | None:
    """Return what names a snapshot: its id or an aware time; a template renders both as strings.

    Raises:
        InvalidInputError: it names none.
    """
    if isinstance(value, str):
        word = value.strip()
        if word in ("", "None"):
            return None
        return int(word) if word.isdecimal() else parse_time(word)
    if value is None or (isinstance(value, int | datetime) and not isinstance(value, bool)):
        return value
    raise InvalidInputError(f"at={value!r}: give a snapshot id or an aware datetime.")


def parse_size(name: str, value: int | str | None) -> int | None:
    """Return a number of bytes; None where it is not given.

    Raises:
        InvalidInputError: it cannot be read.
    """
    if value is None or value == "None":
        return None
    try:
        return parse_bytes(str(value))
    except ValueError:
        raise InvalidInputError(
            f"{name} is {value!r}. Give a number of bytes, or a string such as '256MB'."
        ) from None


def parse_count(name: str, value: int | str | None) -> int | None:
    """Return a number of 1 or more; None where it is not given.

    Raises:
        InvalidInputError: it is not a whole number, or less than 1.
    """
    if value is None or value == "None":
        return None
    if not str(value).strip().isdecimal() or int(value) < 1:
        raise InvalidInputError(f"{name} is {value!r}. Give a whole number, 1 or more.")
    return int(value)


def parse_min_rows(value: object) -> int:
    """Return a number of rows, which a template renders as a string.

    Raises:
        InvalidInputError: it is not a whole number.
    """
    if not str(value).strip().isdecimal():
        raise InvalidInputError(f"min_rows is {value!r}. Give a whole number, 0 or more.")
    return int(str(value))


def is_template(value: object) -> bool:
    """Whether a template makes the value, which is not known before it runs."""
    return isinstance(value, str) and ("{{" in value or "{%" in value)


def names_of(value: str | Iterable[str]) -> tuple[str, ...]:
    """Return names of which one may be given alone."""
    return (value,) if isinstance(value, str) else tuple(value)


def parse_age(name: str, value: object) -> timedelta | datetime | None:
    """Return the interval before now, or the moment, that an argument means; None where it is not given.

    Raises:
        InvalidInputError: it is neither, or a time without an offset.
    """
    match value:
        case None | timedelta():
            return value
        case datetime():
            return require_offset(value)
        case str() if value[:4].isdigit() and "-" in value:
            return parse_time(value)
        case str():
            return parse_interval(value)
        case _:
            raise InvalidInputError(
                f"{name} is {value!r}. Give a timedelta, a string such as '7 days', an aware datetime or an "
                "ISO time."
            )


def parse_span(name: str, value: object) -> timedelta:
    """Return the interval that an argument means.

    Raises:
        InvalidInputError: it is not an interval.
    """
    match value:
        case timedelta():
            return value
        case str():
            return parse_interval(value)
        case _:
            raise InvalidInputError(f"{name} is {value!r}. Give a timedelta or a string such as '24 hours'.")


def clauses_of(given: Clauses, action: str, *, all_columns: bool) -> Clauses:
    """Return the clauses of a kind; ``all_columns``: its short form, one clause for ``"*"``.

    Raises:
        InvalidInputError: both are given.
    """
    if all_columns and given:
        raise InvalidInputError(
            "update_all replaces when_matched, and insert_all replaces when_not_matched: give one of each "
            "pair."
        )
    return [{action: "*"}] if all_columns else given


def check_aliases(target: str, source: str) -> None:
    """Refuse names that a text could not tell apart.

    Raises:
        InvalidInputError: says which names may be given.
    """
    if not (_ALIAS.fullmatch(target) and _ALIAS.fullmatch(source)) or fold(target) == fold(source):
        raise InvalidInputError(
            f"target_alias={target!r} and source_alias={source!r}: give two different names of letters and "
            "digits."
        )


def check_has_clause(*clauses: Clauses) -> None:
    """Refuse a merge without clauses.

    Raises:
        InvalidInputError: there are none.
    """
    if not any(clauses):
        raise InvalidInputError("There is nothing to do: give update_all, insert_all or a when_… clause.")
