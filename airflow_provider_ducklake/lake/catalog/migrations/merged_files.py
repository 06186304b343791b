"""Merged files of catalogs before 0.4: the catalog says which rows are whose, since then the file does.

DuckDB 1.3.2 and 1.4.4 write both. A file that does not say it, or says something else, is copied under a new
name with a column that does, before the catalog forgets. Where no snapshot is left that could tell the rows
apart, the file stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, func, select, update

from airflow_provider_ducklake.lake.catalog.snapshot.places import Place, table_folders
from airflow_provider_ducklake.lake.catalog.snapshot.read_files import file_key, stamped_max
from airflow_provider_ducklake.lake.errors import CatalogError
from airflow_provider_ducklake.lake.planning.upkeep.migration import snapshot_counts
from airflow_provider_ducklake.lake.spec.files import key_text
from airflow_provider_ducklake.lake.spec.names.paths import CatalogPath
from airflow_provider_ducklake.lake.spec.versions import SpecVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sqlalchemy import Connection, Row

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.spec.files import FileKey
    from airflow_provider_ducklake.lake.storage.files.filesystem import Location
    from airflow_provider_ducklake.lake.storage.parquet.opening import Written


@dataclass(frozen=True, slots=True)
class MergedFile:
    """A data file whose rows came by several snapshots: each with the number of rows up to it, ascending."""

    id: int
    place: Place
    counts: tuple[tuple[int, int], ...]
    size: int
    encryption_key: FileKey | None = None

    @property
    def newest(self) -> int:
        """The last snapshot that rows came by."""
        return self.counts[-1][0]


@dataclass(frozen=True, slots=True)
class StampedCopy:
    """The copy of a merged file, beside it."""

    of: MergedFile
    place: Place
    written: Written


@dataclass(frozen=True, slots=True)
class MergedFiles:
    """Files of which the catalog says whose rows they have, and others (id, newest snapshot) that say it.

    ``refusals`` are the files of which it says what makes no sense, each with what to do.
    """

    counted: tuple[MergedFile, ...] = ()
    stamped: tuple[tuple[int, int], ...] = ()
    refusals: tuple[str, ...] = ()


def read_merged_files(connection: Connection, tables: CatalogTables) -> MergedFiles:
    """Return the merged files of a catalog of the version that ``tables`` has."""
    file, snapshot = tables["data_file"], tables["snapshot"]
    if tables.version >= SpecVersion.V0_4:
        return MergedFiles()
    rows = connection.execute(
        select(file)
        .where(file.c.partial_file_info.is_not(None), file.c.partial_file_info != "")
        .order_by(file.c.data_file_id)
    ).all()
    folders = table_folders(connection, tables) if rows else {}
    oldest = connection.execute(select(func.min(snapshot.c.snapshot_id))).scalar_one()
    counted, stamped, refusals = [], [], []
    for row in rows:
        newest = stamped_max(row.partial_file_info)
        if newest is not None:
            stamped.append((row.data_file_id, newest))
            continue
        try:
            one = _counted(row, folders)
        except CatalogError as error:
            refusals.append(str(error))
            continue
        if one.newest >= oldest:
            counted.append(one)
    return MergedFiles(tuple(counted), tuple(stamped), tuple(refusals))


def _counted(row: Row[Any], folders: Mapping[int, CatalogPath]) -> MergedFile:
    if row.table_id not in folders:
        raise CatalogError(
            f"The merged file {row.path} belongs to table {row.table_id}, which the catalog does not have. "
            "Restore the catalog from a backup."
        )
    return MergedFile(
        row.data_file_id,
        Place(CatalogPath(row.path, row.path_is_relative), folders[row.table_id]),
        snapshot_counts(row.partial_file_info, row.record_count, row.path),
        row.file_size_bytes,
        file_key(row.encryption_key),
    )


def copy_stamped(file: MergedFile, data_path: str, locate: Callable[[str], Location]) -> StampedCopy:
    """Write the copy of a merged file.

    Raises:
        StorageError: the file is missing or damaged, or the copy cannot be written.
        UnsupportedFeatureError: the file is encrypted in another way, or has values that
            would not be the same in a copy.
    """
    from airflow_provider_ducklake.lake.storage.moving.restored import write_stamped  # noqa: PLC0415 - heavy

    new = file.place.beside(".parquet")
    source = locate(file.place.full(data_path)).with_key(file.encryption_key)
    return StampedCopy(file, new, write_stamped(source, locate(new.full(data_path)), file.counts))


def needs_copy(file: MergedFile, data_path: str, locate: Callable[[str], Location]) -> bool:
    """Whether a merged file is to be copied: it does not say itself which snapshot each row came by.

    Raises:
        StorageError: the file is missing or damaged.
        UnsupportedFeatureError: it is encrypted in another way, or has values that would not be
            the same in a copy.
    """
    from airflow_provider_ducklake.lake.storage.moving.restored import check_copyable, is_stamped  # noqa: PLC0415 - heavy

    location = locate(file.place.full(data_path)).with_key(file.encryption_key)
    if is_stamped(location, file.counts):
        return False
    check_copyable(location)
    return True


def put_copies(connection: Connection, tables: CatalogTables, copies: Iterable[StampedCopy]) -> None:
    """Put the copies into the rows of their files; all of a file's other rows stay as they are."""
    file = tables["data_file"]
    statement = (
        update(file)
        .where(file.c.data_file_id == bindparam("id"))
        .values(
            path=bindparam("new_path"),
            file_size_bytes=bindparam("size"),
            footer_size=bindparam("footer"),
            encryption_key=bindparam("key"),
            partial_max=bindparam("newest"),
        )
    )
    rows = [
        {
            "id": copy.of.id,
            "new_path": copy.place.path.path,
            "size": copy.written.file_size_bytes,
            "footer": copy.written.footer_size,
            "key": key_text(copy.written.encryption_key),
            "newest": copy.of.newest,
        }
        for copy in copies
    ]
    if rows:
        connection.execute(statement, rows)


def put_stamped(connection: Connection, tables: CatalogTables, stamped: Iterable[tuple[int, int]]) -> None:
    """Note the newest snapshot of files that have the column already."""
    file = tables["data_file"]
    statement = (
        update(file).where(file.c.data_file_id == bindparam("id")).values(partial_max=bindparam("newest"))
    )
    rows = [{"id": file_id, "newest": newest} for file_id, newest in stamped]
    if rows:
        connection.execute(statement, rows)
