"""Restored rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from airflow_provider_ducklake.lake.transaction.conflicts import Operation
from airflow_provider_ducklake.lake.transaction.declared import (
    OfAnyTable,
    OfTable,
    Stage,
    existing,
    with_bounds,
)
from airflow_provider_ducklake.lake.transaction.facts import Needs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_ducklake.lake.spec.files import DataFile, TableColumnStats
    from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName
    from airflow_provider_ducklake.lake.spec.schema import TableSchema
    from airflow_provider_ducklake.lake.spec.snapshots import (
        ColumnId,
        MappingId,
        PartitionId,
        SnapshotId,
        TableId,
    )
    from airflow_provider_ducklake.lake.transaction.facts import LockedFacts


@dataclass(frozen=True, slots=True)
class RestoredFile:
    """A new file with rows that the table had, at a path relative to the table's directory.

    ``row_id_start`` None: its rows say their ids. ``mapping_id`` is that of the file it is a copy of; in a
    new table the mapping gets another id. ``partition_id`` None: the values, if any, are those of keys that
    the same transaction sets.
    """

    file: DataFile
    row_id_start: int | None = None
    partition_id: PartitionId | None = None
    mapping_id: MappingId | None = None


@dataclass(frozen=True, slots=True)
class RestoredRows:
    """Rows in a catalog table, with its columns as the database names them; both are counts of rows.

    ``returning`` ended since and come back, ``leaving`` came since and end.
    """

    table_name: str
    columns: tuple[str, ...]
    returning: int
    leaving: int


@dataclass(frozen=True, slots=True)
class RestoreRows(OfAnyTable):
    """Rows of a table that come back as snapshot ``as_of`` had them, in new files and in the catalog.

    ``schema`` is the table's at the commit, ``column_stats`` what is said of each batch of rows that come
    back to the catalog. ``retyped`` are leaf columns that had another type since, whose old bounds do not
    hold. Of a new table they are those that ever had one, ``next_row_id`` is where the rows to come go
    on, and ``heir_of`` is the table whose rows it takes over.
    """

    as_of: SnapshotId
    schema: TableSchema
    files: tuple[RestoredFile, ...] = ()
    inlined: tuple[RestoredRows, ...] = ()
    column_stats: tuple[Mapping[ColumnId, TableColumnStats | None], ...] = ()
    retyped: tuple[ColumnId, ...] = ()
    next_row_id: int = 0
    heir_of: TableId | None = None

    stage: ClassVar[Stage] = Stage.MOVE_ROWS
    operation: ClassVar[Operation] = Operation.RESTORE

    @property
    def needs(self) -> Needs:
        table = existing(self.table)
        stats = (*(one.file.column_stats for one in self.files), *self.column_stats)
        return Needs(
            statistics=table, skips=table, bounded=with_bounds(table, stats), snapshots=(self.as_of,)
        )

    def check(self, facts: LockedFacts) -> None:
        check_still_there(self.as_of, self.name, facts)


@dataclass(frozen=True, slots=True)
class NoteRestored(OfTable):
    """A table that a restore found to be what it was at snapshot ``as_of`` already.

    It changes nothing, and alone it makes no snapshot; but which commits a table has gone through is judged
    by it, as by a restore that changed the table.
    """

    as_of: SnapshotId

    stage: ClassVar[Stage] = Stage.MOVE_ROWS
    operation: ClassVar[Operation] = Operation.RESTORE
    makes_snapshot: ClassVar[bool] = False

    @property
    def needs(self) -> Needs:
        return Needs(snapshots=(self.as_of,))

    def check(self, facts: LockedFacts) -> None:
        check_still_there(self.as_of, self.name, facts)


def check_still_there(as_of: SnapshotId, name: QualifiedName, facts: LockedFacts) -> None:
    """Refuse a snapshot that expired: with it the catalog may have forgotten a table, and its counters.

    Raises:
        TransactionConflictError: it is gone.
    """
    if as_of not in facts.snapshots:
        raise facts.conflict("restore it", f"expired snapshot {as_of}", name)
