"""Locations of a lake's files in any version, relative to the data path if they are below it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from uuid6 import uuid7

from airflow_provider_ducklake.lake.catalog.snapshot.read import select_all
from airflow_provider_ducklake.lake.spec.names.paths import CatalogPath

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables

_FOLDER = ("path", "path_is_relative")  # since 0.2


@dataclass(frozen=True, slots=True)
class Place:
    """The path of a file as its row has it, and the directory of its table."""

    path: CatalogPath
    folder: CatalogPath

    @property
    def from_data_path(self) -> CatalogPath:
        """Where the file lies, as the schedule of deletions says it."""
        return _below(self.folder, self.path)

    def full(self, data_path: str) -> str:
        """Return the full path."""
        return self.from_data_path.below(data_path)

    def beside(self, suffix: str) -> Place:
        """Return a new place in the same directory."""
        directory, slash, _ = (self.path.path or "").rpartition("/")
        path = f"{directory}{slash}ducklake-{uuid7()}{suffix}"
        return Place(CatalogPath(path, self.path.is_relative), self.folder)


def table_folders(connection: Connection, tables: CatalogTables) -> dict[int, CatalogPath]:
    """Return each table's directory, by its id; those of dropped tables too, but none without a schema."""
    schemas = {
        row.schema_id: CatalogPath(row.path, row.path_is_relative is not False)
        for row in connection.execute(select_all(tables["schema"], *_FOLDER))
    }
    return {
        row.table_id: _below(schemas[row.schema_id], CatalogPath(row.path, row.path_is_relative is not False))
        for row in connection.execute(select_all(tables["table"], *_FOLDER))
        if row.schema_id in schemas
    }


def _below(parent: CatalogPath, child: CatalogPath) -> CatalogPath:
    if not child.is_relative:
        return child
    return CatalogPath((parent.path or "") + (child.path or ""), parent.is_relative)
