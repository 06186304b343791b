"""Statements of changes to schemas and tables. *Source:* rows the reference writes (dossier §3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.catalog.effects.effect import Effect, close, insert
from airflow_provider_ducklake.spec.paths import directory_name
from airflow_provider_ducklake.transaction.changes_made import ChangeKind, ChangeRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_ducklake.catalog.tables import CatalogTables
    from airflow_provider_ducklake.spec.ids import ColumnId, TableId
    from airflow_provider_ducklake.spec.schema import Column, TableSchema
    from airflow_provider_ducklake.transaction.changes import CreateSchema, CreateTable, DropSchema, DropTable
    from airflow_provider_ducklake.transaction.commit_state import CommitState


def create_schema(change: CreateSchema, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the row of a new schema."""
    uuid = change.uuid
    yield insert(
        tables["schema"],
        {
            "schema_id": state.add_schema(change.ref),
            "schema_uuid": uuid,
            "begin_snapshot": state.snapshot_id,
            "end_snapshot": None,
            "schema_name": change.name,
            "path": directory_name(change.name, uuid),
            "path_is_relative": True,
        },
    )
    state.record(ChangeRecord(ChangeKind.CREATED_SCHEMA, name=change.name))


def drop_schema(change: DropSchema, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the end of a schema's row."""
    yield close(tables["schema"], state, tables["schema"].c.schema_id == change.schema_id)
    state.record(ChangeRecord(ChangeKind.DROPPED_SCHEMA, change.schema_id))


def create_table(change: CreateTable, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the rows of a new table: itself, its columns, its schema version, its partitioning."""
    table_id = state.add_table(change.ref)
    yield insert(
        tables["table"],
        {
            "table_id": table_id,
            "table_uuid": change.uuid,
            "begin_snapshot": state.snapshot_id,
            "end_snapshot": None,
            "schema_id": state.schema_id(change.schema),
            "table_name": change.name.name,
            "path": directory_name(change.name.name, change.uuid),
            "path_is_relative": True,
        },
    )
    yield insert(tables["column"], *_column_rows(change.columns, table_id, state))
    yield insert(
        tables["schema_versions"],
        {"begin_snapshot": state.snapshot_id, "schema_version": state.schema_version, "table_id": table_id},
    )
    state.record(ChangeRecord(ChangeKind.CREATED_TABLE, name=change.name))
    if change.partition_by:
        yield from _set_partitioning(change, table_id, state, tables)


def _column_rows(columns: TableSchema, table_id: TableId, state: CommitState) -> list[dict[str, Any]]:
    return [
        row for column in columns.columns for row in _rows_below(column, None, {"table_id": table_id}, state)
    ]


def _rows_below(
    column: Column, parent: ColumnId | None, common: dict[str, Any], state: CommitState
) -> Iterator[dict[str, Any]]:
    yield common | {
        "column_id": column.id,
        "begin_snapshot": state.snapshot_id,
        "end_snapshot": None,
        "column_order": column.id,
        "column_name": column.name,
        "column_type": column.catalog_type,
        "initial_default": column.initial_default,
        "default_value": column.default.value,
        "nulls_allowed": column.nullable,
        "parent_column": parent,
        "default_value_type": "" if column.children else column.default.kind,
        "default_value_dialect": column.default.dialect,
    }
    for child in column.children:
        yield from _rows_below(child, column.id, common, state)


def _set_partitioning(
    change: CreateTable, table_id: TableId, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    partition_id = state.add_partition(table_id)
    yield insert(
        tables["partition_info"],
        {
            "partition_id": partition_id,
            "table_id": table_id,
            "begin_snapshot": state.snapshot_id,
            "end_snapshot": None,
        },
    )
    keys = [
        {
            "partition_id": partition_id,
            "table_id": table_id,
            "partition_key_index": index,
            "column_id": field.column_id,
            "transform": str(field.transform),
        }
        for index, field in enumerate(change.partition_by)
    ]
    yield insert(tables["partition_column"], *keys)
    state.record(ChangeRecord(ChangeKind.ALTERED_TABLE, table_id))


_ENDED_WITH_TABLE = (
    "table",
    "partition_info",
    "column",
    "column_tag",
    "data_file",
    "delete_file",
    "sort_info",
)


def drop_table(change: DropTable, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the end of a table and of everything that lives with it; statistics stay."""
    for name in _ENDED_WITH_TABLE:
        yield close(tables[name], state, tables[name].c.table_id == change.table_id)
    yield close(tables["tag"], state, tables["tag"].c.object_id == change.table_id)
    state.record(ChangeRecord(ChangeKind.DROPPED_TABLE, change.table_id))
