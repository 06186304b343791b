"""How many rows an inlined table has, of a snapshot and before, and since."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, and_, case, column, func, select, table

from airflow_provider_ducklake.catalog.snapshot.inlined_tables import (
    BEGIN_SNAPSHOT,
    END_SNAPSHOT,
    ROW_ID,
    inlined_table_name,
)
from airflow_provider_ducklake.transaction.changes import FlushedLayout

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, TableClause

    from airflow_provider_ducklake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.catalog.dialects.opened import Catalog


@dataclass(frozen=True, slots=True)
class LayoutRows:
    """The rows of an inlined table up to a snapshot, and how many came after it."""

    upto: FlushedLayout
    newer_count: int


def rows_of_layout(
    connection: Connection, catalog: Catalog, table_id: int, schema_version: int, at: int
) -> LayoutRows | None:
    """Return how many rows an inlined table has; None: it is gone."""
    rows = bare_table(catalog.tables, table_id, schema_version)
    if not catalog.dialect.has_table(connection, rows.name, rows.schema):
        return None
    is_old = rows.c.begin_snapshot <= at
    query = select(
        _number(is_old).label("old"),
        _number(and_(is_old, rows.c.end_snapshot.is_not(None))).label("ended"),
        func.count().label("all"),
    ).select_from(rows)
    found = connection.execute(query).one()
    upto = FlushedLayout(schema_version, found.old, found.ended)
    return LayoutRows(upto, found.all - found.old)


def bare_table(tables: CatalogTables, table_id: int, schema_version: int) -> TableClause:
    """Return an inlined table with the columns that say which row it is and when it lived, and no others."""
    name = inlined_table_name(table_id, schema_version)
    columns = (column(one, BigInteger) for one in (ROW_ID, BEGIN_SNAPSHOT, END_SNAPSHOT))
    return table(name, *columns, schema=tables.metadata_schema)


def _number(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.count(case((condition, 1)))
