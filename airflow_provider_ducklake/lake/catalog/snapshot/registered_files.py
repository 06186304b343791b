"""Data files that a lake has or had, by their full paths, and the name mappings of its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from airflow_provider_ducklake.lake.catalog.database.questions import in_parts
from airflow_provider_ducklake.lake.catalog.snapshot.file_paths import table_directories
from airflow_provider_ducklake.lake.catalog.snapshot.read_mappings import name_mappings
from airflow_provider_ducklake.lake.spec.files import same_mapping_key
from airflow_provider_ducklake.lake.spec.names.paths import CatalogPath

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.lake.spec.snapshots import MappingId, TableId
    from airflow_provider_ducklake.lake.transaction.declared import MappingKey


def registered(connection: Connection, catalog: Catalog, paths: Collection[str]) -> frozenset[str]:
    """Return those of the full paths that are data files of the lake, of whatever table and snapshot.

    Files that wait for their deletion are among them: they would be deleted under their new table.
    """
    wanted = set(paths)
    found = _data_files(connection, catalog, wanted) | _scheduled(connection, catalog, wanted)
    return frozenset(wanted & found)


def _data_files(connection: Connection, catalog: Catalog, paths: Collection[str]) -> set[str]:
    file = catalog.tables["data_file"]
    rows = [
        row
        for texts in in_parts(_endings(paths))
        for row in connection.execute(
            select(file.c.table_id, file.c.path, file.c.path_is_relative).where(file.c.path.in_(texts))
        )
    ]
    roots = table_directories(connection, catalog, {row.table_id for row in rows if row.path_is_relative})
    return {
        CatalogPath(row.path, row.path_is_relative).spelled_below(root)
        for row in rows
        for root in (roots.get(row.table_id, ()) if row.path_is_relative else ("",))
    }


def _scheduled(connection: Connection, catalog: Catalog, paths: Collection[str]) -> set[str]:
    file = catalog.tables["files_scheduled_for_deletion"]
    return {
        CatalogPath(row.path, row.path_is_relative).spelled_below(catalog.data_path)
        for texts in in_parts(_endings(paths))
        for row in connection.execute(
            select(file.c.path, file.c.path_is_relative).where(file.c.path.in_(texts))
        )
    }


def _endings(paths: Collection[str]) -> list[str]:
    """Return the paths and what is left of them below each directory: how the catalog may have them."""
    endings = set(paths)
    for path in paths:
        place = path.find("/")
        while place >= 0:
            endings.add(path[place + 1 :])
            place = path.find("/", place + 1)
    return sorted(endings - {""})


def mappings_of(connection: Connection, catalog: Catalog, table_id: TableId) -> dict[MappingKey, MappingId]:
    """Return a table's name mappings; of equal ones the first."""
    found: dict[MappingKey, MappingId] = {}
    for mapping_id, mapping in name_mappings(connection, catalog.tables, table_id).items():
        found.setdefault(same_mapping_key(mapping), mapping_id)
    return found
