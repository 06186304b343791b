"""How given rows of a table are deleted: as marks in the catalog, by delete files, or with their whole file.

*Source:* what the reference does (dossier §5, §6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from airflow_provider_ducklake.spec.files import LiveDataFile
    from airflow_provider_ducklake.spec.ids import DataFileId


@dataclass(frozen=True, slots=True)
class RowDeletes:
    """Positions (from 0) to delete in each data file, sorted by what becomes of the file."""

    ended: tuple[DataFileId, ...]
    marked: Mapping[DataFileId, tuple[int, ...]]
    in_delete_files: Mapping[DataFileId, tuple[int, ...]]


def plan_row_deletes(
    files: Sequence[LiveDataFile],
    positions: Mapping[DataFileId, Collection[int]],
    dead: Mapping[DataFileId, Collection[int]],
    *,
    mark_limit: int,
) -> RowDeletes:
    """Return what becomes of each file; ``dead`` are the positions that were deleted before.

    Up to ``mark_limit`` rows of a file go to the catalog; a file that has a delete file gets a new one.

    Raises:
        InvalidInputError: a file that is not live, or a position that it does not have or has lost already.
    """
    by_id = {file.id: file for file in files}
    ended: list[DataFileId] = []
    marked: dict[DataFileId, tuple[int, ...]] = {}
    in_delete_files: dict[DataFileId, tuple[int, ...]] = {}
    for file_id, wanted in positions.items():
        file = by_id.get(file_id)
        if file is None:
            raise InvalidInputError(f"The table has no live data file {file_id}.")
        chosen = tuple(sorted(set(wanted)))
        gone = dead.get(file_id, ())
        _check(file, chosen, gone)
        if not chosen:
            continue
        if len(gone) + len(chosen) == file.record_count:
            ended.append(file_id)
        elif len(chosen) <= mark_limit and file.delete_file is None:
            marked[file_id] = chosen
        else:
            in_delete_files[file_id] = chosen
    return RowDeletes(tuple(ended), marked, in_delete_files)


def _check(file: LiveDataFile, chosen: Sequence[int], gone: Collection[int]) -> None:
    outside = [position for position in chosen if not 0 <= position < file.record_count]
    if outside:
        raise InvalidInputError(
            f"Data file {file.path} has the positions 0 to {file.record_count - 1}, not {outside[0]}."
        )
    if twice := sorted(set(chosen) & set(gone)):
        raise InvalidInputError(f"Position {twice[0]} of data file {file.path} is deleted already.")
