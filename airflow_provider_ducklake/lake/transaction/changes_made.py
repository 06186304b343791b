"""The text of ``ducklake_snapshot_changes.changes_made``, and what records of a commit key mean (``Replay``).

>>> parse_changes('created_table:"s,1"."we""ird",inserted_into_table:2')[0].name
QualifiedName(schema=SchemaPath(parts=('s,1',)), name='we"ird')
>>> format_changes(parse_changes('created_schema:"main",deleted_from_table:1'))
'created_schema:"main",deleted_from_table:1'

*Source:* the words and their order as the reference writes them (docs/sources.md, DDL).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ..errors import CatalogError, ZombieCommitError
from ..format.names.identifiers import QualifiedName, SchemaPath, quote
from ..format.snapshots import CommitKey, CommitRecord, OnClear, RestoredTable, SnapshotId, TableId


class ChangeKind(StrEnum):
    """Every word of the format, in the order in which one snapshot lists them."""

    DROPPED_SCHEMA = "dropped_schema"
    DROPPED_TABLE = "dropped_table"
    DROPPED_VIEW = "dropped_view"
    CREATED_SCHEMA = "created_schema"
    CREATED_TABLE = "created_table"
    CREATED_VIEW = "created_view"
    CREATED_SCALAR_MACRO = "created_scalar_macro"
    CREATED_TABLE_MACRO = "created_table_macro"
    DROPPED_SCALAR_MACRO = "dropped_scalar_macro"
    DROPPED_TABLE_MACRO = "dropped_table_macro"
    INSERTED_INTO_TABLE = "inserted_into_table"
    DELETED_FROM_TABLE = "deleted_from_table"
    ALTERED_TABLE = "altered_table"
    ALTERED_VIEW = "altered_view"
    INLINED_INSERT = "inlined_insert"
    INLINED_DELETE = "inlined_delete"
    INLINE_FLUSH = "inline_flush"
    MERGE_ADJACENT = "merge_adjacent"
    REWRITE_DELETE = "rewrite_delete"


# Words of spec versions before 1.0 that mean the same as one of today's.
_OLD_WORDS = {"compacted_table": ChangeKind.MERGE_ADJACENT, "flushed_inlined": ChangeKind.INLINE_FLUSH}
_NAMED = frozenset(kind for kind in ChangeKind if kind.value.startswith("created_"))
_ORDER = {kind: position for position, kind in enumerate(ChangeKind)}


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """One entry of ``changes_made``: a creation names what it made, everything else carries an id.

    ``kind`` is None for a word that this release lacks; ``word`` keeps it.
    """

    kind: ChangeKind | None
    object_id: int | None = None
    name: QualifiedName | SchemaPath | None = None
    word: str = ""

    def __str__(self) -> str:
        word = self.kind.value if self.kind is not None else self.word
        if self.name is None:
            return f"{word}:{self.object_id}"
        return f"{word}:{'.'.join(map(quote, self.name.parts))}"


UPKEEP = frozenset({ChangeKind.MERGE_ADJACENT, ChangeKind.REWRITE_DELETE, ChangeKind.INLINE_FLUSH})


def changes_table(records: Iterable[ChangeRecord], table_id: int) -> bool:
    """Return True if a snapshot with these records changed a table; upkeep alone only moved its rows."""
    return bool({one.kind for one in records if one.object_id == table_id} - UPKEEP)


_QUOTED = r'"(?:[^"]|"")*"'
_ENTRY = re.compile(rf"([a-z_]+):(?:(\d{{1,19}})|({_QUOTED}(?:\.{_QUOTED})*))(?:,|\Z)")


def parse_changes(text: str | None) -> tuple[ChangeRecord, ...]:
    """Return the entries of a ``changes_made`` text; NULL and the empty text have none."""
    records: list[ChangeRecord] = []
    position = 0
    text = text or ""
    while position < len(text):
        match = _ENTRY.match(text, position)
        if match is None:
            raise CatalogError(f"Cannot read changes_made {text!r} at character {position}.")
        records.append(_record(*match.groups()))
        position = match.end()
    return tuple(records)


def _record(word: str, object_id: str | None, path: str | None) -> ChangeRecord:
    kind = _OLD_WORDS.get(word)
    if kind is None and word in set(ChangeKind):
        kind = ChangeKind(word)
    if object_id is not None:
        return ChangeRecord(kind, int(object_id), word=word if kind is None else "")
    assert path is not None
    *above, last = (part[1:-1].replace('""', '"') for part in re.findall(_QUOTED, path))
    is_schema = kind is ChangeKind.CREATED_SCHEMA or not above
    name = SchemaPath((*above, last)) if is_schema else QualifiedName(SchemaPath(tuple(above)), last)
    return ChangeRecord(kind, name=name, word=word if kind is None else "")


def format_changes(records: Iterable[ChangeRecord]) -> str | None:
    """Return the text for the catalog: the format's order, by id, each entry once; None for no change."""
    unique = list(dict.fromkeys(records))
    unique.sort(key=_place)
    return ",".join(map(str, unique)) or None


