"""Plan the changes that remove the rows of an earlier commit, wherever they are now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy import and_, or_, select

from airflow_provider_ducklake.lake.catalog.drafting.row_changes import (
    delete_changes,
    end_files,
    read_targets_where,
)
from airflow_provider_ducklake.lake.catalog.snapshot import read, read_snapshots
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_read import inlined_of
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_tables import bare_table
from airflow_provider_ducklake.lake.catalog.snapshot.table_snapshot import load_table
from airflow_provider_ducklake.lake.transaction.changes import AddDeletes, EndFiles, InlineDeletes
from airflow_provider_ducklake.lake.transaction.changes_made import ChangeKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sqlalchemy import ColumnElement, Connection

    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.lake.catalog.drafting.row_changes import Targets
    from airflow_provider_ducklake.lake.spec.files import LiveDataFile
    from airflow_provider_ducklake.lake.spec.snapshots import (
        CommitRecord,
        Snapshot,
        SnapshotId,
        TableSnapshot,
    )
    from airflow_provider_ducklake.lake.storage.files.filesystem import Location
    from airflow_provider_ducklake.lake.transaction.changes import Change, Positions

    Locate = Callable[[str], Location]

_MOVES_ROWS = frozenset(
    {
        ChangeKind.DELETED_FROM_TABLE,
        ChangeKind.INLINED_DELETE,
        ChangeKind.INLINE_FLUSH,
        ChangeKind.MERGE_ADJACENT,
        ChangeKind.REWRITE_DELETE,
    }
)


@dataclass(frozen=True, slots=True)
class EarlierRows:
    """Where the live rows of an earlier commit to one table may lie.

    ``row_ids`` are those in the catalog. With ``are_together`` the files of ``targets`` hold just such rows.
    """

    record: CommitRecord
    targets: Targets
    row_ids: tuple[int, ...]
    are_together: bool


def find_earlier_rows(
    connection: Connection, catalog: Catalog, snapshot: Snapshot, records: Iterable[CommitRecord]
) -> tuple[EarlierRows, ...]:
    """Ask the catalog for the rows of earlier commits; tables that were dropped since count as empty.

    Raises:
        TransactionConflictError: a file's deletes are of a newer snapshot.
    """
    rows = {row.id: row for row in read.table_rows(connection, catalog.tables, snapshot.id)}
    found = []
    for record in records:
        if record.table_id is not None and record.table_id in rows:
            row = rows[record.table_id]
            table = load_table(connection, catalog, snapshot, row.qualified, with_files=False)
            found.append(_earlier_rows(connection, catalog, table, record, since=row.begin_snapshot))
    return tuple(found)


def _earlier_rows(
    connection: Connection,
    catalog: Catalog,
    table: TableSnapshot,
    record: CommitRecord,
    *,
    since: SnapshotId,
) -> EarlierRows:
    """Return where they may lie; the table is there ``since`` a snapshot, newer ones where it came back."""
    file = catalog.tables["data_file"]
    moved = since > record.snapshot_id or _rows_moved(connection, catalog, table, record)
    condition = _may_hold(catalog, record) if moved else file.c.begin_snapshot == record.snapshot_id
    targets = read_targets_where(connection, catalog, table, condition)
    row_ids = tuple(_inlined_row_ids(connection, catalog, table, record))
    return EarlierRows(record, targets, row_ids, are_together=not moved)


def _may_hold(catalog: Catalog, record: CommitRecord) -> ColumnElement[bool]:
    """Return the condition for files with row ids of a commit: numbered so, or perhaps stored in the file."""
    file = catalog.tables["data_file"]
    first, end = record.row_id_start, record.row_id_start + record.row_count
    return or_(
        file.c.row_id_start.is_(None),
        file.c.partial_max.is_not(None),
        file.c.begin_snapshot >= record.snapshot_id,
        and_(file.c.row_id_start < end, file.c.row_id_start + file.c.record_count > first),
    )


def _may_store_row_ids(file: LiveDataFile, record: CommitRecord) -> bool:
    """Whether rows of the commit may have come into a file: merged files begin as early as any part."""
    return (
        file.row_id_start is None or file.partial_max is not None or file.begin_snapshot >= record.snapshot_id
    )


def _rows_moved(connection: Connection, catalog: Catalog, table: TableSnapshot, record: CommitRecord) -> bool:
    """Whether rows may have gone to other files, by the commit itself too; also where snapshots expired."""
    before = record.snapshot_id - 1
    after = read_snapshots.which_newer(catalog.tables, before).ask(connection)
    newer = [snapshot for snapshot in after if snapshot.id <= table.snapshot.id]
    if len(newer) != table.snapshot.id - before:
        return True
    return any(
        change.object_id == table.table_id and (change.kind is None or change.kind in _MOVES_ROWS)
        for snapshot in newer
        for change in snapshot.changes
    )


def _inlined_row_ids(
    connection: Connection, catalog: Catalog, table: TableSnapshot, record: CommitRecord
) -> Iterator[int]:
    first, last = record.row_id_start, record.row_id_start + record.row_count - 1
    for layout in inlined_of(connection, catalog, table).layouts:
        rows = bare_table(layout.name, catalog.tables)
        alive = read.visible(rows, table.snapshot.id)
        query = select(rows.c.row_id).where(alive, rows.c.row_id.between(first, last))
        yield from connection.execute(query).scalars()


def replaced_rows(found: EarlierRows, locate: Locate) -> tuple[Change, ...]:
    """Return what takes the live rows of an earlier commit out of their table, and no other rows.

    Raises:
        StorageError: a file that may hold such rows cannot be read.
    """
    from airflow_provider_ducklake.lake.storage.files.parallel import in_threads  # noqa: PLC0415 - heavy

    targets = found.targets
    looked_up = in_threads(lambda file: _positions(found, file, locate), targets.files.values())
    by_file = dict(zip(targets.files, looked_up, strict=True))
    whole = [targets.files[file_id] for file_id, places in by_file.items() if places is None]
    parts = {file_id: places for file_id, places in by_file.items() if places and places.count}
    changes: list[Change] = []
    if whole:
        changes.append(end_files(targets.table, whole))
    changes.extend(delete_changes(targets, parts, found.row_ids, locate))
    return tuple(_of_earlier_commit(changes))


def _positions(found: EarlierRows, file: LiveDataFile, locate: Locate) -> Positions | None:
    """Return where a file has live rows of the commit; None: it has no others."""
    if found.are_together:
        return None
    from airflow_provider_ducklake.lake.storage.deletes.deletes import (  # noqa: PLC0415
        deleted_before,
        positions_of,
        row_count_of,
        without,
    )
    from airflow_provider_ducklake.lake.storage.rows import table_reader as row_ids  # noqa: PLC0415 - heavy

    record = found.record
    first, end = record.row_id_start, record.row_id_start + record.row_count
    places = None
    if _may_store_row_ids(file, record):
        places = row_ids.stored_positions(locate(file.path).with_key(file.encryption_key), first, end)
    if places is None:
        places = row_ids.numbered_positions(file, first, end)
    if len(places) == file.record_count:
        return None
    marks = found.targets.marks.get(file.id, {})
    deleted = deleted_before(file.delete_file, marks, row_count_of(file, locate), locate)
    return positions_of(without(places, deleted))


def _of_earlier_commit(changes: Iterable[Change]) -> Iterator[Change]:
    for change in changes:
        assert isinstance(change, EndFiles | AddDeletes | InlineDeletes)
        yield replace(change, of_earlier_commit=True)
