"""Names of schemas, tables and columns: parse what users type, quote what the catalog stores."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from airflow_provider_ducklake.lake.errors import InvalidNameError, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_SCHEMA = "main"
_PART = re.compile(r'(?:[Uu]&)?"(?:[^"]|"")*"|[^".]+')
_ESCAPE = re.compile(r"\\(\\|[0-9A-Fa-f]{4})")
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


def shown(name: str) -> str:
    r"""Return ``name`` as people read it in a line, and ``split_parts`` reads it back.

    >>> print(shown("orders"), shown("or ders"), shown("or\nders"))
    orders "or ders" U&"or\000Aders"
    """
    if one_line(name) == name:
        return quote_if_needed(name)
    kept = name.replace("\\", "\\\\")
    escaped = "".join(char if one_line(char) == char else f"\\{ord(char):04X}" for char in kept)
    return f"U&{quote(escaped)}"


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

    In standard SQL's ``U&"…"`` a backslash and four digits are a character.

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
        parts.append(_unquoted(part))
        position = match.end()
        if position == len(text):
            return parts
        if text[position] != ".":
            raise InvalidNameError(f"Cannot read {text!r} as a name: unexpected {text[position:]!r}.")
        position += 1


def _unquoted(part: str) -> str:
    if not part.endswith('"'):
        return part
    prefix, _, quoted = part.partition('"')
    name = quoted[:-1].replace('""', '"')
    return _ESCAPE.sub(_character, name) if prefix else name


def _character(escape: re.Match[str]) -> str:
    return "\\" if escape[1] == "\\" else chr(int(escape[1], 16))


FoldedName: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, order=True)
class SchemaPath:
    """The full name of a schema: the names of the schemas that it lies in, outermost first, and its own.

    Before DuckLake 1.1 schemas lie in no other one.
    """

    parts: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its own name."""
        return self.parts[-1]

    @property
    def parent(self) -> SchemaPath | None:
        """The schema that it lies in; None: it lies in none."""
        return SchemaPath(self.parts[:-1]) if len(self.parts) > 1 else None

    @property
    def folded(self) -> FoldedName:
        """The form under which schemas are compared."""
        return tuple(map(fold, self.parts))

    def is_below(self, other: SchemaPath) -> bool:
        """Whether it is the other schema, or lies in it."""
        return self.folded[: len(other.parts)] == other.folded

    @classmethod
    def of(cls, schema: SchemaName) -> SchemaPath:
        """Return the path for what a user gave: names with dots between them, where they can be read so.

        >>> SchemaPath.of("sales.europe").parts, SchemaPath.of('"sales.europe"').parts
        (('sales', 'europe'), ('sales.europe',))
        >>> SchemaPath.of('we"ird').parts
        ('we"ird',)

        Raises:
            InvalidNameError: a part cannot be a name.
        """
        if isinstance(schema, SchemaPath):
            return schema
        parts: Sequence[str] = schema
        if isinstance(schema, str):
            try:
                parts = split_parts(schema)
            except InvalidNameError:
                parts = (schema,)
        if not parts:
            raise InvalidNameError("A schema has a name.")
        return cls(tuple(check_name(part, "schema") for part in parts))

    def __str__(self) -> str:
        return ".".join(map(shown, self.parts))


@dataclass(frozen=True, slots=True, order=True)
class QualifiedName:
    """A schema and the name of a table or view in it."""

    schema: SchemaPath
    name: str

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of its schemas, outermost first, and its own."""
        return *self.schema.parts, self.name

    @property
    def folded(self) -> FoldedName:
        """The form under which qualified names are compared."""
        return *self.schema.folded, fold(self.name)

    @classmethod
    def of(cls, table: TableName) -> QualifiedName:
        """Return the qualified name for what a user gave; one part alone lies in schema ``main``.

        >>> QualifiedName.of('sales."or.ders"').name
        'or.ders'
        >>> orders = QualifiedName.of("sales.europe.orders")
        >>> orders.schema.parts, QualifiedName.of((orders.schema, orders.name)) == orders
        (('sales', 'europe'), True)

        Raises:
            InvalidNameError: no part, or one that cannot be a name.
        """
        if isinstance(table, QualifiedName):
            return table
        parts: list[str] = split_parts(table) if isinstance(table, str) else []
        for part in () if isinstance(table, str) else table:
            parts += part.parts if isinstance(part, SchemaPath) else [part]
        *above, name = parts or [""]
        return cls(SchemaPath.of(tuple(above) or MAIN), check_name(name, "table"))

    def __str__(self) -> str:
        return f"{self.schema}.{shown(self.name)}"


MAIN = SchemaPath((DEFAULT_SCHEMA,))
SchemaName: TypeAlias = str | tuple[str, ...] | SchemaPath  # what a user may give
TableName: TypeAlias = str | tuple[str, ...] | tuple[SchemaPath, str] | QualifiedName
