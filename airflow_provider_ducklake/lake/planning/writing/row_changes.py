"""Rows of a table that go and come: what a job has done with them, and how those that go are deleted.

Merge-on-read: data files stay as they are, and the rows that went are named by their positions, in the
catalog or in delete files. A row that is changed goes and comes again in another file, with its row id.
*Source:* what the reference does (docs/sources.md, deletes and inlining).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.planning.reading.predicates import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_ducklake.lake.planning.reading.predicates import Predicate
    from airflow_provider_ducklake.lake.planning.writing.write import WriteResult
    from airflow_provider_ducklake.lake.spec.files import FileKey, LiveDataFile
    from airflow_provider_ducklake.lake.spec.snapshots import DataFileId
    from airflow_provider_ducklake.lake.transaction.changes import RowPositions


@dataclass(frozen=True, slots=True)
class NewDeletes:
    """Rows of one data file that a job deletes: a delete file that holds just their positions, ascending.

    ``path`` is absolute. The file has no snapshot ids: where the data file lost rows before, the commit makes
    another one of both.
    """

    data_file_id: DataFileId
    path: str
    count: int
    file_size_bytes: int
    footer_size: int
    encryption_key: FileKey | None = None


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows that a job has found for the commit to delete, in the files ``searched``."""

    searched: frozenset[DataFileId]
    deletes: tuple[NewDeletes, ...]


@dataclass(frozen=True, slots=True)
class RowChanges:
    """All that a job changes in one table.

    ``updated`` are rows that keep their row ids, in files with the column ``_ducklake_internal_row_id``;
    ``inserted`` rows that get new ones. ``inlined`` are row ids of deleted rows that lie in the catalog.
    ``matching`` is true for every row of the table that a row of the source could match.
    """

    deletes: tuple[NewDeletes, ...]
    inlined: tuple[int, ...]
    updated: WriteResult
    inserted: WriteResult
    matching: Predicate = ALWAYS

    @property
    def rows_gone(self) -> int:
        """Rows that are deleted where they lie, whether or not they come again."""
        return sum(one.count for one in self.deletes) + len(self.inlined)

    @property
    def rows_deleted(self) -> int:
        """Rows that are gone and do not come again."""
        return self.rows_gone - self.updated.rows_written


@dataclass(frozen=True, slots=True)
class FileLoss:
    """The live rows that one data file loses, and how many it had lost before; marks are in the catalog."""

    file: LiveDataFile
    positions: RowPositions
    dead_count: int
    has_marks: bool


@dataclass(frozen=True, slots=True)
class RowDeletes:
    """Data files that lose rows, sorted by what becomes of them."""

    ended: tuple[FileLoss, ...]
    marked: tuple[FileLoss, ...]
    in_delete_files: tuple[FileLoss, ...]


def plan_row_deletes(losses: Iterable[FileLoss], *, mark_limit: int) -> RowDeletes:
    """Return what becomes of each file that loses a row.

    Up to ``mark_limit`` rows of a file go to the catalog; a file that has a delete file gets a new one. A
    file with marks stays when its last row goes: the reference's change feed overlooks the end of such files.

    Raises:
        InvalidInputError: a file would lose more rows than it has.
    """
    ended, marked, in_delete_files = [], [], []
    for loss in losses:
        count = loss.positions.count
        left = loss.file.record_count - loss.dead_count - count
        if left < 0:
            raise InvalidInputError(
                f"Data file {loss.file.path} has {loss.file.record_count - loss.dead_count} rows left, so "
                f"{count} cannot be deleted."
            )
        if not count:
            continue
        if left == 0 and not loss.has_marks:
            ended.append(loss)
        elif count <= mark_limit and loss.file.delete_file is None:
            marked.append(loss)
        else:
            in_delete_files.append(loss)
    return RowDeletes(tuple(ended), tuple(marked), tuple(in_delete_files))
