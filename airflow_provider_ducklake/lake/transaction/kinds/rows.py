"""Rows that come and go, in files and inlined; and those that a write only read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

from ...format.names.paths import is_absolute, relative_to
from ..conflicts import Claim, Operation
from ..declared import (
    ChangeBase,
    CommitPhase,
    LockedFacts,
    Needs,
    NewTableRef,
    OfAnyTable,
    OfTable,
    TableRef,
    existing,
    place_of,
    with_bounds,
)

if TYPE_CHECKING:
    from ...format.files import DataFile, FileKey, LiveDeleteFile, TableColumnStats
    from ...format.names.identifiers import QualifiedName
    from ...format.schema import TableSchema
    from ...format.snapshots import ColumnId, DataFileId, DeleteFileId, PartitionId, SnapshotId, TableSnapshot


@dataclass(frozen=True, slots=True)
class InlinedLayout:
    """The newest registered layout of a table when the change was planned, and whether its columns fit."""

    newest: int | None = None
    fits: bool = False


@dataclass(frozen=True, slots=True)
class AppendFiles(OfAnyTable):
    """Rows in new Parquet files, in this order.

    File paths are relative to the table's directory, or absolute where they lie outside it. ``schema`` is the
    table's at the commit; ``partition_id`` that of the files' partition values, None for keys that the same
    transaction sets. ``root`` is the table's directory. The commit checks that the lake has no file yet
    that is mapped by name: it was there before, so another client may add it too. With ``is_staged`` it
    checks each: documents name them, and there may be copies of these.
    ``is_partitioned``: the table has partition keys, and files without values belong to none of
    them.
    """

    schema: TableSchema
    files: tuple[DataFile, ...]
    partition_id: PartitionId | None = None
    root: str = ""
    is_staged: bool = False
    is_partitioned: bool = False

    phase: ClassVar[CommitPhase] = CommitPhase.ADD_ROWS
    operation: ClassVar[Operation] = Operation.INSERT

    @property
    def needs(self) -> Needs:
        table = existing(self.table)
        is_mapped = any(file.mapping is not None for file in self.files)
        return Needs(
            statistics=table,
            skips=table,
            bounded=with_bounds(table, (file.column_stats for file in self.files)),
            mappings=table if is_mapped else (),
            paths=self.doubtful_paths,
        )

    @property
    def sort_key(self) -> tuple[int, ...]:
        return (*place_of(self.table), 0)

    def check(self, facts: LockedFacts) -> None:
        for path in self.doubtful_paths:
            if path in facts.registered:
                raise facts.conflict(f"add {path}", "has that file already", self.name)

    @property
    def doubtful_paths(self) -> tuple[str, ...]:
        """Full paths of the files that the lake may have already."""
        return tuple(
            relative_to(file.path, self.root).below(self.root)
            for file in self.files
            if self.is_staged or file.mapping is not None
        )

    @property
    def paths(self) -> tuple[str, ...]:
        """Full paths of the files."""
        return tuple(one.path if is_absolute(one.path) else self.root + one.path for one in self.files)

    @property
    def record_count(self) -> int:
        """Rows in all files together."""
        return sum(file.record_count for file in self.files)


@dataclass(frozen=True, slots=True)
class RegisterLayout(ChangeBase):
    """A catalog table for inlined rows with a table's new columns, so that DuckDB's small inserts fit.

    ``only_if_registered``: inlining is off, but rows were inlined before and others may turn it on again.
    """

    table: TableRef
    name: QualifiedName
    schema: TableSchema
    only_if_registered: bool = False

    phase: ClassVar[CommitPhase] = CommitPhase.LAYOUT
    claim: ClassVar[None] = None  # it comes with a change of the table, which has one

    @property
    def needs(self) -> Needs:
        return Needs(layouts=existing(self.table), reshaped=existing(self.table))


@dataclass(frozen=True, slots=True)
class InlineRows(OfAnyTable):
    """Rows kept in the catalog: for each the values to bind by column id.

    ``column_stats`` has, for each batch, what it says of each leaf column (None: unknown).
    """

    schema: TableSchema
    rows: tuple[Mapping[ColumnId, object], ...]
    column_stats: tuple[Mapping[ColumnId, TableColumnStats | None], ...]
    layout: InlinedLayout

    phase: ClassVar[CommitPhase] = CommitPhase.ADD_ROWS
    operation: ClassVar[Operation] = Operation.INSERT

    @property
    def needs(self) -> Needs:
        table = existing(self.table)
        bounded = with_bounds(table, self.column_stats)
        return Needs(statistics=table, skips=table, bounded=bounded, layouts=table)

    @property
    def sort_key(self) -> tuple[int, ...]:
        return (*place_of(self.table), 1)

    def makes_layout(self, facts: LockedFacts) -> bool:
        return self.lacks_layout(
            None if isinstance(self.table, NewTableRef) else facts.layouts.get(self.table)
        )

    def lacks_layout(self, newest: int | None) -> bool:
        """Return True if no registered layout fits; a later one fits the columns of the plan."""
        return newest is None or (newest == self.layout.newest and not self.layout.fits)


# Deleted rows.


class Scope(Protocol):
    """Rows of a table by what they are, as ``planning.writing.overwrite.RowScope`` has them."""

    @property
    def table(self) -> TableSnapshot:
        """The table as it was read."""


@dataclass(frozen=True, slots=True)
class EndFiles(OfTable):
    """Data files whose last live row goes, with all their rows.

    ``delete_files`` are the live delete files that they had when we planned. ``of_earlier_commit`` as in
    ``AddDeletes``.
    """

    file_ids: tuple[DataFileId, ...]
    delete_files: tuple[DeleteFileId | None, ...]
    of_earlier_commit: bool = False

    phase: ClassVar[CommitPhase] = CommitPhase.END_ROWS

    @property
    def operation(self) -> Operation:
        return Operation.REPLACE if self.of_earlier_commit else Operation.DELETE

    @property
    def needs(self) -> Needs:
        return Needs(targets=tuple(self.targets))

    @property
    def targets(self) -> Mapping[DataFileId, DeleteFileId | None]:
        return dict(zip(self.file_ids, self.delete_files, strict=True))

    def rows_removed(self, facts: LockedFacts) -> int:
        return sum(facts.targets[file_id].row_count for file_id in self.file_ids)


@dataclass(frozen=True, slots=True)
class ReadRows(OfTable):
    """Rows of a table that other changes of the change set were made of: such rows that came since conflict.

    ``scope`` says which; None: all rows of the table. ``counts_gone``: what was made of them depends on
    those that went since, too. It changes nothing itself, and alone it makes no snapshot.
    """

    scope: Scope | None = None
    counts_gone: bool = True

    phase: ClassVar[CommitPhase] = CommitPhase.READ
    affected_table: ClassVar[None] = None

    @property
    def operation(self) -> Operation:
        return Operation.READ if self.counts_gone else Operation.SEARCH

    @property
    def claim(self) -> Claim:
        return Claim(self.operation, self.name, self.table_id, is_scoped=self.scope is not None)


@dataclass(frozen=True, slots=True)
class Positions:
    """Positions (from 0) of rows in a data file: ascending, unique, each 8 bytes, little-endian."""

    data: bytes = field(repr=False)

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.data) // 8


@dataclass(frozen=True, slots=True)
class PositionsFile:
    """Positions of rows in a data file that lie in a delete file of just them; ``path`` is absolute."""

    path: str
    count: int
    file_size_bytes: int
    footer_size: int
    encryption_key: FileKey | None = None


RowPositions: TypeAlias = Positions | PositionsFile


@dataclass(frozen=True, slots=True)
class UnwrittenDeletes:
    """A delete file that the commit writes into ``root``, since it may have to hold the snapshot's own id.

    Its data file has ``row_count`` rows. It has those at ``positions``, and those of ``old``, the live delete
    file that it replaces, and of ``marks``, inlined deletes that it makes superfluous: positions, with the
    snapshots that deleted them. ``as_vectors``: it is to be deletion vectors, where the lake's version has
    them for so many snapshots.
    """

    data_file_id: DataFileId
    data_file_path: str
    row_count: int
    root: str
    positions: RowPositions
    old: LiveDeleteFile | None = None
    marks: Mapping[int, int] = field(default_factory=dict)
    as_vectors: bool = False
    in_containers: bool = False  # the version has vectors of several snapshots in one file

    @property
    def is_of_one_snapshot(self) -> bool:
        """Return True if one snapshot deleted all of the rows."""
        return self.old is None and len(set(self.marks.values())) + bool(self.positions.count) <= 1

    @property
    def format(self) -> str:
        """The format of the file, as the catalog and the file's name say it."""
        return "puffin" if self.as_vectors and (self.is_of_one_snapshot or self.in_containers) else "parquet"

    @property
    def replaces(self) -> DeleteFileId | None:
        """The id of the delete file that it replaces."""
        return self.old.id if self.old is not None else None

    @property
    def holds_ids(self) -> bool:
        """Return True if the file says which snapshot deleted which row: earlier ones deleted some."""
        return self.old is not None or bool(self.marks)


