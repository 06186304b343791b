"""Rows that are moved without a change: compaction and flushes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..conflicts import Operation
from ..declared import (
    CommitPhase,
    FlushedLayout,
    LockedFacts,
    Needs,
    OfAnyTable,
    OfTable,
    check_still_there,
    check_targets,
    existing,
    with_bounds,
)

if TYPE_CHECKING:
    from ...format.files import DataFile, FileKey, TableColumnStats
    from ...format.schema import TableSchema
    from ...format.snapshots import (
        ColumnId,
        DataFileId,
        DeleteFileId,
        MappingId,
        PartitionId,
        SnapshotId,
        TableId,
    )


@dataclass(frozen=True, slots=True)
class MergedFile:
    """A file with the rows of ``sources``, which it replaces: live files that never lost a row.

    Its path is relative to the table's directory. ``begin_snapshot`` is that of its oldest row; with a
    ``partial_max``, that of the newest, each row says its own. ``row_id_start`` None: rows say their ids.
    """

    file: DataFile
    sources: tuple[DataFileId, ...]
    begin_snapshot: SnapshotId
    partial_max: SnapshotId | None = None
    row_id_start: int | None = None
    partition_id: PartitionId | None = None


@dataclass(frozen=True, slots=True)
class MergeAdjacent(OfTable):
    """Files in the place of others, with the same rows at every snapshot."""

    files: tuple[MergedFile, ...]

    phase: ClassVar[CommitPhase] = CommitPhase.MOVE_ROWS
    operation: ClassVar[Operation] = Operation.MERGE

    @property
    def needs(self) -> Needs:
        return Needs(sources=tuple((self.table_id, one) for one in self.sources), skips=(self.table_id,))

    is_upkeep: ClassVar[bool] = True

    def check(self, facts: LockedFacts) -> None:
        for one in self.sources:
            if one not in facts.sources:
                raise facts.conflict(f"compact data file {one}", "deleted or moved rows of it", self.name)

    @property
    def sources(self) -> tuple[DataFileId, ...]:
        """The files that go."""
        return tuple(one for file in self.files for one in file.sources)


@dataclass(frozen=True, slots=True)
class FlushedDeletes:
    """The delete file of a flushed file: its rows that had ended, each with the snapshot that did it.

    Of a file that ends itself, those that ended before it.
    Its path is relative to the table's directory. ``begin_snapshot`` and ``partial_max`` are the first and
    the last of those snapshots.
    """

    path: str
    delete_count: int
    file_size_bytes: int
    footer_size: int
    begin_snapshot: SnapshotId
    partial_max: SnapshotId
    encryption_key: FileKey | None = None


@dataclass(frozen=True, slots=True)
class FlushedFile:
    """A file with rows that lay in the catalog; each says its id and the snapshot that it came by.

    Its path is relative to the table's directory. ``begin_snapshot`` and ``partial_max`` are the first and
    the last of those snapshots; ``end_snapshot`` is that of its last row, where none is live.
    """

    file: DataFile
    begin_snapshot: SnapshotId
    partial_max: SnapshotId
    partition_id: PartitionId | None = None
    deletes: FlushedDeletes | None = None
    end_snapshot: SnapshotId | None = None


@dataclass(frozen=True, slots=True)
class FlushInlined(OfTable):
    """Files in the place of rows that lay in the catalog by the snapshot ``read_at``.

    Rows that no snapshot has any more are in none of them.
    """

    read_at: SnapshotId
    layouts: tuple[FlushedLayout, ...]
    files: tuple[FlushedFile, ...]

    phase: ClassVar[CommitPhase] = CommitPhase.MOVE_ROWS
    operation: ClassVar[Operation] = Operation.FLUSH

    @property
    def needs(self) -> Needs:
        table = self.table_id
        read = tuple((table, one.schema_version, self.read_at) for one in self.layouts)
        return Needs(layouts=(table,), flushed=read, skips=(table,))

    is_upkeep: ClassVar[bool] = True

    def check(self, facts: LockedFacts) -> None:
        for one in self.layouts:
            if facts.flushed.get((self.table_id, one.schema_version)) != one:
                raise facts.conflict(Operation.FLUSH.value, "has others of them", self.name)


@dataclass(frozen=True, slots=True)
class RewriteSource:
    """A live file as it was read: without the rows of its delete file, and of marks in the catalog."""

    file_id: DataFileId
    delete_file_id: DeleteFileId | None
    mark_count: int = 0


@dataclass(frozen=True, slots=True)
class RewrittenFile:
    """A file with the live rows of others, which say their ids; None: no row of them was left.

    Its path is relative to the table's directory. It has the columns that the table had at ``read_at``.
    """

    file: DataFile | None
    origins: tuple[RewriteSource, ...]
    read_at: SnapshotId
    partition_id: PartitionId | None = None

    @property
    def sources(self) -> tuple[DataFileId, ...]:
        """The files that end."""
        return tuple(one.file_id for one in self.origins)


@dataclass(frozen=True, slots=True)
class RewriteDeletes(OfTable):
    """Files in the place of others that had deletes, from now on: older snapshots keep those."""

    files: tuple[RewrittenFile, ...]

    phase: ClassVar[CommitPhase] = CommitPhase.MOVE_ROWS
    operation: ClassVar[Operation] = Operation.REWRITE

    @property
    def needs(self) -> Needs:
        return Needs(targets=tuple(self.targets), delete_counts=(self.table_id,), skips=(self.table_id,))

    is_upkeep: ClassVar[bool] = True

    @property
    def targets(self) -> Mapping[DataFileId, DeleteFileId | None]:
        return {one.file_id: one.delete_file_id for one in self.origins}

    def check(self, facts: LockedFacts) -> None:
        check_targets(self, facts)
        for one in self.origins:
            if facts.delete_counts[self.table_id].get(one.file_id, 0) != one.mark_count:
                raise facts.conflict(
                    f"compact data file {one.file_id}", "deleted or moved rows of it", self.name
                )

    @property
    def origins(self) -> tuple[RewriteSource, ...]:
        """The files that end, as they were read."""
        return tuple(one for file in self.files for one in file.origins)

    @property
    def file_ids(self) -> tuple[DataFileId, ...]:
        """Their ids."""
        return tuple(one.file_id for one in self.origins)


# Restored rows.


@dataclass(frozen=True, slots=True)
class RestoredFile:
    """A new file with rows that the table had, at a path relative to the table's directory.

    ``row_id_start`` None: its rows say their ids. ``mapping_id`` is that of the file it is a copy of; in a
    new table the mapping gets another id. ``partition_id`` None: the values, if any, are those of keys that
    the same transaction sets.
    """

    file: DataFile
    row_id_start: int | None = None
    partition_id: PartitionId | None = None
    mapping_id: MappingId | None = None


@dataclass(frozen=True, slots=True)
class RestoredRows:
    """Rows in a catalog table, with its columns as the database names them; both are counts of rows.

    ``returning`` ended since and come back, ``leaving`` came since and end.
    """

    table_name: str
    columns: tuple[str, ...]
    returning: int
    leaving: int


@dataclass(frozen=True, slots=True)
class RestoreRows(OfAnyTable):
    """Restored rows of a table as snapshot ``as_of`` had them, in new files and in the catalog.

    ``schema`` is the table's at the commit, ``column_stats`` are those of each batch of rows that
    are inlined again. ``retyped`` are leaf columns that had another type since, whose old bounds do not
    hold. Of a new table they are those that ever had one, ``next_row_id`` is where the rows to come go
    on, and ``heir_of`` is the table whose rows it takes over.
    """

    as_of: SnapshotId
    schema: TableSchema
    files: tuple[RestoredFile, ...] = ()
    inlined: tuple[RestoredRows, ...] = ()
    column_stats: tuple[Mapping[ColumnId, TableColumnStats | None], ...] = ()
    retyped: tuple[ColumnId, ...] = ()
    next_row_id: int = 0
    heir_of: TableId | None = None

    phase: ClassVar[CommitPhase] = CommitPhase.MOVE_ROWS
    operation: ClassVar[Operation] = Operation.RESTORE

    @property
    def needs(self) -> Needs:
        table = existing(self.table)
        stats = (*(one.file.column_stats for one in self.files), *self.column_stats)
        return Needs(
            statistics=table, skips=table, bounded=with_bounds(table, stats), snapshots=(self.as_of,)
        )

    def check(self, facts: LockedFacts) -> None:
        check_still_there(self.as_of, self.name, facts)


@dataclass(frozen=True, slots=True)
class NoteRestored(OfTable):
    """A table that a restore found to be what it was at snapshot ``as_of`` already.

    It changes nothing, and alone it makes no snapshot; but which commits a table has gone through is judged
    by it, as by a restore that changed the table.
    """

    as_of: SnapshotId

    phase: ClassVar[CommitPhase] = CommitPhase.MOVE_ROWS
    operation: ClassVar[Operation] = Operation.RESTORE
    makes_snapshot: ClassVar[bool] = False

    @property
    def needs(self) -> Needs:
        return Needs(snapshots=(self.as_of,))

    def check(self, facts: LockedFacts) -> None:
        check_still_there(self.as_of, self.name, facts)
