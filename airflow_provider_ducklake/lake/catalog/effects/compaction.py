"""Statements that replace files with compacted ones.

*Source:* rows the reference writes (docs/sources.md, maintenance).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete

from airflow_provider_ducklake.lake.catalog.database.questions import in_parts
from airflow_provider_ducklake.lake.catalog.dialects.effect import Effect, close
from airflow_provider_ducklake.lake.catalog.effects.files import NewFile, add_files, schedule
from airflow_provider_ducklake.lake.transaction.changes_made import ChangeKind, ChangeRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.transaction.changes import MergeAdjacent, RewriteDeletes
    from airflow_provider_ducklake.lake.transaction.commit_state import CommitState

OF_DATA_FILE = ("file_column_stats", "file_variant_stats", "file_partition_value")  # rows that go with a file


def merge_adjacent(change: MergeAdjacent, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the rows of merged files; those of their sources go at once, and the files are scheduled."""
    yield schedule({one: state.facts.sources[one] for one in change.sources}, state, tables)
    for ids in in_parts(change.sources):
        for name in (*OF_DATA_FILE, "data_file"):
            table = tables[name]
            yield Effect(delete(table).where(table.c.data_file_id.in_(ids)))
    files = [
        NewFile(
            state.new_file_id(),
            merged.file,
            {
                "begin_snapshot": merged.begin_snapshot,
                "row_id_start": merged.row_id_start,
                "partition_id": merged.partition_id,
                "partial_max": merged.partial_max,
            },
        )
        for merged in change.files
    ]
    yield from add_files(change.table_id, change.name, files, state, tables)
    state.record(ChangeRecord(ChangeKind.MERGE_ADJACENT, change.table_id))


def rewrite_deletes(change: RewriteDeletes, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the end of files with deletes, and the rows of those that take their place.

    The statistics of the table stay: older snapshots have the rows that are left out.
    """
    file, deletes = tables["data_file"], tables["delete_file"]
    for ids in in_parts(change.file_ids):
        for table in (file, deletes):
            yield close(table, state, table.c.table_id == change.table_id, table.c.data_file_id.in_(ids))
    files = [
        NewFile(state.new_file_id(), one.file, {"partition_id": one.partition_id})
        for one in change.files
        if one.file is not None
    ]
    if files:
        yield from add_files(change.table_id, change.name, files, state, tables)
    state.record(ChangeRecord(ChangeKind.REWRITE_DELETE, change.table_id))
