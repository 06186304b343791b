"""Which snapshots a watcher of one table waits for, and which changes a consumer consumes next.

Compaction never does. The reference records a flush of inlined deletes as a plain ``deleted_from_table``; it
is recognized by its delete files, which all carry older snapshot ids. *Source:* docs/sources.md, DDL and
inlining.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, cast

from ...errors import ChangesUndoneError, InvalidInputError
from ...format.names.identifiers import QualifiedName, fold
from ...transaction.changes_made import ChangeKind, ChangeRecord

if TYPE_CHECKING:
    from ...format.snapshots import CommitKey, Consumption, RestoredTable, SnapshotId, TableId


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
    """What happened to a table: in snapshots after ``from_snapshot``, up to and including ``to_snapshot``.

    ``is_complete``: no snapshot of the range has expired.
    """

    table: str
    from_snapshot: int
    to_snapshot: int
    changes: tuple[str, ...]
    table_id: int
    is_complete: bool = True


def wanted_words(changes: Collection[str]) -> frozenset[str]:
    """Return the words to look for, ``data`` spelled out."""
    unknown = [word for word in changes if word not in WATCHABLE]
    if unknown or not changes or isinstance(changes, str):
        raise InvalidInputError(f"changes={changes!r}: give one or more of {', '.join(WATCHABLE)}.")
    words = set(changes)
    return frozenset((words - {DATA}) | ({INSERT, DELETE} if DATA in words else set()))


def words_of(
    records: Iterable[ChangeRecord], table_id: int, name: QualifiedName, *, deletes_are_flush: bool
) -> frozenset[str]:
    """Map one snapshot's records of a table to watch words."""
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
    """Return True if a ``deleted_from_table`` of a snapshot only moved older inlined deletes into files.

    ``created`` holds (begin_snapshot, partial_max) of the delete files that the snapshot made. A real delete
    leaves one that names the snapshot itself, or ends a data file. Nothing left to look at counts as a real
    delete.
    """
    created = list(created)
    names_itself = any(snapshot_id in (begin, partial_max) for begin, partial_max in created)
    return bool(created) and not names_itself and not ended_files


# What a watcher of a table reports, range of snapshots by range, and what it remembers in between.
#
# A watcher notes a report before it hands it on, and strikes it out when it has arrived. So a watcher that
# is killed repeats what may not have arrived, word for word, and leaves nothing out.


_MOST_PARTITIONS = 1000  # in one event; of more any may have changed
_LONGEST_PARTITION = 250  # characters of a partition key in Airflow; of a longer one any may have changed
_MOST_AUTHORS = 100  # in one event, and how long each
_TOO_LARGE = 2**63  # for an id in a catalog
_SHOWN = 200  # characters


@dataclass(frozen=True, slots=True)
class RangeReport:
    """What snapshots ``from_snapshot``, left out, to ``to_snapshot`` did to a table.

    ``rows_added`` and ``rows_deleted``: an update counts as both; None: the catalog alone cannot give them.
    ``partitions`` are those with such rows (``month=2026-11``; see ``format/partitioning.py``), none for a
    table without partitions; None: any may be. ``is_complete``: no snapshot of the range has expired; else
    ``changes`` are those found, or if none is left all that were possible.
    ``is_new``: the range was reported snapshot by snapshot, and one of them created the table.
    """

    table: str
    table_id: int
    from_snapshot: int
    to_snapshot: int
    changes: tuple[str, ...]
    rows_added: int | None = None
    rows_deleted: int | None = None
    partitions: tuple[str, ...] | None = None
    authors: tuple[str, ...] = ()
    is_complete: bool = True
    is_new: bool = False

    def with_next(self, report: RangeReport) -> RangeReport:
        """Return the report of this range and of the one that follows it."""
        both = self.partitions, report.partitions
        return replace(
            report,
            from_snapshot=self.from_snapshot,
            changes=tuple(sorted({*self.changes, *report.changes})),
            rows_added=_sum(self.rows_added, report.rows_added),
            rows_deleted=_sum(self.rows_deleted, report.rows_deleted),
            partitions=None if None in both else tuple(sorted({one for some in both for one in some or ()})),
            authors=tuple(sorted({*self.authors, *report.authors})),
            is_complete=self.is_complete and report.is_complete,
            is_new=self.is_new or report.is_new,
        )

    @property
    def range_id(self) -> str:
        """The same text for the same range of the same table, and for no other."""
        return f"{self.table_id}:{self.from_snapshot}-{self.to_snapshot}"


