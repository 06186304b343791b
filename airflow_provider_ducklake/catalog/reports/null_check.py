"""Whether a column may hold a NULL, from statistics alone; if unsure, it may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.catalog.snapshot import read_statistics
from airflow_provider_ducklake.catalog.snapshot.inlined_read import has_inlined_rows
from airflow_provider_ducklake.catalog.snapshot.read_files import WantedFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import Connection

    from airflow_provider_ducklake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.spec.files import DataFile, LiveDataFile
    from airflow_provider_ducklake.spec.ids import ColumnId, SnapshotId
    from airflow_provider_ducklake.spec.schema import Column
    from airflow_provider_ducklake.spec.snapshots import TableSnapshot
    from airflow_provider_ducklake.spec.stats import ColumnStats


def has_rows(connection: Connection, catalog: Catalog, table: TableSnapshot) -> bool:
    """Whether the table ever held a row."""
    return bool(read_statistics.which_statistics(catalog.tables, [table.table_id]).ask(connection).tables)


def may_hold_null(
    connection: Connection, catalog: Catalog, at: SnapshotId, table: TableSnapshot, column: Column
) -> bool:
    """Whether any row of the table may have NULL in a top-level column."""
    known = read_statistics.which_statistics(catalog.tables, [table.table_id]).ask(connection)
    if not known.tables:
        return False
    if (stats := known.columns[table.table_id].get(column.id)) is not None and not stats.contains_null:
        return False
    if has_inlined_rows(connection, catalog, table.table_id):
        return True
    files = WantedFiles(catalog.tables, at, table.table_id, table.root).ask(connection, catalog)
    return files_may_hold_null(files, column)


def files_may_hold_null(files: Iterable[LiveDataFile] | Iterable[DataFile], column: Column) -> bool:
    """Whether any of the files may have NULL in the column, or in its place."""
    return any(_may_hold_null(file.column_stats, column) for file in files)


def _may_hold_null(stats: Mapping[ColumnId, ColumnStats], column: Column) -> bool:
    if column.children:
        return True
    found = stats.get(column.id)
    if found is None:  # written before the column was there, or never measured
        return column.initial_default is None
    return found.null_count != 0
