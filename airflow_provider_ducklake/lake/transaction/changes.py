"""The changes a transaction is made of, and the order in which a commit applies and records them.

A change names existing objects by id and objects of its own transaction by a reference, so it stays valid
when the commit is retried on a newer snapshot. ``Change`` is a closed union: each kind declares what depends
on the kind (``Declared``), all but its effects. Changes of one table are net: a column added and renamed in
one transaction is a column added.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from ..errors import UnsupportedFeatureError
from ..format import snapshots as ids
from ..format.files import NameMapping, TableColumnStats, TableStats, same_mapping_key
from .declared import (
    CommitPhase,
    FlushedLayout,
    LockedFacts,
    NewSchemaRef,
    NewTableRef,
    NewViewRef,
    SchemaRef,
    TableRef,
    ViewRef,
)
from .kinds.rows import (
    AddDeletes,
    AppendFiles,
    EndFiles,
    FileDeletes,
    InlineDeletes,
    InlinedLayout,
    InlineRows,
    Positions,
    PositionsFile,
    ReadRows,
    RegisterLayout,
    RowPositions,
    Scope,
    Truncate,
    UnwrittenDeletes,
)
from .kinds.tables import (
    ChangeColumns,
    ColumnRow,
    CommentOnColumn,
    CommentOnTable,
    CommentOnView,
    CommentOnViewColumn,
    CreateMacro,
    CreateSchema,
    CreateTable,
    CreateView,
    DropMacro,
    DropSchema,
    DropTable,
    DropView,
    RenameTable,
    RenameView,
    RestoreMacro,
    RestoreTable,
    SetOptions,
    SetPartitioning,
    SetSorting,
)
from .kinds.upkeep import (
    FlushedDeletes,
    FlushedFile,
    FlushInlined,
    MergeAdjacent,
    MergedFile,
    NoteRestored,
    RestoredFile,
    RestoredRows,
    RestoreRows,
    RewriteDeletes,
    RewriteSource,
    RewrittenFile,
)

if TYPE_CHECKING:
    from ..format.names.identifiers import QualifiedName
    from ..format.snapshots import DataFileId, SnapshotId
    from .changes_made import ChangeRecord


Change: TypeAlias = (
    CreateSchema
    | DropSchema
    | CreateTable
    | DropTable
    | RenameTable
    | ChangeColumns
    | SetPartitioning
    | SetSorting
    | SetOptions
    | CommentOnTable
    | CommentOnColumn
    | CreateView
    | DropView
    | RenameView
    | CommentOnView
    | CommentOnViewColumn
    | CreateMacro
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


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Changes that were planned on snapshot ``base``: they conflict with what came after it.

    ``unused`` are files (absolute paths) that are no longer needed once the changes are committed. ``newest``
    is the newest snapshot when the changes were made, if that was read.
    """

    base: SnapshotId
    changes: Collection[Change]
    unused: Collection[str] = ()
    newest: SnapshotId | None = None


