"""Names of schemas, tables and columns: parse what users type, quote what the catalog stores."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from airflow_provider_ducklake.errors import InvalidNameError

DEFAULT_SCHEMA = "main"
_PART = re.compile(r'"(?:[^"]|"")*"|[^".]+')
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def quote(name: str) -> str:
    """Return ``name`` as a quoted SQL identifier.

    >>> quote('we"ird')
    '"we""ird"'
    """
    return '"' + name.replace('"', '""') + '"'


@lru_cache
def quote_if_needed(name: str) -> str:
    """Return ``name`` as it is when SQL reads it back unchanged, quoted otherwise.

    >>> quote_if_needed("orders"), quote_if_needed("or ders")
    ('orders', '"or ders"')
    """
    return name if _PLAIN.match(name) else quote(name)


_NOT_STORABLE = re.compile("[\0\ud800-\udfff]")  # NUL, and halves of surrogate pairs


def is_storable(text: str) -> bool:
    """Whether every catalog database can store a text."""
    return _NOT_STORABLE.search(text) is None


def check_name(name: str, kind: str) -> str:
    """Return ``name`` if the catalog can hold it.

    Raises:
        InvalidNameError: it is empty, or holds a NUL character or half of a surrogate pair.
    """
    if not name or not is_storable(name):
        raise InvalidNameError(
            f"{name!r} cannot name a {kind}: a name has at least one character, no NUL and no unpaired "
            "surrogate."
        )
    return name


INTERNAL_PREFIX = "_ducklake_internal_"


@lru_cache(maxsize=8192)
def fold(name: str) -> str:
    """Return the form under which names are compared: DuckDB ignores the case of ASCII letters only.

    >>> fold("Straße ÄB")
    'straße Äb'
    """
    return "".join(char.lower() if char.isascii() else char for char in name)


def split_parts(text: str) -> list[str]:
    """Split a dotted name into its parts, honouring double quotes.

    >>> split_parts('sales."or.ders"')
    ['sales', 'or.ders']

    Raises:
        InvalidNameError: quotes are unbalanced or a part is empty.
    """
    parts: list[str] = []
    position = 0
    while True:
        match = _PART.match(text, position)
        if match is None:
            raise InvalidNameError(
                f"Cannot read {text!r} as a name. Quote parts with special characters: 'schema.\"odd name\"'."
            )
        part = match.group()
        parts.append(part[1:-1].replace('""', '"') if part.startswith('"') else part)
        position = match.end()
        if position == len(text):
            return parts
        if text[position] != ".":
            raise InvalidNameError(f"Cannot read {text!r} as a name: unexpected {text[position:]!r}.")
        position += 1


FoldedName: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True, order=True)
class QualifiedName:
    """A schema and the name of a table or view in it."""

    schema: str
    name: str

    @property
    def folded(self) -> FoldedName:
        """The form under which qualified names are compared."""
        return fold(self.schema), fold(self.name)

    @classmethod
    def of(cls, table: TableName) -> QualifiedName:
        """Return the qualified name for what a user gave; one part alone lies in schema ``main``.

        >>> QualifiedName.of('sales."or.ders"').name
        'or.ders'

        Raises:
            InvalidNameError: not one or two parts, or a part that cannot be a name.
        """
        if isinstance(table, QualifiedName):
            return table
        parts = split_parts(table) if isinstance(table, str) else list(table)
        if len(parts) == 1:
            parts = [DEFAULT_SCHEMA, *parts]
        if len(parts) != 2:  # noqa: PLR2004 - schema and table
            raise InvalidNameError(f"{table!r} has {len(parts)} parts; name a table as 'schema.table'.")
        return cls(check_name(parts[0], "schema"), check_name(parts[1], "table"))

    def __str__(self) -> str:
        return f"{quote_if_needed(self.schema)}.{quote_if_needed(self.name)}"


TableName: TypeAlias = str | tuple[str, str] | QualifiedName  # what a user may give
