"""Which changes take the rows of an earlier commit out of a table again, updated since or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import column, literal, select
from sqlalchemy import table as sql_table

from airflow_provider_ducklake.catalog import read
from airflow_provider_ducklake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.spec.ids import DataFileId
from airflow_provider_ducklake.spec.paths import CatalogPath
from airflow_provider_ducklake.transaction.changes import EndFiles
from airflow_provider_ducklake.transaction.changes_made import ChangeKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sqlalchemy import Connection, Row

    from airflow_provider_ducklake.catalog.catalog import Catalog
    from airflow_provider_ducklake.spec.commit_key import CommitRecord
    from airflow_provider_ducklake.spec.snapshots import TableSnapshot

_MOVES_ROWS = frozenset(
    {
        ChangeKind.DELETED_FROM_TABLE,
        ChangeKind.INLINED_DELETE,
        ChangeKind.INLINE_FLUSH,
        ChangeKind.MERGE_ADJACENT,
        ChangeKind.REWRITE_DELETE,
    }
)


def replaced_rows(
    connection: Connection,
    catalog: Catalog,
    table: TableSnapshot,
    record: CommitRecord,
    row_ids_in: Callable[[str, int, int], bool],
) -> tuple[EndFiles, ...]:
    """Return the end of the files that hold the live rows of an earlier commit, and nothing else.

    ``row_ids_in(path, first, end)`` says whether a data file holds rows with ids from ``first`` to before
    ``end`` that it brought along from other files.

    Raises:
        UnsupportedFeatureError: such rows share a file, or lie in the catalog, beside other rows.
    """
    first, end = record.row_id_start, record.row_id_start + record.row_count
    files = _live_files(connection, catalog, table)
    whole = [
        row for row in files if row.begin_snapshot == record.snapshot_id and _lies_within(row, first, end)
    ]
    if _rows_moved(connection, catalog, table, record):
        others = [row for row in files if row not in whole]
        _refuse_shared(table, record, others, row_ids_in)
        _refuse_inlined(connection, catalog, table, record)
    if not whole:
        return ()
    return (EndFiles(table.table_id, table.name, tuple(DataFileId(row.data_file_id) for row in whole)),)


def _live_files(connection: Connection, catalog: Catalog, table: TableSnapshot) -> list[Row[Any]]:
    file = catalog.tables["data_file"]
    query = select(
        file.c.data_file_id,
        file.c.path,
        file.c.path_is_relative,
        file.c.begin_snapshot,
        file.c.record_count,
        file.c.row_id_start,
    )
    alive = read.visible(file, table.snapshot.id)
    return list(connection.execute(query.where(alive, file.c.table_id == table.table_id)))


def _lies_within(row: Row[Any], first: int, end: int) -> bool:
    start = row.row_id_start
    return start is not None and first <= start and start + row.record_count <= end


def _rows_moved(connection: Connection, catalog: Catalog, table: TableSnapshot, record: CommitRecord) -> bool:
    """Whether rows may have gone to other files since; also where snapshots that would say so expired."""
    newer = read.recorded_snapshots(connection, catalog.tables, after=record.snapshot_id)
    if len(newer) != table.snapshot.id - record.snapshot_id:
        return True
    return any(
        change.object_id == table.table_id and (change.kind is None or change.kind in _MOVES_ROWS)
        for snapshot in newer
        for change in snapshot.changes
    )


def _refuse_shared(
    table: TableSnapshot,
    record: CommitRecord,
    others: list[Row[Any]],
    row_ids_in: Callable[[str, int, int], bool],
) -> None:
    first, end = record.row_id_start, record.row_id_start + record.row_count
    for row in others:
        may_hold = row.row_id_start is None or row.begin_snapshot >= record.snapshot_id
        overlaps = row.row_id_start is not None and (
            row.row_id_start < end and first < row.row_id_start + row.record_count
        )
        path = CatalogPath(row.path, row.path_is_relative).below(table.root)
        if overlaps or (may_hold and row_ids_in(path, first, end)):
            raise _shared(table, record, f"in {path}, a file they share with others")


def _refuse_inlined(
    connection: Connection, catalog: Catalog, table: TableSnapshot, record: CommitRecord
) -> None:
    schema = catalog.tables.metadata_schema
    for name in read.inlined_tables(connection, catalog.tables, table.table_id):
        if not catalog.dialect.has_table(connection, name, schema):
            continue
        rows = sql_table(name, column("row_id"), column("end_snapshot"), schema=schema)
        ours = rows.c.row_id.between(record.row_id_start, record.row_id_start + record.row_count - 1)
        query = select(literal(1)).select_from(rows).where(ours, rows.c.end_snapshot.is_(None)).limit(1)
        if connection.execute(query).first():
            raise _shared(table, record, f"in the catalog table {name}")


def _shared(table: TableSnapshot, record: CommitRecord, where: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"Cannot replace what snapshot {record.snapshot_id} added to {table.name}: some of its rows, updated "
        f"or compacted since, lie {where}. Delete them yourself and clear the task with on_clear='append', "
        "or keep them with on_clear='skip'."
    )
