"""Views: the SQL they stand for, in a dialect, and the names they give its columns."""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_provider_ducklake.lake.spec.names.identifiers import quote

_ALIAS = re.compile(r'"((?:[^"]|"")*)"')


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """What a view shows."""

    sql: str
    dialect: str = "duckdb"
    column_aliases: tuple[str, ...] = ()


def format_aliases(names: tuple[str, ...]) -> str:
    """Return the text of ``column_aliases``.

    >>> format_aliases(("p", "q r"))
    '"p","q r"'
    """
    return ",".join(map(quote, names))


def parse_aliases(text: str | None) -> tuple[str, ...]:
    """Return the names in a ``column_aliases`` text."""
    return tuple(name.replace('""', '"') for name in _ALIAS.findall(text or ""))
