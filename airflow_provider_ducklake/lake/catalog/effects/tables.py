"""Statements of changes to tables and their columns.

*Source:* rows the reference writes (docs/sources.md, DDL).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, literal, null, select, update

from ...format.names.paths import CatalogPath, schema_directory
from ...format.partitioning import check_transform
from ...format.tags import SCALAR, TABLE, format_aliases
from ...format.versions import Feature
from ...transaction import changes as kinds
from ...transaction.changes_made import ChangeKind, ChangeRecord
from ..dialects.dialect import Effect, close, insert
from . import effects_of
from .files import no_bounds

if TYPE_CHECKING:
    from ...format.names.identifiers import QualifiedName
    from ...format.schema import Column, TableSchema
    from ...format.snapshots import ColumnId, MacroId, SchemaId, TableId
    from ...transaction.changes import CommitState
    from ..database.tables import CatalogTables


# Statements of options of tables and schemas. *Source:* docs/sources.md, options.


def inherit_options(scope: str, old_id: int, new_id: int, tables: CatalogTables) -> Effect:
    """Return a copy of the options of a ``table`` or ``schema`` for another one."""
    metadata = tables["metadata"]
    names = [one.name for one in metadata.columns]
    values = (literal(new_id) if one.name == "scope_id" else one for one in metadata.columns)
    own = select(*values).where(metadata.c.scope == scope, metadata.c.scope_id == old_id)
    return Effect(metadata.insert().from_select(names, own))


@effects_of.register(kinds.SetOptions)
def set_options(change: kinds.SetOptions, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield a table's own options in the place of those it had."""
    metadata, table_id = tables["metadata"], state.table_id(change.table)
    of_table = (metadata.c.scope == "table", metadata.c.scope_id == table_id)
    yield Effect(metadata.delete().where(*of_table, metadata.c.key.in_(change.options)))
    rows = [
        {"key": key, "value": text, "scope": "table", "scope_id": table_id}
        for key, text in change.options.items()
        if text is not None
    ]
    if rows:
        yield insert(metadata, *rows)
    if change.skipped is not None:
        state.skip_bounds(table_id, change.skipped)


@effects_of.register(kinds.CreateTable)
def create_table(change: kinds.CreateTable, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
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


def _with_parents(schema: TableSchema) -> Iterator[kinds.ColumnRow]:
    for column in schema.columns:
        yield from _rows_below(column, None)


def _rows_below(column: Column, parent: ColumnId | None) -> Iterator[kinds.ColumnRow]:
    yield kinds.ColumnRow(column, parent)
    for child in column.children:
        yield from _rows_below(child, column.id)


def _column_rows(
    rows: Iterable[kinds.ColumnRow], table_id: TableId, state: CommitState, tables: CatalogTables
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
            "default_value_type": ""
            if (row.column.catalog_type in ("struct", "list", "map"))
            else row.column.default.kind,
            "default_value_dialect": row.column.default.dialect,
        }
        for row in rows
    ]


