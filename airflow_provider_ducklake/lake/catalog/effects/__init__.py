"""Build the SQL statements of a change; nothing here runs one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, assert_never

from ...transaction.changes import (
    AddDeletes,
    AppendFiles,
    Change,
    ChangeColumns,
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
    EndFiles,
    FlushInlined,
    InlineDeletes,
    InlineRows,
    MergeAdjacent,
    NoteRestored,
    ReadRows,
    RegisterLayout,
    RenameTable,
    RenameView,
    RestoreMacro,
    RestoreRows,
    RestoreTable,
    RewriteDeletes,
    SetOptions,
    SetPartitioning,
    SetSorting,
    Truncate,
)
from . import files, restore, rows
from . import tables as of_tables

if TYPE_CHECKING:
    from ...transaction.commit_state import CommitState
    from ..database.tables import CatalogTables
    from ..dialects.dialect import Effect


def effects_of(  # noqa: C901, PLR0912, PLR0915 - a line for each kind, checked to be exhaustive
    change: Change, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    """Yield the statements of one change; takes ids from ``state`` and leaves its records there."""
    match change:
        case CreateSchema():
            yield from of_tables.create_schema(change, state, tables)
        case DropSchema():
            yield from of_tables.drop_schema(change, state, tables)
        case CreateView():
            yield from of_tables.create_view(change, state, tables)
        case DropView():
            yield from of_tables.drop_view(change, state, tables)
        case RenameView():
            yield from of_tables.rename_view(change, state, tables)
        case CreateMacro():
            yield from of_tables.create_macro(change, state, tables)
        case DropMacro():
            yield from of_tables.drop_macro(change, state, tables)
        case CreateTable():
            yield from of_tables.create_table(change, state, tables)
        case DropTable():
            yield from of_tables.drop_table(change, state, tables)
        case RenameTable():
            yield from of_tables.rename_table(change, state, tables)
        case ChangeColumns():
            yield from of_tables.change_columns(change, state, tables)
        case SetPartitioning():
            yield from of_tables.set_partitioning(change, state, tables)
        case SetSorting():
            yield from of_tables.set_sorting(change, state, tables)
        case SetOptions():
            yield from of_tables.set_options(change, state, tables)
        case CommentOnTable():
            yield from of_tables.comment_on_table(change, state, tables)
        case CommentOnColumn():
            yield from of_tables.comment_on_column(change, state, tables)
        case CommentOnView():
            yield from of_tables.comment_on_view(change, state, tables)
        case CommentOnViewColumn():
            yield from of_tables.comment_on_view_column(change, state, tables)
        case AppendFiles():
            yield from files.append_files(change, state, tables)
        case RegisterLayout():
            yield from rows.register_layout(change, state, tables)
        case InlineRows():
            yield from rows.inline_rows(change, state, tables)
        case EndFiles():
            yield from rows.end_files(change, state, tables)
        case AddDeletes():
            yield from rows.add_deletes(change, state, tables)
        case InlineDeletes():
            yield from rows.inline_deletes(change, state, tables)
        case Truncate():
            yield from rows.truncate(change, state, tables)
        case ReadRows() | NoteRestored():
            pass  # what is looked at for conflicts, and what our own tables get
        case MergeAdjacent():
            yield from rows.merge_adjacent(change, state, tables)
        case FlushInlined():
            yield from rows.flush_inlined(change, state, tables)
        case RewriteDeletes():
            yield from rows.rewrite_deletes(change, state, tables)
        case RestoreTable():
            yield from restore.restore_table(change, state, tables)
        case RestoreMacro():
            yield from of_tables.restore_macro(change, state, tables)
        case RestoreRows():
            yield from restore.restore_rows(change, state, tables)
        case _:
            assert_never(change)
