"""Where the files of a frozen lake lie, if they are copied: all below one folder, by relative paths."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.lake.catalog.snapshot import read
from airflow_provider_ducklake.lake.spec.names.paths import CatalogPath
from airflow_provider_ducklake.lake.storage.files.writing import CopiedFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.lake.catalog.snapshot.read import TableRow

_FILE_IDS = {"data_file": "data_file_id", "delete_file": "delete_file_id"}


@dataclass(frozen=True, slots=True)
class CopiedPaths:
    """The tables of the snapshot by their ids; ``copies`` becomes all files by their places."""

    data_path: str
    tables: dict[int, TableRow]
    copies: dict[str, CopiedFile] = field(default_factory=dict)

    @classmethod
    def of(cls, connection: Connection, catalog: Catalog, at: int) -> CopiedPaths:
        """Return the paths of a snapshot."""
        rows = read.table_rows(connection, catalog.tables, at)
        return cls(catalog.data_path, {one.id: one for one in rows})

    def changed(self, name: str) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
        """Return what becomes of the rows of a catalog table, None where nothing does."""
        match name:
            case "schema" | "table":
                return lambda row: {**row, **_directory(name, row)}
            case "data_file" | "delete_file":
                return lambda row: {**row, **self._file(row, name)}
            case _:
                return None

    def _file(self, row: dict[str, Any], kind: str) -> dict[str, Any]:
        """Note the copy of a file, and return where it lies.

        Raises:
            UntrustedValueError: the path leads elsewhere than it says.
        """
        table = self.tables[row["table_id"]]
        path = CatalogPath(row["path"], row["path_is_relative"] is not False)
        source = path.below(table.root(self.data_path), f"Table {table.qualified}")
        name = row["path"] if path.is_relative else _new_name(row["path"], kind, row[_FILE_IDS[kind]])
        self.copies[self._root(table) + name] = CopiedFile(source, row["file_size_bytes"])
        return {"path": name, "path_is_relative": True}

    def _root(self, table: TableRow) -> str:
        return _relative("schema", table.schema.id, table.schema.path) + _relative(
            "table", table.id, table.path
        )


def _directory(kind: str, row: dict[str, Any]) -> dict[str, Any]:
    path = CatalogPath(row["path"], row["path_is_relative"] is not False)
    return {"path": _relative(kind, row[f"{kind}_id"], path), "path_is_relative": True}


def _relative(kind: str, id_: int, path: CatalogPath) -> str:
    return (path.path or "") if path.is_relative else f"{kind}-{id_}/"


def _new_name(path: str, kind: str, id_: int) -> str:
    """Return the name of the copy of a file that lies elsewhere: its own may be another's here."""
    return f"added-{kind.replace('_', '-')}-{id_}{posixpath.splitext(path)[1]}"
