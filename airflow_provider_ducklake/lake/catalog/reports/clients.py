"""Which clients wrote a lake, as far as they left their names.

DuckDB leaves its name where it made the catalog and in the footers of its files, and none in snapshots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import case, func, literal, null, select

from airflow_provider_ducklake.lake.catalog.snapshot.places import Place, table_folders
from airflow_provider_ducklake.lake.catalog.snapshot.read_files import file_key
from airflow_provider_ducklake.lake.errors import StorageError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.spec.names.paths import CatalogPath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.lake.spec.files import FileKey
    from airflow_provider_ducklake.lake.storage.files.filesystem import Location

_SIGNATURES = {'%"airflow"%': "airflow_provider_ducklake", "%ducklakepy%": "ducklakepy"}


@dataclass(frozen=True, slots=True)
class LakeClient:
    """A client that wrote to a lake, by the name that it left, and where it did.

    ``snapshot_id`` is the newest snapshot that is known to have something of it.
    """

    name: str
    where: str
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A data file, and the snapshot that it came with."""

    path: str
    snapshot_id: int
    encryption_key: FileKey | None = None


def clients_in_catalog(connection: Connection, tables: CatalogTables) -> list[LakeClient]:
    """Return who made the catalog, and who left a name in snapshots."""
    metadata, changes = tables["metadata"], tables["snapshot_changes"]
    made = connection.execute(select(metadata.c.value).where(metadata.c.key == "created_by")).scalars()
    found = [LakeClient(name, "made the catalog", 0) for name in made]
    if "commit_extra_info" not in changes.c:
        return found
    signed = [(changes.c.commit_extra_info.like(like), literal(name)) for like, name in _SIGNATURES.items()]
    name = case(*signed, else_=null()).label("name")
    rows = connection.execute(
        select(name, func.max(changes.c.snapshot_id))
        .where(changes.c.commit_extra_info.is_not(None))
        .group_by(name)
    )
    found += [LakeClient(one, "committed snapshots", at) for one, at in rows if one is not None]
    return found


def newest_files(connection: Connection, catalog: Catalog, count: int) -> list[WrittenFile]:
    """Return the newest data files that clients of the lake wrote: none that was added from elsewhere."""
    file = catalog.tables["data_file"]
    query = select(
        file.c.table_id, file.c.begin_snapshot, file.c.path, file.c.path_is_relative, file.c.encryption_key
    )
    is_own = file.c.mapping_id.is_(None) if "mapping_id" in file.c else literal(value=True)
    rows = connection.execute(query.where(is_own).order_by(file.c.data_file_id.desc()).limit(count)).all()
    folders = table_folders(connection, catalog.tables)
    return [
        WrittenFile(
            Place(CatalogPath(row.path, row.path_is_relative), folders[row.table_id]).full(catalog.data_path),
            row.begin_snapshot,
            file_key(row.encryption_key),
        )
        for row in rows
        if row.table_id in folders
    ]


def clients_of_files(files: Iterable[WrittenFile], locate: Callable[[str], Location]) -> list[LakeClient]:
    """Return who wrote files, by their footers; one that cannot be read says nothing."""
    from airflow_provider_ducklake.lake.storage.files.parallel import in_threads  # noqa: PLC0415 - heavy
    from airflow_provider_ducklake.lake.storage.parquet.footer import read_metadata  # noqa: PLC0415

    def writer(file: WrittenFile) -> tuple[str | None, int]:
        try:
            location = locate(file.path).with_key(file.encryption_key)
            return read_metadata(location)[0].created_by, file.snapshot_id
        except (StorageError, UnsupportedFeatureError):
            return None, file.snapshot_id

    newest: dict[str, int] = {}
    for name, snapshot_id in in_threads(writer, files):
        if name:
            newest[name] = max(snapshot_id, newest.get(name, 0))
    return [LakeClient(name, "wrote data files", snapshot_id) for name, snapshot_id in newest.items()]