@dataclass(frozen=True, slots=True)
class Watermark:
    """All up to ``snapshot`` was reported; ``pending`` are the reports that may not have arrived.

    ``table_id`` is the table that the last report was about, before the first one the first that had the
    name, None if none had: the next report says whether it is about another one.
    """

    snapshot: int
    table_id: int | None = None
    pending: tuple[Mapping[str, Any], ...] = ()

    def moved(self, snapshot: int, table_id: int | None) -> Watermark:
        """Return the one when snapshots up to another had nothing to report; ``table_id`` None: no table."""
        first = table_id if self.table_id is None else self.table_id
        return replace(self, snapshot=max(snapshot, self.snapshot), table_id=first)

    def reporting(self, report: RangeReport) -> tuple[Watermark, Mapping[str, Any]]:
        """Return the one when a report is about to be handed on, and what is."""
        event = event_of(report, self.table_id)
        return Watermark(report.to_snapshot, report.table_id, (*self.pending, event)), event

    def arrived(self, *range_ids: str) -> Watermark:
        """Return the one when reports have arrived."""
        rest = tuple(one for one in self.pending if one["range_id"] not in range_ids)
        return replace(self, pending=rest)

    def as_json(self) -> dict[str, Any]:
        """Serialize the watermark for the store."""
        return {"snapshot": self.snapshot, "table_id": self.table_id, "pending": list(self.pending)}

    @classmethod
    def of_json(cls, stored: object, place: str, table: str) -> Watermark:
        """Parse a watermark stored by the watcher of a table; errors name ``place``, the user's way to it."""
        if _is_watermark(stored, table):
            return cls(stored["snapshot"], stored["table_id"], tuple(stored["pending"]))
        raise InvalidInputError(
            f"{place} is not a watermark: {_shown(stored)}. Delete it, and the watcher begins again at its "
            'since, or now; to begin elsewhere write {"snapshot": <id>, "table_id": null, "pending": []}.'
        )


def _is_watermark(stored: object, table: str) -> TypeGuard[Mapping[str, Any]]:
    match stored:
        case {"snapshot": snapshot, "table_id": table_id, "pending": list(pending)}:
            has_ids = _is_id(snapshot) and (table_id is None or _is_id(table_id))
            return has_ids and all(_is_event(one, table) for one in pending)
        case _:
            return False


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _TOO_LARGE


def _is_event(value: object, table: str) -> bool:
    """Return True if a stored event has the form of ``event_of``; older ones have no snapshot_id."""
    if not isinstance(value, dict) or value.keys() | {"snapshot_id"} != _MEMBERS.keys():
        return False
    if not all(_MEMBERS[name](one) for name, one in value.items()) or fold(value["table"]) != fold(table):
        return False
    after, upto = value["from_snapshot"], value["to_snapshot"]
    table_id, _, ids = value["range_id"].partition(":")
    is_number = table_id.isdecimal() and table_id.isascii() and len(table_id) <= len(str(_TOO_LARGE))
    return is_number and ids == f"{after}-{upto}" and value.get("snapshot_id", upto) == upto


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_count(value: object) -> bool:
    return value is None or _is_id(value)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_partitions(value: object) -> bool:
    return value is None or (_are_texts(value) and len(cast("list[str]", value)) <= _MOST_PARTITIONS)


_MEMBERS: Mapping[str, Callable[[object], bool]] = {  # of an event, each with what it may be
    "rows_added": _is_count,
    "snapshot_id": _is_id,
    "rows_deleted": _is_count,
    "table": _is_text,
    "changes": _are_texts,
    "range_id": _is_text,
    "from_snapshot": _is_id,
    "to_snapshot": _is_id,
    "partitions": _are_partitions,
    "authors": _are_texts,
    "is_complete": _is_flag,
    "recreated": _is_flag,
}


def _shown(stored: object) -> str:
    try:
        text = repr(stored)
    except RecursionError:
        return f"a {type(stored).__name__} that is nested too deeply"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def event_of(report: RangeReport, table_id_before: int | None) -> dict[str, Any]:
    """Return the payload of an event.

    ``recreated``: another table had the name before, and its rows are gone.
    """
    partitions = report.partitions
    if partitions is not None and (
        len(partitions) > _MOST_PARTITIONS or any(len(one) > _LONGEST_PARTITION for one in partitions)
    ):
        partitions = None
    return {
        "rows_added": report.rows_added,
        "snapshot_id": report.to_snapshot,  # first what Airflow's pages show without a click
        "rows_deleted": report.rows_deleted,
        "table": report.table,
        "changes": list(report.changes),
        "range_id": report.range_id,
        "from_snapshot": report.from_snapshot,
        "to_snapshot": report.to_snapshot,
        "partitions": None if partitions is None else list(partitions),
        "authors": [one[:_SHOWN] for one in report.authors[:_MOST_AUTHORS]],
        "is_complete": report.is_complete,
        "recreated": table_id_before not in (None, report.table_id),
    }


