"""How given rows of a table are deleted: inlined, with delete files, or with their whole file.

*Source:* what the reference does (docs/sources.md, deletes and inlining).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_ducklake.spec.files import LiveDataFile
    from airflow_provider_ducklake.transaction.changes import RowPositions


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
