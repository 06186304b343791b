"""What to read for a table at a snapshot."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.planning.pruning import may_match

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_ducklake.planning.predicates import Predicate
    from airflow_provider_ducklake.spec.files import LiveDataFile
    from airflow_provider_ducklake.spec.ids import DataFileId, PartitionId
    from airflow_provider_ducklake.spec.partitioning import PartitionSpec
    from airflow_provider_ducklake.spec.schema import TableSchema
    from airflow_provider_ducklake.spec.snapshots import TableSnapshot


@dataclass(frozen=True, slots=True)
class InlinedRows:
    """Live rows of one inlined table as the database gave them; ``schema`` is the one it was made for.

    A row has a cell for each column by name, ``row_id`` and ``begin_snapshot``, its first snapshot.
    """

    table_name: str
    schema: TableSchema
    rows: tuple[Mapping[str, Any], ...]

    @property
    def row_ids(self) -> tuple[int, ...]:
        """The row id of each row."""
        return tuple(row["row_id"] for row in self.rows)


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """The rows that are the table: of its files, all but those at ``inlined_deletes``, and inlined ones.

    With ``where`` only those for which it is true: ``files`` are those that may hold such rows.
    """

    table: TableSnapshot
    files: tuple[LiveDataFile, ...]
    columns: tuple[str, ...]
    inlined_rows: tuple[InlinedRows, ...] = ()
    inlined_deletes: Mapping[DataFileId, Sequence[int]] = field(default_factory=dict)  # ascending positions
    where: Predicate | None = None


def plan_scan(  # noqa: PLR0913 - the last two have defaults
    table: TableSnapshot,
    columns: tuple[str, ...] | None,
    inlined_rows: tuple[InlinedRows, ...],
    inlined_deletes: Mapping[DataFileId, Sequence[int]],
    *,
    where: Predicate | None = None,
    partition_specs: Mapping[PartitionId, PartitionSpec] = MappingProxyType({}),
) -> ScanPlan:
    """Return the plan for reading a table whose snapshot was taken with its files.

    ``columns`` None means every column. The inlined rows and deletes are those in force at the snapshot; an
    inlined delete names the position of a row in its file, ascending. ``partition_specs`` are those that the
    table ever had.

    Raises:
        ColumnNotFoundError: no such column.
    """
    assert table.files is not None
    chosen = table.schema.names if columns is None else columns
    names = tuple(table.schema.find(name, str(table.name)).name for name in chosen)
    files = table.files
    if where is not None:
        types = {column.id: column.type for column in table.schema.walk()}
        files = tuple(file for file in files if may_match(where, file, types, partition_specs))
    return ScanPlan(table, files, names, inlined_rows, inlined_deletes, where)
