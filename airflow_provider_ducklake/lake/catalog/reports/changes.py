"""Read the files and rows that show how a table changed between two snapshots, in a few statements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, Connection, func, or_, select, true

from ...errors import ChangesExpiredError, SnapshotNotFoundError
from ...format.snapshots import DataFileId, Snapshot, TableSnapshot
from ...planning.reading.scan import ChangeFeedPlan, FileHistory, may_hold_changes
from ...transaction.changes_made import ChangeKind, ChangeRecord
from ..snapshot import read_snapshots
from ..snapshot.inlined_read import inlined_delete_snapshots, inlined_history
from ..snapshot.read_files import live_data_file, live_delete_file
from ..snapshot.read_layouts import columns_query
from ..snapshot.read_statistics import name_mappings
from ..snapshot.scan import load_table

if TYPE_CHECKING:
    import pyarrow as pa

    from ...format.files import LiveDeleteFile
    from ...format.names.identifiers import QualifiedName
    from ...storage.files.filesystem import Location
    from ..database.tables import CatalogTables
    from ..dialects.dialect import Catalog


_FEW_FILES = 1000  # that a statement names


def find_changes(
    connection: Connection, catalog: Catalog, name: QualifiedName, start: int, end: Snapshot
) -> ChangeFeedPlan:
    """Return the plan for a table's changes from one snapshot to another, both included."""
    table = load_table(connection, catalog, end, name, with_files=False)
    if start > end.id:
        return ChangeFeedPlan(table, start, end.id)
    return ChangeFeedPlan(
        table,
        start,
        end.id,
        tuple(_histories(connection, catalog, table, start)),
        inlined_history(connection, catalog, table),
        _rewrites(connection, catalog, table, start),
        columns_query(catalog.tables, table.table_id).ask(connection).since(end.id),
    )


def check_complete(connection: Connection, tables: CatalogTables, table: str, after: int, upto: int) -> None:
    """Refuse a range of snapshots (the first left out) if one of them has expired, or was never made."""
    ids = tables["snapshot"].c.snapshot_id
    if after > upto:
        oldest, newest = connection.execute(select(func.min(ids), func.max(ids))).one()
        if after > newest:
            raise SnapshotNotFoundError(str(after), oldest, newest)
    is_within = (ids > after) & (ids <= upto)
    if connection.execute(select(func.count()).where(is_within)).scalar_one() < upto - after:
        oldest = connection.execute(select(func.min(ids))).scalar_one()
        raise ChangesExpiredError(table, after, upto, oldest)


def _histories(
    connection: Connection, catalog: Catalog, table: TableSnapshot, start: int
) -> Iterator[FileHistory]:
    file, end = catalog.tables["data_file"], table.snapshot.id
    marks = inlined_delete_snapshots(connection, catalog, table.table_id, end)
    marked = [one for one, positions in marks.items() if max(positions.values()) >= start]
    rows = connection.execute(
        select(file)
        .where(
            file.c.table_id == table.table_id,
            file.c.begin_snapshot <= end,
            or_(file.c.end_snapshot.is_(None), file.c.end_snapshot >= start),
            _may_hold_changes(catalog.tables, table.table_id, start, marked),
        )
        .order_by(file.c.data_file_id)
    ).all()
    deletes = _delete_files(connection, catalog, table, [row.data_file_id for row in rows])
    is_mapped = any(row.mapping_id is not None for row in rows)
    mappings = name_mappings(connection, catalog.tables, table.table_id) if is_mapped else {}
    for row in rows:
        live = live_data_file(row, table.root, mappings)
        ended = row.end_snapshot if row.end_snapshot is not None and row.end_snapshot <= end else None
        history = FileHistory(live, ended, tuple(deletes.get(live.id, ())), marks.get(live.id, {}))
        if may_hold_changes(start, history, begin=row.begin_snapshot, partial_max=live.partial_max):
            yield history


def _may_hold_changes(
    tables: CatalogTables, table_id: int, start: int, marked: Collection[int]
) -> ColumnElement[bool]:
    """Return the condition of ``may_hold_changes`` in SQL: it may be true of too many files."""
    if len(marked) > _FEW_FILES:
        return true()
    file, delete = tables["data_file"], tables["delete_file"]
    late = or_(delete.c.begin_snapshot >= start, delete.c.partial_max >= start)
    deleted = select(delete.c.data_file_id).where(delete.c.table_id == table_id, late)
    ids = file.c.data_file_id
    return or_(
        file.c.begin_snapshot >= start,
        file.c.end_snapshot >= start,
        file.c.partial_max.is_not(None),
        ids.in_(deleted),
        ids.in_(marked),
    )


def _delete_files(
    connection: Connection, catalog: Catalog, table: TableSnapshot, file_ids: Collection[int]
) -> dict[DataFileId, list[LiveDeleteFile]]:
    delete = catalog.tables["delete_file"]
    of_files = delete.c.data_file_id.in_(file_ids) if len(file_ids) <= _FEW_FILES else true()
    rows = connection.execute(
        select(delete)
        .where(delete.c.table_id == table.table_id, delete.c.begin_snapshot <= table.snapshot.id, of_files)
        .order_by(delete.c.delete_file_id)
    )
    found: dict[DataFileId, list[LiveDeleteFile]] = {}
    for row in rows:
        found.setdefault(DataFileId(row.data_file_id), []).append(live_delete_file(row, table.root))
    return found


def _rewrites(connection: Connection, catalog: Catalog, table: TableSnapshot, start: int) -> frozenset[int]:
    newer = read_snapshots.newer_query(catalog.tables, start - 1).ask(connection)
    return frozenset(one.id for one in newer if _rewrites_files(one.changes, table.table_id))


def _rewrites_files(records: Iterable[ChangeRecord], table_id: int) -> bool:
    return any(one.kind is ChangeKind.REWRITE_DELETE and one.object_id == table_id for one in records)


# Report how the rows of a table changed between two snapshots.


@dataclass(frozen=True, slots=True)
class ChangeFeed:
    """The changes of a table between two snapshots, both included; ``plan`` says what is to be read."""

    plan: ChangeFeedPlan
    _locate: Callable[[str], Location]

    def read_arrow(self) -> pa.Table:
        """Return the changes, sorted by snapshot and row id.

        Columns: ``snapshot_id`` and ``rowid`` (int64), ``change_type`` (``insert``, ``delete``,
        ``update_preimage``, ``update_postimage``), then the table's as of the end snapshot.
        """
        from ...storage.rows.table_reader import read_changes

        return read_changes(self.plan, self._locate)

    def insertions(self) -> pa.Table:
        """Return the rows that came, also by updates, without ``change_type``."""
        return self._rows_of_kinds("insert", "update_postimage")

    def deletions(self) -> pa.Table:
        """Return the rows that went, also by updates, without ``change_type``."""
        return self._rows_of_kinds("delete", "update_preimage")

    def _rows_of_kinds(self, *kinds: str) -> pa.Table:
        import pyarrow as pa
        import pyarrow.compute as pc

        changes = self.read_arrow()
        return changes.filter(pc.is_in(changes.column(2), value_set=pa.array(kinds))).remove_column(2)
