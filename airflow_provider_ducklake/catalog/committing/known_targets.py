"""What the data files that lose rows are when a commit holds the lock: still live, and with which deletes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.catalog.snapshot import read_files
from airflow_provider_ducklake.catalog.snapshot.inlined_layouts import rows_of_layout
from airflow_provider_ducklake.catalog.snapshot.inlined_tables import inlined_delete_table
from airflow_provider_ducklake.catalog.snapshot.lost_rows import mark_counts, mergeable_files
from airflow_provider_ducklake.transaction.changes import (
    AddDeletes,
    Change,
    EndFiles,
    FlushInlined,
    InlineDeletes,
    MergeAdjacent,
    RewriteDeletes,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Connection

    from airflow_provider_ducklake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.transaction.commit_state import KnownStats


def with_targets(
    connection: Connection, catalog: Catalog, changes: Collection[Change], known: KnownStats
) -> KnownStats:
    """Add the live ones of the data files that lose rows, and what their new deletes replace."""
    for change in changes:
        if isinstance(change, AddDeletes):
            known = _of_delete_files(connection, catalog, change, known)
        elif isinstance(change, InlineDeletes):
            known = _of_marks(connection, catalog, change, known)
        elif isinstance(change, EndFiles) and change.delete_files is not None:
            targets = read_files.live_targets(connection, catalog.tables, change.file_ids)
            known = replace(known, targets={**known.targets, **targets})
        elif isinstance(change, MergeAdjacent):
            sources = mergeable_files(connection, catalog, change.table_id, change.sources)
            known = replace(known, sources={**known.sources, **sources})
        elif isinstance(change, FlushInlined):
            known = _of_layouts(connection, catalog, change, known)
        elif isinstance(change, RewriteDeletes):
            targets = read_files.live_targets(connection, catalog.tables, change.file_ids)
            counts = mark_counts(connection, catalog, change.table_id)
            known = replace(
                known,
                targets={**known.targets, **targets},
                mark_counts={**known.mark_counts, **counts},
            )
    return known


def _of_delete_files(
    connection: Connection, catalog: Catalog, change: AddDeletes, known: KnownStats
) -> KnownStats:
    targets = read_files.live_targets(
        connection, catalog.tables, [file.data_file_id for file in change.files]
    )
    replaced = [file.replaces for file in change.files if file.replaces is not None]
    paths = read_files.delete_file_paths(connection, catalog.tables, change.table_id, replaced)
    return replace(
        known, targets={**known.targets, **targets}, delete_file_paths={**known.delete_file_paths, **paths}
    )


def _of_layouts(
    connection: Connection, catalog: Catalog, change: FlushInlined, known: KnownStats
) -> KnownStats:
    flushed, emptied = {}, set()
    for one in change.layouts:
        found = rows_of_layout(connection, catalog, change.table_id, one.schema_version, change.read_at)
        if found is not None:
            key = (change.table_id, one.schema_version)
            flushed[key] = found.upto
            if not found.newer_count:
                emptied.add(key)
    return replace(known, flushed={**known.flushed, **flushed}, emptied=known.emptied | emptied)


def _of_marks(
    connection: Connection, catalog: Catalog, change: InlineDeletes, known: KnownStats
) -> KnownStats:
    targets = read_files.live_targets(connection, catalog.tables, change.positions)
    known = replace(known, targets={**known.targets, **targets})
    marks = inlined_delete_table(change.table_id, catalog.tables.metadata_schema)
    if catalog.dialect.has_table(connection, marks.name, marks.schema):
        return replace(known, with_delete_marks=known.with_delete_marks | {change.table_id})
    return known