def ordered(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Return the changes in commit order: drops, creations, alterations, then each table's rows, files first.

    Existing tables come before new ones and by id, and delete files last, as the reference numbers files.
    What was only read has no effect and is left out.
    """
    changes = [change for change in changes if change.phase is not CommitPhase.READ]
    if len({change.is_upkeep for change in changes}) > 1:
        raise UnsupportedFeatureError("Maintenance needs its own snapshot. Commit other changes separately.")
    return tuple(sorted(_appended_once(changes), key=lambda change: (change.phase, change.sort_key)))


def written_tables(changes: Iterable[Change]) -> tuple[QualifiedName, ...]:
    """Return the tables whose rows or definition are changed, each once; upkeep and drops are left out."""
    names = (change.affected_table for change in changes)
    return tuple({name.folded: name for name in names if name is not None}.values())


def _appended_once(changes: Iterable[Change]) -> Iterator[Change]:
    """Yield the changes, files that are added to one table in one of them."""
    appends: dict[TableRef, AppendFiles] = {}
    for change in changes:
        if not isinstance(change, AppendFiles):
            yield change
        elif change.files:
            before = appends.get(change.table)
            appends[change.table] = replace(change, files=before.files + change.files) if before else change
    yield from appends.values()


def changes_definitions(changes: Iterable[Change]) -> bool:
    """Return True if a change is one of what names mean, not of rows."""
    return any(change.makes_snapshot and change.phase <= CommitPhase.LAYOUT for change in changes)


def changes_catalog(changes: Collection[Change], facts: LockedFacts) -> bool:
    """Return True if the schema version rises."""
    return changes_definitions(changes) or any(change.makes_layout(facts) for change in changes)


def check_changes(changes: Iterable[Change], facts: LockedFacts) -> None:
    """Compare the facts under the lock with those of the plan of the changes."""
    seen: set[DataFileId] = set()
    for change in changes:
        targets = change.targets
        if (twice := sorted(seen & targets.keys())) and not change.repeats_deletes:
            raise UnsupportedFeatureError(
                f"Two parts of this commit delete rows of data file {twice[0]} of {change.name}. Delete "
                "them in one part, or commit one after the other."
            )
        seen |= targets.keys()
        change.check(facts)


# The snapshot being built: its predecessor, and the ids, times and statistics that it assigns.
#
# It changes while the commit is built. A new one is made for every attempt, so a retry recomputes everything.


class CommitState:
    """Hands out the ids of one commit attempt. ``time`` is never at or before the predecessor's."""

    def __init__(
        self, head: ids.Snapshot, clock: datetime, facts: LockedFacts, *, catalog_changes: bool
    ) -> None:
        self.head = head
        self.facts = facts
        self.snapshot_id = ids.SnapshotId(head.id + 1)
        self.schema_version = head.schema_version + catalog_changes
        self.time = max(clock, head.time + timedelta(microseconds=1))
        self.records: list[ChangeRecord] = []
        self.added_rows: dict[ids.TableId, tuple[int, int]] = {}  # first row id, and number of rows
        self._next_catalog_id = head.next_catalog_id
        self._next_file_id = head.next_file_id
        self._stats = dict(facts.tables)
        self._column_stats = {table_id: dict(columns) for table_id, columns in facts.columns.items()}
        self._skipped = dict(facts.skipped)
        self._layouts = dict(facts.layouts)
        self._mappings = {table_id: dict(mappings) for table_id, mappings in facts.mappings.items()}
        self._schemas: dict[NewSchemaRef, ids.SchemaId] = {}
        self._tables: dict[NewTableRef, ids.TableId] = {}
        self._views: dict[NewViewRef, ids.ViewId] = {}
        self._partitions: dict[ids.TableId, ids.PartitionId] = {}
        self._versioned: set[ids.TableId] = set()

    @property
    def snapshot(self) -> ids.Snapshot:
        """The row of ``ducklake_snapshot``, final once every effect was asked for."""
        return ids.Snapshot(
            self.snapshot_id, self.schema_version, self._next_catalog_id, self._next_file_id, self.time
        )

    def record(self, record: ChangeRecord) -> None:
        """Record an entry for ``changes_made``."""
        self.records.append(record)

    def stats(self, table_id: ids.TableId) -> TableStats | None:
        """Return the table's statistics after the changes so far; None before its first row."""
        return self._stats.get(table_id)

    def column_stats(self, table_id: ids.TableId) -> Mapping[ids.ColumnId, TableColumnStats]:
        """Return the statistics of the table's columns after the changes so far."""
        return self._column_stats.get(table_id, {})

    def set_stats(
        self, table_id: ids.TableId, stats: TableStats, columns: Mapping[ids.ColumnId, TableColumnStats]
    ) -> None:
        """Record a table's statistics after a change."""
        self._stats[table_id] = stats
        self._column_stats[table_id] = dict(columns)

    def skip_bounds(self, table_id: ids.TableId, columns: frozenset[ids.ColumnId]) -> None:
        """Record the leaf columns whose statistics have no bounds in a table's new rows."""
        self._skipped[table_id] = columns

    def skipped(self, table_id: ids.TableId) -> frozenset[ids.ColumnId]:
        """Return the leaf columns without bounds in the statistics of a table's new rows."""
        return self._skipped.get(table_id, frozenset())

    def layout(self, table_id: ids.TableId) -> int | None:
        """Return the schema version of the table's newest layout for inlined rows."""
        return self._layouts.get(table_id)

    def add_layout(self, table_id: ids.TableId) -> None:
        """Record that this commit registers a layout, under its own schema version."""
        self._layouts[table_id] = self.schema_version

    def note_rows(self, table_id: ids.TableId, row_id_start: int, row_count: int) -> None:
        """Record the row ids of a table's new rows."""
        start, before = self.added_rows.get(table_id, (row_id_start, 0))
        self.added_rows[table_id] = start, before + row_count

    def _catalog_id(self) -> int:
        self._next_catalog_id += 1
        return self._next_catalog_id - 1

    def add_schema(self, ref: NewSchemaRef) -> ids.SchemaId:
        """Return the id of a schema this commit creates."""
        self._schemas[ref] = ids.SchemaId(self._catalog_id())
        return self._schemas[ref]

    def add_table(self, ref: NewTableRef) -> ids.TableId:
        """Return the id of a table this commit creates."""
        self._tables[ref] = ids.TableId(self._catalog_id())
        return self._tables[ref]

    def add_partition(self, table_id: ids.TableId, known: ids.PartitionId | None = None) -> ids.PartitionId:
        """Return the id of a partition spec this commit gives to a table; ``known``: its former id."""
        self._partitions[table_id] = ids.PartitionId(self._catalog_id()) if known is None else known
        return self._partitions[table_id]

    def add_view(self, ref: NewViewRef, known: ids.ViewId | None = None) -> ids.ViewId:
        """Return the id of a view this commit creates; ``known``: its former id."""
        self._views[ref] = ids.ViewId(self._catalog_id()) if known is None else known
        return self._views[ref]

    def new_macro_id(self) -> ids.MacroId:
        """Return the id of a macro this commit creates."""
        return ids.MacroId(self._catalog_id())

    def new_sort_id(self) -> ids.SortId:
        """Return the id of the next sort spec."""
        return ids.SortId(self._catalog_id())

    def is_first_version_of(self, table_id: ids.TableId) -> bool:
        """Return True on the first call for a table: it gets one schema version a commit."""
        is_first = table_id not in self._versioned
        self._versioned.add(table_id)
        return is_first

    def new_file_id(self) -> ids.DataFileId:
        """Return the id of the next data file."""
        self._next_file_id += 1
        return ids.DataFileId(self._next_file_id - 1)

    def mapping_id(self, table_id: ids.TableId, mapping: NameMapping) -> tuple[ids.MappingId, bool]:
        """Return the id of a table's mapping, and whether this commit is the first to use it."""
        known = self._mappings.setdefault(table_id, {})
        key = same_mapping_key(mapping)
        if key in known:
            return known[key], False
        known[key] = ids.MappingId(self.new_file_id())
        return known[key], True

    def schema_id(self, ref: SchemaRef) -> ids.SchemaId:
        """Return the id behind a reference."""
        return self._schemas[ref] if isinstance(ref, NewSchemaRef) else ref

    def table_id(self, ref: TableRef) -> ids.TableId:
        """Return the id behind a reference."""
        return self._tables[ref] if isinstance(ref, NewTableRef) else ref

    def view_id(self, ref: ViewRef) -> ids.ViewId:
        """Return the id behind a reference."""
        return self._views[ref] if isinstance(ref, NewViewRef) else ref

    def new_partition_id(self, table_id: ids.TableId) -> ids.PartitionId | None:
        """Return the partition spec that this commit gave to the table, if it did."""
        return self._partitions.get(table_id)
