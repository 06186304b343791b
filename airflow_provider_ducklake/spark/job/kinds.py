"""Kinds of values in the documents of jobs: nothing of a document becomes a value of ours unseen.

SQLite stores whatever it is given, and a text in a column of numbers makes DuckDB unable to open the lake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_T = TypeVar("_T")
LARGEST = 2**63 - 1  # of a catalog's numbers


def integer(value: object) -> int:
    """Return a number of a catalog: whole, and not negative.

    Raises:
        ValueError: something else.
    """
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise _other(value, f"no whole number from 0 to {LARGEST}")
    return value


def text(value: object) -> str:
    """Return a string, which has characters only.

    Raises:
        ValueError: something else.
    """
    if not isinstance(value, str):
        raise _other(value, "no string")
    value.encode()  # a UnicodeEncodeError is a ValueError
    return value


def flag(value: object) -> bool:
    """Return true or false.

    Raises:
        ValueError: something else.
    """
    if not isinstance(value, bool):
        raise _other(value, "neither true nor false")
    return value


def optional(kind: Callable[[object], _T], value: object) -> _T | None:
    """Return a value of that kind, or None for null."""
    return None if value is None else kind(value)


def several(kind: Callable[[object], _T], values: Iterable[Any]) -> tuple[_T, ...]:
    """Return values of one kind.

    Raises:
        ValueError: they stand in no list, or one is something else.
    """
    if not isinstance(values, list):
        raise _other(values, "no list")
    return tuple(kind(value) for value in values)


def _other(value: object, what: str) -> ValueError:
    return ValueError(f"{value!a:.40} is {what}")
