"""The changes a transaction is made of, and the order in which a commit applies and records them.

A change names existing objects by id and objects of its own transaction by a reference, so it stays valid
when the commit is retried on a newer snapshot. ``Change`` is a closed union: each kind declares what depends
on the kind (``Declared``), all but its effects. Changes of one table are net: a column added and renamed in
one transaction is a column added.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from ..errors import UnsupportedFeatureError
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
