"""Statements of files in the place of others. *Source:* rows the reference writes (dossier §9.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete

from airflow_provider_ducklake.catalog.effects.effect import Effect, insert
from airflow_provider_ducklake.catalog.effects.files import file_row, partition_rows, stats_rows
from airflow_provider_ducklake.catalog.questions import in_parts
from airflow_provider_ducklake.spec.paths import is_absolute
from airflow_provider_ducklake.transaction.changes_made import ChangeKind, ChangeRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_ducklake.catalog.tables import CatalogTables
    from airflow_provider_ducklake.transaction.changes import MergeAdjacent
    from airflow_provider_ducklake.transaction.commit_state import CommitState

OF_DATA_FILE = ("file_column_stats", "file_variant_stats", "file_partition_value")  # rows that go with a file


def merge_adjacent(change: MergeAdjacent, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the rows of merged files; those of their sources go at once, and the files are scheduled."""
    yield from _remove(change, state, tables)
    files = [(state.new_file_id(), merged.file) for merged in change.files]
    yield insert(
        tables["data_file"],
        *(
            {
                **file_row(file_id, file, change.table_id),
                "begin_snapshot": merged.begin_snapshot,
                "row_id_start": merged.row_id_start,
                "partition_id": merged.partition_id,
                "mapping_id": None,
                "partial_max": merged.partial_max,
            }
            for (file_id, file), merged in zip(files, change.files, strict=True)
        ),
    )
    if stats := list(stats_rows(files, change.table_id)):
        yield insert(tables["file_column_stats"], *stats)
    if values := list(partition_rows(files, change.table_id, str(change.name))):
        yield insert(tables["file_partition_value"], *values)
    state.record(ChangeRecord(ChangeKind.MERGE_ADJACENT, change.table_id))


def _remove(change: MergeAdjacent, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    paths = state.known.sources
    yield insert(
        tables["files_scheduled_for_deletion"],
        *(
            {
                "data_file_id": file_id,
                "path": paths[file_id],
                "path_is_relative": not is_absolute(paths[file_id]),
                "schedule_start": state.time,
            }
            for file_id in change.sources
        ),
    )
    for ids in in_parts(change.sources):
        for name in (*OF_DATA_FILE, "data_file"):
            table = tables[name]
            yield Effect(delete(table).where(table.c.data_file_id.in_(ids)))
