"""Which snapshots a watcher of one table waits for.

Compaction never does. The reference records a flush of inlined deletes as a plain ``deleted_from_table``; it
is recognized by its delete files, which all carry older snapshot ids. *Source:* docs/sources.md, DDL and
inlining.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from ...errors import InvalidInputError
from ...format.names.identifiers import QualifiedName, fold
from ...transaction.changes_made import ChangeKind, ChangeRecord
from .scan import BEGIN_SNAPSHOT, END_SNAPSHOT, ChangeFeedPlan, FileHistory

if TYPE_CHECKING:
    from ...format.snapshots import SnapshotId


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


# Count the rows that came and went between two snapshots, from what the catalog says of them.
#
# Of few files it does not say it: merged or flushed ones, whose rows each say when they came and went, as
# long as only some of them did so within the range.


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """Rows that came and went, None where the catalog does not say how many. An update counts as both."""

    added: int | None
    deleted: int | None


def count_changes(plan: ChangeFeedPlan) -> ChangeCounts:
    """Count the rows of a change feed without reading a file."""
    inlined = [row for part in plan.inlined for row in part.rows]
    return ChangeCounts(
        _sum_of_known(
            [
                *(added(plan, one) for one in plan.files),
                _within(plan, (row[BEGIN_SNAPSHOT] for row in inlined)),
            ]
        ),
        _sum_of_known(
            [
                *(deleted(plan, one) for one in plan.files),
                _within(plan, (row[END_SNAPSHOT] for row in inlined)),
            ]
        ),
    )


def added(plan: ChangeFeedPlan, history: FileHistory) -> int | None:
    """Count a file's rows that were added within the range; None: only reading it can show that."""
    file, before = history.file, plan.start - 1
    if file.begin_snapshot in plan.rewrites:
        return 0 if file.partial_max is None else None
    first, last = file.begin_snapshot, file.partial_max or file.begin_snapshot
    if last <= before or first > plan.end:
        return 0
    is_whole = first > before and last <= plan.end and not plan.rewrites.intersection(range(first, last + 1))
    return file.record_count if is_whole else None


def deleted(plan: ChangeFeedPlan, history: FileHistory) -> int | None:
    """Count a file's rows that were deleted within the range; None: only reading more can show that."""
    gone, gone_before = _gone(history, plan.end), _gone(history, plan.start - 1)
    if gone is None or gone_before is None:
        return None
    ended = history.ended_by
    if ended is not None and plan.start <= ended <= plan.end and ended not in plan.rewrites:
        gone = history.file.record_count
    return gone - gone_before


def _gone(history: FileHistory, at: int) -> int | None:
    """Count a file's rows deleted up to a snapshot, in delete files and in the catalog; None: unknown."""
    counts = [0]
    for one in history.delete_files:
        if one.begin_snapshot > at:
            continue
        if (one.partial_max or one.begin_snapshot) > at:
            return None
        counts.append(one.delete_count)
    return max(counts) + sum(snapshot <= at for snapshot in history.marks.values())


def _within(plan: ChangeFeedPlan, snapshots: Iterable[int | None]) -> int:
    return sum(one is not None and plan.start <= one <= plan.end for one in snapshots)


def _sum_of_known(counts: Iterable[int | None]) -> int | None:
    total = 0
    for one in counts:
        if one is None:
            return None
        total += one
    return total
