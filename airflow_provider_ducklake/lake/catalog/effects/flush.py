"""Statements that replace inlined rows with files.

*Source:* rows the reference writes (docs/sources.md, inlining).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete
from sqlalchemy.schema import DropTable

from airflow_provider_ducklake.lake.catalog.dialects.effect import Effect, insert
from airflow_provider_ducklake.lake.catalog.effects.files import NewFile, add_files, delete_row
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_tables import bare_table, inlined_table_name
from airflow_provider_ducklake.lake.transaction.changes_made import ChangeKind, ChangeRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.transaction.changes import FlushInlined
    from airflow_provider_ducklake.lake.transaction.commit_state import CommitState


def flush_inlined(change: FlushInlined, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the rows of new files and of their delete files, and the end of those in the catalog.

    Of the table's statistics only the size grows: its rows are the same.
    """
    if change.files:
        yield from _new_files(change, state, tables)
    for one in change.layouts:
        if _is_superseded(change, one.schema_version, state):
            yield from _forget(change, one.schema_version, tables)
        else:
            rows = bare_table(inlined_table_name(change.table_id, one.schema_version), tables)
            yield Effect(delete(rows).where(rows.c.begin_snapshot <= change.read_at))
    state.record(ChangeRecord(ChangeKind.INLINE_FLUSH, change.table_id))


def _new_files(change: FlushInlined, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    files = [
        NewFile(
            state.new_file_id(),
            one.file,
            {  # without row_id_start, by which the reference's merge would renumber sorted rows
                "begin_snapshot": one.begin_snapshot,
                "end_snapshot": one.end_snapshot,
                "partition_id": one.partition_id,
                "partial_max": one.partial_max,
            },
        )
        for one in change.files
    ]
    yield from add_files(change.table_id, change.name, files, state, tables)
    deletes = [
        delete_row(change.table_id, new.id, one.deletes, state)
        for new, one in zip(files, change.files, strict=True)
        if one.deletes is not None
    ]
    if deletes:
        yield insert(tables["delete_file"], *deletes)
    counts = tables["table_stats"]
    size = sum(one.file.file_size_bytes for one in files)
    yield Effect(
        counts.update()
        .where(counts.c.table_id == change.table_id)
        .values(file_size_bytes=counts.c.file_size_bytes + size)
    )


def _is_superseded(change: FlushInlined, schema_version: int, state: CommitState) -> bool:
    """Whether an inlined table is empty now, and gets no rows any more: the table has other columns."""
    is_newest = state.layout(change.table_id) == schema_version
    return not is_newest and (change.table_id, schema_version) in state.facts.emptied


def _forget(change: FlushInlined, schema_version: int, tables: CatalogTables) -> Iterator[Effect]:
    registry = tables["inlined_data_tables"]
    yield Effect(
        registry.delete().where(
            registry.c.table_id == change.table_id, registry.c.schema_version == schema_version
        )
    )
    gone = bare_table(inlined_table_name(change.table_id, schema_version), tables)
    yield Effect(DropTable(gone))
