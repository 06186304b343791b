"""How names are written where Spark parses them."""

from __future__ import annotations


def quoted(name: str) -> str:
    """Return a column's name in backticks: dots and spaces are part of it.

    >>> quoted("a.b"), quoted("a`b")
    ('`a.b`', '`a``b`')
    """
    return f"`{name.replace('`', '``')}`"
