"""Statements of schemas and views. *Source:* rows the reference writes (docs/sources.md, DDL)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.catalog.dialects.effect import Effect, close, insert
from airflow_provider_ducklake.lake.catalog.effects.comments import moved_view_comments
from airflow_provider_ducklake.lake.catalog.effects.options import inherit_options
from airflow_provider_ducklake.lake.catalog.effects.tables import renamed
from airflow_provider_ducklake.lake.spec.names.paths import CatalogPath, schema_directory
from airflow_provider_ducklake.lake.spec.tags import format_aliases
from airflow_provider_ducklake.lake.transaction.changes_made import ChangeKind, ChangeRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.transaction.changes import (
        CreateSchema,
        CreateView,
        DropSchema,
        DropView,
        RenameView,
    )
    from airflow_provider_ducklake.lake.transaction.commit_state import CommitState


def create_schema(change: CreateSchema, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the row of a new schema."""
    schema_id = state.add_schema(change.ref)
    path = change.path or CatalogPath(schema_directory(change.name, change.uuid))
    parent = {} if change.parent is None else {"parent_schema_id": state.schema_id(change.parent)}
    yield insert(
        tables["schema"],
        {
            "schema_id": schema_id,
            "schema_uuid": change.uuid,
            "begin_snapshot": state.snapshot_id,
            "end_snapshot": None,
            "schema_name": change.name.name,
            "path": path.path,
            "path_is_relative": path.is_relative,
            **parent,
        },
    )
    if change.heir_of is not None:
        yield inherit_options("schema", change.heir_of, schema_id, tables)
    state.record(ChangeRecord(ChangeKind.CREATED_SCHEMA, name=change.name))


def drop_schema(change: DropSchema, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the end of a schema's row."""
    yield close(tables["schema"], state, tables["schema"].c.schema_id == change.schema_id)
    state.record(ChangeRecord(ChangeKind.DROPPED_SCHEMA, change.schema_id))


def create_view(change: CreateView, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the row of a new view."""
    yield insert(
        tables["view"],
        {
            "view_id": state.add_view(change.ref, change.view_id),
            "view_uuid": change.uuid,
            "begin_snapshot": state.snapshot_id,
            "end_snapshot": None,
            "schema_id": state.schema_id(change.schema),
            "view_name": change.name.name,
            "dialect": change.definition.dialect,
            "sql": change.definition.sql,
            "column_aliases": format_aliases(change.definition.column_aliases),
        },
    )
    state.record(ChangeRecord(ChangeKind.CREATED_VIEW, name=change.name))


def drop_view(change: DropView, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the end of a view and of its comments."""
    yield close(tables["view"], state, tables["view"].c.view_id == change.view_id)
    yield close(tables["tag"], state, tables["tag"].c.object_id == change.view_id)
    if "view_column_tag" in tables:
        tag = tables["view_column_tag"]
        yield close(tag, state, tag.c.view_id == change.view_id)
    state.record(ChangeRecord(ChangeKind.DROPPED_VIEW, change.view_id))


def rename_view(change: RenameView, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the end of a view's row and the same row under the new name; its columns' comments as well."""
    yield from renamed(tables, "view", change.view_id, change.new_name.name, state)
    yield from moved_view_comments(change, state, tables)
    state.record(ChangeRecord(ChangeKind.CREATED_VIEW, name=change.new_name))
