"""Macros."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from airflow_provider_ducklake.lake.transaction.conflicts import Claim, Operation, claim_of_new
from airflow_provider_ducklake.lake.transaction.declared import Declared, Stage

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName
    from airflow_provider_ducklake.lake.spec.snapshots import MacroId
    from airflow_provider_ducklake.lake.spec.tags import MacroDefinition
    from airflow_provider_ducklake.lake.transaction.declared import SchemaRef


@dataclass(frozen=True, slots=True)
class CreateMacro(Declared):
    """A new macro."""

    schema: SchemaRef
    name: QualifiedName
    definition: MacroDefinition

    stage: ClassVar[Stage] = Stage.DEFINE

    @property
    def claim(self) -> Claim:
        return _claim_of_new(self.name, self.schema, is_table=self.definition.is_table)


@dataclass(frozen=True, slots=True)
class DropMacro(Declared):
    """The end of a macro."""

    macro_id: MacroId
    name: QualifiedName
    is_table_macro: bool

    stage: ClassVar[Stage] = Stage.DROP

    @property
    def claim(self) -> Claim:
        return Claim(Operation.DROP_MACRO, self.name, self.macro_id)


@dataclass(frozen=True, slots=True)
class RestoreMacro(Declared):
    """A dropped macro that comes back under its id, by which its definition is there still."""

    macro_id: MacroId
    schema: SchemaRef
    name: QualifiedName
    is_table_macro: bool

    stage: ClassVar[Stage] = Stage.DEFINE

    @property
    def claim(self) -> Claim:
        return _claim_of_new(self.name, self.schema, is_table=self.is_table_macro)


def _claim_of_new(name: QualifiedName, schema: SchemaRef, *, is_table: bool) -> Claim:
    operation = Operation.CREATE_TABLE_MACRO if is_table else Operation.CREATE_SCALAR_MACRO
    return claim_of_new(name, schema, operation)
