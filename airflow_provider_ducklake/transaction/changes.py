"""The changes a transaction is made of.

A change names existing objects by id and objects of its own transaction by a reference, so it stays valid
when the commit is retried on a newer snapshot. ``Change`` is a closed union: match it exhaustively.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from airflow_provider_ducklake.spec.ids import PartitionId, SchemaId, TableId

if TYPE_CHECKING:
    from airflow_provider_ducklake.spec.files import DataFile
    from airflow_provider_ducklake.spec.identifiers import QualifiedName
    from airflow_provider_ducklake.spec.partitioning import PartitionField
    from airflow_provider_ducklake.spec.schema import TableSchema


@dataclass(frozen=True, slots=True)
class NewSchemaRef:
    """A schema that the same transaction creates."""

    index: int


@dataclass(frozen=True, slots=True)
class NewTableRef:
    """A table that the same transaction creates."""

    index: int


SchemaRef: TypeAlias = SchemaId | NewSchemaRef
TableRef: TypeAlias = TableId | NewTableRef


@dataclass(frozen=True, slots=True)
class CreateSchema:
    """A new schema; ``uuid`` names its directory where the name cannot."""

    ref: NewSchemaRef
    name: str
    uuid: str


@dataclass(frozen=True, slots=True)
class DropSchema:
    """The end of a schema that holds nothing any more (its contents are dropped by changes of their own)."""

    schema_id: SchemaId
    name: str


@dataclass(frozen=True, slots=True)
class CreateTable:
    """A new table; ``uuid`` names its directory where the name cannot, so it is chosen before the write."""

    ref: NewTableRef
    schema: SchemaRef
    name: QualifiedName
    uuid: str
    columns: TableSchema
    partition_by: tuple[PartitionField, ...] = ()


@dataclass(frozen=True, slots=True)
class DropTable:
    """The end of a table and all it holds."""

    table_id: TableId
    name: QualifiedName


@dataclass(frozen=True, slots=True)
class AppendFiles:
    """Rows in new Parquet files, in this order.

    File paths are relative to the table's directory, or absolute where they lie outside it. ``schema`` and
    ``partition_id`` are those the files were written with (no partition id for a table of the same
    transaction).
    """

    table: TableRef
    name: QualifiedName
    schema: TableSchema
    files: tuple[DataFile, ...]
    partition_id: PartitionId | None = None

    @property
    def record_count(self) -> int:
        """Rows in all files together."""
        return sum(file.record_count for file in self.files)


Change: TypeAlias = CreateSchema | DropSchema | CreateTable | DropTable | AppendFiles
