"""Delete files of catalogs before 0.4: each ends the previous one and repeats its rows.

A reader of 1.0 reads the rows right, but DuckDB 1.5.5 repeats the earlier deletes in the change feed of a
range of snapshots. So the files of a chain become one, which records the deleting snapshot of each row, as
1.0 has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, bindparam, func, select, update

from ...errors import CatalogError
from ...format.files import FileKey, key_text
from ...format.names.paths import CatalogPath
from ...format.versions import SpecVersion
from ...planning.upkeep.migration import snapshot_counts, stamped_max
from ..database.connect import in_parts
from ..snapshot.read import Place, table_folders
from ..snapshot.read_files import file_key

if TYPE_CHECKING:
    from pyarrow import Table

    from ...storage.files.filesystem import Location
    from ...storage.parquet.opening import Written
    from ..database.tables import CatalogTables


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A delete file and the snapshots that begin and end it."""

    id: int
    place: Place
    format: str
    begin: int
    end: int | None
    size: int | None
    encryption_key: FileKey | None = None


@dataclass(frozen=True, slots=True)
class DeleteChain:
    """The delete files of a data file, each beginning where the one before ends; two at least."""

    data_file_id: int
    data_file: Place
    row_count: int  # of the data file
    files: tuple[DeleteFile, ...]


@dataclass(frozen=True, slots=True)
class JoinedDeletes:
    """The one delete file of a chain; without a ``place`` its files do not repeat each other, and stay."""

    of: DeleteChain
    place: Place | None = None
    written: Written | None = None


def read_delete_chains(connection: Connection, tables: CatalogTables) -> tuple[DeleteChain, ...]:
    """Return the chains of a catalog of the version that ``tables`` has; there are none since 0.4."""
    if tables.version >= SpecVersion.V0_4:
        return ()
    deletes, data = tables["delete_file"], tables["data_file"]
    several = select(deletes.c.data_file_id).group_by(deletes.c.data_file_id).having(func.count() > 1)
    rows = connection.execute(
        select(
            deletes,
            data.c.record_count,
            data.c.path.label("data_path"),
            data.c.path_is_relative.label("data_path_is_relative"),
        )
        .join(data, data.c.data_file_id == deletes.c.data_file_id)
        .where(deletes.c.data_file_id.in_(several))
        .order_by(deletes.c.data_file_id, deletes.c.begin_snapshot)
    ).all()
    folders = table_folders(connection, tables) if rows else {}
    found = []
    for data_file_id, group in groupby(rows, key=lambda row: row.data_file_id):
        chain = list(group)
        if chain[0].table_id not in folders:
            continue  # rows of no table
        folder = folders[chain[0].table_id]
        data_file = Place(CatalogPath(chain[0].data_path, chain[0].data_path_is_relative), folder)
        files = tuple(
            DeleteFile(
                row.delete_file_id,
                Place(CatalogPath(row.path, row.path_is_relative), folder),
                row.format,
                row.begin_snapshot,
                row.end_snapshot,
                row.file_size_bytes,
                file_key(row.encryption_key),
            )
            for row in chain
        )
        if all(one.end == other.begin for one, other in pairwise(files)):
            found.append(DeleteChain(data_file_id, data_file, chain[0].record_count, files))
    return tuple(found)


def deletes_of(chain: DeleteChain, data_path: str, locate: Callable[[str], Location]) -> Table | None:
    """Return the rows of a chain's one delete file; None: its files do not repeat each other."""
    from ...storage.deletes.deletes import joined_deletes

    return joined_deletes(
        [
            (
                locate(file.place.full(data_path)).with_key(file.encryption_key),
                file.format,
                file.begin,
                chain.row_count,
            )
            for file in chain.files
        ]
    )


def join_chain(
    chain: DeleteChain, data_file: Place, data_path: str, locate: Callable[[str], Location]
) -> JoinedDeletes:
    """Write the one delete file of a chain, beside the last; ``data_file`` is where its data file goes."""
    from ...storage.deletes.deletes import write_delete_file

    deleted = deletes_of(chain, data_path, locate)
    if deleted is None:
        return JoinedDeletes(chain)
    new = chain.files[-1].place.beside("-delete.parquet")
    written = write_delete_file(locate(new.full(data_path)), data_file.full(data_path), deleted)
    return JoinedDeletes(chain, new, written)


