"""Which changes, committed by others since our plan, ours do not go together with.

``CONFLICTS[ours][theirs]`` names the fact that makes the pair a conflict. *Source:* the verdicts of the
reference on every ordered pair (dossier §10.2), for the kinds of change this release commits.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import TransactionConflictError
from airflow_provider_ducklake.spec.identifiers import QualifiedName, fold
from airflow_provider_ducklake.transaction.changes import (
    AppendFiles,
    Change,
    CreateSchema,
    CreateTable,
    DropSchema,
    DropTable,
)
from airflow_provider_ducklake.transaction.changes_made import ChangeKind, ChangeRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_ducklake.spec.ids import SnapshotId


class Fact(Enum):
    """What must be the same on both sides for a pair to be a conflict."""

    SAME_ID = auto()  # the table, view or schema id
    SAME_NAME = auto()  # the name that both create
    SAME_SCHEMA = auto()  # one side creates in the schema that the other drops


_K = ChangeKind
_CREATES_IN_SCHEMA = (_K.CREATED_TABLE, _K.CREATED_VIEW, _K.CREATED_SCALAR_MACRO, _K.CREATED_TABLE_MACRO)

CONFLICTS: dict[ChangeKind, dict[ChangeKind, Fact]] = {
    _K.INSERTED_INTO_TABLE: dict.fromkeys(
        (_K.DELETED_FROM_TABLE, _K.INLINED_DELETE, _K.ALTERED_TABLE, _K.DROPPED_TABLE), Fact.SAME_ID
    ),
    _K.DROPPED_TABLE: {_K.DROPPED_TABLE: Fact.SAME_ID},
    _K.CREATED_TABLE: {
        _K.CREATED_TABLE: Fact.SAME_NAME,
        _K.CREATED_VIEW: Fact.SAME_NAME,
        _K.DROPPED_SCHEMA: Fact.SAME_SCHEMA,
    },
    _K.CREATED_SCHEMA: {_K.CREATED_SCHEMA: Fact.SAME_NAME},
    _K.DROPPED_SCHEMA: {
        _K.DROPPED_SCHEMA: Fact.SAME_ID,
        **dict.fromkeys(_CREATES_IN_SCHEMA, Fact.SAME_SCHEMA),
    },
}

_WE_WANTED = {
    _K.INSERTED_INTO_TABLE: "insert into it",
    _K.DROPPED_TABLE: "drop it",
    _K.CREATED_TABLE: "create it",
    _K.CREATED_SCHEMA: "create it",
    _K.DROPPED_SCHEMA: "drop it",
}
_THEY_DID = {
    _K.DELETED_FROM_TABLE: "deleted from it",
    _K.INLINED_DELETE: "deleted from it",
    _K.ALTERED_TABLE: "altered it",
    _K.DROPPED_TABLE: "dropped it",
    _K.CREATED_TABLE: "created a table of that name",
    _K.CREATED_VIEW: "created a view of that name",
    _K.CREATED_SCHEMA: "created a schema of that name",
    _K.DROPPED_SCHEMA: "dropped the schema",
}


@dataclass(frozen=True, slots=True)
class _Ours:
    """One of our changes as the matrix sees it."""

    kind: ChangeKind
    shown: str
    id: int | None = None  # of a table or schema that existed before
    name: QualifiedName | str | None = None  # of what we create
    schema_id: int | None = None  # existing schema we create in, or drop
    schema_name: str | None = None


def _ours(change: Change) -> _Ours | None:
    """Return None for changes that only touch objects of the same transaction."""
    match change:
        case AppendFiles(table=int(table_id), name=name):
            return _Ours(_K.INSERTED_INTO_TABLE, str(name), table_id)
        case DropTable(table_id, name):
            return _Ours(_K.DROPPED_TABLE, str(name), table_id)
        case CreateTable(schema=schema, name=name):
            schema_id = schema if isinstance(schema, int) else None
            return _Ours(_K.CREATED_TABLE, str(name), name=name, schema_id=schema_id, schema_name=name.schema)
        case CreateSchema(name=schema_name):
            return _Ours(_K.CREATED_SCHEMA, schema_name, name=schema_name)
        case DropSchema(schema_id, schema_name):
            return _Ours(
                _K.DROPPED_SCHEMA, schema_name, schema_id, schema_id=schema_id, schema_name=schema_name
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
                raise TransactionConflictError(_WE_WANTED[own.kind], did, own.shown, snapshot_id)


def _conflict(own: _Ours, record: ChangeRecord) -> bool:
    if record.kind is None:  # a word of a newer release: the same object is reason enough
        return record.object_id is not None and record.object_id == own.id
    match CONFLICTS[own.kind].get(record.kind):
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
    return (fold(name),) if isinstance(name, str) else (fold(name.schema), fold(name.name))
