"""Schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from airflow_provider_ducklake.lake.transaction.conflicts import Claim, Operation
from airflow_provider_ducklake.lake.transaction.declared import Declared, Stage

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.spec.names.identifiers import SchemaPath
    from airflow_provider_ducklake.lake.spec.names.paths import CatalogPath
    from airflow_provider_ducklake.lake.spec.snapshots import SchemaId
    from airflow_provider_ducklake.lake.transaction.declared import NewSchemaRef, SchemaRef


@dataclass(frozen=True, slots=True)
class CreateSchema(Declared):
    """A new schema; ``uuid`` names its directory where the name cannot, and ``parent`` is the one it lies in.

    ``path`` is the directory of one that comes back, as its row had it; ``heir_of`` the id that it had, from
    which it takes its options.
    """

    ref: NewSchemaRef
    name: SchemaPath
    uuid: str
    parent: SchemaRef | None = None
    path: CatalogPath | None = None
    heir_of: SchemaId | None = None

    stage: ClassVar[Stage] = Stage.CREATE_SCHEMA

    @property
    def claim(self) -> Claim:
        schema_id = self.parent if isinstance(self.parent, int) else None
        return Claim(Operation.CREATE_SCHEMA, self.name, creates=self.name, schema_id=schema_id)


@dataclass(frozen=True, slots=True)
class DropSchema(Declared):
    """The end of a schema that holds nothing any more (its contents are dropped by changes of their own)."""

    schema_id: SchemaId
    name: SchemaPath

    stage: ClassVar[Stage] = Stage.DROP_SCHEMA

    @property
    def claim(self) -> Claim:
        return Claim(Operation.DROP_SCHEMA, self.name, self.schema_id, schema_id=self.schema_id)
