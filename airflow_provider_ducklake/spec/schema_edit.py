"""New schemas from old ones: a column added, replaced or taken out at any depth; ids stay what they were."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.spec.schema import Column, TableSchema
from airflow_provider_ducklake.spec.types.ducklake_types import Field, with_children

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_ducklake.spec.ids import ColumnId


def parents(schema: TableSchema) -> dict[ColumnId, ColumnId | None]:
    """Return the parent of every column and field; None for top-level ones."""
    found: dict[ColumnId, ColumnId | None] = {column.id: None for column in schema.columns}
    for column in schema.walk():
        found.update((child.id, column.id) for child in column.children)
    return found


def add_column(schema: TableSchema, parent: ColumnId | None, column: Column) -> TableSchema:
    """Return the schema with a column at the end of the table, or of the struct ``parent``."""
    if parent is None:
        return TableSchema((*schema.columns, column))
    return _edited(schema, parent, lambda found: with_fields(found, (*found.children, column)))


def replace_column(schema: TableSchema, column: Column) -> TableSchema:
    """Return the schema with ``column`` in place of the one with its id."""
    return _edited(schema, column.id, lambda _: column)


def remove_column(schema: TableSchema, column_id: ColumnId) -> TableSchema:
    """Return the schema without a column and the fields below it."""
    return _edited(schema, column_id, lambda _: None)


def _edited(schema: TableSchema, column_id: ColumnId, edit: Callable[[Column], Column | None]) -> TableSchema:
    return TableSchema(_edited_columns(schema.columns, column_id, edit))


def _edited_columns(
    columns: tuple[Column, ...], column_id: ColumnId, edit: Callable[[Column], Column | None]
) -> tuple[Column, ...]:
    edited: list[Column | None] = []
    for column in columns:
        if column.id == column_id:
            edited.append(edit(column))
        elif any(below.id == column_id for below in column.walk()):
            edited.append(with_fields(column, _edited_columns(column.children, column_id, edit)))
        else:
            edited.append(column)
    return tuple(column for column in edited if column is not None)


def with_fields(column: Column, children: tuple[Column, ...]) -> Column:
    """Return a nested column with other fields, its type with them."""
    fields = tuple(Field(child.name, child.type) for child in children)
    return replace(column, type=with_children(column.catalog_type, fields), children=children)
