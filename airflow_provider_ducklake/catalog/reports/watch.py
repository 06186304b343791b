"""What happened to a table since a snapshot; the one function behind sensors and triggers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select

from airflow_provider_ducklake.catalog.snapshot import read, read_snapshots
from airflow_provider_ducklake.planning.reading.watch import TableChanges, is_flush, wanted_words, words_of
from airflow_provider_ducklake.transaction.changes_made import ChangeKind, ChangeRecord

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Connection

    from airflow_provider_ducklake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.spec.names.identifiers import QualifiedName


def table_changes(
    connection: Connection, tables: CatalogTables, name: QualifiedName, since: int, kinds: Collection[str]
) -> TableChanges | None:
    """Return the wanted changes after snapshot ``since``; None if there are none, or no such table (yet)."""
    wanted = wanted_words(kinds)
    head = read_snapshots.head(connection, tables)
    rows = read.table_rows(connection, tables, head.id, name)
    if not rows:
        return None
    table_id = rows[0].id
    found: set[str] = set()
    for one in read_snapshots.which_newer(tables, since).ask(connection):
        flush = _deletes(one.changes, table_id) and _is_flush(connection, tables, one, table_id)
        found |= words_of(one.changes, table_id, name, deletes_are_flush=flush) & wanted
    if not found:
        return None
    return TableChanges(str(rows[0].qualified), since, head.id, tuple(sorted(found)))


def _deletes(records: Collection[ChangeRecord], table_id: int) -> bool:
    return any(one.kind is ChangeKind.DELETED_FROM_TABLE and one.object_id == table_id for one in records)


def _is_flush(
    connection: Connection, tables: CatalogTables, one: read_snapshots.RecordedSnapshot, table_id: int
) -> bool:
    """Look at the delete files whose ids that snapshot handed out, and at the data files it ended."""
    snapshot, delete, data = tables["snapshot"], tables["delete_file"], tables["data_file"]
    previous = connection.execute(
        select(func.max(snapshot.c.next_file_id)).where(snapshot.c.snapshot_id < one.id)
    ).scalar()
    created = connection.execute(
        select(delete.c.begin_snapshot, delete.c.partial_max).where(
            delete.c.table_id == table_id,
            delete.c.delete_file_id >= (previous or 0),
            delete.c.delete_file_id < one.snapshot.next_file_id,
        )
    )
    ended = connection.execute(
        select(func.count()).where(data.c.table_id == table_id, data.c.end_snapshot == one.id)
    ).scalar_one()
    return is_flush(one.id, [(row.begin_snapshot, row.partial_max) for row in created], ended_files=ended > 0)
