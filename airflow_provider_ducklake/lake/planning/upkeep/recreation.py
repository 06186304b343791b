"""Pure rules for creating a table again whose schema was dropped.

A schema never comes back under its id, and a table whose rows name two schemas breaks the reference once the
older one has expired (ADR 0015). So such a table comes back as another one, which has the old columns under
their ids: ids of columns are a table's own, and files name them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.spec.schema import Column
from airflow_provider_ducklake.lake.spec.types.ducklake_types import ScalarType
from airflow_provider_ducklake.lake.transaction.changes import ColumnRow, CreateTable
from airflow_provider_ducklake.lake.transaction.definition import definition_changes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from airflow_provider_ducklake.lake.planning.upkeep.restore import FileActions
    from airflow_provider_ducklake.lake.spec.files import LiveDataFile
    from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName
    from airflow_provider_ducklake.lake.spec.partitioning import PartitionSpec
    from airflow_provider_ducklake.lake.spec.snapshots import ColumnId, TableSnapshot
    from airflow_provider_ducklake.lake.transaction.changes import Change, NewTableRef, SchemaRef
    from airflow_provider_ducklake.lake.transaction.definition import Definition


@dataclass(frozen=True, slots=True)
class Counters:
    """How far a table has counted: its next row id, and the largest id that a column of it ever had."""

    next_row_id: int
    last_column_id: ColumnId


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table that takes the place of another; ``root`` is its directory, absolute, ending in ``/``."""

    ref: NewTableRef
    schema: SchemaRef
    name: QualifiedName
    uuid: str
    directory: str
    root: str
    counters: Counters


def creation(table: TableSnapshot, then: Definition, new: NewTable) -> Iterator[Change]:
    """Yield what makes a table that has all that another had, but rows; ``then`` is its definition."""
    yield CreateTable(
        new.ref,
        new.schema,
        new.name,
        new.uuid,
        new.directory,
        table.schema,
        undone=_used_ids(table, new.counters.last_column_id),
        heir_of=table.table_id,
    )
    yield from definition_changes(new.ref, None, replace(then, name=new.name, partition_id=None))


def _used_ids(table: TableSnapshot, last: ColumnId) -> tuple[ColumnRow, ...]:
    """Return a column that no snapshot shows, and that keeps later ones from the ids of dropped ones.

    Files that come back may have values of those.
    """
    if last <= max(column.id for column in table.schema.walk()):
        return ()
    return (ColumnRow(Column(last, f"column_{last}", ScalarType("int32")), None),)


def in_own_partitions(files: FileActions, spec: PartitionSpec | None) -> FileActions:
    """Return the files with values of the newest partition keys alone: the new table has no older keys."""
    return replace(
        files,
        copied=tuple(_repartitioned(file, spec) for file in files.copied),
        rewritten=tuple(replace(pair, then=_repartitioned(pair.then, spec)) for pair in files.rewritten),
    )


def without_bounds(file: LiveDataFile, columns: Collection[ColumnId]) -> LiveDataFile:
    """Return a file without bounds of columns: nobody could tell any more that they are of other types."""
    stats = {
        one: replace(known, min_value=None, max_value=None) if one in columns else known
        for one, known in file.column_stats.items()
    }
    return replace(file, column_stats=stats)


def _repartitioned(file: LiveDataFile, spec: PartitionSpec | None) -> LiveDataFile:
    is_newest = spec is not None and file.partition_id == spec.id
    values = file.partition_values if is_newest else ()
    return replace(file, partition_id=None, partition_values=values)
