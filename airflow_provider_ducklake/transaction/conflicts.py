"""Which changes, committed by others since our plan, ours do not go together with.

``CONFLICTS[ours][theirs]`` names the fact that makes the pair a conflict. *Source:* the verdicts of the
reference on every ordered pair (dossier §10.2), for the kinds of change this release commits; where the
reference's verdict loses something, ours is a conflict.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import TransactionConflictError, UnsupportedFeatureError
from airflow_provider_ducklake.spec.names.identifiers import QualifiedName, fold
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
    NoteRestored,
    ReadRows,
    RenameTable,
    RenameView,
    RestoreMacro,
    RestoreRows,
    RestoreTable,
    RewriteDeletes,
    SetPartitioning,
    SetSorting,
    Truncate,
    UnwrittenDeletes,
)
from airflow_provider_ducklake.transaction.changes_made import ChangeKind, ChangeRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from airflow_provider_ducklake.spec.ids import DataFileId, DeleteFileId, SnapshotId, TableId
    from airflow_provider_ducklake.transaction.changes import FlushedLayout


class Fact(Enum):
    """What must be the same on both sides for a pair to be a conflict."""

    SAME_ID = auto()  # the table, view or schema id
    SAME_NAME = auto()  # the name that both create
    SAME_SCHEMA = auto()  # one side creates in the schema that the other drops


_K = ChangeKind
_CREATES_IN_SCHEMA = (_K.CREATED_TABLE, _K.CREATED_VIEW, _K.CREATED_SCALAR_MACRO, _K.CREATED_TABLE_MACRO)

_ROWS_GONE = (_K.DELETED_FROM_TABLE, _K.INLINED_DELETE)
_ROWS_ADDED = (_K.INSERTED_INTO_TABLE, _K.INLINED_INSERT)
_COMPACTED = (_K.MERGE_ADJACENT, _K.REWRITE_DELETE)
_RESHAPED = (_K.ALTERED_TABLE, _K.DROPPED_TABLE)
_CREATE: dict[ChangeKind, Fact] = {
    _K.CREATED_TABLE: Fact.SAME_NAME,
    _K.CREATED_VIEW: Fact.SAME_NAME,
    _K.DROPPED_SCHEMA: Fact.SAME_SCHEMA,
}


class Deed(Enum):
    """What a change of ours does, where that is finer than the word it is recorded under."""

    INSERT = "insert into it"
    DELETE = "delete from it"
    READ = "write what was made of its rows"
    INLINE_DELETE = "delete single rows from it"
    END_INLINED = "delete rows of it that lie in the catalog"
    TRUNCATE = "truncate it"
    REPLACE = "replace rows of an earlier commit to it"
    ALTER = "alter it"
    FORBID_NULL = "forbid NULL in it"
    RENAME = "rename it"
    DROP = "drop it"
    CREATE = "create it"
    CREATE_SCHEMA = "create the schema"
    DROP_SCHEMA = "drop the schema"
    ALTER_VIEW = "comment on it"
    RENAME_VIEW = "rename the view"
    DROP_VIEW = "drop the view"
    DROP_MACRO = "drop the macro"
    MERGE = "merge files of it"
    REWRITE = "rewrite files of it"
    FLUSH = "flush its rows to files"
    RESTORE = "restore it"


def _same_id(*kinds: ChangeKind) -> dict[ChangeKind, Fact]:
    return dict.fromkeys(kinds, Fact.SAME_ID)


CONFLICTS: dict[Deed, dict[ChangeKind, Fact]] = {
    Deed.INSERT: _same_id(*_ROWS_GONE, *_RESHAPED),
    Deed.DELETE: _same_id(*_ROWS_ADDED, _K.INLINED_DELETE, *_RESHAPED, *_COMPACTED),
    Deed.READ: _same_id(*_ROWS_ADDED, *_ROWS_GONE, *_RESHAPED),
    Deed.INLINE_DELETE: _same_id(*_ROWS_ADDED, _K.INLINED_DELETE, *_RESHAPED, *_COMPACTED, _K.INLINE_FLUSH),
    Deed.END_INLINED: _same_id(*_ROWS_ADDED, _K.INLINED_DELETE, *_RESHAPED, _K.INLINE_FLUSH),
    Deed.TRUNCATE: _same_id(*_ROWS_ADDED, *_RESHAPED, *_COMPACTED),
    Deed.REPLACE: _same_id(*_ROWS_GONE, *_COMPACTED, _K.INLINE_FLUSH, _K.DROPPED_TABLE),
    Deed.ALTER: _same_id(*_RESHAPED),
    Deed.FORBID_NULL: _same_id(*_RESHAPED, *_ROWS_ADDED),
    Deed.RENAME: {**_CREATE, **_same_id(*_RESHAPED)},  # it may say which columns inlined rows have
    Deed.DROP: _same_id(_K.DROPPED_TABLE),
    Deed.CREATE: _CREATE,
    Deed.CREATE_SCHEMA: {_K.CREATED_SCHEMA: Fact.SAME_NAME},
    Deed.DROP_SCHEMA: {
        _K.DROPPED_SCHEMA: Fact.SAME_ID,
        **dict.fromkeys(_CREATES_IN_SCHEMA, Fact.SAME_SCHEMA),
    },
    Deed.ALTER_VIEW: _same_id(_K.ALTERED_VIEW, _K.DROPPED_VIEW),
    Deed.RENAME_VIEW: {**_CREATE, **_same_id(_K.DROPPED_VIEW)},
    Deed.DROP_VIEW: _same_id(_K.DROPPED_VIEW),
    Deed.DROP_MACRO: _same_id(_K.DROPPED_SCALAR_MACRO, _K.DROPPED_TABLE_MACRO),
    Deed.MERGE: _same_id(_K.DROPPED_TABLE),  # and what became of each file: see check_sources
    Deed.REWRITE: _same_id(*_RESHAPED),
    Deed.FLUSH: _same_id(_K.INLINED_DELETE, _K.INLINE_FLUSH, _K.DROPPED_TABLE),
    Deed.RESTORE: _same_id(*_ROWS_ADDED, *_ROWS_GONE, *_RESHAPED, *_COMPACTED, _K.INLINE_FLUSH),
}

_THEY_DID = {
    _K.INSERTED_INTO_TABLE: "added rows to it",
    _K.INLINED_INSERT: "added rows to it",
    _K.DELETED_FROM_TABLE: "deleted from it",
    _K.INLINED_DELETE: "deleted from it",
    _K.ALTERED_TABLE: "altered it",
    _K.ALTERED_VIEW: "altered it",
    _K.DROPPED_TABLE: "dropped it",
    _K.DROPPED_VIEW: "dropped it",
    _K.DROPPED_SCALAR_MACRO: "dropped it",
    _K.DROPPED_TABLE_MACRO: "dropped it",
    _K.MERGE_ADJACENT: "merged its files",
    _K.REWRITE_DELETE: "rewrote its files",
    _K.INLINE_FLUSH: "flushed its rows to files",
    _K.CREATED_TABLE: "created a table of that name",
    _K.CREATED_VIEW: "created a view of that name",
    _K.CREATED_SCHEMA: "created a schema of that name",
    _K.DROPPED_SCHEMA: "dropped the schema",
}


@dataclass(frozen=True, slots=True)
class _Ours:
    """One of our changes as the matrix sees it."""

    deed: Deed
    shown: str
    id: int | None = None  # of a table, view, macro or schema that existed before
    name: QualifiedName | str | None = None  # of what we create
    schema_id: int | None = None  # existing schema we create in, or drop
    schema_name: str | None = None


def _ours(change: Change) -> _Ours | None:  # noqa: C901, PLR0911, PLR0912 - one line for each kind
    """Return None for changes that only touch objects of the same transaction."""
    match change:
        case AppendFiles(table=int(table_id), name=name) | InlineRows(table=int(table_id), name=name):
            return _Ours(Deed.INSERT, str(name), table_id)
        case (
            EndFiles(table_id, name, delete_files=None)
            | AddDeletes(table_id, name, of_earlier_commit=True)
            | InlineDeletes(table_id, name, of_earlier_commit=True)
        ):
            return _Ours(Deed.REPLACE, str(name), table_id)
        case EndFiles(table_id, name):
            return _Ours(Deed.DELETE, str(name), table_id)
        case RewriteDeletes(table_id, name) | AddDeletes(table_id, name, of_rewrite=True):
            return _Ours(Deed.REWRITE, str(name), table_id)
        case FlushInlined(table_id, name) | AddDeletes(table_id, name, of_flush=True):
            return _Ours(Deed.FLUSH, str(name), table_id)
        case AddDeletes(table_id, name):
            return _Ours(Deed.DELETE, str(name), table_id)
        case InlineDeletes(table_id, name, positions):
            return _Ours(Deed.INLINE_DELETE if positions else Deed.END_INLINED, str(name), table_id)
        case ReadRows(table_id, name):
            return _Ours(Deed.READ, str(name), table_id)
        case Truncate(table_id, name):
            return _Ours(Deed.TRUNCATE, str(name), table_id)
        case MergeAdjacent(table_id, name):
            return _Ours(Deed.MERGE, str(name), table_id)
        case ChangeColumns(table_id, name, without_nulls=without_nulls):
            return _Ours(Deed.FORBID_NULL if without_nulls else Deed.ALTER, str(name), table_id)
        case (
            SetPartitioning(table=int(table_id), name=name)
            | SetSorting(table=int(table_id), name=name)
            | CommentOnTable(table=int(table_id), name=name)
            | CommentOnColumn(table=int(table_id), name=name)
        ):
            return _Ours(Deed.ALTER, str(name), table_id)
        case RenameTable(table_id, name, new_name):
            return _Ours(Deed.RENAME, str(name), table_id, new_name, schema_name=name.schema)
        case DropTable(table_id, name):
            return _Ours(Deed.DROP, str(name), table_id)
        case RestoreRows(table=int(table_id), name=name) | NoteRestored(table_id, name):
            return _Ours(Deed.RESTORE, str(name), table_id)
        case (
            CreateTable(schema=schema, name=name)
            | CreateView(schema=schema, name=name)
            | RestoreTable(schema=schema, name=name)
            | RestoreMacro(schema=schema, name=name)
        ):
            schema_id = schema if isinstance(schema, int) else None
            return _Ours(Deed.CREATE, str(name), name=name, schema_id=schema_id, schema_name=name.schema)
        case CommentOnView(view=int(view_id), name=name):
            return _Ours(Deed.ALTER_VIEW, str(name), view_id)
        case RenameView(view_id, name, new_name):
            return _Ours(Deed.RENAME_VIEW, str(name), view_id, new_name, schema_name=name.schema)
        case DropView(view_id, name):
            return _Ours(Deed.DROP_VIEW, str(name), view_id)
        case DropMacro(macro_id, name):
            return _Ours(Deed.DROP_MACRO, str(name), macro_id)
        case CreateSchema(name=schema_name):
            return _Ours(Deed.CREATE_SCHEMA, schema_name, name=schema_name)
        case DropSchema(schema_id, schema_name):
            return _Ours(
                Deed.DROP_SCHEMA, schema_name, schema_id, schema_id=schema_id, schema_name=schema_name
            )
        case _:
            return None


def check_conflicts(changes: Iterable[Change], theirs: Iterable[tuple[SnapshotId, ChangeRecord]]) -> None:
    """Compare our changes with all that was committed since our plan.

    Raises:
        TransactionConflictError: names the table or schema, both sides and the other snapshot.
    """
    ours = [own for change in changes if (own := _ours(change)) is not None]
    for snapshot_id, record in theirs:
        for own in ours:
            if _conflict(own, record):
                did = _THEY_DID.get(record.kind, f"did {record}") if record.kind else f"did {record}"
                raise TransactionConflictError(own.deed.value, did, own.shown, snapshot_id)


def check_names(changes: Iterable[Change], names: Mapping[int, str], head: SnapshotId) -> None:
    """Compare the names of what is dropped or renamed with those of now: a rename is recorded as a creation.

    Raises:
        TransactionConflictError: a table or view has another name.
    """
    for change in changes:
        match change:
            case (
                DropTable(object_id, name)
                | RenameTable(object_id, name)
                | DropView(object_id, name)
                | RenameView(object_id, name)
            ):
                pass
            case _:
                continue
        found = names.get(object_id, name.name)
        if found != name.name:
            raise TransactionConflictError("drop or rename it", f"renamed it to {found!r}", str(name), head)


def check_targets(
    changes: Iterable[Change], targets: Mapping[DataFileId, DeleteFileId | None], head: SnapshotId
) -> None:
    """Compare the data files that lose rows with what they were when we planned: the conflict of same file.

    ``targets`` holds the live ones with their live delete files. The reference compares less, and loses
    deletes by it (dossier §10.4).

    Raises:
        TransactionConflictError: a file is gone, or got other deletes since.
        UnsupportedFeatureError: two of the changes delete rows of one file.
    """
    seen: set[DataFileId] = set()
    for change in changes:
        planned = _planned_targets(change)
        if (twice := sorted(seen & planned.keys())) and not _loses_nothing(change):
            raise UnsupportedFeatureError(
                f"Two parts of this commit delete rows of data file {twice[0]} of {change.name}. Delete them "
                "in one, or commit one after the other."
            )
        seen |= planned.keys()
        for file_id, replaces in planned.items():
            if targets.get(file_id, _GONE) != replaces:
                did = "has other deletes" if file_id in targets else "no longer has the file"
                raise TransactionConflictError(
                    f"delete rows of data file {file_id}", f"{did} since", str(change.name), head
                )


def check_sources(
    changes: Iterable[Change],
    sources: Collection[DataFileId],
    marks: Mapping[DataFileId, int],
    head: SnapshotId,
) -> None:
    """Compare the files to be compacted with what they were when we planned.

    Those to be merged are among ``sources`` if they are live and never lost a row. ``marks`` counts the
    inlined deletes of those to be rewritten. The reference compares tables, not files, and misses deletes in
    the catalog (dossier §10.4).

    Raises:
        TransactionConflictError: names the first file that is not what it was.
    """
    for change in changes:
        changed: list[DataFileId] = []
        if isinstance(change, MergeAdjacent):
            changed = [one for one in change.sources if one not in sources]
        elif isinstance(change, RewriteDeletes):
            changed = [one.file_id for one in change.origins if marks.get(one.file_id, 0) != one.mark_count]
        if changed:
            raise TransactionConflictError(
                f"compact data file {changed[0]}", "deleted or moved rows of it", str(change.name), head
            )


def check_restorable(changes: Iterable[Change], snapshots: Collection[SnapshotId], head: SnapshotId) -> None:
    """Compare what is to be restored with what is left of it: ``snapshots`` are those that still exist.

    With a snapshot that expired, the catalog may have forgotten a table that only it knew, and its counters.

    Raises:
        TransactionConflictError: names the first table whose snapshot is gone.
    """
    for change in changes:
        if isinstance(change, RestoreRows | NoteRestored) and change.as_of not in snapshots:
            raise TransactionConflictError(
                "restore it", f"expired snapshot {change.as_of}", str(change.name), head
            )


def check_layouts(
    changes: Iterable[Change], known: Mapping[tuple[TableId, int], FlushedLayout], head: SnapshotId
) -> None:
    """Compare the rows in the catalog that are to be flushed with what they were when we read them.

    ``known`` is what each inlined table, by its schema version, has by now of the snapshot that was read.

    Raises:
        TransactionConflictError: names the first table of which rows ended or went since.
    """
    for change in changes:
        if isinstance(change, FlushInlined):
            for one in change.layouts:
                if known.get((change.table_id, one.schema_version)) != one:
                    raise TransactionConflictError(
                        Deed.FLUSH.value, "has others of them", str(change.name), head
                    )


def check_not_registered(changes: Iterable[Change], registered: Collection[str], head: SnapshotId) -> None:
    """Refuse files to be added that the lake has by now; it had none of them when we planned.

    Raises:
        TransactionConflictError: names the first such file.
    """
    for change in changes:
        if isinstance(change, AppendFiles):
            for path in change.doubtful_paths:
                if path in registered:
                    raise TransactionConflictError(
                        f"add {path}", "has that file already", str(change.name), head
                    )


_GONE = -1


def _planned_targets(change: Change) -> Mapping[DataFileId, DeleteFileId | None]:
    match change:
        case AddDeletes(files=files):
            return {file.data_file_id: file.replaces for file in files}
        case EndFiles(file_ids=file_ids, delete_files=delete_files) if delete_files is not None:
            return dict(zip(file_ids, delete_files, strict=True))
        case InlineDeletes(positions=positions):
            return dict.fromkeys(positions)
        case RewriteDeletes():
            return {one.file_id: one.delete_file_id for one in change.origins}
        case _:
            return {}


def _loses_nothing(change: Change) -> bool:
    """Whether delete files only repeat what their data files had lost, as before those end."""
    return isinstance(change, AddDeletes) and all(
        isinstance(file, UnwrittenDeletes) and not file.positions.count for file in change.files
    )


def _conflict(own: _Ours, record: ChangeRecord) -> bool:
    if record.kind is None:  # a word of a newer release: the same object is reason enough
        return record.object_id is not None and record.object_id == own.id
    match CONFLICTS[own.deed].get(record.kind):
        case Fact.SAME_ID:
            return record.object_id == own.id
        case Fact.SAME_NAME:
            return _folded(record.name) == _folded(own.name)
        case Fact.SAME_SCHEMA:
            return _same_schema(own, record)
        case None:
            return False


def _same_schema(own: _Ours, record: ChangeRecord) -> bool:
    if isinstance(record.name, QualifiedName):
        return own.schema_name is not None and fold(record.name.schema) == fold(own.schema_name)
    return record.object_id is not None and record.object_id == own.schema_id


def _folded(name: QualifiedName | str | None) -> tuple[str, ...] | None:
    if name is None:
        return None
    return (fold(name),) if isinstance(name, str) else name.folded
