"""The changes a transaction is made of.

A change names existing objects by id and objects of its own transaction by a reference, so it stays valid
when the commit is retried on a newer snapshot. ``Change`` is a closed union: match it exhaustively. Changes
of one table are net: a column added and renamed in one transaction is a column added.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from airflow_provider_ducklake.spec.ids import (
    ColumnId,
    DataFileId,
    DeleteFileId,
    MacroId,
    MappingId,
    PartitionId,
    SchemaId,
    SnapshotId,
    TableId,
    ViewId,
)
from airflow_provider_ducklake.spec.names.paths import relative_to

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_ducklake.spec.files import DataFile, LiveDeleteFile
    from airflow_provider_ducklake.spec.names.identifiers import QualifiedName
    from airflow_provider_ducklake.spec.names.paths import CatalogPath
    from airflow_provider_ducklake.spec.partitioning import PartitionField
    from airflow_provider_ducklake.spec.schema import Column, TableSchema
    from airflow_provider_ducklake.spec.sorting import SortField
    from airflow_provider_ducklake.spec.stats import TableColumnStats
    from airflow_provider_ducklake.spec.views import ViewDefinition


@dataclass(frozen=True, slots=True)
class NewSchemaRef:
    """A schema that the same transaction creates."""

    index: int


@dataclass(frozen=True, slots=True)
class NewTableRef:
    """A table that the same transaction creates."""

    index: int


@dataclass(frozen=True, slots=True)
class NewViewRef:
    """A view that the same transaction creates."""

    index: int


SchemaRef: TypeAlias = SchemaId | NewSchemaRef
TableRef: TypeAlias = TableId | NewTableRef
ViewRef: TypeAlias = ViewId | NewViewRef


@dataclass(frozen=True, slots=True)
class CreateSchema:
    """A new schema; ``uuid`` names its directory where the name cannot.

    ``path`` is the directory of one that comes back, as its row had it; ``heir_of`` the id that it had, from
    which it takes its options.
    """

    ref: NewSchemaRef
    name: str
    uuid: str
    path: CatalogPath | None = None
    heir_of: SchemaId | None = None


@dataclass(frozen=True, slots=True)
class DropSchema:
    """The end of a schema that holds nothing any more (its contents are dropped by changes of their own)."""

    schema_id: SchemaId
    name: str


@dataclass(frozen=True, slots=True)
class CreateTable:
    """A new table in ``directory`` (below its schema's), which is chosen before anything is written.

    ``undone`` are columns that the transaction took away again: their ids stay used. ``heir_of`` is a dropped
    table whose options it takes.
    """

    ref: NewTableRef
    schema: SchemaRef
    name: QualifiedName
    uuid: str
    directory: str
    columns: TableSchema
    is_altered: bool = False  # recorded besides, as the reference does, when its columns changed since
    undone: tuple[ColumnRow, ...] = ()
    heir_of: TableId | None = None


@dataclass(frozen=True, slots=True)
class DropTable:
    """The end of a table and all it holds."""

    table_id: TableId
    name: QualifiedName


@dataclass(frozen=True, slots=True)
class RenameTable:
    """Another name for a table, in the same schema."""

    table_id: TableId
    name: QualifiedName
    new_name: QualifiedName


@dataclass(frozen=True, slots=True)
class ColumnRow:
    """A column or field by itself, with the column it lies in."""

    column: Column
    parent: ColumnId | None


@dataclass(frozen=True, slots=True)
class ChangeColumns:
    """Columns and fields that end and that begin; one that is changed does both under its id.

    ``unbounded`` are columns whose stored bounds do not hold for their new type; ``without_nulls`` those
    that must not hold a NULL from now on, so that rows added meanwhile are a conflict. ``undone`` are columns
    that the transaction added and took away again, and whose ids stay used.
    """

    table_id: TableId
    name: QualifiedName
    ended: tuple[ColumnId, ...] = ()
    begun: tuple[ColumnRow, ...] = ()
    unbounded: tuple[ColumnId, ...] = ()
    without_nulls: tuple[ColumnId, ...] = ()
    undone: tuple[ColumnRow, ...] = ()


@dataclass(frozen=True, slots=True)
class SetPartitioning:
    """The partition keys of a table from now on; none: unpartitioned.

    ``partition_id`` is given where the table had these keys before: files name them by it.
    """

    table: TableRef
    name: QualifiedName
    fields: tuple[PartitionField, ...]
    partition_id: PartitionId | None = None


@dataclass(frozen=True, slots=True)
class SetSorting:
    """The sort keys of a table from now on; none: unsorted."""

    table: TableRef
    name: QualifiedName
    fields: tuple[SortField, ...]


@dataclass(frozen=True, slots=True)
class CommentOnTable:
    """The comment of a table; None takes it away."""

    table: TableRef
    name: QualifiedName
    text: str | None


@dataclass(frozen=True, slots=True)
class CommentOnColumn:
    """The comment of a column; None takes it away."""

    table: TableRef
    name: QualifiedName
    column_id: ColumnId
    text: str | None


@dataclass(frozen=True, slots=True)
class CreateView:
    """A new view, or with its ``view_id`` one that comes back."""

    ref: NewViewRef
    schema: SchemaRef
    name: QualifiedName
    uuid: str
    definition: ViewDefinition
    view_id: ViewId | None = None


@dataclass(frozen=True, slots=True)
class DropView:
    """The end of a view and its comment."""

    view_id: ViewId
    name: QualifiedName


@dataclass(frozen=True, slots=True)
class RenameView:
    """Another name for a view, in the same schema."""

    view_id: ViewId
    name: QualifiedName
    new_name: QualifiedName


@dataclass(frozen=True, slots=True)
class CommentOnView:
    """The comment of a view; None takes it away."""

    view: ViewRef
    name: QualifiedName
    text: str | None


@dataclass(frozen=True, slots=True)
class DropMacro:
    """The end of a macro, which only a dropped schema brings about; other macros are left as they are."""

    macro_id: MacroId
    name: QualifiedName
    is_table_macro: bool


@dataclass(frozen=True, slots=True)
class AppendFiles:
    """Rows in new Parquet files, in this order.

    File paths are relative to the table's directory, or absolute where they lie outside it. ``schema`` is the
    table's at the commit; ``partition_id`` that of the files' partition values, None for keys that the same
    transaction sets. ``root`` is the table's directory where the commit has to look whether the lake has a
    file already: one that is mapped by name was there before, so somebody else may add it too. With
    ``is_staged`` it looks for each: documents name them, of which somebody may have made copies.
    """

    table: TableRef
    name: QualifiedName
    schema: TableSchema
    files: tuple[DataFile, ...]
    partition_id: PartitionId | None = None
    root: str = ""
    is_staged: bool = False

    @property
    def doubtful_paths(self) -> tuple[str, ...]:
        """Full paths of the files that the lake may have already."""
        return tuple(
            relative_to(file.path, self.root).below(self.root)
            for file in self.files
            if self.is_staged or file.mapping is not None
        )

    @property
    def record_count(self) -> int:
        """Rows in all files together."""
        return sum(file.record_count for file in self.files)


@dataclass(frozen=True, slots=True)
class RegisterLayout:
    """A catalog table for inlined rows with a table's new columns, so that DuckDB's small inserts fit.

    ``only_if_registered``: inlining is off, but rows were inlined before and others may turn it on again.
    """

    table: TableRef
    name: QualifiedName
    schema: TableSchema
    only_if_registered: bool = False


@dataclass(frozen=True, slots=True)
class InlinedLayout:
    """The newest registered layout of a table when the change was planned, and whether its columns fit."""

    newest: int | None = None
    fits: bool = False


@dataclass(frozen=True, slots=True)
class InlineRows:
    """Rows kept in the catalog: for each the values to bind by column id.

    ``column_stats`` has, for each batch, what it says of each leaf column (None: unknown).
    """

    table: TableRef
    name: QualifiedName
    schema: TableSchema
    rows: tuple[Mapping[ColumnId, object], ...]
    column_stats: tuple[Mapping[ColumnId, TableColumnStats | None], ...]
    layout: InlinedLayout


@dataclass(frozen=True, slots=True)
class EndFiles:
    """Data files whose last live row goes, with all their rows.

    ``delete_files`` are the live delete files that they had when we planned: other ones by now are a
    conflict. None: any rows that others deleted since are one, but rows that they added are not.
    """

    table_id: TableId
    name: QualifiedName
    file_ids: tuple[DataFileId, ...]
    delete_files: tuple[DeleteFileId | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class ReadRows:
    """Rows of a table that other changes of the stage were made of: rows that came or went since conflict.

    It changes nothing itself, and alone it makes no snapshot.
    """

    table_id: TableId
    name: QualifiedName


@dataclass(frozen=True, slots=True)
class Positions:
    """Positions (from 0) of rows in a data file: ascending, unique, each 8 bytes, little-endian."""

    data: bytes = field(repr=False)

    @property
    def count(self) -> int:
        """How many they are."""
        return len(self.data) // 8


@dataclass(frozen=True, slots=True)
class PositionsFile:
    """Positions of rows in a data file that lie in a delete file of just them; ``path`` is absolute."""

    path: str
    count: int
    file_size_bytes: int
    footer_size: int


RowPositions: TypeAlias = Positions | PositionsFile


@dataclass(frozen=True, slots=True)
class UnwrittenDeletes:
    """A delete file that the commit writes into ``root``, since it may have to hold the snapshot's own id.

    It has the rows at ``positions``, and those of ``old``, the live delete file that it replaces, and of
    ``marks``, inlined deletes that it makes superfluous: positions, with the snapshots that deleted them.
    """

    data_file_id: DataFileId
    data_file_path: str
    root: str
    positions: RowPositions
    old: LiveDeleteFile | None = None
    marks: Mapping[int, int] = field(default_factory=dict)

    @property
    def replaces(self) -> DeleteFileId | None:
        """The id of the delete file that it replaces."""
        return self.old.id if self.old is not None else None

    @property
    def holds_ids(self) -> bool:
        """Whether the file says which snapshot deleted which row: earlier ones deleted some."""
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


@dataclass(frozen=True, slots=True)
class AddDeletes:
    """Deleted rows of data files, kept in delete files.

    ``folded_marks`` are data files whose inlined deletes the delete files repeat, so that they go.
    ``of_earlier_commit``: the rows are those that one commit had added. What others add meanwhile is none of
    them, but what they delete or move may be. ``of_rewrite``, ``of_flush``: all rows had been deleted before.
    """

    table_id: TableId
    name: QualifiedName
    files: tuple[FileDeletes | UnwrittenDeletes, ...]
    folded_marks: tuple[DataFileId, ...] = ()
    of_earlier_commit: bool = False
    of_rewrite: bool = False
    of_flush: bool = False


@dataclass(frozen=True, slots=True)
class InlineDeletes:
    """Deleted rows kept in the catalog: positions (from 0) in data files, and row ids of inlined rows.

    ``of_earlier_commit`` as in ``AddDeletes``.
    """

    table_id: TableId
    name: QualifiedName
    positions: Mapping[DataFileId, tuple[int, ...]]
    row_ids: tuple[int, ...] = ()
    of_earlier_commit: bool = False


@dataclass(frozen=True, slots=True)
class Truncate:
    """The end of every live row of a table, in files and in the catalog."""

    table_id: TableId
    name: QualifiedName


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
class MergeAdjacent:
    """Files in the place of others, with the same rows at every snapshot."""

    table_id: TableId
    name: QualifiedName
    files: tuple[MergedFile, ...]

    @property
    def sources(self) -> tuple[DataFileId, ...]:
        """The files that go."""
        return tuple(one for file in self.files for one in file.sources)


@dataclass(frozen=True, slots=True)
class FlushedDeletes:
    """The delete file of a flushed file: all of its rows that had ended, each with the snapshot that did it.

    Its path is relative to the table's directory. ``begin_snapshot`` and ``partial_max`` are the first and
    the last of those snapshots.
    """

    path: str
    delete_count: int
    file_size_bytes: int
    footer_size: int
    begin_snapshot: SnapshotId
    partial_max: SnapshotId


@dataclass(frozen=True, slots=True)
class FlushedFile:
    """A file with rows that lay in the catalog; each says its id and the snapshot that it came by.

    Its path is relative to the table's directory. ``begin_snapshot`` and ``partial_max`` are the first and
    the last of those snapshots.
    """

    file: DataFile
    begin_snapshot: SnapshotId
    partial_max: SnapshotId
    partition_id: PartitionId | None = None
    deletes: FlushedDeletes | None = None


@dataclass(frozen=True, slots=True)
class FlushedLayout:
    """The rows of an inlined table that a flush read, up to its snapshot, and how many of them had ended."""

    schema_version: int
    row_count: int
    ended_count: int = 0


@dataclass(frozen=True, slots=True)
class FlushInlined:
    """Files in the place of rows that lay in the catalog by the snapshot ``read_at``.

    Rows that no snapshot knows any more are in none of them.
    """

    table_id: TableId
    name: QualifiedName
    read_at: SnapshotId
    layouts: tuple[FlushedLayout, ...]
    files: tuple[FlushedFile, ...]


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
class RewriteDeletes:
    """Files in the place of others that had deletes, from now on: older snapshots keep those."""

    table_id: TableId
    name: QualifiedName
    files: tuple[RewrittenFile, ...]

    @property
    def origins(self) -> tuple[RewriteSource, ...]:
        """The files that end, as they were read."""
        return tuple(one for file in self.files for one in file.origins)

    @property
    def file_ids(self) -> tuple[DataFileId, ...]:
        """Their ids."""
        return tuple(one.file_id for one in self.origins)


@dataclass(frozen=True, slots=True)
class RestoreTable:
    """A dropped table that comes back under its id, in the directory that its row had.

    ``path`` is that of its row. What the table held comes back by other changes.
    """

    table_id: TableId
    schema: SchemaRef
    name: QualifiedName
    uuid: str
    path: CatalogPath
    columns: TableSchema


@dataclass(frozen=True, slots=True)
class RestoreMacro:
    """A dropped macro that comes back under its id, by which its definition is there still."""

    macro_id: MacroId
    schema: SchemaRef
    name: QualifiedName
    is_table_macro: bool


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
class RestoreRows:
    """Rows of a table that come back as snapshot ``as_of`` had them, in new files and in the catalog.

    ``schema`` is the table's at the commit, ``column_stats`` what is said of each batch of rows that come
    back to the catalog. ``retyped`` are leaf columns that had another type since: bounds of then are none.
    Of a new table they are those that ever had one, ``next_row_id`` is where the rows to come go on, and
    ``heir_of`` is the table whose rows it takes over.
    """

    table: TableRef
    name: QualifiedName
    as_of: SnapshotId
    schema: TableSchema
    files: tuple[RestoredFile, ...] = ()
    inlined: tuple[RestoredRows, ...] = ()
    column_stats: tuple[Mapping[ColumnId, TableColumnStats | None], ...] = ()
    retyped: tuple[ColumnId, ...] = ()
    next_row_id: int = 0
    heir_of: TableId | None = None


@dataclass(frozen=True, slots=True)
class NoteRestored:
    """A table that a restore found to be what it was at snapshot ``as_of`` already.

    It changes nothing, and alone it makes no snapshot; but which commits a table has gone through is judged
    by it, as by a restore that changed the table.
    """

    table_id: TableId
    name: QualifiedName
    as_of: SnapshotId


Change: TypeAlias = (
    CreateSchema
    | DropSchema
    | CreateTable
    | DropTable
    | RenameTable
    | ChangeColumns
    | SetPartitioning
    | SetSorting
    | CommentOnTable
    | CommentOnColumn
    | CreateView
    | DropView
    | RenameView
    | CommentOnView
    | DropMacro
    | RegisterLayout
    | AppendFiles
    | InlineRows
    | EndFiles
    | ReadRows
    | AddDeletes
    | InlineDeletes
    | Truncate
    | MergeAdjacent
    | FlushInlined
    | RewriteDeletes
    | RestoreTable
    | RestoreMacro
    | RestoreRows
    | NoteRestored
)
