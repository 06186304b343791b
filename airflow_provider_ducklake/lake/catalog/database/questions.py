"""Queries of a catalog as values, so that several can share a round trip."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sqlalchemy import BigInteger, BindParameter, ColumnElement, bindparam, union_all

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Column, CompoundSelect, Connection, Row, Select
    from sqlalchemy.types import TypeEngine

Answer = TypeVar("Answer")
Value = TypeVar("Value")


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


AT = bindparam("at", type_=BigInteger())  # a snapshot
OF_TABLE = bindparam("table", type_=BigInteger())


def one_of(column: Column[Any], count: int) -> ColumnElement[bool]:
    """Return the condition that a column is one of ``count`` parameters, for ``values_of``."""
    return column.in_(parameters(count, column.type))


def parameters(count: int, type_: TypeEngine[Any]) -> list[BindParameter[Any]]:
    """Return ``count`` parameters, for ``values_of``."""
    return [bindparam(f"value_{number}", type_=type_) for number in range(count)]


def values_of(values: Collection[Any]) -> dict[str, Any]:
    """Return the values of ``parameters``."""
    return {f"value_{number}": one for number, one in enumerate(values)}


_VALUES_AT_ONCE = 10_000  # databases limit the parameters of a statement: SQLite to 32,766


def in_parts(values: Iterable[Value], at_once: int = _VALUES_AT_ONCE) -> Iterator[tuple[Value, ...]]:
    """Yield so many of the values at once, by default as one statement takes, until none are left."""
    rest = iter(values)
    while part := tuple(islice(rest, at_once)):
        yield part


_QUERIES_AT_ONCE = 200  # which one statement joins


def asked(connection: Connection, queries: Sequence[Any]) -> Iterator[Row[Any]]:
    """Yield the rows of queries with the same columns, of many in one statement."""
    for part in in_parts(queries, _QUERIES_AT_ONCE):
        yield from connection.execute(union_all(*part)).all()


_ROWS_AT_ONCE = 10_000


def streamed(connection: Connection, query: Select[Any] | CompoundSelect[Any]) -> Iterator[Any]:
    """Yield the rows of a query without holding them all; stopping early leaves no cursor open.

    No other statement may run on the connection meanwhile: MySQL and DuckDB end the rows there, without a
    word.
    """
    for rows in streamed_parts(connection, query, _ROWS_AT_ONCE):
        yield from rows


def streamed_parts(
    connection: Connection, query: Select[Any] | CompoundSelect[Any], size: int
) -> Iterator[Sequence[Any]]:
    """Yield them so many at a time."""
    with connection.execute(query, execution_options={"yield_per": size}) as found:
        yield from found.partitions()
