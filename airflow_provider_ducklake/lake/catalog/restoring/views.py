"""Restore views and macros, whose definitions never change under one id."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.catalog.restoring.read_restore import comment
from airflow_provider_ducklake.lake.catalog.snapshot import read
from airflow_provider_ducklake.lake.transaction.changes import (
    CommentOnView,
    CommentOnViewColumn,
    CreateSchema,
    CreateView,
    DropMacro,
    DropSchema,
    DropView,
    NewViewRef,
    RenameView,
    RestoreMacro,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.catalog.restoring.scope import Scope, ViewRow
    from airflow_provider_ducklake.lake.spec.snapshots import Snapshot
    from airflow_provider_ducklake.lake.transaction.changes import Change, ViewRef


def view_changes(
    connection: Connection, tables: CatalogTables, scope: Scope, then: Snapshot, now: Snapshot
) -> Iterator[Change]:
    """Yield what brings views back, with their names and comments, and what drops those made since."""
    numbers = count()
    for pair in scope.views:
        if pair.then is None:
            assert pair.now is not None
            yield DropView(pair.now.id, pair.now.name)
            continue
        text = comment(connection, tables, then.id, pair.then.id)
        ref: ViewRef
        if pair.now is None:
            ref = NewViewRef(next(numbers))
            home = scope.homes[pair.then.schema_id].ref
            yield CreateView(ref, home, pair.then.name, pair.then.uuid, pair.then.definition, pair.then.id)
            before = None
        else:
            ref = pair.then.id
            yield from _renamed(pair.then, pair.now)
            before = comment(connection, tables, now.id, pair.then.id)
        if text != before:
            yield CommentOnView(ref, pair.then.name, text)
        was = read.view_comments(connection, tables, then.id, pair.then.id)
        are = {} if pair.now is None else read.view_comments(connection, tables, now.id, pair.then.id)
        for column in {**was, **are}:
            if was.get(column) != are.get(column):
                yield CommentOnViewColumn(ref, pair.then.name, column, was.get(column))


def _renamed(then: ViewRow, now: ViewRow) -> Iterator[Change]:
    if then.name != now.name:
        yield RenameView(now.id, now.name, then.name)


def macro_changes(scope: Scope) -> Iterator[Change]:
    """Yield what brings macros back, and what drops those made since."""
    for pair in scope.macros:
        if pair.then is None and pair.now is not None:
            yield DropMacro(pair.now.row.id, pair.now.name, pair.now.row.is_table_macro)
        elif pair.now is None and pair.then is not None:
            home = scope.homes[pair.then.schema_id].ref
            yield RestoreMacro(pair.then.row.id, home, pair.then.name, pair.then.row.is_table_macro)


def in_words(change: Change) -> str:  # noqa: PLR0911 - a sentence for each kind
    """Return what a change of a schema, view or macro does."""
    match change:
        case CreateSchema(name=schema):
            return f"schema {schema} comes back"
        case DropSchema(name=schema):
            return f"schema {schema} goes"
        case CreateView(name=name):
            return f"view {name} comes back"
        case DropView(name=name):
            return f"view {name} goes"
        case RenameView(name=name, new_name=new_name):
            return f"view {name} becomes {new_name}"
        case CommentOnView(name=name):
            return f"the comment of view {name} changes"
        case CommentOnViewColumn(name=name, column=column):
            return f"the comment of column {column} of view {name} changes"
        case RestoreMacro(name=name):
            return f"macro {name} comes back"
        case DropMacro(name=name):
            return f"macro {name} goes"
        case _:
            raise AssertionError(change)
