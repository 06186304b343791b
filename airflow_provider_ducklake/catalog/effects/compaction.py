"""Statements of files in the place of others. *Source:* rows the reference writes (dossier §9.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete

from airflow_provider_ducklake.catalog.database.questions import in_parts
from airflow_provider_ducklake.catalog.dialects.effect import Effect, close, insert
from airflow_provider_ducklake.catalog.effects.files import file_row, partition_rows, stats_rows
from airflow_provider_ducklake.spec.names.paths import is_absolute
from airflow_provider_ducklake.transaction.changes_made import ChangeKind, ChangeRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_ducklake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.spec.files import DataFile
    from airflow_provider_ducklake.spec.ids import TableId
    from airflow_provider_ducklake.spec.names.identifiers import QualifiedName
    from airflow_provider_ducklake.transaction.changes import MergeAdjacent, RewriteDeletes
    from airflow_provider_ducklake.transaction.commit_state import CommitState

OF_DATA_FILE = ("file_column_stats", "file_variant_stats", "file_partition_value")  # rows that go with a file


def merge_adjacent(change: MergeAdjacent, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the rows of merged files; those of their sources go at once, and the files are scheduled."""
    yield from _remove(change, state, tables)
    lives = [
        {
            "begin_snapshot": merged.begin_snapshot,
            "row_id_start": merged.row_id_start,
            "partition_id": merged.partition_id,
            "partial_max": merged.partial_max,
        }
        for merged in change.files
    ]
    of_table = OfTable(change.table_id, change.name)
    yield from add_files(of_table, [merged.file for merged in change.files], lives, state, tables)
    state.record(ChangeRecord(ChangeKind.MERGE_ADJACENT, change.table_id))


def rewrite_deletes(change: RewriteDeletes, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the end of files with deletes, and the rows of those that take their place.

    The statistics of the table stay: older snapshots have the rows that are left out.
    """
    file, deletes = tables["data_file"], tables["delete_file"]
    for ids in in_parts(change.file_ids):
        for table in (file, deletes):
            yield close(table, state, table.c.table_id == change.table_id, table.c.data_file_id.in_(ids))
    written = [one for one in change.files if one.file is not None]
    lives = [
        {
            "begin_snapshot": state.snapshot_id,
            "row_id_start": None,
            "partition_id": one.partition_id,
            "partial_max": None,
        }
        for one in written
    ]
    if written:
        new_files = [one.file for one in written if one.file is not None]
        of_table = OfTable(change.table_id, change.name)
        yield from add_files(of_table, new_files, lives, state, tables)
    state.record(ChangeRecord(ChangeKind.REWRITE_DELETE, change.table_id))


@dataclass(frozen=True, slots=True)
class OfTable:
    """The table that files belong to."""

    id: TableId
    name: QualifiedName


def add_files(
    table: OfTable,
    new_files: list[DataFile],
    lives: list[dict[str, Any]],
    state: CommitState,
    tables: CatalogTables,
) -> Iterator[Effect]:
    """Yield the rows of files; ``lives`` say since when each is there, and of what.

    The statistics of the table are another matter.
    """
    files = [(state.new_file_id(), file) for file in new_files]
    rows = [
        {**file_row(file_id, file, table.id), "mapping_id": None, **life}
        for (file_id, file), life in zip(files, lives, strict=True)
    ]
    yield insert(tables["data_file"], *rows)
    if stats := list(stats_rows(files, table.id)):
        yield insert(tables["file_column_stats"], *stats)
    if values := list(partition_rows(files, table.id, str(table.name))):
        yield insert(tables["file_partition_value"], *values)


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
