"""The result of a job that deletes, updates or merges rows: deleted rows, and files with new ones.

Merge-on-read: data files stay as they are, and the rows that went are named by their positions. A row that is
changed goes and comes again in another file, with its row id. *Source:* docs/sources.md, deletes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_ducklake.planning.writing.write import WriteResult
    from airflow_provider_ducklake.spec.ids import DataFileId


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
    """

    deletes: tuple[NewDeletes, ...]
    inlined: tuple[int, ...]
    updated: WriteResult
    inserted: WriteResult

    @property
    def rows_gone(self) -> int:
        """Rows that are deleted where they lie, whether or not they come again."""
        return sum(one.count for one in self.deletes) + len(self.inlined)

    @property
    def rows_deleted(self) -> int:
        """Rows that are gone and do not come again."""
        return self.rows_gone - self.updated.rows_written