def _place(record: ChangeRecord) -> tuple[int, int]:
    """Return the sort key of a record; those that name objects keep their order."""
    kind = _ORDER.get(record.kind, len(_ORDER)) if record.kind else len(_ORDER)
    return kind, record.object_id or 0


# Which snapshots led to the current state of a table: a restore skips those in between.


@dataclass(frozen=True, slots=True)
class Span:
    """Snapshots that count for a table, both ends included, and its id by then.

    ``last`` None: up to the newest.
    """

    table_id: TableId
    first: SnapshotId
    last: SnapshotId | None

    def holds(self, snapshot_id: SnapshotId) -> bool:
        """Return True if a snapshot is one of them."""
        return self.first <= snapshot_id and (self.last is None or snapshot_id <= self.last)


def history_of(table_id: TableId, restores: Iterable[RestoredTable]) -> Iterator[Span]:
    """Yield the spans of a table's history, newest first.

    >>> from airflow_provider_ducklake.lake.format.snapshots import RestoredTable
    >>> [(one.table_id, one.first, one.last) for one in history_of(5, [RestoredTable(5, 9, 5, 6)])]
    [(5, 9, None), (5, 0, 6)]
    """
    known = list(restores)
    last: SnapshotId | None = None
    while True:
        by_then = [
            one for one in known if one.table_id == table_id and (last is None or one.restored_at <= last)
        ]
        newest = max(by_then, key=lambda one: one.restored_at, default=None)
        yield Span(table_id, SnapshotId(0) if newest is None else newest.restored_at, last)
        if newest is None:
            return
        table_id, last = newest.source_id, newest.as_of


# Has this commit been made already? The answer, from the records of its key.


@dataclass(frozen=True, slots=True)
class Replay:
    """``done``: the commit that counts is there, nothing is to be written; ``replaced``: rows to go.

    The records of ``replaced`` name the tables in which the rows are to be looked for.
    """

    done: tuple[CommitRecord, ...] = ()
    replaced: tuple[CommitRecord, ...] = ()


def replay_of(
    records: Sequence[CommitRecord],
    key: CommitKey,
    on_clear: OnClear,
    restores: Collection[RestoredTable] = (),
) -> Replay:
    """Decide from the records of a key what its next commit does.

    ``restores`` are those of all tables; if all records are of the key's own generation, they are not used.
    """
    if not records:
        return Replay()
    newest = max(record.generation for record in records)
    last = tuple(record for record in records if record.generation == newest)
    if newest > key.generation:
        raise ZombieCommitError(key.generation, newest, last[0].snapshot_id)
    if newest == key.generation or on_clear is OnClear.SKIP:
        return Replay(done=last)
    return Replay(replaced=tuple(standing(records, restores)) if on_clear is OnClear.REPLACE else ())


def standing(records: Sequence[CommitRecord], restores: Collection[RestoredTable]) -> Iterator[CommitRecord]:
    """Yield for each table the records of the newest generation that its history has gone through.

    Earlier generations were replaced by it, or were to stay. One that a restore has undone does not count:
    its rows are gone, and those that it had replaced are back.
    """
    for table_id in _tables(records, restores):
        spans = list(history_of(table_id, restores))
        counting = [(span, record) for span in spans for record in records if span.holds(record.snapshot_id)]
        newest = max((record.generation for _, record in counting), default=None)
        for span, record in counting:
            if record.generation == newest and record.table_id == span.table_id:
                yield replace(record, table_id=table_id)


def _tables(records: Sequence[CommitRecord], restores: Collection[RestoredTable]) -> list[TableId]:
    """Return the tables that may have rows of the commits: those that wrote them, and their heirs."""
    found = {record.table_id for record in records if record.table_id is not None}
    found |= {one.table_id for one in restores if one.is_new}
    return sorted(found - {one.source_id for one in restores if one.is_new})
