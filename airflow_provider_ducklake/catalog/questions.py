"""What is asked of a catalog, as values: several questions can share a round trip."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sqlalchemy import ColumnElement, bindparam

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from sqlalchemy import Column, Connection, Select

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Question(Generic[Answer]):
    """A query with its parameters, and how to read its rows.

    A query is compiled once for as long as it lives: those asked in every commit are built once and kept,
    with parameters for what changes.
    """

    query: Select[Any]
    read: Callable[[Sequence[Any]], Answer]
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def ask(self, connection: Connection) -> Answer:
        """Return the answer, in a round trip of its own."""
        return self.read(connection.execute(self.query, dict(self.parameters)).all())


def one_of(column: Column[Any], count: int) -> ColumnElement[bool]:
    """Return the condition that a column is one of ``count`` parameters, for ``values_of``."""
    return column.in_([bindparam(f"id_{number}", type_=column.type) for number in range(count)])


def values_of(ids: Collection[int]) -> dict[str, int]:
    """Return the parameters of ``one_of``."""
    return {f"id_{number}": one for number, one in enumerate(ids)}
