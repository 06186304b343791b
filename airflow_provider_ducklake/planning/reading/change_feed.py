"""What to read to know how the rows of a table changed between two snapshots.

*Source:* docs/sources.md, change feed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_ducklake.planning.reading.scan import InlinedRows
    from airflow_provider_ducklake.spec.files import LiveDataFile, LiveDeleteFile
    from airflow_provider_ducklake.spec.ids import ColumnId, SnapshotId
    from airflow_provider_ducklake.spec.snapshots import TableSnapshot


@dataclass(frozen=True, slots=True)
class FileHistory:
    """A data file, whether it is live or not, with all that took rows out of it.

    ``ended_by`` is the snapshot that ended it with the rows it still had; ``marks`` are the positions deleted
    in the catalog, with the snapshots that did so.
    """

    file: LiveDataFile
    ended_by: SnapshotId | None = None
    delete_files: tuple[LiveDeleteFile, ...] = ()
    marks: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChangeFeedPlan:
    """The changes of a table's rows from snapshot ``start`` to ``end``, both included.

    ``table`` is the table at ``end``, whose columns the rows have. ``inlined`` holds the rows in the catalog
    that any of the snapshots has, with their ``end_snapshot``. ``rewrites`` are the snapshots of compaction
    that moved rows without changing any. ``columns_since`` is that of a ``ScanPlan``.
    """

    table: TableSnapshot
    start: int
    end: int
    files: tuple[FileHistory, ...] = ()
    inlined: tuple[InlinedRows, ...] = ()
    rewrites: frozenset[int] = frozenset()
    columns_since: Mapping[ColumnId, SnapshotId] = field(default_factory=dict)


def may_hold_changes(plan_start: int, history: FileHistory, *, begin: int, partial_max: int | None) -> bool:
    """Whether a file that begins by the end of the range may have rows that came or went in it."""
    if max(begin, partial_max or 0) >= plan_start:
        return True
    if history.ended_by is not None and history.ended_by >= plan_start:
        return True
    if any(snapshot >= plan_start for snapshot in history.marks.values()):
        return True
    return any(
        max(one.begin_snapshot, one.partial_max or 0) >= plan_start
        # a flush writes deletes of several snapshots without saying so, and only for its own files
        or (one.partial_max is None and partial_max is not None)
        for one in history.delete_files
    )
