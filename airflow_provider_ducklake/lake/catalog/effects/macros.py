"""Statements of macros. *Source:* rows the reference writes (docs/sources.md, DDL)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.catalog.dialects.effect import Effect, close, insert
from airflow_provider_ducklake.lake.spec.tags import SCALAR, TABLE
from airflow_provider_ducklake.lake.transaction.changes_made import ChangeKind, ChangeRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName
    from airflow_provider_ducklake.lake.spec.snapshots import MacroId, SchemaId
    from airflow_provider_ducklake.lake.transaction.changes import CreateMacro, DropMacro, RestoreMacro
    from airflow_provider_ducklake.lake.transaction.commit_state import CommitState


def create_macro(change: CreateMacro, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the rows of a new macro, of its overloads and of their parameters."""
    macro_id, definition = state.new_macro_id(), change.definition
    yield _macro_row(macro_id, state.schema_id(change.schema), change.name, state, tables)
    overloads = [
        {
            "macro_id": macro_id,
            "impl_id": number,
            "dialect": overload.dialect,
            "sql": overload.sql,
            "type": TABLE if definition.is_table else SCALAR,
        }
        for number, overload in enumerate(definition.overloads)
    ]
    yield insert(tables["macro_impl"], *overloads)
    parameters = [
        {"macro_id": macro_id, "impl_id": number, "column_id": place, **parameter.columns}
        for number, overload in enumerate(definition.overloads)
        for place, parameter in enumerate(overload.parameters)
    ]
    if parameters:
        yield insert(tables["macro_parameters"], *parameters)
    _record_created(change.name, state, is_table=definition.is_table)


def drop_macro(change: DropMacro, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the end of a macro."""
    yield close(tables["macro"], state, tables["macro"].c.macro_id == change.macro_id)
    kind = ChangeKind.DROPPED_TABLE_MACRO if change.is_table_macro else ChangeKind.DROPPED_SCALAR_MACRO
    state.record(ChangeRecord(kind, change.macro_id))


def restore_macro(change: RestoreMacro, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield a second row of a dropped macro."""
    yield _macro_row(change.macro_id, state.schema_id(change.schema), change.name, state, tables)
    _record_created(change.name, state, is_table=change.is_table_macro)


def _macro_row(
    macro_id: MacroId, schema_id: SchemaId, name: QualifiedName, state: CommitState, tables: CatalogTables
) -> Effect:
    return insert(
        tables["macro"],
        {
            "schema_id": schema_id,
            "macro_id": macro_id,
            "macro_name": name.name,
            "begin_snapshot": state.snapshot_id,
            "end_snapshot": None,
        },
    )


def _record_created(name: QualifiedName, state: CommitState, *, is_table: bool) -> None:
    kind = ChangeKind.CREATED_TABLE_MACRO if is_table else ChangeKind.CREATED_SCALAR_MACRO
    state.record(ChangeRecord(kind, name=name))