@dataclass(frozen=True, slots=True)
class FileDeletes:
    """A delete file, written and not registered yet: all deleted positions of one data file.

    ``replaces`` is the live delete file whose positions it repeats, ``begin_snapshot`` the first snapshot of
    any position that was deleted before. ``stamped_for`` is the snapshot id that the file holds for the new
    positions; None where it holds no ids, as for the first deletes on a file, or has no new positions.
    ``partial_max`` is the last snapshot of any position, where the file holds ids.
    """

    data_file_id: DataFileId
    path: str
    delete_count: int
    file_size_bytes: int
    footer_size: int
    replaces: DeleteFileId | None = None
    begin_snapshot: SnapshotId | None = None
    stamped_for: SnapshotId | None = None
    partial_max: SnapshotId | None = None
    format: str = "parquet"
    encryption_key: FileKey | None = None


@dataclass(frozen=True, slots=True)
class AddDeletes(OfTable):
    """Deleted rows of data files, kept in delete files.

    ``folded_marks`` are data files whose inlined deletes the delete files repeat, so that they go.
    ``of_earlier_commit``: the rows are those that one commit had added. Rows that are added concurrently are
    none of them, but rows that are deleted or moved may be. ``of_rewrite``, ``of_flush``: all rows had been
    deleted before.
    """

    files: tuple[FileDeletes | UnwrittenDeletes, ...]
    folded_marks: tuple[DataFileId, ...] = ()
    of_earlier_commit: bool = False
    of_rewrite: bool = False
    of_flush: bool = False

    phase: ClassVar[CommitPhase] = CommitPhase.DELETE_FILES

    @property
    def operation(self) -> Operation:
        if self.of_earlier_commit:
            operation = Operation.REPLACE
        elif self.of_rewrite:
            operation = Operation.REWRITE
        else:
            operation = Operation.FLUSH if self.of_flush else Operation.DELETE
        return operation

    @property
    def sort_key(self) -> tuple[int, ...]:
        return place_of(self.table_id)

    @property
    def needs(self) -> Needs:
        replaced = (one.replaces for one in self.files if one.replaces is not None)
        return Needs(targets=tuple(self.targets), replaced=tuple((self.table_id, one) for one in replaced))

    @property
    def is_upkeep(self) -> bool:
        return self.of_rewrite or self.of_flush

    @property
    def targets(self) -> Mapping[DataFileId, DeleteFileId | None]:
        return {one.data_file_id: one.replaces for one in self.files}

    @property
    def repeats_deletes(self) -> bool:
        return all(isinstance(one, UnwrittenDeletes) and not one.positions.count for one in self.files)

    def rows_removed(self, facts: LockedFacts) -> int:  # noqa: ARG002 - the files say it
        if self.is_upkeep:
            return 0
        if self.repeats_deletes:  # of files that end, whose other rows are all counted
            return -sum(len(one.marks) for one in self.files if isinstance(one, UnwrittenDeletes))
        return sum(
            one.positions.count if isinstance(one, UnwrittenDeletes) else one.delete_count
            for one in self.files
        )


