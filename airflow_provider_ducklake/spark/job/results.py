"""The result documents of a job, which later releases read, too.

The files of a result lie in parts. A staged write has its table as far as a commit needs it: the columns and
partition keys are those of the result; sort keys and the options of an existing table are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow_provider_ducklake.planning.writing.staged import StagedWrite
from airflow_provider_ducklake.planning.writing.write import NewTable, WriteResult
from airflow_provider_ducklake.spec.partitioning import PartitionSpec
from airflow_provider_ducklake.spec.snapshots import TableSnapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_ducklake.planning.writing.row_changes import NewDeletes
    from airflow_provider_ducklake.planning.writing.staged import Target
    from airflow_provider_ducklake.spec.files import DataFile
    from airflow_provider_ducklake.spec.ids import PartitionId, SchemaId, TableId
    from airflow_provider_ducklake.spec.names.identifiers import QualifiedName
    from airflow_provider_ducklake.spec.partitioning import PartitionField
    from airflow_provider_ducklake.spec.schema import TableSchema
    from airflow_provider_ducklake.spec.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class Part:
    """Files of a result."""

    job_id: str
    data_files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class DeletesPart:
    """Rows that a job deletes in files, and where they lie in the catalog."""

    job_id: str
    deletes: tuple[NewDeletes, ...]
    inlined: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Summary:
    schema: TableSchema
    partition_fields: tuple[PartitionField, ...]
    rows_written: int
    engine: str
    details: Mapping[str, str | int | float | None]


def summary(result: WriteResult | _Summary) -> dict[str, Any]:
    """Return everything of a result but its files."""
    return {name: getattr(result, name) for name in _Summary.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class Written(_Summary):
    """A result, with the names of its parts."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Batch(_Summary):
    """The record of a batch of a stream."""

    query_id: str
    batch_id: int
    job_id: str
    data_files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """A job is complete."""

    job_id: str
    results: tuple[Written, ...]


@dataclass(frozen=True, slots=True)
class RowChangesDone(Done):
    """A job that changes rows is complete; ``deletes`` are the names of its other parts."""

    deletes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExistingTable:
    """The table of a staged write that was there before."""

    snapshot: Snapshot
    table_id: TableId
    uuid: str
    schema_id: SchemaId
    name: QualifiedName
    root: str
    partition_id: PartitionId | None


StagedTarget: TypeAlias = NewTable | ExistingTable


@dataclass(frozen=True, slots=True)
class Stage:
    """A staged write; its result lies beside it."""

    job_id: str
    directory: str
    verb: str
    target: NewTable | ExistingTable

    @classmethod
    def of(cls, staged: StagedWrite) -> Stage:
        """Return what is written down of a staged write."""
        return cls(staged.job_id, staged.directory, staged.verb, staged_target(staged.target))

    def staged(self, result: WriteResult) -> StagedWrite:
        """Return the staged write again."""
        target = _table(self.target, result) if isinstance(self.target, ExistingTable) else self.target
        return StagedWrite(self.job_id, self.directory, self.verb, target, result)


def staged_target(target: Target) -> StagedTarget:
    """Return what is written down of the table of a staged write."""
    if isinstance(target, NewTable):
        return target
    return ExistingTable(
        snapshot=target.snapshot,
        table_id=target.table_id,
        uuid=target.table_uuid,
        schema_id=target.schema_id,
        name=target.name,
        root=target.root,
        partition_id=target.partition_spec.id if target.partition_spec else None,
    )


def _table(target: ExistingTable, result: WriteResult) -> TableSnapshot:
    spec_id = target.partition_id
    return TableSnapshot(
        snapshot=target.snapshot,
        table_id=target.table_id,
        table_uuid=target.uuid,
        schema_id=target.schema_id,
        name=target.name,
        schema=result.schema,
        root=target.root,
        partition_spec=None if spec_id is None else PartitionSpec(result.partition_fields, spec_id),
    )
