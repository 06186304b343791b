"""The table of commits with a key, in which a retry finds an earlier try's commit.

One indexed read, at any size. A row counts if its snapshot is of its time, or has expired: in another lake,
or after a restore from a backup, another one may have its number. See ``docs/adr/0044``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Connection, Row, Select, func, select

from ...errors import UntrustedValueError
from ...format.snapshots import FIRST_GENERATION, CommitKey, CommitRecord, OnClear, SnapshotId, TableId
from ...transaction.changes_made import Replay, replay_of
from ..database.connect import Question
from ..database.tables import CatalogInteger, CatalogTimestamp, maybe
from ..dialects.bootstrap import DIGEST, OwnTable
from ..dialects.dialect import Catalog, Effect, in_transaction, insert
from . import restores

if TYPE_CHECKING:
    from ...transaction.changes import CommitState

_NO_TABLE = 0  # a schema's id, so never a table's

# Its primary key allows one commit of each generation to each table.
COMMITS = OwnTable(
    "airflow_ducklake_commit",
    Column("commit_key", DIGEST, primary_key=True),
    Column("generation", CatalogInteger, primary_key=True, autoincrement=False),
    Column("table_id", CatalogInteger, primary_key=True, autoincrement=False),
    Column("snapshot_id", CatalogInteger, nullable=False),
    Column("row_id_start", CatalogInteger, nullable=False),
    Column("row_count", CatalogInteger, nullable=False),
    Column("committed_at", CatalogTimestamp, nullable=False),
)


def records(connection: Connection, catalog: Catalog, key: CommitKey) -> list[CommitRecord]:
    """Look up what was committed under the key, of all generations."""
    return records_query(catalog, key).ask(connection)


def records_query(catalog: Catalog, key: CommitKey) -> Question[list[CommitRecord]]:
    """Return the query for what was committed under the key, of all generations; see ``records``."""
    return Question(_records_of(catalog, key), lambda rows: [_confirmed(row) for row in rows])


def records_without_snapshot(connection: Connection, catalog: Catalog, key: CommitKey) -> list[CommitRecord]:
    """Look up what ``record_without_rows`` recorded under the key: the snapshot is of another time."""
    return [_record(row) for row in connection.execute(_records_of(catalog, key))]


def _records_of(catalog: Catalog, key: CommitKey) -> Select[Any]:
    table, snapshot = COMMITS.of(catalog), catalog.tables["snapshot"]
    newest = select(func.max(snapshot.c.snapshot_id)).scalar_subquery().label("newest_id")
    query = select(table, maybe(snapshot.c.snapshot_time).label("made_at"), newest)
    query = query.outerjoin(snapshot, snapshot.c.snapshot_id == table.c.snapshot_id)
    return query.where(table.c.commit_key == key.digest).order_by(*table.primary_key)


def _confirmed(row: Row[Any]) -> CommitRecord:
    has_expired = row.made_at is None and 0 < row.snapshot_id < row.newest_id
    if has_expired or row.made_at == row.committed_at:
        return _record(row)
    problem = "was never made" if row.made_at is None else "was made at another time"
    place = f"A row of {COMMITS.name} with the commit_key {row.commit_key}"
    raise UntrustedValueError(place, f"snapshot {row.snapshot_id}", f"{problem}; {_WAY_OUT}")


_WAY_OUT = (
    "it is of another lake, or of what this one was before it was restored from a backup. If the lake does "
    "not have the rows of the task, delete the row and run the task again"
)


def _record(row: Row[Any]) -> CommitRecord:
    return CommitRecord(
        row.generation,
        TableId(row.table_id) if row.table_id != _NO_TABLE else None,
        SnapshotId(row.snapshot_id),
        row.row_id_start,
        row.row_count,
        row.committed_at,
    )


def record_effect(catalog: Catalog, key: CommitKey, state: CommitState) -> Effect:
    """Build the rows that record a commit under its key."""
    rows = state.added_rows or {TableId(_NO_TABLE): (0, 0)}
    return insert(
        COMMITS.of(catalog),
        *(_row(key, one, state.snapshot_id, state.time, added) for one, added in rows.items()),
    )


def record_without_rows(
    connection: Connection, catalog: Catalog, key: CommitKey, snapshot_id: SnapshotId
) -> None:
    """Record a keyed action on a snapshot that makes none, such as a tag."""
    row = _row(key, TableId(_NO_TABLE), snapshot_id, catalog.dialect.server_time(connection))
    connection.execute(COMMITS.of(catalog).insert(), row)


def _row(
    key: CommitKey,
    table_id: TableId,
    snapshot_id: SnapshotId,
    time: datetime,
    added: tuple[int, int] = (0, 0),
) -> dict[str, Any]:
    return {
        "commit_key": key.digest,
        "generation": key.generation,
        "table_id": table_id,
        "snapshot_id": snapshot_id,
        "row_id_start": added[0],
        "row_count": added[1],
        "committed_at": time,
    }


def replay(
    connection: Connection, catalog: Catalog, found: Sequence[CommitRecord], key: CommitKey, on_clear: OnClear
) -> Replay:
    """Decide what the records of a key mean for its next commit; see ``replay_of``."""
    is_again = any(record.generation != key.generation for record in found)
    return replay_of(found, key, on_clear, restores.restores(connection, catalog) if is_again else ())


def start_over(catalog: Catalog, key: CommitKey, found: Iterable[CommitRecord]) -> None:
    """Note that a first try begins: what was ``found`` is of a run of the same name, deleted since.

    Its commits stay known as of an earlier run, so that this one is a new generation of it.
    """
    if any(record.generation >= FIRST_GENERATION for record in found):
        in_transaction(catalog.dialect, lambda connection: _number_as_earlier_run(connection, catalog, key))


def _number_as_earlier_run(connection: Connection, catalog: Catalog, key: CommitKey) -> None:
    """Give all generations numbers below the first, and below those that they had: none is taken twice."""
    table = COMMITS.of(catalog)
    is_ours = table.c.commit_key == key.digest
    bounds = select(func.min(table.c.generation), func.max(table.c.generation)).where(is_ours)
    oldest, newest = connection.execute(bounds).one()
    if newest is not None and newest >= FIRST_GENERATION:
        earlier = table.c.generation - (newest - min(oldest, FIRST_GENERATION) + 1)
        connection.execute(table.update().where(is_ours).values(generation=earlier))
