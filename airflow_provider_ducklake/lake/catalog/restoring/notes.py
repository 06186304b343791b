"""Which tables a restore may skip, because earlier restores recorded that they are unchanged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.catalog.ledger.restore_notes import RestoreNote
from airflow_provider_ducklake.lake.catalog.snapshot import read_snapshots
from airflow_provider_ducklake.lake.transaction.changes_made import changes_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.catalog.restoring.scope import Home, Pair, Scope
    from airflow_provider_ducklake.lake.catalog.snapshot.read import TableRow
    from airflow_provider_ducklake.lake.catalog.snapshot.read_snapshots import RecordedSnapshot
    from airflow_provider_ducklake.lake.spec.snapshots import Snapshot, SnapshotId, TableId


def doubtful_part(
    connection: Connection, tables: CatalogTables, scope: Scope, then: Snapshot, head: Snapshot
) -> Scope:
    """Return a scope without the tables that are known to be what they were then."""
    since = _Since(read_snapshots.which_newer(tables, then.id).ask(connection), then, head)
    heirs = dict(_unchanged_heirs(scope, since))
    return replace(
        scope,
        tables=tuple(pair for pair in scope.tables if not _is_known(pair, heirs, since)),
    )


def _unchanged_heirs(scope: Scope, since: _Since) -> Iterator[tuple[TableId, TableId]]:
    """Yield tables that a restore recreated and nobody changed since, each with its original."""
    old = {pair.then.id: pair.then for pair in scope.tables if pair.then is not None}
    for pair in scope.tables:
        if pair.then is None and pair.now is not None:
            heir_of = since.unchanged_heir_of(pair.now)
            was = None if heir_of is None else old.get(heir_of)
            if was is not None and _has_place(pair.now, scope.homes[was.schema.id], was.name):
                yield pair.now.id, was.id


def _has_place(row: TableRow, home: Home, name: str) -> bool:
    return row.schema.id == home.ref and row.name == name


def _is_known(pair: Pair[TableRow], heirs: Mapping[TableId, TableId], since: _Since) -> bool:
    if pair.then is None:
        return pair.now is not None and pair.now.id in heirs
    if pair.now is None:
        return pair.then.id in heirs.values()
    return pair.now.qualified == pair.then.qualified and since.is_as_it_was(pair.then.id)


@dataclass(frozen=True, slots=True)
class _Since:
    """The snapshots that there are of those after ``then``, up to ``head``."""

    newer: Sequence[RecordedSnapshot]
    then: Snapshot
    head: Snapshot

    def is_as_it_was(self, table_id: TableId) -> bool:
        """Whether nothing changed a table, or the last that did restored it to this very snapshot."""
        last = max(
            (one.id for one in self.newer if changes_table(one.changes, table_id)), default=self.then.id
        )
        made = next((note for snapshot_id, note in self._restores() if snapshot_id == last), None)
        return self._knows_all_after(last) and (last == self.then.id or _restored(made, table_id))

    def unchanged_heir_of(self, row: TableRow) -> TableId | None:
        """Return the original of a recreated table that nobody changed since; None: it has none."""
        for made_by, note in self._restores():
            was = next((one for one, uuid in note.heirs.items() if uuid == row.uuid), None)
            if was is not None:
                last = max(
                    (one.id for one in self.newer if changes_table(one.changes, row.id)), default=made_by
                )
                return was if last <= made_by and self._knows_all_after(made_by) else None
        return None

    def _restores(self) -> Iterator[tuple[SnapshotId, RestoreNote]]:
        """Yield the snapshots that restored something to this very one."""
        for one in self.newer:
            note = RestoreNote.of(one.extra)
            if note is not None and note.as_of == self.then.id:
                yield one.id, note

    def _knows_all_after(self, snapshot_id: int) -> bool:
        """Whether none has expired since: what an expired one did is not known."""
        return sum(one.id > snapshot_id for one in self.newer) == self.head.id - snapshot_id


def _restored(note: RestoreNote | None, table_id: TableId) -> bool:
    return note is not None and table_id in note.table_ids
