"""Statements of deleted rows. *Source:* rows the reference writes (docs/sources.md, deletes and inlining)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, update
from sqlalchemy.schema import CreateTable

from airflow_provider_ducklake.lake.catalog.database.questions import in_parts
from airflow_provider_ducklake.lake.catalog.dialects.effect import Effect, close, insert
from airflow_provider_ducklake.lake.catalog.effects.files import delete_row, schedule
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_tables import bare_table, inlined_delete_table
from airflow_provider_ducklake.lake.errors import CatalogError
from airflow_provider_ducklake.lake.transaction.changes import FileDeletes
from airflow_provider_ducklake.lake.transaction.changes_made import ChangeKind, ChangeRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Table, Update

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.spec.snapshots import TableId
    from airflow_provider_ducklake.lake.transaction.changes import (
        AddDeletes,
        EndFiles,
        InlineDeletes,
        Truncate,
        UnwrittenDeletes,
    )
    from airflow_provider_ducklake.lake.transaction.commit_state import CommitState


def end_files(change: EndFiles, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the end of data files; their delete files stay as they are, as the reference leaves them."""
    file = tables["data_file"]
    for ids in in_parts(change.file_ids):
        yield close(file, state, file.c.table_id == change.table_id, file.c.data_file_id.in_(ids))
    if change.file_ids:
        state.record(ChangeRecord(ChangeKind.DELETED_FROM_TABLE, change.table_id))


def truncate(change: Truncate, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the end of all data files of a table, and of its rows in the catalog."""
    file = tables["data_file"]
    if change.table_id in state.facts.with_live_files:
        yield close(file, state, file.c.table_id == change.table_id)
        state.record(ChangeRecord(ChangeKind.DELETED_FROM_TABLE, change.table_id))
    for name in state.facts.live_inlined.get(change.table_id, ()):
        yield Effect(_end_inlined(name, state, tables)[1])
        state.record(ChangeRecord(ChangeKind.INLINED_DELETE, change.table_id))


def add_deletes(change: AddDeletes, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield delete files; one that is replaced goes at once, and its file is scheduled for deletion."""
    replaced = [file.replaces for file in change.files if file.replaces is not None]
    if replaced:
        if lost := [one for one in replaced if one not in state.facts.delete_file_paths]:
            raise CatalogError(
                f"Where delete file {lost[0]} of table {change.table_id} lies is not known: the catalog has "
                "no live row of the file, of the table or of its schema. lake.verify() says which is wrong."
            )
        yield schedule({one: state.facts.delete_file_paths[one] for one in replaced}, state, tables)
        old = tables["delete_file"]
        for part in in_parts(replaced):
            yield Effect(delete(old).where(old.c.delete_file_id.in_(part)))
    yield insert(tables["delete_file"], *(_row(file, change.table_id, state) for file in change.files))
    marks = inlined_delete_table(change.table_id, tables.metadata_schema)
    for ids in in_parts(change.folded_marks):
        yield Effect(delete(marks).where(marks.c.file_id.in_(ids)))
    if not change.of_rewrite:
        state.record(ChangeRecord(ChangeKind.DELETED_FROM_TABLE, change.table_id))


def _row(file: FileDeletes | UnwrittenDeletes, table_id: TableId, state: CommitState) -> dict[str, object]:
    assert isinstance(file, FileDeletes)
    assert file.stamped_for in (None, state.snapshot_id)
    return delete_row(table_id, file.data_file_id, file, state)


def inline_deletes(change: InlineDeletes, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield marks for rows of data files, and the end of inlined rows."""
    marks = inlined_delete_table(change.table_id, tables.metadata_schema)
    rows = [
        {"file_id": file_id, "row_id": position, "begin_snapshot": state.snapshot_id}
        for file_id, positions in change.positions.items()
        for position in positions
    ]
    if rows:
        if change.table_id not in state.facts.with_inlined_deletes:
            yield Effect(CreateTable(marks))
        yield insert(marks, *rows)
    for name in state.facts.live_inlined.get(change.table_id, ()):
        rows_of, ended = _end_inlined(name, state, tables)
        for ids in in_parts(change.row_ids):
            yield Effect(ended.where(rows_of.c.row_id.in_(ids)))
    state.record(ChangeRecord(ChangeKind.INLINED_DELETE, change.table_id))


def _end_inlined(name: str, state: CommitState, tables: CatalogTables) -> tuple[Table, Update]:
    """Return a table of inlined rows, and the end of all its live ones."""
    rows = bare_table(name, tables)
    return rows, update(rows).where(rows.c.end_snapshot.is_(None)).values(end_snapshot=state.snapshot_id)
