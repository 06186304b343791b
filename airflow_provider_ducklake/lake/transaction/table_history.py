"""Which snapshots led to the current state of a table: a restore skips those in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.spec.snapshots import SnapshotId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from airflow_provider_ducklake.lake.spec.snapshots import RestoredTable, TableId


@dataclass(frozen=True, slots=True)
class Span:
    """Snapshots that count for a table, both ends included, and its id by then.

    ``last`` None: up to the newest.
    """

    table_id: TableId
    first: SnapshotId
    last: SnapshotId | None

    def holds(self, snapshot_id: SnapshotId) -> bool:
        """Whether a snapshot is one of them."""
        return self.first <= snapshot_id and (self.last is None or snapshot_id <= self.last)


def history_of(table_id: TableId, restores: Iterable[RestoredTable]) -> Iterator[Span]:
    """Yield the spans of a table's history, newest first.

    >>> from airflow_provider_ducklake.lake.spec.snapshots import RestoredTable
    >>> [(one.table_id, one.first, one.last) for one in history_of(5, [RestoredTable(5, 9, 5, 6)])]
    [(5, 9, None), (5, 0, 6)]
    """
    known = list(restores)
    last: SnapshotId | None = None
    while True:
        by_then = [one for one in known if one.table_id == table_id and _is_by(one.restored_at, last)]
        newest = max(by_then, key=lambda one: one.restored_at, default=None)
        yield Span(table_id, SnapshotId(0) if newest is None else newest.restored_at, last)
        if newest is None:
            return
        table_id, last = newest.source_id, newest.as_of


def _is_by(snapshot_id: SnapshotId, last: SnapshotId | None) -> bool:
    return last is None or snapshot_id <= last
