"""Statements of comments, which the catalog keeps as tags. *Source:* docs/sources.md, DDL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import literal, null, select

from airflow_provider_ducklake.lake.catalog.dialects.effect import Effect, close, insert
from airflow_provider_ducklake.lake.spec.versions import Feature
from airflow_provider_ducklake.lake.transaction.changes_made import ChangeKind, ChangeRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.transaction.changes import (
        CommentOnColumn,
        CommentOnTable,
        CommentOnView,
        CommentOnViewColumn,
        RenameView,
    )
    from airflow_provider_ducklake.lake.transaction.commit_state import CommitState

_KEY = "comment"


def comment_on_table(change: CommentOnTable, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield a table's comment; the one taken away leaves a row with NULL, as the reference's."""
    table_id = state.table_id(change.table)
    yield from _tag(table_id, change.text, state, tables)
    state.record(ChangeRecord(ChangeKind.ALTERED_TABLE, table_id))


def comment_on_view(change: CommentOnView, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield a view's comment."""
    view_id = state.view_id(change.view)
    yield from _tag(view_id, change.text, state, tables)
    state.record(ChangeRecord(ChangeKind.ALTERED_VIEW, view_id))


def comment_on_view_column(
    change: CommentOnViewColumn, state: CommitState, tables: CatalogTables
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


def moved_view_comments(change: RenameView, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
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


def comment_on_column(change: CommentOnColumn, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
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
