"""Which snapshots a watcher of one table waits for.

Compaction never does. The reference records a flush of inlined deletes as a plain ``deleted_from_table``; it
is told apart by its delete files, which all carry older snapshot ids. *Source:* docs/sources.md, DDL and
inlining.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.transaction.changes_made import ChangeKind, ChangeRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from airflow_provider_ducklake.lake.spec.snapshots import SnapshotId

INSERT, DELETE, DATA, SCHEMA = "insert", "delete", "data", "schema"
WATCHABLE = (INSERT, DELETE, DATA, SCHEMA)

_WORDS: Mapping[ChangeKind, str] = {
    ChangeKind.INSERTED_INTO_TABLE: INSERT,
    ChangeKind.INLINED_INSERT: INSERT,
    ChangeKind.DELETED_FROM_TABLE: DELETE,
    ChangeKind.INLINED_DELETE: DELETE,
    ChangeKind.ALTERED_TABLE: SCHEMA,
    ChangeKind.CREATED_TABLE: SCHEMA,
}


@dataclass(frozen=True, slots=True)
class TableChanges:
    """What happened to a table: in snapshots after ``from_snapshot``, up to and including ``to_snapshot``."""

    table: str
    from_snapshot: int
    to_snapshot: int
    changes: tuple[str, ...]
    table_id: int


def wanted_words(changes: Collection[str]) -> frozenset[str]:
    """Return the words to look for, ``data`` spelled out.

    Raises:
        InvalidInputError: no word, or an unknown one.
    """
    unknown = [word for word in changes if word not in WATCHABLE]
    if unknown or not changes or isinstance(changes, str):
        raise InvalidInputError(f"changes={changes!r}: give one or more of {', '.join(WATCHABLE)}.")
    words = set(changes)
    return frozenset((words - {DATA}) | ({INSERT, DELETE} if DATA in words else set()))


def words_of(
    records: Iterable[ChangeRecord], table_id: int, name: QualifiedName, *, deletes_are_flush: bool
) -> frozenset[str]:
    """Return what one snapshot's records say of a table, as watch words."""
    return frozenset(
        _WORDS[record.kind]
        for record in records
        if record.kind is not None
        and record.kind in _WORDS
        and _concerns(record, table_id, name)
        and not (deletes_are_flush and record.kind is ChangeKind.DELETED_FROM_TABLE)
    )


def _concerns(record: ChangeRecord, table_id: int, name: QualifiedName) -> bool:
    if isinstance(record.name, QualifiedName):
        return record.name.folded == name.folded
    return record.object_id == table_id


def is_flush(
    snapshot_id: SnapshotId, created: Iterable[tuple[int, int | None]], *, ended_files: bool
) -> bool:
    """Whether a ``deleted_from_table`` of a snapshot only moved older inlined deletes into files.

    ``created`` holds (begin_snapshot, partial_max) of the delete files that the snapshot made. A real delete
    leaves one that names the snapshot itself, or ends a data file. Nothing left to look at counts as a real
    delete.
    """
    created = list(created)
    names_itself = any(snapshot_id in (begin, partial_max) for begin, partial_max in created)
    return bool(created) and not names_itself and not ended_files
