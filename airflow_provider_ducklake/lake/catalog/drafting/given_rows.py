"""Find rows to delete, given by their positions or by a condition that this process evaluates."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.catalog.drafting.row_changes import delete_changes
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.storage.deletes.deletes import live_positions, positions_of
from airflow_provider_ducklake.lake.storage.files.parallel import in_threads
from airflow_provider_ducklake.lake.storage.rows.table_reader import wanted_positions, wanted_row_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from airflow_provider_ducklake.lake.catalog.drafting.row_changes import Targets
    from airflow_provider_ducklake.lake.planning.reading.scan import ScanPlan
    from airflow_provider_ducklake.lake.spec.snapshots import DataFileId
    from airflow_provider_ducklake.lake.storage.files.filesystem import Location
    from airflow_provider_ducklake.lake.transaction.changes import Change, Positions

    Locate = Callable[[str], Location]


def changes_of_given_rows(
    targets: Targets,
    positions: Mapping[DataFileId, Collection[int]],
    row_ids: Collection[int],
    locate: Locate,
) -> Iterator[Change]:
    """Yield what deletes rows at positions of data files, and inlined rows by their ids.

    Raises:
        InvalidInputError: a file, position or row id that the table does not have, or has lost already.
        StorageError: a delete file cannot be read.
    """
    table = targets.table
    if targets.missing_row_ids:
        raise InvalidInputError(
            f"{table.name} at snapshot {table.snapshot.id} has no inlined row with id "
            f"{targets.missing_row_ids[0]} ({len(targets.missing_row_ids)} of the given row ids are "
            "missing). Give rows in data files by their positions."
        )
    for file_id in positions:
        if file_id not in targets.files:
            raise InvalidInputError(f"The table has no live data file {file_id}.")
    checked = {
        file_id: live_positions(targets.files[file_id], targets.marks.get(file_id, {}), places, locate)
        for file_id, places in positions.items()
    }
    return delete_changes(targets, checked, row_ids, locate)


def check_size(plan: ScanPlan, max_bytes: int) -> None:
    """Refuse to read more than so many bytes of data files.

    Raises:
        InvalidInputError: the plan's files are larger together.
    """
    size = sum(file.file_size_bytes for file in plan.files)
    if size > max_bytes:
        raise InvalidInputError(
            f"{len(plan.files)} files of {plan.table.name} with {size} bytes may hold rows to delete, and "
            f"max_bytes allows this process to read {max_bytes} bytes. Use DuckLakeSparkDeleteOperator, "
            "which reads them in Spark, or raise max_bytes."
        )


def matching_positions(plan: ScanPlan, locate: Locate) -> dict[DataFileId, Positions]:
    """Return where the rows that the plan wants lie in its files; files without one are left out.

    Raises:
        StorageError: a file is missing or damaged.
    """
    found = in_threads(lambda file: positions_of(wanted_positions(plan, file, locate)), plan.files)
    return {file.id: places for file, places in zip(plan.files, found, strict=True) if places.count}


def matching_row_ids(plan: ScanPlan) -> tuple[int, ...]:
    """Return the ids of those rows in the catalog that the plan wants."""
    if not plan.columns:  # a condition may name none either, and Arrow counts no rows without a column
        plan = replace(plan, columns=plan.table.schema.names[:1])
    return tuple(wanted_row_ids(plan).to_pylist())
