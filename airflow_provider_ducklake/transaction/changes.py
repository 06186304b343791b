"""The changes a transaction is made of.

A change names existing objects by id and objects of its own transaction by a reference, so it stays valid
when the commit is retried on a newer snapshot. ``Change`` is a closed union: each kind declares what depends
on the kind (``Declared``), all but its effects. Changes of one table are net: a column added and renamed in
one transaction is a column added.
"""

from __future__ import annotations

from typing import TypeAlias

from airflow_provider_ducklake.transaction.facts import FlushedLayout
from airflow_provider_ducklake.transaction.kinds.deletes import (
    AddDeletes,
    EndFiles,
    FileDeletes,
    InlineDeletes,
    Positions,
    PositionsFile,
    ReadRows,
    RowPositions,
    Truncate,
    UnwrittenDeletes,
)
from airflow_provider_ducklake.transaction.kinds.restore import (
    NoteRestored,
    RestoredFile,
    RestoredRows,
    RestoreRows,
)
from airflow_provider_ducklake.transaction.kinds.rows import (
    AppendFiles,
    InlinedLayout,
    InlineRows,
    RegisterLayout,
)
from airflow_provider_ducklake.transaction.kinds.schemas import (
    CreateSchema,
    DropMacro,
    DropSchema,
    RestoreMacro,
)
from airflow_provider_ducklake.transaction.kinds.tables import (
    ChangeColumns,
    ColumnRow,
    CommentOnColumn,
    CommentOnTable,
    CreateTable,
    DropTable,
    RenameTable,
    RestoreTable,
    SetPartitioning,
    SetSorting,
)
from airflow_provider_ducklake.transaction.kinds.upkeep import (
    FlushedDeletes,
    FlushedFile,
    FlushInlined,
    MergeAdjacent,
    MergedFile,
    RewriteDeletes,
    RewriteSource,
    RewrittenFile,
)
from airflow_provider_ducklake.transaction.kinds.views import CommentOnView, CreateView, DropView, RenameView
from airflow_provider_ducklake.transaction.refs import (
    NewSchemaRef,
    NewTableRef,
    NewViewRef,
    SchemaRef,
    TableRef,
    ViewRef,
)

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
