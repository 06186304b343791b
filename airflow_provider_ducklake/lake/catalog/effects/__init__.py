"""Build the SQL statements of a change; nothing here runs one."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from airflow_provider_ducklake.lake.catalog.effects import files, restore
from airflow_provider_ducklake.lake.catalog.effects import rows as compaction
from airflow_provider_ducklake.lake.catalog.effects import rows as deletes
from airflow_provider_ducklake.lake.catalog.effects import rows as flush
from airflow_provider_ducklake.lake.catalog.effects import rows as inlined
from airflow_provider_ducklake.lake.catalog.effects import tables as comments
from airflow_provider_ducklake.lake.catalog.effects import tables as layout
from airflow_provider_ducklake.lake.catalog.effects import tables as macros
from airflow_provider_ducklake.lake.catalog.effects import tables as of_tables
from airflow_provider_ducklake.lake.catalog.effects import tables as options
from airflow_provider_ducklake.lake.catalog.effects import tables as schemas
from airflow_provider_ducklake.lake.transaction.changes import (
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

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.catalog.dialects.dialect import Effect
    from airflow_provider_ducklake.lake.transaction.commit_state import CommitState


def effects_of(  # noqa: C901, PLR0912, PLR0915 - a line for each kind, checked to be exhaustive
    change: Change, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    """Yield the statements of one change; takes ids from ``state`` and leaves its records there."""
    match change:
        case CreateSchema():
            yield from schemas.create_schema(change, state, tables)
        case DropSchema():
            yield from schemas.drop_schema(change, state, tables)
        case CreateView():
            yield from schemas.create_view(change, state, tables)
        case DropView():
            yield from schemas.drop_view(change, state, tables)
        case RenameView():
            yield from schemas.rename_view(change, state, tables)
        case CreateMacro():
            yield from macros.create_macro(change, state, tables)
        case DropMacro():
            yield from macros.drop_macro(change, state, tables)
        case CreateTable():
            yield from of_tables.create_table(change, state, tables)
        case DropTable():
            yield from of_tables.drop_table(change, state, tables)
        case RenameTable():
            yield from of_tables.rename_table(change, state, tables)
        case ChangeColumns():
            yield from of_tables.change_columns(change, state, tables)
        case SetPartitioning():
            yield from layout.set_partitioning(change, state, tables)
        case SetSorting():
            yield from layout.set_sorting(change, state, tables)
        case SetOptions():
            yield from options.set_options(change, state, tables)
        case CommentOnTable():
            yield from comments.comment_on_table(change, state, tables)
        case CommentOnColumn():
            yield from comments.comment_on_column(change, state, tables)
        case CommentOnView():
            yield from comments.comment_on_view(change, state, tables)
        case CommentOnViewColumn():
            yield from comments.comment_on_view_column(change, state, tables)
        case AppendFiles():
            yield from files.append_files(change, state, tables)
        case RegisterLayout():
            yield from inlined.register_layout(change, state, tables)
        case InlineRows():
            yield from inlined.inline_rows(change, state, tables)
        case EndFiles():
            yield from deletes.end_files(change, state, tables)
        case AddDeletes():
            yield from deletes.add_deletes(change, state, tables)
        case InlineDeletes():
            yield from deletes.inline_deletes(change, state, tables)
        case Truncate():
            yield from deletes.truncate(change, state, tables)
        case ReadRows() | NoteRestored():
            pass  # what is looked at for conflicts, and what our own tables get
        case MergeAdjacent():
            yield from compaction.merge_adjacent(change, state, tables)
        case FlushInlined():
            yield from flush.flush_inlined(change, state, tables)
        case RewriteDeletes():
            yield from compaction.rewrite_deletes(change, state, tables)
        case RestoreTable():
            yield from restore.restore_table(change, state, tables)
        case RestoreMacro():
            yield from macros.restore_macro(change, state, tables)
        case RestoreRows():
            yield from restore.restore_rows(change, state, tables)
        case _:
            assert_never(change)
