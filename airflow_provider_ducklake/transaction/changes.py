"""The changes a transaction is made of.

A change names existing objects by id and objects of its own transaction by a reference, so it stays valid when the commit
is retried on a newer snapshot. ``Change`` is a closed union: match it exhaustively.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from airflow_provider_ducklake.spec.files import DataFile
from airflow_provider_ducklake.spec.identifiers import QualifiedName
from airflow_provider_ducklake.spec.ids import SchemaId, TableId
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
    """A new schema; its directory and id follow at commit."""

    ref: NewSchemaRef
    name: str


@dataclass(frozen=True, slots=True)
class DropSchema:
    """The end of a schema that holds nothing any more (its contents are dropped by changes of their own)."""

    schema_id: SchemaId
    name: str


@dataclass(frozen=True, slots=True)
class CreateTable:
    """A new table. ``uuid`` is given when files were already written into the directory it names."""

    ref: NewTableRef
    schema: SchemaRef
    name: QualifiedName
    columns: TableSchema
    partition_by: tuple[PartitionField, ...] = ()
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class DropTable:
    """The end of a table and all it holds."""

    table_id: TableId
    name: QualifiedName


@dataclass(frozen=True, slots=True)
class AppendFiles:
    """Rows in new Parquet files, in this order."""

    table: TableRef
    name: QualifiedName
    files: tuple[DataFile, ...] = field(default=())

    @property
    def record_count(self) -> int:
        """Rows in all files together."""
        return sum(file.record_count for file in self.files)


Change: TypeAlias = CreateSchema | DropSchema | CreateTable | DropTable | AppendFiles
