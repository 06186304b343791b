"""A Spark SQL statement over the lake: its query, and what happens to its rows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from airflow_provider_ducklake.lake.spec.names.identifiers import FoldedName, QualifiedName


class WriteMode(Enum):
    """What becomes of a table with the rows of a query."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    CREATE = "create"
    CREATE_IF_MISSING = "create_if_missing"
    REPLACE = "replace"

    @property
    def creates(self) -> bool:
        """Whether the query's own names become the table's."""
        return self in (WriteMode.CREATE, WriteMode.CREATE_IF_MISSING, WriteMode.REPLACE)


@dataclass(frozen=True, slots=True)
class RowCondition:
    """What a query says of each row of a table that counts in it: texts that are all true.

    They call the table ``alias``; ``names`` are what they call all tables.
    """

    alias: str
    names: Collection[str]
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """A table's name in a query, from ``start`` to before ``end``; without ``alias`` it is its own.

    ``in_columns`` are the places of the schema before a column, ``sales.`` in ``sales.orders.price``.
    ``times`` is how often it is read there: once, or as often as the common table expression around it is.
    ``condition`` is what holds for its rows that count, None: all may.
    """

    name: QualifiedName
    start: int
    end: int
    has_alias: bool
    in_columns: tuple[tuple[int, int], ...] = ()
    times: int = 1
    condition: RowCondition | None = None


@dataclass(frozen=True, slots=True)
class SparkQuery:
    """A query as written, and the tables of the lake that it names.

    ``commons`` is how often it reads its common table expressions; only of a query alone.
    """

    text: str
    references: tuple[Reference, ...] = ()
    commons: int = 0

    @property
    def reads(self) -> dict[FoldedName, QualifiedName]:
        """The tables, by their names as names are compared."""
        return {one.name.folded: one.name for one in self.references}

    def with_views(self, views: Mapping[FoldedName, str]) -> str:
        """Return the text with views, whose names are given as Spark reads them, in place of the tables."""
        edits: list[tuple[int, int, str]] = []
        for one in self.references:
            alias = "" if one.has_alias else f" AS {quoted(one.name.name)}"
            edits.append((one.start, one.end, views[one.name.folded] + alias))
            edits.extend((start, end, "") for start, end in one.in_columns)
        pieces, position = [], 0
        for start, end, new in sorted(set(edits)):
            pieces.append(self.text[position:start] + new)
            position = end
        return "".join(pieces) + self.text[position:]


@dataclass(frozen=True, slots=True)
class WriteStatement:
    """A query whose rows go to a table; ``columns`` are named, or else taken in the table's order.

    With ``by_name`` the query's own names count.
    """

    number: int
    table: QualifiedName
    mode: WriteMode
    query: SparkQuery
    columns: tuple[str, ...] = ()
    by_name: bool = False
    partition_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ViewStatement:
    """A query that later statements can name."""

    number: int
    view: str
    query: SparkQuery


SparkStatement: TypeAlias = WriteStatement | ViewStatement


def quoted(name: str) -> str:
    """Return a name as Spark reads it whatever it is.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"