def put_joined(connection: Connection, tables: CatalogTables, joined: Iterable[JoinedDeletes]) -> None:
    """Put the new files into the rows of the last ones; the rows of those before go."""
    deletes = tables["delete_file"]
    statement = (
        update(deletes)
        .where(deletes.c.delete_file_id == bindparam("id"))
        .values(
            begin_snapshot=bindparam("begin"),
            path=bindparam("new_path"),
            format="parquet",
            file_size_bytes=bindparam("size"),
            footer_size=bindparam("footer"),
            encryption_key=bindparam("key"),
            partial_max=bindparam("newest"),
        )
    )
    written = [(one.of.files, one) for one in joined]
    rows = [
        {
            "id": files[-1].id,
            "begin": files[0].begin,
            "new_path": one.place.path.path,
            "size": one.written.file_size_bytes,
            "footer": one.written.footer_size,
            "key": key_text(one.written.encryption_key),
            "newest": files[-1].begin,
        }
        for files, one in written
        if one.place is not None and one.written is not None
    ]
    if not rows:
        return
    connection.execute(statement, rows)
    gone = [file.id for files, one in written if one.place is not None for file in files[:-1]]
    for ids in in_parts(gone):
        connection.execute(deletes.delete().where(deletes.c.delete_file_id.in_(ids)))


# Merged files of catalogs before 0.4: the catalog says which rows are whose, since then the file does.
#
# DuckDB 1.3.2 and 1.4.4 write both. A file that does not say it, or says something else, is copied under a
# new name with a column that does, before the catalog drops this. If no snapshot is left that could separate
# the rows apart, the file stays as it is.


@dataclass(frozen=True, slots=True)
class OldMergedFile:
    """A data file whose rows came by several snapshots: each with the number of rows up to it, ascending."""

    id: int
    place: Place
    counts: tuple[tuple[int, int], ...]
    size: int | None
    encryption_key: FileKey | None = None

    @property
    def newest(self) -> int:
        """The last snapshot that rows came by."""
        return self.counts[-1][0]


@dataclass(frozen=True, slots=True)
class StampedCopy:
    """The copy of a merged file, beside it."""

    of: OldMergedFile
    place: Place
    written: Written


@dataclass(frozen=True, slots=True)
class OldMergedFiles:
    """Merged files whose rows the catalog counts by snapshot, and files (id, newest snapshot) that hold it.

    ``refusals`` are the files whose counts are not consistent, each with what to do.
    """

    counted: tuple[OldMergedFile, ...] = ()
    stamped: tuple[tuple[int, int], ...] = ()
    refusals: tuple[str, ...] = ()


def read_merged_files(connection: Connection, tables: CatalogTables) -> OldMergedFiles:
    """Return the merged files of a catalog of the version that ``tables`` has."""
    file, snapshot = tables["data_file"], tables["snapshot"]
    if tables.version >= SpecVersion.V0_4:
        return OldMergedFiles()
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
    return OldMergedFiles(tuple(counted), tuple(stamped), tuple(refusals))


def _counted(row: Row[Any], folders: Mapping[int, CatalogPath]) -> OldMergedFile:
    if row.table_id not in folders:
        raise CatalogError(
            f"The merged file {row.path} belongs to table {row.table_id}, which the catalog does not have. "
            "Restore the catalog from a backup."
        )
    return OldMergedFile(
        row.data_file_id,
        Place(CatalogPath(row.path, row.path_is_relative), folders[row.table_id]),
        snapshot_counts(row.partial_file_info, row.record_count, row.path),
        row.file_size_bytes,
        file_key(row.encryption_key),
    )


def copy_stamped(file: OldMergedFile, data_path: str, locate: Callable[[str], Location]) -> StampedCopy:
    """Write the copy of a merged file."""
    from ...storage.moving.restored import write_stamped

    new = file.place.beside(".parquet")
    source = locate(file.place.full(data_path)).with_key(file.encryption_key)
    return StampedCopy(file, new, write_stamped(source, locate(new.full(data_path)), file.counts))


def needs_copy(file: OldMergedFile, data_path: str, locate: Callable[[str], Location]) -> bool:
    """Return True if a merged file must be copied: it lacks the column with each row's snapshot."""
    from ...storage.moving.restored import check_copyable, is_stamped

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
    """Store the newest snapshot of files that have the column already."""
    file = tables["data_file"]
    statement = (
        update(file).where(file.c.data_file_id == bindparam("id")).values(partial_max=bindparam("newest"))
    )
    rows = [{"id": file_id, "newest": newest} for file_id, newest in stamped]
    if rows:
        connection.execute(statement, rows)
