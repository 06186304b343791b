"""What a watcher of a table reports, range of snapshots by range, and what it remembers in between.

A watcher notes a report before it hands it on, and strikes it out when it has arrived. So a watcher that is
killed repeats what may not have arrived, word for word, and leaves nothing out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_PARTITIONS = 1000  # in one event; of more any may have changed


@dataclass(frozen=True, slots=True)
class RangeReport:
    """What snapshots ``from_snapshot``, left out, to ``to_snapshot`` did to a table.

    ``rows_added`` and ``rows_deleted``: an update counts as both; None: the catalog alone does not say.
    ``partitions`` are those with such rows (``month=2026-11``; see ``spec/partition_keys.py``), none for a
    table without partitions; None: any may be. ``is_complete``: no snapshot of the range has expired.
    ``is_new``: the one snapshot of the range created the table; not known of longer ranges.
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

    ``table_id`` is the last table that had the name, None if none had.
    """

    snapshot: int
    table_id: int | None = None
    pending: tuple[Mapping[str, Any], ...] = ()

    def moved(self, snapshot: int, table_id: int | None) -> Watermark:
        """Return the one when snapshots up to another had nothing to report; ``table_id`` None: no table."""
        last_table = self.table_id if table_id is None else table_id
        return replace(self, snapshot=max(snapshot, self.snapshot), table_id=last_table)

    def reporting(self, report: RangeReport) -> tuple[Watermark, Mapping[str, Any]]:
        """Return the one when a report is about to be handed on, and what is."""
        event = event_of(report, self.table_id)
        return Watermark(report.to_snapshot, report.table_id, (*self.pending, event)), event

    def arrived(self, *range_ids: str) -> Watermark:
        """Return the one when reports have arrived."""
        rest = tuple(one for one in self.pending if one["range_id"] not in range_ids)
        return replace(self, pending=rest)

    def as_json(self) -> dict[str, Any]:
        """Return what is stored."""
        return {"snapshot": self.snapshot, "table_id": self.table_id, "pending": list(self.pending)}

    @classmethod
    def of_json(cls, stored: object) -> Watermark:
        """Return what was stored.

        Raises:
            InvalidInputError: it is something else.
        """
        match stored:
            case {
                "snapshot": int(snapshot),
                "table_id": int() | None as table_id,
                "pending": list(pending),
            } if all(isinstance(one, dict) and isinstance(one.get("range_id"), str) for one in pending):
                return cls(snapshot, table_id, tuple(pending))
        raise InvalidInputError(f"What was stored of a watcher is no watermark: {json.dumps(stored)[:200]}")


def event_of(report: RangeReport, table_id_before: int | None) -> dict[str, Any]:
    """Return the payload of an event.

    ``recreated``: another table had the name before, and its rows are gone.
    """
    partitions = report.partitions
    if partitions is not None and len(partitions) > _MOST_PARTITIONS:
        partitions = None
    return {
        "range_id": report.range_id,
        "table": report.table,
        "from_snapshot": report.from_snapshot,
        "to_snapshot": report.to_snapshot,
        "changes": list(report.changes),
        "rows_added": report.rows_added,
        "rows_deleted": report.rows_deleted,
        "partitions": None if partitions is None else list(partitions),
        "authors": list(report.authors),
        "is_complete": report.is_complete,
        "recreated": table_id_before not in (None, report.table_id),
    }


def _sum(*counts: int | None) -> int | None:
    return None if None in counts else sum(one or 0 for one in counts)
