"""Since when the columns of a table have been as they are: what a file need not be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, select

from airflow_provider_ducklake.spec.ids import ColumnId, SnapshotId

if TYPE_CHECKING:
    from airflow_provider_ducklake.catalog.database.tables import CatalogTables


def columns_since(
    connection: Connection, tables: CatalogTables, at: int, table_id: int
) -> dict[ColumnId, SnapshotId]:
    """Return the snapshot that gave each column and nested field the name and type it has at a snapshot.

    A column that came back after it had gone is as old as that: files between lack it. One that ends and
    begins again without any difference is as well: a restored table may have files from before the column
    was as it is, in snapshots since (``planning.restore.outdated_columns``).
    """
    column = tables["column"]
    rows = connection.execute(
        select(column)
        .where(column.c.table_id == table_id, column.c.begin_snapshot <= at)
        .order_by(column.c.begin_snapshot)
    )
    known: dict[ColumnId, Row[Any]] = {}
    since: dict[ColumnId, SnapshotId] = {}
    for row in rows:
        before = known.get(row.column_id)
        if before is None or not _goes_on(before, row):
            since[row.column_id] = SnapshotId(row.begin_snapshot)
        known[row.column_id] = row
    return since


_NAME_AND_TYPE = ("column_name", "column_type")
_LIFE = ("begin_snapshot", "end_snapshot")


def _goes_on(before: Row[Any], row: Row[Any]) -> bool:
    """Whether files of a column's first row have it by the name and type of the second."""
    old, new = before._mapping, row._mapping  # noqa: SLF001 - SQLAlchemy's public name for a row as a mapping
    differs = [name for name in new if name not in _LIFE and old[name] != new[name]]
    return before.end_snapshot == row.begin_snapshot and bool(differs) and not {*differs} & {*_NAME_AND_TYPE}
