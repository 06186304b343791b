"""The plan and the result of a flush of inlined data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.planning.writing.write import (
    ParquetSettings,
    RowOrder,
    WritePlan,
    sort_keys_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_ducklake.lake.spec.files import LiveDataFile
    from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName
    from airflow_provider_ducklake.lake.spec.partitioning import PartitionSpec
    from airflow_provider_ducklake.lake.spec.schema import TableSchema
    from airflow_provider_ducklake.lake.spec.snapshots import (
        DataFileId,
        PartitionId,
        SnapshotId,
        TableSnapshot,
    )
    from airflow_provider_ducklake.lake.spec.sorting import SortField
    from airflow_provider_ducklake.lake.transaction.changes import FlushedLayout


@dataclass(frozen=True, slots=True)
class LayoutToFlush:
    """An inlined table with rows: the columns and the partition keys that the table had when it was made."""

    rows: FlushedLayout
    schema: TableSchema
    partition_spec: PartitionSpec | None = None

    @property
    def schema_version(self) -> int:
        """The schema version that the inlined table is named after."""
        return self.rows.schema_version

    @property
    def partition_id(self) -> PartitionId | None:
        """The id of the partition keys; None: none."""
        return None if self.partition_spec is None else self.partition_spec.id


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """What the catalog holds of a table's rows, as the table's snapshot has it.

    ``marks`` are the deletes of ``files`` in the catalog: positions, with the snapshots that deleted them.
    """

    table: TableSnapshot
    layouts: tuple[LayoutToFlush, ...] = ()
    files: tuple[LiveDataFile, ...] = ()
    marks: Mapping[DataFileId, Mapping[int, int]] = field(default_factory=dict)

    @property
    def row_count(self) -> int:
        """Rows in the catalog, those that have ended among them."""
        return sum(one.rows.row_count for one in self.layouts)

    @property
    def ended_count(self) -> int:
        """Those of the rows that have ended."""
        return sum(one.rows.ended_count for one in self.layouts)

    @property
    def mark_count(self) -> int:
        """Deletes of rows in data files."""
        return sum(len(self.marks[file.id]) for file in self.files)

    @property
    def why_not(self) -> str | None:
        """Why the rows cannot be written to files; None if they can."""
        for layout in self.layouts:
            for column in layout.schema.walk() if layout.rows.row_count else ():
                if not column.type.facts.storable:
                    return f"column {column.name} has type {column.type}, which this release does not write"
        return None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to flush."""
        return not (self.row_count or self.mark_count)


@dataclass(frozen=True, slots=True)
class FlushResult:
    """What a flush did with one table, or with a dry run would do: then no files are counted.

    ``row_count`` rows left the catalog, of which ``ended_count`` are none of the newest snapshot's;
    ``delete_count`` deletes of rows in data files did. ``snapshot_id`` is None where nothing was committed.
    """

    table: QualifiedName
    row_count: int
    ended_count: int
    delete_count: int
    data_files: int = 0
    delete_files: int = 0
    bytes: int = 0
    snapshot_id: SnapshotId | None = None


def plan_layout(table: TableSnapshot, layout: LayoutToFlush, directory: str) -> WritePlan:
    """Return how the rows of an inlined table are to be written: with its columns, by today's options."""
    spec = layout.partition_spec
    return WritePlan(
        table=str(table.name),
        directory=directory,
        schema=layout.schema,
        partition_fields=spec.fields if spec is not None else (),
        settings=ParquetSettings.of_options(table.options),
        row_order=RowOrder(_keys_of_then(table, layout.schema)),
    )


def _keys_of_then(table: TableSnapshot, schema: TableSchema) -> tuple[SortField, ...]:
    """Return the sort keys with the names that their columns had; one that is not there yet sorts nothing."""
    then = {column.id: column.name for column in schema.columns}
    keys = []
    for key in sort_keys_of(table):
        columns = [column for column in table.schema.columns if key.mentions(column)]
        if not all(column.id in then for column in columns):
            continue
        try:
            keys.append(key.with_names({one: then[one.id] for one in columns if then[one.id] != one.name}))
        except UnsupportedFeatureError:
            break  # only DuckDB could say what it was called then
    return tuple(keys)