@dataclass(frozen=True, slots=True)
class InlineDeletes(OfTable):
    """Deleted rows kept in the catalog: positions (from 0) in data files, and row ids of inlined rows.

    ``of_earlier_commit`` as in ``AddDeletes``.
    """

    positions: Mapping[DataFileId, tuple[int, ...]]
    row_ids: tuple[int, ...] = ()
    of_earlier_commit: bool = False

    phase: ClassVar[CommitPhase] = CommitPhase.END_ROWS

    @property
    def operation(self) -> Operation:
        if self.of_earlier_commit:
            operation = Operation.REPLACE
        else:
            operation = Operation.INLINE_DELETE if self.positions else Operation.END_INLINED
        return operation

    @property
    def needs(self) -> Needs:
        table = (self.table_id,)
        return Needs(targets=tuple(self.targets), live_inlined=table, inlined_deletes=table)

    @property
    def targets(self) -> Mapping[DataFileId, DeleteFileId | None]:
        return dict.fromkeys(self.positions)

    def rows_removed(self, facts: LockedFacts) -> int:  # noqa: ARG002 - it names the rows
        return sum(map(len, self.positions.values())) + len(self.row_ids)


@dataclass(frozen=True, slots=True)
class Truncate(OfTable):
    """The end of every live row of a table, in files and in the catalog."""

    phase: ClassVar[CommitPhase] = CommitPhase.END_ROWS
    operation: ClassVar[Operation] = Operation.TRUNCATE

    @property
    def needs(self) -> Needs:
        return Needs(live_inlined=(self.table_id,), live_files=(self.table_id,))

    def rows_removed(self, facts: LockedFacts) -> int:
        return facts.live_rows(self.table_id)