def _sum(*counts: int | None) -> int | None:
    return None if None in counts else sum(one or 0 for one in counts)


# Decide what a consumer consumes next.


class IsUnchanged(Protocol):
    """Returns True if a table is known to be the same at two snapshots, the older one first."""

    def __call__(self, table_id: TableId, after: SnapshotId, upto: SnapshotId) -> bool: ...


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """Changes to be consumed at once: those of a table after one snapshot, up to another.

    ``after`` None: all that it holds. ``marked_at`` is the consumer's mark then: another one than ``upto``
    where the changes are those of an older table, in whose place a restore created the one that is read.
    """

    table_id: TableId
    after: SnapshotId | None
    upto: SnapshotId
    marked_at: SnapshotId


@dataclass(frozen=True, slots=True)
class ConsumptionHistory:
    """A consumer's consumed ranges, as the task with ``key`` sees them, and the restores of all tables."""

    entries: tuple[Consumption, ...]
    key: CommitKey
    restores: tuple[RestoredTable, ...] = ()

    @property
    def done(self) -> tuple[Consumption, ...]:
        """The ranges that an earlier try of this task consumed: nothing is left to do."""
        return tuple(one for one in self._own if one.generation == self.key.generation)

    @property
    def earlier(self) -> tuple[Consumption, ...]:
        """The ranges that the task consumed before it was cleared."""
        done = self.done
        return tuple(one for one in self._own if one not in done)

    @property
    def _own(self) -> tuple[Consumption, ...]:
        return tuple(one for one in self.entries if one.commit_key == self.key.digest)

    def again(self) -> SnapshotId | None:
        """Return the snapshot to read if the task is to consume again what it had consumed."""
        return max((one.upto for one in self.earlier), default=None)

    def next(
        self, table_id: TableId, upto: SnapshotId, is_unchanged: IsUnchanged, name: str, *, again: bool
    ) -> ChangeRange:
        """Return the changes of a table to consume next, up to a snapshot at most.

        A restore creates a table again whose schema was dropped. The changes of the one before come first,
        as far as they are in the new one; the mark goes over to that as it was created.
        """
        earlier = [one for one in self.earlier if one.table_id == table_id]
        after = earlier[-1].after if again and earlier else self._mark(table_id, name)
        if after is None:
            return ChangeRange(table_id, None, upto, upto)
        for one in creations(table_id, self.restores):
            if one.restored_at <= after:
                continue
            if not is_unchanged(one.source_id, min(after, one.as_of), max(after, one.as_of)):
                if after > one.as_of:
                    raise ChangesUndoneError(name, after, one.restored_at)
                return ChangeRange(one.source_id, after, one.as_of, one.restored_at)
            after = one.restored_at
        return ChangeRange(table_id, after, upto, upto)

    def _mark(self, table_id: TableId, name: str) -> SnapshotId | None:
        """Return the snapshot up to which a table, or one whose place it took, was consumed; None: never."""
        kin = self._origin(table_id)
        newest = max(
            (one for one in self.entries if self._origin(one.table_id) == kin),
            key=lambda one: one.upto,
            default=None,
        )
        if newest is None:
            return None
        line, line_of_newest = (_line(one, self.restores) for one in (table_id, newest.table_id))
        if newest.table_id not in line and table_id not in line_of_newest:
            raise ChangesUndoneError(name, newest.upto, creations(table_id, self.restores)[-1].restored_at)
        return newest.upto

    def _origin(self, table_id: TableId) -> TableId:
        return _line(table_id, self.restores)[0]


def creations(table_id: TableId, restores: Iterable[RestoredTable]) -> Sequence[RestoredTable]:
    """Return the restores that created a table in the place of another, and that one, oldest first."""
    created = {one.table_id: one for one in restores if one.is_new}
    found: list[RestoredTable] = []
    while table_id in created:
        found.insert(0, created[table_id])
        table_id = found[0].source_id
    return found


def _line(table_id: TableId, restores: Iterable[RestoredTable]) -> list[TableId]:
    """Return the ids of the tables that took each other's place, oldest first, up to the one given."""
    return [*(one.source_id for one in creations(table_id, restores)), table_id]


def changed(ranges: Iterable[Consumption]) -> tuple[Consumption, ...]:
    """Return the ranges with a snapshot in them: others need no note."""
    return tuple(one for one in ranges if one.after is None or one.after < one.upto)
