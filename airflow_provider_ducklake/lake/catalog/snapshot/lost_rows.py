"""Which data files of a table have deleted rows, and which have none and may be merged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select

from airflow_provider_ducklake.lake.catalog.snapshot import read_files
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_tables import inlined_delete_table
from airflow_provider_ducklake.lake.spec.snapshots import DataFileId

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog


def mark_counts(connection: Connection, catalog: Catalog, table_id: int) -> dict[DataFileId, int]:
    """Return how many rows of each data file of a table were deleted in the catalog."""
    marks = inlined_delete_table(table_id, catalog.tables.metadata_schema)
    if not catalog.dialect.has_table(connection, marks.name, marks.schema):
        return {}
    query = select(marks.c.file_id, func.count(marks.c.row_id.distinct())).group_by(marks.c.file_id)
    return {DataFileId(file_id): count for file_id, count in connection.execute(query)}


def files_with_deletes(connection: Connection, catalog: Catalog, table_id: int) -> frozenset[DataFileId]:
    """Return the data files of a table of which rows were deleted, now or at any snapshot."""
    deletes = catalog.tables["delete_file"]
    query = select(deletes.c.data_file_id).where(deletes.c.table_id == table_id).distinct()
    found = set(connection.execute(query).scalars())
    marks = inlined_delete_table(table_id, catalog.tables.metadata_schema)
    if catalog.dialect.has_table(connection, marks.name, marks.schema):
        found.update(connection.execute(select(marks.c.file_id).distinct()).scalars())
    return frozenset(DataFileId(one) for one in found)


def mergeable_files(
    connection: Connection, catalog: Catalog, table_id: int, file_ids: Collection[DataFileId]
) -> dict[DataFileId, str]:
    """Return those of the files that are live and never lost a row, with their paths below the data path."""
    touched = files_with_deletes(connection, catalog, table_id)
    paths = read_files.live_file_paths(connection, catalog.tables, table_id, file_ids)
    return {file_id: path for file_id, path in paths.items() if file_id not in touched}
