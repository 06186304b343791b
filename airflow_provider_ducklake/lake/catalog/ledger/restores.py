"""The table of restores: since which snapshot a table equals itself, or another, at an older one.

What tasks have committed to a table, and what consumers have consumed of it, is judged by it, long after the
snapshots have expired. A restore is noted in its snapshot's extra info as well, and neither replaces the
other. A row may be of a restore that changed nothing: it has the id of the next snapshot, whatever that does.
So a second restore reads the notes, which also have the uuids of new tables; and lakes that releases without
the table restored have nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Column, Connection, select

from ...format.snapshots import JsonValue, RestoredTable, SnapshotId, TableId
from ...transaction.changes import Change, NoteRestored, RestoreRows
from ..database.connect import in_parts
from ..database.tables import CatalogInteger, CatalogTables
from ..dialects.bootstrap import OwnTable
from ..dialects.dialect import Catalog, Effect, insert

if TYPE_CHECKING:
    from ...transaction.changes import CommitState


# The record of a restore in its snapshot's extra info.


_NOTE = "restored"  # the key in a snapshot's commit_extra_info


@dataclass(frozen=True, slots=True)
class RestoreNote:
    """Which tables a snapshot restored, by the ids that they had in snapshot ``as_of``.

    ``heirs`` are the uuids of those of them that are new tables.
    """

    as_of: SnapshotId
    table_ids: frozenset[TableId]
    heirs: Mapping[TableId, str]

    def to_json(self) -> dict[str, JsonValue]:
        """Build the note for ``commit_extra_info``."""
        note: dict[str, JsonValue] = {
            "as_of": int(self.as_of),
            "table_ids": [int(one) for one in sorted(self.table_ids)],
        }
        if self.heirs:
            note["new_tables"] = {str(one): uuid for one, uuid in sorted(self.heirs.items())}
        return {_NOTE: note}

    @classmethod
    def of(cls, extra: str | None) -> RestoreNote | None:
        """Read the note in ``commit_extra_info``; None if it has none: clients write there what they like."""
        try:
            note = json.loads(extra or "null")[_NOTE]
            heirs = {TableId(int(one)): str(uuid) for one, uuid in note.get("new_tables", {}).items()}
            table_ids = frozenset(TableId(_id(one)) for one in note["table_ids"])
            return cls(SnapshotId(_id(note["as_of"])), table_ids, heirs)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None


def _id(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!a:.40} is not an id")
    return value


def noted_restores(connection: Connection, tables: CatalogTables) -> Iterator[RestoredTable]:
    """Yield what the snapshots that are there say of tables that stayed the same tables.

    New tables are left out: those that came back without rows may have given row ids out twice.
    """
    changes = tables["snapshot_changes"]
    if "commit_extra_info" not in changes.c:
        return
    extra = changes.c.commit_extra_info
    query = select(changes.c.snapshot_id, extra).where(extra.like(f'%"{_NOTE}"%'))
    for snapshot_id, text in connection.execute(query):
        if (note := RestoreNote.of(text)) is not None:
            for one in sorted(note.table_ids - note.heirs.keys()):
                yield RestoredTable(one, SnapshotId(snapshot_id), one, note.as_of)


def _noted_rows(connection: Connection, catalog: Catalog) -> list[dict[str, int]]:
    return [_row(one) for one in noted_restores(connection, catalog.tables)]


RESTORES = OwnTable(
    "airflow_ducklake_restore",
    Column("table_id", CatalogInteger, primary_key=True, autoincrement=False),
    Column("snapshot_id", CatalogInteger, primary_key=True, autoincrement=False),
    Column("source_table_id", CatalogInteger, nullable=False),
    Column("as_of_snapshot_id", CatalogInteger, nullable=False),
    first_rows=_noted_rows,
)


def prepare(catalog: Catalog, *, dry_run: bool) -> None:
    """Create the table where it is missing, before anything is copied; a dry run only asks whether it may."""
    if not dry_run:
        RESTORES.ensure(catalog)
        return
    with catalog.dialect.reading() as connection:
        exists = RESTORES.exists(connection, catalog)
    if not exists:
        catalog.dialect.try_to_create_table(catalog.tables.metadata_schema)


def restores(connection: Connection, catalog: Catalog) -> tuple[RestoredTable, ...]:
    """Look up all restores, of all tables; while their table is missing, what snapshots say of them."""
    if not RESTORES.exists(connection, catalog):
        return tuple(noted_restores(connection, catalog.tables))
    return tuple(RestoredTable(*row) for row in connection.execute(select(RESTORES.of(catalog))))


def record_effects(catalog: Catalog, changes: Iterable[Change], state: CommitState) -> Iterator[Effect]:
    """Yield what notes the tables that the commit in the making restores, or finds restored.

    Where nothing is to be restored it makes no snapshot: the notes count from the next one on, whatever it
    is. If that is a restore as well, its own notes are the newer ones.
    """
    log = RESTORES.of(catalog)
    rows = [_row(_restored(one, state)) for one in changes if isinstance(one, RestoreRows | NoteRestored)]
    for part in in_parts(row["table_id"] for row in rows):
        yield Effect(log.delete().where(log.c.snapshot_id == state.snapshot_id, log.c.table_id.in_(part)))
    if rows:
        yield insert(log, *rows)


def _restored(one: RestoreRows | NoteRestored, state: CommitState) -> RestoredTable:
    table_id = state.table_id(one.table) if isinstance(one, RestoreRows) else one.table_id
    heir_of = one.heir_of if isinstance(one, RestoreRows) else None
    return RestoredTable(table_id, state.snapshot_id, table_id if heir_of is None else heir_of, one.as_of)


def _row(one: RestoredTable) -> dict[str, int]:
    return {
        "table_id": one.table_id,
        "snapshot_id": one.restored_at,
        "source_table_id": one.source_id,
        "as_of_snapshot_id": one.as_of,
    }
