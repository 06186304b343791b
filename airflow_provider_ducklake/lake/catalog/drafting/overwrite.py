"""Find the rows of a table that new rows replace: those of a condition, or of partitions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.catalog.committing.overlap import row_ids_of
from airflow_provider_ducklake.lake.catalog.drafting.row_changes import (
    delete_changes,
    end_files,
    positions_files,
    read_targets,
)
from airflow_provider_ducklake.lake.catalog.snapshot import read_files
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_read import read_inlined
from airflow_provider_ducklake.lake.catalog.snapshot.table_snapshot import partition_specs
from airflow_provider_ducklake.lake.errors import (
    InvalidInputError,
    TransactionConflictError,
    UnsupportedFeatureError,
)
from airflow_provider_ducklake.lake.planning.reading.pruning import all_match
from airflow_provider_ducklake.lake.planning.writing.overwrite import Partitions, RowScope
from airflow_provider_ducklake.lake.spec.partitioning import describe, is_local
from airflow_provider_ducklake.lake.transaction.changes import ReadRows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.lake.catalog.drafting.base_lake import Reading
    from airflow_provider_ducklake.lake.planning.reading.scan import ScanPlan
    from airflow_provider_ducklake.lake.planning.writing.overwrite import PartitionValues
    from airflow_provider_ducklake.lake.planning.writing.write import FoundRows
    from airflow_provider_ducklake.lake.spec.files import LiveDataFile
    from airflow_provider_ducklake.lake.spec.snapshots import DataFileId, TableSnapshot
    from airflow_provider_ducklake.lake.storage.files.filesystem import Location
    from airflow_provider_ducklake.lake.transaction.changes import Change, RowPositions

    Locate = Callable[[str], Location]

MOST_BYTES_READ = 256 * 2**20


def changes_of_condition(
    reading: Reading,
    catalog: Catalog,
    plan: ScanPlan,
    locate: Locate,
    found: FoundRows | None = None,
) -> Iterator[Change]:
    """Yield what takes out the rows that a plan with a condition reads.

    Files of which all rows go, by their statistics, are ended unread; of the others this process reads the
    condition's columns, unless a job ``found`` the rows.

    Raises:
        InvalidInputError: it would read more than ``MOST_BYTES_READ``.
        StorageError: a file is missing or damaged.
        TransactionConflictError: a file in which rows were found is gone.
    """
    from airflow_provider_ducklake.lake.catalog.drafting.given_rows import (  # noqa: PLC0415 - heavy
        matching_positions,
        matching_row_ids,
    )

    whole, partly = _split(reading, catalog, plan)
    assert plan.where is not None
    yield ReadRows(plan.table.table_id, plan.table.name, RowScope(plan.table, plan.where), counts_gone=False)
    if whole:
        yield end_files(plan.table, whole)
    positions: Mapping[DataFileId, RowPositions]
    if found is None:
        _check_size(plan.table, partly)
        positions = matching_positions(replace(plan, files=partly), locate)
    else:
        _check_searched(plan.table, partly, found)
        positions = positions_files(found.deletes)
    row_ids = matching_row_ids(plan)
    if positions or row_ids:
        with reading() as connection:
            targets = read_targets(connection, catalog, plan.table, positions, row_ids)
        yield from delete_changes(targets, positions, row_ids, locate)


def _check_searched(table: TableSnapshot, files: Sequence[LiveDataFile], found: FoundRows) -> None:
    """Refuse to go on where rows have come to files that the job did not look into: a flush moves them."""
    if new := [file for file in files if file.id not in found.searched]:
        raise TransactionConflictError(
            "replace rows of it", f"moved rows to data file {new[0].id}", str(table.name), table.snapshot.id
        )


def too_large_to_read(reading: Reading, catalog: Catalog, plan: ScanPlan) -> ScanPlan | None:
    """Return the files with rows of a plan's condition and others, if this process must not read them."""
    _, partly = _split(reading, catalog, plan)
    return replace(plan, files=partly, inlined_rows=()) if _size(partly) > MOST_BYTES_READ else None


