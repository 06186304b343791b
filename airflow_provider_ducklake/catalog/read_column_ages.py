"""Since when the columns of a table have been as they are: what a file need not be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection, select

from airflow_provider_ducklake.spec.ids import ColumnId, SnapshotId

if TYPE_CHECKING:
    from airflow_provider_ducklake.catalog.tables import CatalogTables


def columns_since(
    connection: Connection, tables: CatalogTables, at: int, table_id: int
) -> dict[ColumnId, SnapshotId]:
    """Return the snapshot that gave each column and nested field the name and type it has at a snapshot."""
    column = tables["column"]
    rows = connection.execute(
        select(column.c.column_id, column.c.begin_snapshot, column.c.column_name, column.c.column_type)
        .where(column.c.table_id == table_id, column.c.begin_snapshot <= at)
        .order_by(column.c.begin_snapshot)
    )
    found: dict[ColumnId, tuple[SnapshotId, str, str]] = {}
    for row in rows:
        known = found.get(row.column_id)
        if known is None or known[1:] != (row.column_name, row.column_type):
            found[row.column_id] = (SnapshotId(row.begin_snapshot), row.column_name, row.column_type)
    return {column_id: since for column_id, (since, *_) in found.items()}
