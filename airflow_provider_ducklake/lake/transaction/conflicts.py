"""Which changes of others, committed since the plan, conflict with the changes of this commit.

``CONFLICTS[ours][theirs]`` says what makes the pair a conflict; a pair that it does not name is one as soon
as both sides touch the same object. Some pairs are one only by what the other commit left: rows that ours
read, a file that ours changes; ``catalog.committing.overlap`` looks there. *Source:* the verdicts of the
reference on every ordered pair (docs/sources.md, commits); where its verdict loses something, ours is a
conflict, and where nothing can be lost, ours is none (ADR 0035).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeAlias

from ..errors import TransactionConflictError
from ..format.names.identifiers import QualifiedName, SchemaPath
from .changes_made import ChangeKind, ChangeRecord

if TYPE_CHECKING:
    from ..format.snapshots import SnapshotId


class Operation(Enum):
    """The operation of one of our changes, finer than its word in ``changes_made``."""

    INSERT = "insert into it"
    SEARCH = "change or replace rows of it"
    READ = "write what was made of its rows"
    DELETE = "delete from it"
    INLINE_DELETE = "delete single rows from it"
    END_INLINED = "delete rows of it that lie in the catalog"
    TRUNCATE = "truncate it"
    REPLACE = "replace rows of an earlier commit to it"
    ALTER = "alter it"
    FORBID_NULL = "forbid NULL in it"
    RENAME = "rename it"
    DROP = "drop it"
    CREATE = "create it"
    CREATE_SCALAR_MACRO = "create the macro"
    CREATE_TABLE_MACRO = "create the table macro"
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


class Rule(Enum):
    """What must be the same on both sides for a pair to be a conflict."""

    FREE = auto()  # the pair does not conflict
    SAME_ID = auto()  # the table, view, macro or schema id
    SAME_ROWS = auto()  # rows of the table that ours read, or would have
    SAME_FILES = auto()  # a file, or a row in the catalog, that ours changes
    SAME_NAME = auto()  # the name that both create
    SAME_SCHEMA = auto()  # one side creates in the schema that the other drops
    SAME_OBJECT = auto()  # any of these: the pair is not named


Row: TypeAlias = dict[ChangeKind, Rule]

_K = ChangeKind
_ROWS_GONE = (_K.DELETED_FROM_TABLE, _K.INLINED_DELETE)
_ROWS_ADDED = (_K.INSERTED_INTO_TABLE, _K.INLINED_INSERT)
_COMPACTED = (_K.MERGE_ADJACENT, _K.REWRITE_DELETE)
_FLUSHED = _K.INLINE_FLUSH
_RESHAPED = (_K.ALTERED_TABLE, _K.DROPPED_TABLE)
_VIEWS = (_K.ALTERED_VIEW, _K.DROPPED_VIEW)
_MACROS = (_K.DROPPED_SCALAR_MACRO, _K.DROPPED_TABLE_MACRO)
_CREATED_IN_SCHEMA = (_K.CREATED_TABLE, _K.CREATED_VIEW, _K.CREATED_SCALAR_MACRO, _K.CREATED_TABLE_MACRO)
_SCHEMAS = (_K.CREATED_SCHEMA, _K.DROPPED_SCHEMA)
_TABLES = (*_ROWS_GONE, *_ROWS_ADDED, *_COMPACTED, _FLUSHED, *_RESHAPED)
_NO_TABLES = (*_VIEWS, *_MACROS, *_CREATED_IN_SCHEMA, *_SCHEMAS)


def _row(conflicting: Iterable[ChangeKind], free: Iterable[ChangeKind]) -> Row:
    return {**dict.fromkeys(free, Rule.FREE), **dict.fromkeys(conflicting, Rule.SAME_ID)}


def _on_table(conflicting: Iterable[ChangeKind], free: Iterable[ChangeKind]) -> Row:
    """Build the row of an operation on a table: it conflicts with no operation on other objects."""
    return _row(conflicting, (*free, *_NO_TABLES))


def _on_rows(rows: Iterable[ChangeKind], files: Iterable[ChangeKind], free: Iterable[ChangeKind]) -> Row:
    """Return the row of what is done to some rows of a table as it is."""
    kinds = {**dict.fromkeys(rows, Rule.SAME_ROWS), **dict.fromkeys(files, Rule.SAME_FILES)}
    return _on_table(_RESHAPED, free) | kinds


def _on_view(*conflicting: ChangeKind) -> Row:
    return _row(conflicting, (*_TABLES, *_VIEWS, *_MACROS, *_CREATED_IN_SCHEMA, *_SCHEMAS))


_CREATE: Row = {
    _K.CREATED_TABLE: Rule.SAME_NAME,
    _K.CREATED_VIEW: Rule.SAME_NAME,
    _K.DROPPED_SCHEMA: Rule.SAME_SCHEMA,
}
_DELETED, _DROPPED = _K.DELETED_FROM_TABLE, _K.DROPPED_TABLE

CONFLICTS: dict[Operation, Row] = {
    Operation.INSERT: _on_table(_RESHAPED, (*_ROWS_ADDED, *_ROWS_GONE, *_COMPACTED, _FLUSHED)),
    Operation.SEARCH: _on_rows(_ROWS_ADDED, (), (*_ROWS_GONE, *_COMPACTED, _FLUSHED)),
    Operation.READ: _on_rows((*_ROWS_ADDED, *_ROWS_GONE), (), (*_COMPACTED, _FLUSHED)),
    Operation.DELETE: _on_rows((), (*_ROWS_GONE, *_COMPACTED, _FLUSHED), _ROWS_ADDED),
    Operation.INLINE_DELETE: _on_rows((), (*_ROWS_GONE, *_COMPACTED, _FLUSHED), _ROWS_ADDED),
    Operation.END_INLINED: _on_rows((), (_K.INLINED_DELETE, _FLUSHED), (*_ROWS_ADDED, _DELETED, *_COMPACTED)),
    Operation.TRUNCATE: _on_table((*_ROWS_ADDED, *_RESHAPED, *_COMPACTED), (*_ROWS_GONE, _FLUSHED)),
    Operation.REPLACE: _on_rows((), (*_ROWS_GONE, *_COMPACTED, _FLUSHED), _ROWS_ADDED)
    | {_K.ALTERED_TABLE: Rule.FREE},
    Operation.ALTER: _on_table(_RESHAPED, (*_ROWS_ADDED, *_ROWS_GONE, *_COMPACTED, _FLUSHED)),
    Operation.FORBID_NULL: _on_table((*_RESHAPED, *_ROWS_ADDED), (*_ROWS_GONE, *_COMPACTED, _FLUSHED)),
    # a rename may register the columns of inlined rows, which their alteration may have changed
    Operation.RENAME: _on_table(_RESHAPED, (*_ROWS_ADDED, *_ROWS_GONE, *_COMPACTED, _FLUSHED)) | _CREATE,
    Operation.DROP: _on_table((_DROPPED,), _TABLES),
    Operation.CREATE: _on_table((), _TABLES) | _CREATE,
    Operation.CREATE_SCALAR_MACRO: _on_table((), _TABLES)
    | {_K.CREATED_SCALAR_MACRO: Rule.SAME_NAME, _K.DROPPED_SCHEMA: Rule.SAME_SCHEMA},
    Operation.CREATE_TABLE_MACRO: _on_table((), _TABLES)
    | {_K.CREATED_TABLE_MACRO: Rule.SAME_NAME, _K.DROPPED_SCHEMA: Rule.SAME_SCHEMA},
    Operation.CREATE_SCHEMA: _on_table((), _TABLES)
    | {_K.CREATED_SCHEMA: Rule.SAME_NAME, _K.DROPPED_SCHEMA: Rule.SAME_SCHEMA},
    Operation.DROP_SCHEMA: _on_table((_K.DROPPED_SCHEMA,), _TABLES)
    | dict.fromkeys((*_CREATED_IN_SCHEMA, _K.CREATED_SCHEMA), Rule.SAME_SCHEMA),
    Operation.ALTER_VIEW: _on_view(*_VIEWS),
    Operation.RENAME_VIEW: _on_view(_K.DROPPED_VIEW) | _CREATE,
    Operation.DROP_VIEW: _on_view(_K.DROPPED_VIEW),
    Operation.DROP_MACRO: _on_view(*_MACROS),
    # and what became of each file: see the change
    Operation.MERGE: _on_table((_DROPPED,), _TABLES),
    Operation.REWRITE: _on_table(_RESHAPED, _TABLES),
    Operation.FLUSH: _on_table((_K.INLINED_DELETE, _FLUSHED, _DROPPED), _TABLES),
    Operation.RESTORE: _on_table(_TABLES, ()),
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
    _K.CREATED_SCALAR_MACRO: "created a macro of that name",
    _K.CREATED_TABLE_MACRO: "created a table macro of that name",
    _K.CREATED_SCHEMA: "created a schema of that name",
    _K.DROPPED_SCHEMA: "dropped the schema",
}


@dataclass(frozen=True, slots=True)
class Claim:
    """What one of our changes does to an object, as the matrix sees it.

    ``subject`` is the object's name at the base snapshot, or that of a new one; ``id`` that of one that
    existed before. ``creates`` is a name that is new, ``schema_id`` the existing schema that it is for.
    ``is_scoped``: the rows that it read are known, so that others are no conflict.
    """

    operation: Operation
    subject: QualifiedName | SchemaPath
    id: int | None = None
    creates: QualifiedName | SchemaPath | None = None
    schema_id: int | None = None
    is_scoped: bool = False


def claim_on(operation: Operation, ref: object, name: QualifiedName) -> Claim | None:
    """Return the claim on an object; None for one that this transaction itself creates."""
    return Claim(operation, name, ref) if isinstance(ref, int) else None


def claim_of_new(name: QualifiedName, schema: object, operation: Operation = Operation.CREATE) -> Claim:
    """Return that an object is created in a schema."""
    return Claim(operation, name, creates=name, schema_id=schema if isinstance(schema, int) else None)


def check_conflicts(ours: Collection[Claim], theirs: Iterable[tuple[SnapshotId, ChangeRecord]]) -> None:
    """Compare our changes with all commits since our plan, by their records."""
    for snapshot_id, record in theirs:
        for own in ours:
            if _conflict(own, record):
                did = _THEY_DID.get(record.kind, f"did {record}") if record.kind else f"did {record}"
                raise TransactionConflictError(own.operation.value, did, str(own.subject), snapshot_id)


def rule_of(operation: Operation, kind: ChangeKind | None) -> Rule:
    """Return the rule that makes a pair a conflict; ``kind`` is None for a word of a newer release."""
    return Rule.SAME_OBJECT if kind is None else CONFLICTS.get(operation, {}).get(kind, Rule.SAME_OBJECT)


def _conflict(own: Claim, record: ChangeRecord) -> bool:
    match rule_of(own.operation, record.kind):
        case Rule.FREE | Rule.SAME_FILES:
            return False
        case Rule.SAME_ROWS if own.is_scoped:
            return False
        case Rule.SAME_ID | Rule.SAME_ROWS:
            return record.object_id is not None and record.object_id == own.id
        case Rule.SAME_NAME:
            return record.name is not None and _same_name(record.name, own.creates)
        case Rule.SAME_SCHEMA:
            return _same_schema(own, record)
        case Rule.SAME_OBJECT:
            return _same_object(own, record)


def _same_schema(own: Claim, record: ChangeRecord) -> bool:
    if record.name is None:
        return record.object_id is not None and record.object_id == own.schema_id
    path = record.name if isinstance(record.name, SchemaPath) else record.name.schema
    return isinstance(own.subject, SchemaPath) and path.is_below(own.subject)


def _same_object(own: Claim, record: ChangeRecord) -> bool:
    if record.name is None:
        return record.object_id in (own.id, own.schema_id)
    named = (own.subject, own.creates)
    return any(_same_name(record.name, one) for one in named) or _same_schema(own, record)


def _same_name(one: QualifiedName | SchemaPath, other: QualifiedName | SchemaPath | None) -> bool:
    return other is not None and type(one) is type(other) and one.folded == other.folded
