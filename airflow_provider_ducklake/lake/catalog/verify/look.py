"""The scope of a verification: one state of a catalog, all of its tables or some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, select, true

from airflow_provider_ducklake.lake.catalog.database.connect import streamed
from airflow_provider_ducklake.lake.catalog.snapshot import read, read_snapshots
from airflow_provider_ducklake.lake.catalog.snapshot.read import all_schema_parents
from airflow_provider_ducklake.lake.planning.upkeep.findings import Finding, FindingCode
from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName, SchemaPath, schema_circles
from airflow_provider_ducklake.lake.spec.tags import FROZEN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from sqlalchemy import Column, FromClause, Join, Row, Select

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.catalog.dialects.dialect import Catalog
    from airflow_provider_ducklake.lake.spec.snapshots import Snapshot


_LATER = 2**62  # than any snapshot
MOST_OF_A_KIND = 1000  # findings of one question: who has more of a kind has one cause for all of them


@dataclass(frozen=True, slots=True)
class Look:
    """An open connection, the newest snapshot, and the ids of the tables to look at (None: all).

    ``names`` are the names of all tables that the lake knows, by id.
    """

    connection: Connection
    catalog: Catalog
    head: Snapshot
    only: frozenset[int] | None
    names: Mapping[int, str]
    is_frozen: bool = False

    @property
    def newest_id(self) -> int:
        """The newest snapshot that rows may have come or gone with.

        Files of a frozen lake may have some of later ones, which are left out.
        """
        return _LATER if self.is_frozen else self.head.id

    @property
    def tables(self) -> CatalogTables:
        """The catalog's tables."""
        return self.catalog.tables

    @property
    def is_whole(self) -> bool:
        """Whether the whole lake is looked at, not some tables."""
        return self.only is None

    def chosen(self, table_id: ColumnElement[int]) -> ColumnElement[bool]:
        """Return the condition that a row belongs to a table that is looked at."""
        return true() if self.only is None else table_id.in_(self.only)

    def few(self, query: Select[Any]) -> Sequence[Row[Any]]:
        """Return the rows of a question that only asks for what is wrong, and not all if they are many."""
        return self.connection.execute(query.limit(MOST_OF_A_KIND)).all()

    def all(self, query: Select[Any]) -> Iterator[Row[Any]]:
        """Yield the rows of a question one after the other, without holding them all."""
        yield from streamed(self.connection, query)

    def table(self, table_id: int | None) -> str:
        """Return how a table is called in a sentence."""
        return self.names.get(table_id if table_id is not None else -1, f"table {table_id}")


def lacking(table: FromClause, key: Column[Any], on: ColumnElement[bool]) -> tuple[Join, ColumnElement[bool]]:
    """Return a join, and the condition for its rows of ``table`` that have none of the key's table.

    One pass over each, whatever the database: for ``NOT EXISTS`` SQLite reads the other for every row, for a
    ``NOT IN`` of many rows PostgreSQL does.
    """
    return table.outerjoin(key.table, on), key.is_(None)


def look_at(connection: Connection, catalog: Catalog, only: Collection[int] | None) -> Look:
    """Return the newest state of a catalog."""
    head = read_snapshots.head(connection, catalog.tables)
    ids = None if only is None else frozenset(only)
    is_frozen = any(one.key == FROZEN for one in read.option_rows(connection, catalog.tables))
    return Look(connection, catalog, head, ids, _names(connection, catalog.tables), is_frozen)


def _names(connection: Connection, tables: CatalogTables) -> dict[int, str]:
    table = tables["table"]
    paths = read.all_schema_paths(connection, tables)
    rows = connection.execute(
        select(table.c.table_id, table.c.table_name, table.c.schema_id).order_by(table.c.begin_snapshot)
    )
    return {
        row.table_id: str(QualifiedName(paths.get(row.schema_id, SchemaPath(("",))), row.table_name))
        for row in rows
    }


# Check that no schema lies in itself: such a one has no full name, and neither has what lies in it.


def check_schema_circles(connection: Connection, tables: CatalogTables) -> Iterator[Finding]:
    """Yield each circle of schemas that lie in each other."""
    rows = all_schema_parents(connection, tables)
    names = {schema_id: name for schema_id, _, name in rows}
    for circle in schema_circles({schema_id: parent for schema_id, parent, _ in rows}):
        listed = ", ".join(f"{names[one]!r} (id {one})" for one in circle)
        yield Finding(
            FindingCode.SCHEMA_CIRCLE,
            f"The schemas {listed} lie in each other: parent_schema_id leads round in a circle.",
            {"schema_id": min(circle)},
        )
