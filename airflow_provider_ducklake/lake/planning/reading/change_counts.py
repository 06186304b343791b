"""Count the rows that came and went between two snapshots, from what the catalog says of them.

Of few files it does not say it: merged or flushed ones, whose rows each say when they came and went, as long
as only some of them did so within the range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.planning.reading.scan import BEGIN_SNAPSHOT, END_SNAPSHOT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_ducklake.lake.planning.reading.scan import ChangeFeedPlan, FileHistory


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """Rows that came and went, None where the catalog does not say how many. An update counts as both."""

    added: int | None
    deleted: int | None


def count_changes(plan: ChangeFeedPlan) -> ChangeCounts:
    """Return how many rows a change feed would have, without reading a file."""
    inlined = [row for part in plan.inlined for row in part.rows]
    return ChangeCounts(
        _sum(
            [
                *(added(plan, one) for one in plan.files),
                _within(plan, (row[BEGIN_SNAPSHOT] for row in inlined)),
            ]
        ),
        _sum(
            [
                *(deleted(plan, one) for one in plan.files),
                _within(plan, (row[END_SNAPSHOT] for row in inlined)),
            ]
        ),
    )


def added(plan: ChangeFeedPlan, history: FileHistory) -> int | None:
    """Return how many rows of a file came within the range; None: nobody knows without reading it."""
    file, before = history.file, plan.start - 1
    if file.begin_snapshot in plan.rewrites:
        return 0 if file.partial_max is None else None
    if file.snapshot_counts:
        return _upto(file.snapshot_counts, plan.end) - _upto(file.snapshot_counts, before)
    first, last = file.begin_snapshot, file.partial_max or file.begin_snapshot
    if last <= before or first > plan.end:
        return 0
    is_whole = first > before and last <= plan.end and not plan.rewrites.intersection(range(first, last + 1))
    return file.record_count if is_whole else None


def deleted(plan: ChangeFeedPlan, history: FileHistory) -> int | None:
    """Return how many rows of a file went within the range; None: nobody knows without reading more."""
    gone, gone_before = _gone(history, plan.end), _gone(history, plan.start - 1)
    if gone is None or gone_before is None:
        return None
    ended = history.ended_by
    if ended is not None and plan.start <= ended <= plan.end and ended not in plan.rewrites:
        gone = history.file.record_count
    return gone - gone_before


def _gone(history: FileHistory, at: int) -> int | None:
    """Return how many rows a file had lost at a snapshot, by delete files and in the catalog."""
    counts = [0]
    for one in history.delete_files:
        if one.begin_snapshot > at:
            continue
        if (one.partial_max or one.begin_snapshot) > at:
            return None
        counts.append(one.delete_count)
    return max(counts) + sum(snapshot <= at for snapshot in history.marks.values())


def _upto(counts: Iterable[tuple[int, int]], snapshot_id: int) -> int:
    return max((count for one, count in counts if one <= snapshot_id), default=0)


def _within(plan: ChangeFeedPlan, snapshots: Iterable[int | None]) -> int:
    return sum(one is not None and plan.start <= one <= plan.end for one in snapshots)


def _sum(counts: Iterable[int | None]) -> int | None:
    total = 0
    for one in counts:
        if one is None:
            return None
        total += one
    return total
