"""The roles that the users of a catalog database have, and which tables each may change.

A reader may read every table. A maintainer may do everything: it owns them. What a writer may change is here.
*Source:* the statements of our verbs and of DuckDB 1.5.5 as users with these rights
(docs/sources.md, rights in the catalog's database).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import InvalidInputError, InvalidNameError

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_BYTES = 63  # PostgreSQL cuts longer names off, and would grant to another role
_OF_EVERYBODY = frozenset({"public", "none"})  # they mean no role, quoted or not


class Role(StrEnum):
    """What somebody may do with a lake."""

    READER = "reader"
    WRITER = "writer"
    MAINTAINER = "maintainer"

    @classmethod
    def of(cls, name: str) -> Role:
        """Return the role of that name.

        Raises:
            InvalidInputError: there is none.
        """
        try:
            return cls(name)
        except ValueError:
            known = ", ".join(cls)
            raise InvalidInputError(f"{name!r} is not a role. The roles of a lake are {known}.") from None


@dataclass(frozen=True, slots=True)
class RoleNames:
    """What the database calls the user, or the role, that has each role of a lake.

    Raises:
        InvalidNameError: the database could not take a name, or takes it for something else.
        InvalidInputError: two of them are the same.
    """

    reader: str = "ducklake_reader"
    writer: str = "ducklake_writer"
    maintainer: str = "ducklake_maintainer"

    def __post_init__(self) -> None:
        names = [getattr(self, one.name) for one in fields(self)]
        for name in names:
            _check(name)
        if len(set(names)) < len(names):
            raise InvalidInputError(
                f"Each role needs a database user of its own, not {', '.join(map(repr, names))}. A "
                "maintainer may do what a writer may, and a writer what a reader may."
            )

    def of(self, role: Role) -> str:
        """Return the name of a role."""
        name: str = getattr(self, role.value)
        return name


def _check(name: str) -> None:
    size = len(name.encode(errors="replace"))
    if not 0 < size <= _MAX_BYTES or "\0" in name or not name.isprintable():
        problem = f"it must have 1 to {_MAX_BYTES} bytes, and no control characters"
    elif name.lower() in _OF_EVERYBODY or name.lower().startswith("pg_"):
        problem = "the database reserves it"
    else:
        return
    raise InvalidNameError(f"{name!r} cannot be the name of a database user: {problem}.")


DEFAULT_NAMES = RoleNames()

_UPDATE, _DELETE = ("UPDATE",), ("DELETE",)
# A writer inserts into every table of the format. It changes these besides: it ends lifetimes, adds to
# statistics, sets options, and replaces delete files.
_CHANGED: Mapping[str, tuple[str, ...]] = {
    "metadata": (*_UPDATE, *_DELETE),
    "schema": _UPDATE,
    "table": _UPDATE,
    "view": _UPDATE,
    "macro": _UPDATE,
    "tag": _UPDATE,
    "column_tag": _UPDATE,
    "view_column_tag": _UPDATE,
    "column": _UPDATE,
    "data_file": _UPDATE,
    "delete_file": (*_UPDATE, *_DELETE),
    "file_column_stats": _UPDATE,
    "table_stats": _UPDATE,
    "table_column_stats": (*_UPDATE, *_DELETE),
    "partition_info": _UPDATE,
    "sort_info": _UPDATE,
    "inlined_data_tables": _DELETE,
}
# Tables that are made for a table of the lake, some of them while it is written.
_INLINED = {
    re.compile(r"ducklake_inlined_data_\d+_\d+"): ("SELECT", "INSERT", *_UPDATE),
    re.compile(r"ducklake_inlined_delete_\d+"): ("SELECT", "INSERT", *_DELETE),
}


def rights_on(kind: str) -> tuple[str, ...]:
    """Return what a writer may do to a table of the format, which has its name after ``ducklake_``."""
    return ("SELECT", "INSERT", *_CHANGED.get(kind, ()))


def rights_on_inlined(name: str) -> tuple[str, ...]:
    """Return what a writer may do to a table of inlined rows or deletes; nothing where it is neither."""
    return next((rights for pattern, rights in _INLINED.items() if pattern.fullmatch(name)), ())
