"""The changes of one transaction, put in the order in which a commit applies and records them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.transaction.changes import (
    AddDeletes,
    AppendFiles,
    Change,
    ChangeColumns,
    CommentOnColumn,
    CommentOnTable,
    CommentOnView,
    CreateSchema,
    CreateTable,
    CreateView,
    DropMacro,
    DropSchema,
    DropTable,
    DropView,
    EndFiles,
    FlushInlined,
    InlineDeletes,
    InlineRows,
    MergeAdjacent,
    NewTableRef,
    NoteRestored,
    ReadRows,
    RegisterLayout,
    RenameTable,
    RenameView,
    RestoreMacro,
    RestoreRows,
    RestoreTable,
    RewriteDeletes,
    SetPartitioning,
    SetSorting,
    TableRef,
    Truncate,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_STAGES: tuple[tuple[type, ...], ...] = (
    (DropTable, DropView, DropMacro),
    (DropSchema,),
    (CreateSchema,),
    (
        CreateTable,
        RestoreTable,
        CreateView,
        RestoreMacro,
        RenameTable,
        RenameView,
        ChangeColumns,
        SetPartitioning,
        SetSorting,
    ),
    (CommentOnTable, CommentOnColumn, CommentOnView),
    (RegisterLayout,),
    (EndFiles, InlineDeletes, Truncate),
    (MergeAdjacent, RewriteDeletes, FlushInlined, RestoreRows, NoteRestored),
)
_UPKEEP = (MergeAdjacent, RewriteDeletes, FlushInlined)
_DATA = (
    AppendFiles,
    InlineRows,
    EndFiles,
    AddDeletes,
    InlineDeletes,
    Truncate,
    RestoreRows,
    NoteRestored,
    *_UPKEEP,
)


def ordered(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Return the changes in commit order: drops, creations, alterations, then each table's rows, files first.

    Existing tables come before new ones and by id, and delete files last, as the reference numbers files.
    What was only read has no effect and is left out.

    Raises:
        UnsupportedFeatureError: compaction or a flush together with anything else: readers tell by the
            snapshot that no row changed.
    """
    changes = tuple(change for change in changes if not isinstance(change, ReadRows))
    upkeep = [_is_upkeep(change) for change in changes]
    if any(upkeep) and not all(upkeep):
        raise UnsupportedFeatureError("Upkeep makes a snapshot of its own. Commit other changes apart.")
    others: list[Change] = []
    inlined: list[AppendFiles | InlineRows] = []
    deletes: list[AddDeletes] = []
    appends: dict[TableRef, AppendFiles] = {}
    for change in changes:
        if isinstance(change, InlineRows):
            inlined.append(change)
        elif isinstance(change, AddDeletes):
            deletes.append(change)
        elif not isinstance(change, AppendFiles):
            others.append(change)
        elif change.files:
            before = appends.get(change.table)
            appends[change.table] = replace(change, files=before.files + change.files) if before else change
    others.sort(key=_stage)
    rows = [*appends.values(), *inlined]
    return (*others, *sorted(rows, key=_append_order), *deletes)


def _is_upkeep(change: Change) -> bool:
    deletes_nothing = isinstance(change, AddDeletes) and (change.of_rewrite or change.of_flush)
    return deletes_nothing or isinstance(change, _UPKEEP)


def _stage(change: Change) -> int:
    return next(place for place, kinds in enumerate(_STAGES) if isinstance(change, kinds))


def _append_order(change: AppendFiles | InlineRows) -> tuple[bool, int]:
    if isinstance(change.table, NewTableRef):
        return True, change.table.index
    return False, change.table


def changes_catalog(changes: Iterable[Change]) -> bool:
    """Whether the schema version rises: anything but new rows changes what names mean."""
    return any(not isinstance(change, _DATA) for change in changes)
