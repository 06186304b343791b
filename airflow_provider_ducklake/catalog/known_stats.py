"""What a commit has to know of the tables it changes, read while it holds the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import column, literal, select, table

from airflow_provider_ducklake.catalog import read
from airflow_provider_ducklake.catalog.table_snapshot import has_inlined_rows
from airflow_provider_ducklake.spec.ids import TableId
from airflow_provider_ducklake.transaction.changes import AppendFiles, Change, Truncate
from airflow_provider_ducklake.transaction.commit_state import KnownStats

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Connection

    from airflow_provider_ducklake.catalog.catalog import Catalog
    from airflow_provider_ducklake.spec.ids import ColumnId


def known_stats(connection: Connection, catalog: Catalog, changes: Collection[Change]) -> KnownStats:
    """Return the statistics of the tables that get rows, and where the rows of truncated ones lie."""
    live_inlined = {
        change.table_id: _live_inlined_tables(connection, catalog, change.table_id)
        for change in changes
        if isinstance(change, Truncate)
    }
    appended = [change.table for change in changes if isinstance(change, AppendFiles)]
    ids = [TableId(table_id) for table_id in appended if isinstance(table_id, int)]
    if not ids:
        return KnownStats(live_inlined=live_inlined)
    columns = read.table_column_stats(connection, catalog.tables, ids)
    without_bounds = {
        table_id: missing
        for table_id, stats in columns.items()
        if (
            missing := [
                one.column_id for one in stats.values() if one.min_value is None and one.max_value is None
            ]
        )
    }
    return KnownStats(
        read.table_stats(connection, catalog.tables, ids),
        columns,
        _unbounded(connection, catalog, without_bounds),
        live_inlined,
    )


def _unbounded(
    connection: Connection, catalog: Catalog, without_bounds: dict[TableId, list[ColumnId]]
) -> frozenset[tuple[TableId, ColumnId]]:
    unbounded = read.columns_with_unbounded_values(connection, catalog.tables, without_bounds)
    for table_id, missing in without_bounds.items():
        if has_inlined_rows(connection, catalog, table_id):  # of whose values nothing else is known
            unbounded.update((table_id, column_id) for column_id in missing)
    return frozenset(unbounded)


def _live_inlined_tables(connection: Connection, catalog: Catalog, table_id: int) -> tuple[str, ...]:
    """Return the catalog tables that hold live rows of a table."""
    schema = catalog.tables.metadata_schema
    found: list[str] = []
    for name in read.inlined_tables(connection, catalog.tables, table_id):
        rows = table(name, column("end_snapshot"), schema=schema)
        query = select(literal(1)).select_from(rows).where(rows.c.end_snapshot.is_(None)).limit(1)
        if catalog.dialect.has_table(connection, name, schema) and connection.execute(query).first():
            found.append(name)
    return tuple(found)
