"""Delete given rows: read what is deleted already, plan, and write the delete files."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from uuid6 import uuid7

from airflow_provider_ducklake.planning.row_deletes import plan_row_deletes
from airflow_provider_ducklake.spec.ids import DataFileId, SnapshotId
from airflow_provider_ducklake.transaction.changes import (
    AddDeletes,
    Change,
    EndFiles,
    FileDeletes,
    InlineDeletes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from airflow_provider_ducklake.spec.files import LiveDataFile
    from airflow_provider_ducklake.spec.snapshots import TableSnapshot
    from airflow_provider_ducklake.storage.filesystem import Location

Deleted = dict[int, int]  # position → snapshot that deleted it


@dataclass(slots=True)
class RowDeleter:
    """Deletes rows of one table for one transaction, and writes its delete files anew for another snapshot.

    ``marks`` are the inlined deletes in force, by data file. ``new_files`` gets the path of every file
    written.
    """

    table: TableSnapshot
    marks: Mapping[DataFileId, Deleted]
    locate: Callable[[str], Location]
    new_files: list[str]
    stamps: dict[str, dict[int, int | None]] = field(default_factory=dict)
    names: dict[DataFileId, str] = field(default_factory=dict)  # of the delete files as last written

    def changes(
        self, positions: Mapping[DataFileId, Collection[int]], row_ids: Collection[int], *, mark_limit: int
    ) -> Iterator[Change]:
        """Yield what deletes the rows at ``positions`` of data files, and inlined rows by their ids.

        Up to ``mark_limit`` deletes of a file stay in the catalog.
        """
        files = {file.id: file for file in self.table.files or ()}
        dead = {one: self._deleted(files[one]) for one in positions if one in files}
        plan = plan_row_deletes(tuple(files.values()), positions, dead, mark_limit=mark_limit)
        table_id, name = self.table.table_id, self.table.name
        if plan.ended:
            yield EndFiles(table_id, name, plan.ended)
        if plan.in_delete_files:
            written = tuple(
                self._write(files[one], dead[one], chosen) for one, chosen in plan.in_delete_files.items()
            )
            folded = tuple(one for one in plan.in_delete_files if one in self.marks)
            yield AddDeletes(table_id, name, written, folded)
        if plan.marked or row_ids:
            yield InlineDeletes(table_id, name, plan.marked, tuple(sorted(row_ids)))

    def _deleted(self, file: LiveDataFile) -> Deleted:
        from airflow_provider_ducklake.storage.delete_files import read_delete_file  # noqa: PLC0415 - heavy

        marked = self.marks.get(file.id, {})
        if file.delete_file is None:
            return marked
        live = file.delete_file
        return {**read_delete_file(self.locate(live.path), live.format, live.begin_snapshot), **marked}

    def _write(self, file: LiveDataFile, dead: Deleted, chosen: tuple[int, ...]) -> FileDeletes:
        """Write the delete file of a data file; beside older deletes, new ones need their snapshot's id."""
        stamp = SnapshotId(self.table.snapshot.id + 1) if dead else None
        deleted: dict[int, int | None] = {**dead, **dict.fromkeys(chosen, stamp)}
        first = FileDeletes(
            file.id,
            file.path,
            path="",
            delete_count=len(deleted),
            file_size_bytes=0,
            footer_size=0,
            replaces=file.delete_file.id if file.delete_file is not None else None,
            begin_snapshot=SnapshotId(min(dead.values())) if dead else None,
            stamped_for=stamp,
        )
        return self._written(first, deleted)

    def _written(self, deletes: FileDeletes, deleted: dict[int, int | None]) -> FileDeletes:
        from airflow_provider_ducklake.storage.delete_files import write_delete_file  # noqa: PLC0415 - heavy

        name = f"ducklake-{uuid7()}-delete.parquet"
        path = self.table.root + name
        self.new_files.append(path)
        size, footer_size = write_delete_file(self.locate(path), deletes.data_file_path, deleted)
        self.stamps[name] = deleted
        self.names[deletes.data_file_id] = name
        return replace(deletes, path=name, file_size_bytes=size, footer_size=footer_size)

    def restamped(self, change: AddDeletes, snapshot_id: SnapshotId) -> AddDeletes:
        """Return the change with delete files that hold the id of the snapshot it is committed as."""
        return replace(change, files=tuple(self._restamped(file, snapshot_id) for file in change.files))

    def _restamped(self, deletes: FileDeletes, snapshot_id: SnapshotId) -> FileDeletes:
        if deletes.stamped_for in (None, snapshot_id):
            return deletes
        deleted = self.stamps[deletes.path]
        anew = {
            position: snapshot_id if stamp == deletes.stamped_for else stamp
            for position, stamp in deleted.items()
        }
        return self._written(replace(deletes, stamped_for=snapshot_id), anew)
