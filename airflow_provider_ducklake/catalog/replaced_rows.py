"""Which changes take the rows of an earlier commit out of a table again, updated since or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import column, literal, select
from sqlalchemy import table as sql_table

from airflow_provider_ducklake.catalog import read, read_layouts, read_snapshots
from airflow_provider_ducklake.catalog.table_snapshot import load_table
from airflow_provider_ducklake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.spec.ids import DataFileId
from airflow_provider_ducklake.spec.paths import CatalogPath
from airflow_provider_ducklake.transaction.changes import EndFiles
from airflow_provider_ducklake.transaction.changes_made import ChangeKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeAlias

    from sqlalchemy import Connection, Row

    from airflow_provider_ducklake.catalog.catalog import Catalog
    from airflow_provider_ducklake.spec.commit_key import CommitRecord
    from airflow_provider_ducklake.spec.snapshots import Snapshot, TableSnapshot

    CountRowIds: TypeAlias = Callable[[str, int, int], int | None]

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
    snapshot: Snapshot,
    records: Iterable[CommitRecord],
    count_row_ids: CountRowIds,
) -> tuple[EndFiles, ...]:
    """Return the end of the files that hold the live rows of earlier commits, and nothing else.

    ``count_row_ids(path, first, end)`` says how many row ids from ``first`` to before ``end`` a data file
    brought along from other files; None: its rows are its own. Tables that were dropped since count as empty.

    Raises:
        UnsupportedFeatureError: such rows share a file, or lie in the catalog, beside other rows.
    """
    names = {row.id: row.qualified for row in read.table_rows(connection, catalog.tables, snapshot.id)}
    changes = []
    for record in records:
        if record.table_id is not None and record.table_id in names:
            table = load_table(connection, catalog, snapshot, names[record.table_id], with_files=False)
            changes += _files_of(connection, catalog, table, record, count_row_ids)
    return tuple(changes)


def _files_of(
    connection: Connection,
    catalog: Catalog,
    table: TableSnapshot,
    record: CommitRecord,
    count_row_ids: CountRowIds,
) -> list[EndFiles]:
    _refuse_inlined(connection, catalog, table, record)
    files = _live_files(connection, catalog, table)
    if _rows_moved(connection, catalog, table, record):
        ended = [row for row in files if _is_of(record, row, table, count_row_ids)]
    else:
        ended = [row for row in files if row.begin_snapshot == record.snapshot_id]
    if not ended:
        return []
    return [EndFiles(table.table_id, table.name, tuple(DataFileId(row.data_file_id) for row in ended))]


def _live_files(connection: Connection, catalog: Catalog, table: TableSnapshot) -> list[Row[Any]]:
    file = catalog.tables["data_file"]
    query = select(
        file.c.data_file_id,
        file.c.path,
        file.c.path_is_relative,
        file.c.begin_snapshot,
        file.c.record_count,
        file.c.row_id_start,
        file.c.partial_max,
    )
    alive = read.visible(file, table.snapshot.id)
    return list(connection.execute(query.where(alive, file.c.table_id == table.table_id)))


def _is_of(record: CommitRecord, row: Row[Any], table: TableSnapshot, count_row_ids: CountRowIds) -> bool:
    """Whether all rows of a file were added by the commit, and not none of them."""
    path = CatalogPath(row.path, row.path_is_relative).below(table.root)
    first, end = record.row_id_start, record.row_id_start + record.row_count
    count = count_row_ids(path, first, end) if _may_store_row_ids(row, record) else None
    if count is None:
        count = _count_own(row, first, end)
    if count not in (0, row.record_count):
        raise _shared(table, record, f"in {path}, a file they share with others")
    return count > 0


def _may_store_row_ids(row: Row[Any], record: CommitRecord) -> bool:
    """Whether rows of the commit may have come into this file: merged files begin as early as any part."""
    return row.row_id_start is None or row.partial_max is not None or row.begin_snapshot > record.snapshot_id


def _count_own(row: Row[Any], first: int, end: int) -> int:
    """Return how many of a file's rows have ids in a range, where they are numbered from its start."""
    start: int | None = row.row_id_start
    if start is None:
        return 0
    return max(0, min(end, start + int(row.record_count)) - max(first, start))


def _rows_moved(connection: Connection, catalog: Catalog, table: TableSnapshot, record: CommitRecord) -> bool:
    """Whether rows may have gone to other files since; also where snapshots that would say so expired."""
    after = read_snapshots.which_newer(catalog.tables, record.snapshot_id).ask(connection)
    newer = [snapshot for snapshot in after if snapshot.id <= table.snapshot.id]
    if len(newer) != table.snapshot.id - record.snapshot_id:
        return True
    return any(
        change.object_id == table.table_id and (change.kind is None or change.kind in _MOVES_ROWS)
        for snapshot in newer
        for change in snapshot.changes
    )


def _refuse_inlined(
    connection: Connection, catalog: Catalog, table: TableSnapshot, record: CommitRecord
) -> None:
    schema = catalog.tables.metadata_schema
    for name in read_layouts.inlined_tables(connection, catalog.tables, table.table_id):
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
