"""The record of a restore in its snapshot's extra info."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import select

from airflow_provider_ducklake.lake.spec.snapshots import RestoredTable, SnapshotId, TableId

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.spec.snapshots import JsonValue

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
        """Return what ``commit_extra_info`` gets."""
        said: dict[str, JsonValue] = {
            "as_of": int(self.as_of),
            "table_ids": [int(one) for one in sorted(self.table_ids)],
        }
        if self.heirs:
            said["new_tables"] = {str(one): uuid for one, uuid in sorted(self.heirs.items())}
        return {_NOTE: said}

    @classmethod
    def of(cls, extra: str | None) -> RestoreNote | None:
        """Return what ``commit_extra_info`` says, if that is anything: others write there what they like."""
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
