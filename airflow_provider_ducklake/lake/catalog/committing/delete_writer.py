"""Delete files that a commit writes itself, because they contain the id of the new snapshot.

That id is certain only under the commit lock, under which no writer should wait for a store. So they are
written before, for the next snapshot, and again when another commit came first.

A data file that ends while inlined deletes name rows of it gets them as a delete file first. *Source:* the
reference's change feed says of a file that ends with inlined deletes that all its rows go then, also those
that went before; with the delete file that a flush makes of them it does not (observed on 1.5.5). It never
ends such a file itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from uuid6 import uuid7

from ...errors import StorageError, TransactionConflictError
from ...format.log_lines import logger
from ...transaction import changes as kinds
from ..database.connect import in_parts
from ..snapshot import read
from ..snapshot.inlined_read import inlined_delete_snapshots
from ..snapshot.read_files import WantedFiles

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from ...format.files import LiveDataFile
    from ...format.snapshots import DataFileId, SnapshotId
    from ...storage.files.filesystem import Location
    from ..dialects.dialect import Catalog


log = logger(__name__)

_ROUNDS_OUTSIDE = 2


class OtherSnapshotError(Exception):
    """The files were written for another snapshot than the commit became; stays within ``commit``."""


class DeleteWriter:
    """Writes the delete files of one commit, as often as it takes, and removes what is left over."""

    def __init__(
        self,
        changes: Collection[kinds.Change],
        locate: Callable[[str], Location],
        check_writable: Callable[[str], None],
    ) -> None:
        self._changes = changes
        self._locate = locate
        self._check_writable = check_writable
        self._wanted = [
            file
            for change in changes
            if isinstance(change, kinds.AddDeletes)
            for file in change.files
            if isinstance(file, kinds.UnwrittenDeletes)
        ]
        self._written: dict[DataFileId, tuple[str, kinds.FileDeletes]] = {}
        self._paths: list[str] = []
        self._rounds = 0

    @property
    def may_write_outside(self) -> bool:
        """Return True if there is something to write, and it need not happen under the lock yet."""
        return bool(self._wanted) and self._rounds < _ROUNDS_OUTSIDE

    @property
    def is_first_round(self) -> bool:
        """True until something is written."""
        return not self._rounds

    def write_for(self, snapshot_id: SnapshotId) -> None:
        """Write the files that are missing or hold the id of another snapshot."""
        from ...storage.deletes.deletes import write_deletes
        from ...storage.files.parallel import in_threads

        missing = [file for file in self._wanted if not self._is_written(file, snapshot_id)]
        if not missing:
            return
        for root in {file.root for file in missing}:
            self._check_writable(root)
        self._rounds += 1
        paths = [f"{file.root}ducklake-{uuid7()}-delete.{file.format}" for file in missing]
        self._paths += paths
        made = in_threads(
            lambda one: write_deletes(one[0], one[1], snapshot_id, self._locate),
            zip(missing, paths, strict=True),
        )
        for file, path, written in zip(missing, paths, made, strict=True):
            self._written[file.data_file_id] = path, written

    def _is_written(self, file: kinds.UnwrittenDeletes, snapshot_id: SnapshotId) -> bool:
        if file.data_file_id not in self._written:
            return False
        _, written = self._written[file.data_file_id]
        return written.stamped_for in (None, snapshot_id)

    def changes_for(self, snapshot_id: SnapshotId) -> tuple[kinds.Change, ...]:
        """Return the changes with their delete files as the snapshot is to have them."""
        if not all(self._is_written(file, snapshot_id) for file in self._wanted):
            if self.may_write_outside:
                raise OtherSnapshotError
            self.write_for(snapshot_id)
        return tuple(
            replace(change, files=tuple(map(self._as_written, change.files)))
            if isinstance(change, kinds.AddDeletes)
            else change
            for change in self._changes
        )

    def _as_written(self, file: kinds.FileDeletes | kinds.UnwrittenDeletes) -> kinds.FileDeletes:
        return self._written[file.data_file_id][1] if isinstance(file, kinds.UnwrittenDeletes) else file

    def discard(self) -> None:
        """Remove all that was written: nothing landed."""
        remove_unused(self._paths, self._locate)

    def tidy_up(self) -> None:
        """Remove what was written for other snapshots than the one that landed."""
        kept = {path for path, _ in self._written.values()}
        remove_unused((path for path in self._paths if path not in kept), self._locate)


def remove_unused(paths: Iterable[str], locate: Callable[[str], Location]) -> None:
    """Remove files; one that cannot be removed is left behind and logged."""
    if not (paths := list(paths)):
        return
    from ...storage.files.filesystem import delete_file_at
    from ...storage.files.parallel import in_threads

    def remove(path: str) -> None:
        try:
            delete_file_at(locate(path))
        except (StorageError, OSError) as error:
            log.warning("Cannot remove %s, which no snapshot refers to: %s", path, error)

    in_threads(remove, paths)


Ending: TypeAlias = kinds.EndFiles | kinds.Truncate | kinds.RewriteDeletes


def with_flushed_deletes(catalog: Catalog, change_set: kinds.ChangeSet) -> kinds.ChangeSet:
    """Return a change set that writes the marks of the files that it ends."""
    ending = [
        change
        for change in change_set.changes
        if isinstance(change, kinds.EndFiles | kinds.Truncate | kinds.RewriteDeletes)
    ]
    if not ending:
        return change_set
    with catalog.dialect.reading() as connection:
        folds = [fold for change in ending for fold in _folds(connection, catalog, change_set.base, change)]
    return replace(change_set, changes=(*change_set.changes, *folds)) if folds else change_set


def _folds(
    connection: Connection, catalog: Catalog, base: SnapshotId, change: Ending
) -> Iterator[kinds.AddDeletes]:
    marks = inlined_delete_snapshots(connection, catalog, change.table_id, base)
    ids = (
        list(marks)
        if isinstance(change, kinds.Truncate)
        else [one for one in change.file_ids if one in marks]
    )
    if not ids:
        return
    root, files = _files(connection, catalog, base, change, ids)
    if files:
        written = tuple(
            kinds.UnwrittenDeletes(
                file.id,
                file.path,
                file.record_count,
                root,
                kinds.Positions(b""),
                file.delete_file,
                marks[file.id],
            )
            for file in files
        )
        folded = tuple(file.id for file in files)
        is_rewrite = isinstance(change, kinds.RewriteDeletes)
        yield kinds.AddDeletes(change.table_id, change.name, written, folded, of_rewrite=is_rewrite)


def _files(
    connection: Connection, catalog: Catalog, base: SnapshotId, change: Ending, ids: list[DataFileId]
) -> tuple[str, list[LiveDataFile]]:
    """Return the table's directory, and those of the files that it has at the snapshot."""
    tables = catalog.tables
    rows = read.table_rows(connection, tables, base)
    row = next((one for one in rows if one.id == change.table_id), None)  # another may have its name by now
    if row is None:
        raise TransactionConflictError("end files of it", "dropped it", str(change.name), base)
    root = row.root(catalog.data_path)
    file_id = tables["data_file"].c.data_file_id
    found = [
        file
        for part in in_parts(ids)
        for file in WantedFiles(tables, base, change.table_id, root, file_id.in_(part), ()).ask(
            connection, catalog
        )
    ]
    return root, found
