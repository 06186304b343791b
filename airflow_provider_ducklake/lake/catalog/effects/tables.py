"""Statements of changes to tables and their columns.

*Source:* rows the reference writes (docs/sources.md, DDL).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, literal, null, select, update

from airflow_provider_ducklake.lake.catalog.dialects.effect import Effect, close, insert
from airflow_provider_ducklake.lake.catalog.effects.options import inherit_options
from airflow_provider_ducklake.lake.catalog.effects.statistics import no_bounds
from airflow_provider_ducklake.lake.transaction.changes import ColumnRow
from airflow_provider_ducklake.lake.transaction.changes_made import ChangeKind, ChangeRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.spec.schema import Column, TableSchema
    from airflow_provider_ducklake.lake.spec.snapshots import ColumnId, TableId
    from airflow_provider_ducklake.lake.transaction.changes import (
        ChangeColumns,
        CreateTable,
        DropTable,
        RenameTable,
    )
    from airflow_provider_ducklake.lake.transaction.commit_state import CommitState


def create_table(change: CreateTable, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the rows of a new table: itself, its columns, its schema version."""
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
            "path": change.directory,
            "path_is_relative": True,
        },
    )
    yield all_columns(change.columns, table_id, state, tables)
    yield from _undone(change.undone, table_id, state, tables)
    yield from new_schema_version(table_id, state, tables)
    if change.heir_of is not None:
        yield inherit_options("table", change.heir_of, table_id, tables)
    state.record(ChangeRecord(ChangeKind.CREATED_TABLE, name=change.name))
    if change.is_altered:
        state.record(ChangeRecord(ChangeKind.ALTERED_TABLE, table_id))


def new_schema_version(table_id: TableId, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the row that says since when the table looks as it does: one for each table and commit."""
    if state.is_first_version_of(table_id):
        yield insert(
            tables["schema_versions"],
            {
                "begin_snapshot": state.snapshot_id,
                "schema_version": state.schema_version,
                "table_id": table_id,
            },
        )


def all_columns(schema: TableSchema, table_id: TableId, state: CommitState, tables: CatalogTables) -> Effect:
    """Return the rows of a table's columns, parents first."""
    return insert(tables["column"], *_column_rows(_with_parents(schema), table_id, state, tables))


def _with_parents(schema: TableSchema) -> Iterator[ColumnRow]:
    for column in schema.columns:
        yield from _rows_below(column, None)


def _rows_below(column: Column, parent: ColumnId | None) -> Iterator[ColumnRow]:
    yield ColumnRow(column, parent)
    for child in column.children:
        yield from _rows_below(child, column.id)


def _column_rows(
    rows: Iterable[ColumnRow], table_id: TableId, state: CommitState, tables: CatalogTables
) -> list[dict[str, Any]]:
    rows = list(rows)
    for row in rows:
        if (feature := row.column.type.facts.since) is not None:
            tables.writer.check(feature, f"Column {row.column.name}: ")
    return [
        {
            "column_id": row.column.id,
            "begin_snapshot": state.snapshot_id,
            "end_snapshot": None,
            "table_id": table_id,
            "column_order": row.column.id,
            "column_name": row.column.name,
            "column_type": row.column.catalog_type,
            "initial_default": row.column.initial_default,
            "default_value": row.column.default.value,
            "nulls_allowed": row.column.nullable,
            "parent_column": row.parent,
            "default_value_type": "" if _is_nested(row.column) else row.column.default.kind,
            "default_value_dialect": row.column.default.dialect,
        }
        for row in rows
    ]


def _undone(
    rows: tuple[ColumnRow, ...], table_id: TableId, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    """Yield rows that no snapshot shows, as the reference's: they keep the ids from being used again."""
    if rows:
        hidden = _column_rows(rows, table_id, state, tables)
        yield insert(tables["column"], *({**row, "end_snapshot": state.snapshot_id} for row in hidden))


def _is_nested(column: Column) -> bool:
    return column.catalog_type in ("struct", "list", "map")


def change_columns(change: ChangeColumns, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the columns that end and begin; bounds that no longer hold are forgotten."""
    column = tables["column"]
    if change.ended:
        yield close(column, state, column.c.table_id == change.table_id, column.c.column_id.in_(change.ended))
    if change.begun:
        yield insert(column, *_column_rows(change.begun, change.table_id, state, tables))
    yield from _undone(change.undone, change.table_id, state, tables)
    if change.unbounded:
        yield from _forget_bounds(change, tables)
    yield from new_schema_version(change.table_id, state, tables)
    state.record(ChangeRecord(ChangeKind.ALTERED_TABLE, change.table_id))


def _forget_bounds(change: ChangeColumns, tables: CatalogTables) -> Iterator[Effect]:
    table, file = tables["table_column_stats"], tables["file_column_stats"]
    yield Effect(
        delete(table).where(table.c.table_id == change.table_id, table.c.column_id.in_(change.unbounded))
    )
    yield Effect(
        update(file)
        .where(file.c.table_id == change.table_id, file.c.column_id.in_(change.unbounded))
        .values(no_bounds(file))
    )


def rename_table(change: RenameTable, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the end of a table's row and the same row under the new name; its directory stays."""
    yield from renamed(tables, "table", change.table_id, change.new_name.name, state)
    yield from new_schema_version(change.table_id, state, tables)
    state.record(ChangeRecord(ChangeKind.CREATED_TABLE, name=change.new_name))


def renamed(
    tables: CatalogTables, kind: str, object_id: int, new_name: str, state: CommitState
) -> Iterator[Effect]:
    """Yield the end of the live row of a table or view, and its copy with another name."""
    table = tables[kind]
    is_object = table.c[f"{kind}_id"] == object_id
    yield close(table, state, is_object)
    changed = {
        "begin_snapshot": literal(state.snapshot_id),
        "end_snapshot": null(),
        f"{kind}_name": literal(new_name, table.c[f"{kind}_name"].type),
    }
    names = [column.name for column in table.columns]
    ended = select(*(changed.get(name, table.c[name]) for name in names)).where(
        is_object, table.c.end_snapshot == state.snapshot_id
    )
    yield Effect(table.insert().from_select(names, ended))


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