def _split(
    reading: Reading, catalog: Catalog, plan: ScanPlan
) -> tuple[tuple[LiveDataFile, ...], tuple[LiveDataFile, ...]]:
    """Return the files of which all rows satisfy a plan's condition, by their statistics, and the others."""
    assert plan.where is not None
    types = {column.id: column.type for column in plan.table.schema.walk()}
    with reading() as connection:
        specs = partition_specs(connection, catalog.tables, plan.table.table_id)
    whole = tuple(file for file in plan.files if all_match(plan.where, file, types, specs))
    ended = {file.id for file in whole}
    return whole, tuple(file for file in plan.files if file.id not in ended)


def _size(files: Sequence[LiveDataFile]) -> int:
    return sum(file.file_size_bytes for file in files)


def _check_size(table: TableSnapshot, files: Sequence[LiveDataFile]) -> None:
    if _size(files) > MOST_BYTES_READ:
        raise InvalidInputError(
            f"{len(files)} files of {table.name} with {_size(files)} bytes hold both rows to be replaced "
            f"and rows to be kept; this process reads at most {MOST_BYTES_READ} bytes to separate them. "
            "Use DuckLakeSparkInsertOperator, whose Spark job reads them."
        )


def changes_of_partitions(
    reading: Reading,
    catalog: Catalog,
    table: TableSnapshot,
    partitions: Collection[PartitionValues],
    locate: Locate,
) -> Iterator[Change]:
    """Yield what takes out the rows of partitions, by their values for the table's keys.

    Raises:
        UnsupportedFeatureError: a file holds, or may hold, rows of one and others.
    """
    assert table.partition_spec is not None
    fields, wanted = table.partition_spec.fields, frozenset(partitions)
    types = {column.id: column.type for column in table.schema.walk()}
    keys = frozenset(field.column_id for field in fields)
    with reading() as connection:
        specs = partition_specs(connection, catalog.tables, table.table_id)
        files = read_files.data_files(connection, catalog, table, stats_of=keys)
        rows = read_inlined(connection, catalog, table)
    chosen = Partitions(fields, wanted, types, specs)
    found = chosen.replaced(files)
    if found.partly:
        raise _shared(table, found.partly)
    scope = RowScope(table, partitions=chosen)
    yield ReadRows(table.table_id, table.name, scope, counts_gone=False)
    if found.whole:
        yield end_files(table, found.whole)
    row_ids = row_ids_of(scope, rows)
    if row_ids:
        with reading() as connection:
            targets = read_targets(connection, catalog, table, (), row_ids)
        yield from delete_changes(targets, {}, row_ids, locate)


def _shared(table: TableSnapshot, files: Sequence[LiveDataFile]) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"Cannot replace partitions of {table.name}: {files[0].path} may hold rows of several partitions "
        f"({len(files)} such files), {_why_shared(table, files[0])}. Say which rows to replace with "
        "overwrite_where, or write the table again with mode='overwrite'."
    )


def _why_shared(table: TableSnapshot, file: LiveDataFile) -> str:
    """Return why a file's rows may lie in several partitions."""
    spec = table.partition_spec
    assert spec is not None
    if file.partition_id != spec.id or len(file.partition_values) != len(spec.fields):
        return "because it was written with other partition keys"
    for field, name, value in zip(
        spec.fields, describe(spec, table.schema), file.partition_values, strict=True
    ):
        if is_local(field.transform, table.schema.by_id(field.column_id).type):
            stats = file.column_stats.get(field.column_id)
            low, high = ("?", "?") if stats is None else (stats.min_value, stats.max_value)
            return (
                f"because its {name} = {value!r} was computed in the time zone of the session that wrote "
                f"it, and its rows, from {low} to {high}, may have several values in UTC"
            )
    return "because its partition values cannot be read"
