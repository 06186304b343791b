"""How names are written where Spark parses them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def quoted(name: str) -> str:
    """Return a column's name in backticks: dots and spaces are part of it.

    >>> quoted("a.b"), quoted("a`b")
    ('`a.b`', '`a``b`')
    """
    return f"`{name.replace('`', '``')}`"


def free_prefix(names: Iterable[str]) -> str:
    """Return the beginning of names for columns of ours beside those of users: none of theirs begins so.

    >>> free_prefix(["id"]), free_prefix(["_Ducklake_key_0"])
    ('_ducklake_', '__ducklake_')
    """
    taken = [name.lower() for name in names]
    prefix = "_ducklake_"
    while any(name.startswith(prefix) for name in taken):
        prefix = f"_{prefix}"
    return prefix
