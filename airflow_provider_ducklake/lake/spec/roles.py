"""The roles that users of a catalog database can have in a lake, and what the database calls them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

from airflow_provider_ducklake.lake.errors import InvalidInputError, InvalidNameError

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