def _undone(
    rows: tuple[kinds.ColumnRow, ...], table_id: TableId, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    """Yield rows that no snapshot shows, as the reference's: they keep the ids from being used again."""
    if rows:
        hidden = _column_rows(rows, table_id, state, tables)
        yield insert(tables["column"], *({**row, "end_snapshot": state.snapshot_id} for row in hidden))


@effects_of.register(kinds.ChangeColumns)
def change_columns(
    change: kinds.ChangeColumns, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
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


def _forget_bounds(change: kinds.ChangeColumns, tables: CatalogTables) -> Iterator[Effect]:
    table, file = tables["table_column_stats"], tables["file_column_stats"]
    yield Effect(
        delete(table).where(table.c.table_id == change.table_id, table.c.column_id.in_(change.unbounded))
    )
    yield Effect(
        update(file)
        .where(file.c.table_id == change.table_id, file.c.column_id.in_(change.unbounded))
        .values(no_bounds(file))
    )


@effects_of.register(kinds.RenameTable)
def rename_table(change: kinds.RenameTable, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
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


@effects_of.register(kinds.DropTable)
def drop_table(change: kinds.DropTable, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the end of a table and of everything that lives with it; statistics stay."""
    for name in _ENDED_WITH_TABLE:
        yield close(tables[name], state, tables[name].c.table_id == change.table_id)
    yield close(tables["tag"], state, tables["tag"].c.object_id == change.table_id)
    state.record(ChangeRecord(ChangeKind.DROPPED_TABLE, change.table_id))


# Statements of comments, which the catalog keeps as tags. *Source:* docs/sources.md, DDL.


_KEY = "comment"


@effects_of.register(kinds.CommentOnTable)
def comment_on_table(
    change: kinds.CommentOnTable, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    """Yield a table's comment; the one taken away leaves a row with NULL, as the reference's."""
    table_id = state.table_id(change.table)
    yield from _tag(table_id, change.text, state, tables)
    state.record(ChangeRecord(ChangeKind.ALTERED_TABLE, table_id))


@effects_of.register(kinds.CommentOnView)
def comment_on_view(
    change: kinds.CommentOnView, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    """Yield a view's comment."""
    view_id = state.view_id(change.view)
    yield from _tag(view_id, change.text, state, tables)
    state.record(ChangeRecord(ChangeKind.ALTERED_VIEW, view_id))


@effects_of.register(kinds.CommentOnViewColumn)
def comment_on_view_column(
    change: kinds.CommentOnViewColumn, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    """Yield the comment of a view's column."""
    tables.writer.check(Feature.VIEW_COLUMN_COMMENTS)
    view_id, tag = state.view_id(change.view), tables["view_column_tag"]
    is_it = (tag.c.view_id == view_id, tag.c.column_name == change.column, tag.c.key == _KEY)
    yield close(tag, state, *is_it)
    yield insert(
        tag,
        {
            "view_id": view_id,
            "column_name": change.column,
            "begin_snapshot": state.snapshot_id,
            "end_snapshot": None,
            "key": _KEY,
            "value": change.text,
        },
    )
    state.record(ChangeRecord(ChangeKind.ALTERED_VIEW, view_id))


def moved_view_comments(
    change: kinds.RenameView, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    """Yield the end of the comments of a renamed view's columns, and the same ones from now on."""
    if "view_column_tag" not in tables:
        return
    tag = tables["view_column_tag"]
    of_view = (tag.c.view_id == change.view_id, tag.c.key == _KEY, tag.c.value.is_not(None))
    yield close(tag, state, *of_view)
    again = {"begin_snapshot": literal(state.snapshot_id), "end_snapshot": null()}
    ended = select(*(again.get(one.name, one) for one in tag.c)).where(
        *of_view, tag.c.end_snapshot == state.snapshot_id, tag.c.column_name.not_in(change.commented)
    )
    yield Effect(tag.insert().from_select([one.name for one in tag.c], ended))


def _tag(object_id: int, text: str | None, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    tag = tables["tag"]
    yield close(tag, state, tag.c.object_id == object_id, tag.c.key == _KEY)
    yield insert(
        tag,
        {
            "object_id": object_id,
            "begin_snapshot": state.snapshot_id,
            "end_snapshot": None,
            "key": _KEY,
            "value": text,
        },
    )


@effects_of.register(kinds.CommentOnColumn)
def comment_on_column(
    change: kinds.CommentOnColumn, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    """Yield a column's comment."""
    table_id, tag = state.table_id(change.table), tables["column_tag"]
    yield close(
        tag, state, tag.c.table_id == table_id, tag.c.column_id == change.column_id, tag.c.key == _KEY
    )
    yield insert(
        tag,
        {
            "table_id": table_id,
            "column_id": change.column_id,
            "begin_snapshot": state.snapshot_id,
            "end_snapshot": None,
            "key": _KEY,
            "value": change.text,
        },
    )
    state.record(ChangeRecord(ChangeKind.ALTERED_TABLE, table_id))


# Statements of schemas and views. *Source:* rows the reference writes (docs/sources.md, DDL).


@effects_of.register(kinds.CreateSchema)
def create_schema(change: kinds.CreateSchema, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
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


@effects_of.register(kinds.DropSchema)
def drop_schema(change: kinds.DropSchema, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the end of a schema's row."""
    yield close(tables["schema"], state, tables["schema"].c.schema_id == change.schema_id)
    state.record(ChangeRecord(ChangeKind.DROPPED_SCHEMA, change.schema_id))


@effects_of.register(kinds.CreateView)
def create_view(change: kinds.CreateView, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
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


@effects_of.register(kinds.DropView)
def drop_view(change: kinds.DropView, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the end of a view and of its comments."""
    yield close(tables["view"], state, tables["view"].c.view_id == change.view_id)
    yield close(tables["tag"], state, tables["tag"].c.object_id == change.view_id)
    if "view_column_tag" in tables:
        tag = tables["view_column_tag"]
        yield close(tag, state, tag.c.view_id == change.view_id)
    state.record(ChangeRecord(ChangeKind.DROPPED_VIEW, change.view_id))


@effects_of.register(kinds.RenameView)
def rename_view(change: kinds.RenameView, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the end of a view's row and the same row under the new name; its columns' comments as well."""
    yield from renamed(tables, "view", change.view_id, change.new_name.name, state)
    yield from moved_view_comments(change, state, tables)
    state.record(ChangeRecord(ChangeKind.CREATED_VIEW, name=change.new_name))


# Statements of partition and sort keys. *Source:* rows the reference writes (docs/sources.md, DDL).


@effects_of.register(kinds.SetPartitioning)
def set_partitioning(
    change: kinds.SetPartitioning, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    """Yield the new partition keys; a table without any has a spec without keys.

    Keys that come back have their rows already, under their id.
    """
    for field in change.fields:
        check_transform(field.transform.kind, tables.writer)
    table_id, info = state.table_id(change.table), tables["partition_info"]
    partition_id = state.add_partition(table_id, change.partition_id)
    yield close(info, state, info.c.table_id == table_id)
    yield insert(
        info,
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
        for index, field in enumerate(change.fields)
    ]
    if keys and change.partition_id is None:
        yield insert(tables["partition_column"], *keys)
    yield from new_schema_version(table_id, state, tables)
    state.record(ChangeRecord(ChangeKind.ALTERED_TABLE, table_id))


@effects_of.register(kinds.SetSorting)
def set_sorting(change: kinds.SetSorting, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the new sort keys; a table without any has no row."""
    table_id, info = state.table_id(change.table), tables["sort_info"]
    yield close(info, state, info.c.table_id == table_id)
    if change.fields:
        sort_id = state.new_sort_id()
        yield insert(
            info,
            {
                "sort_id": sort_id,
                "table_id": table_id,
                "begin_snapshot": state.snapshot_id,
                "end_snapshot": None,
            },
        )
        keys = [
            {
                "sort_id": sort_id,
                "table_id": table_id,
                "sort_key_index": index,
                "expression": field.expression,
                "dialect": field.dialect,
                "sort_direction": field.direction,
                "null_order": field.null_order,
            }
            for index, field in enumerate(change.fields)
        ]
        yield insert(tables["sort_expression"], *keys)
    state.record(ChangeRecord(ChangeKind.ALTERED_TABLE, table_id))


# Statements of macros. *Source:* rows the reference writes (docs/sources.md, DDL).


@effects_of.register(kinds.CreateMacro)
def create_macro(change: kinds.CreateMacro, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
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


@effects_of.register(kinds.DropMacro)
def drop_macro(change: kinds.DropMacro, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the end of a macro."""
    yield close(tables["macro"], state, tables["macro"].c.macro_id == change.macro_id)
    kind = ChangeKind.DROPPED_TABLE_MACRO if change.is_table_macro else ChangeKind.DROPPED_SCALAR_MACRO
    state.record(ChangeRecord(kind, change.macro_id))


@effects_of.register(kinds.RestoreMacro)
def restore_macro(change: kinds.RestoreMacro, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
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
