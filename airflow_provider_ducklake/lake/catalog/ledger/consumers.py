"""The tables of consumers, which process a table's changes, and of watchers, which report snapshots.

Expiry leaves both alone. A row of a consumer is one consumption, up to a snapshot, written in the transaction
that commits what was made of it. The newest is the consumer's mark; older ones stay as long as their
snapshots, so that a task that is cleared consumes the same again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import Column, Connection, Row, Select, String, bindparam, func, select

from ...errors import TransactionConflictError
from ...format.snapshots import FIRST_GENERATION, CommitKey, Consumer, Consumption, SnapshotId, TableId
from ..database.connect import Question
from ..database.tables import CatalogInteger, CatalogText, CatalogTimestamp
from ..dialects.bootstrap import DIGEST, OwnTable
from ..dialects.dialect import Catalog, Effect, in_transaction, insert

CONSUMERS = OwnTable(
    "airflow_ducklake_consumer",
    Column("consumer", DIGEST, primary_key=True),
    Column("table_id", CatalogInteger, primary_key=True, autoincrement=False),
    Column("snapshot_id", CatalogInteger, primary_key=True, autoincrement=False),
    Column("after_snapshot_id", CatalogInteger),
    Column("consumer_name", CatalogText, nullable=False),
    Column("commit_key", DIGEST, nullable=False),
    Column("generation", CatalogInteger, nullable=False),
    Column("consumed_at", CatalogTimestamp, nullable=False),
)


@dataclass(frozen=True, slots=True)
class Consumed:
    """What a commit consumes; ``known`` is what the consumer had consumed when it was planned."""

    consumer: Consumer
    ranges: tuple[Consumption, ...]
    known: tuple[Consumption, ...]


def consumptions_query(catalog: Catalog, consumer: Consumer) -> Question[tuple[Consumption, ...]]:
    """Ask what a consumer has consumed, oldest first."""
    query = _consumer_query(catalog.tables.metadata_schema)
    return Question(query, _consumptions, {"digest": consumer.digest})


@lru_cache
def _consumer_query(metadata_schema: str | None) -> Select[Any]:
    table = CONSUMERS.in_schema(metadata_schema)
    is_ours = table.c.consumer == bindparam("digest", type_=String)
    return select(table).where(is_ours).order_by(table.c.snapshot_id, table.c.table_id)


def _consumptions(rows: Iterable[Row[Any]]) -> tuple[Consumption, ...]:
    return tuple(
        Consumption(
            TableId(row.table_id),
            None if row.after_snapshot_id is None else SnapshotId(row.after_snapshot_id),
            SnapshotId(row.snapshot_id),
            row.commit_key,
            row.generation,
        )
        for row in rows
    )


def consumptions(connection: Connection, catalog: Catalog, consumer: Consumer) -> tuple[Consumption, ...]:
    """Look up what a consumer has consumed, oldest first."""
    if not CONSUMERS.exists(connection, catalog):
        return ()
    return consumptions_query(catalog, consumer).ask(connection)


def check_unchanged(consumed: Consumed, now: Sequence[Consumption]) -> None:
    """Refuse to consume what another task has consumed under the same name in the meantime."""
    if tuple(now) != consumed.known:
        newest = max((one.upto for one in now), default=SnapshotId(0))
        raise TransactionConflictError(
            "consume changes",
            "was consumed by another task",
            f"the unconsumed changes of consumer {consumed.consumer.name!r}",
            newest,
        )


def start_over(catalog: Catalog, consumer: Consumer, key: CommitKey) -> None:
    """Note that a first try begins: what was consumed under its key was by a run that was deleted since."""
    with catalog.dialect.reading() as connection:
        known = consumptions(connection, catalog, consumer)
    if any(one.commit_key == key.digest and one.generation >= FIRST_GENERATION for one in known):
        table = CONSUMERS.of(catalog)
        is_ours = (table.c.consumer == consumer.digest) & (table.c.commit_key == key.digest)
        update = table.update().where(is_ours).values(generation=FIRST_GENERATION - 1)
        in_transaction(catalog.dialect, lambda connection: connection.execute(update))


def record_effects(catalog: Catalog, consumed: Consumed, now: datetime) -> Iterator[Effect]:
    """Yield the statements that note what is consumed, in place of what the same commit consumed before."""
    table, digest = CONSUMERS.of(catalog), consumed.consumer.digest
    snapshot = catalog.tables["snapshot"]
    oldest = select(func.min(snapshot.c.snapshot_id)).scalar_subquery()
    is_ours = table.c.consumer == digest
    is_marked = table.c.table_id.in_({one.table_id for one in consumed.ranges})
    yield Effect(table.delete().where(is_ours, is_marked, table.c.snapshot_id < oldest))
    keys = {one.commit_key for one in consumed.ranges}
    yield Effect(table.delete().where(is_ours, is_marked, table.c.commit_key.in_(keys)))
    yield insert(
        table,
        *(
            {
                "consumer": digest,
                "table_id": one.table_id,
                "snapshot_id": one.upto,
                "after_snapshot_id": one.after,
                "consumer_name": consumed.consumer.name,
                "commit_key": one.commit_key,
                "generation": one.generation,
                "consumed_at": now,
            }
            for one in consumed.ranges
        ),
    )


# What each watcher of a lake has reported, as JSON; Airflow 3.3 keeps watermarks itself.


WATERMARKS = OwnTable(
    "airflow_ducklake_watermark",
    Column("watcher", DIGEST, primary_key=True),
    Column("watcher_name", CatalogText, nullable=False),
    Column("state", CatalogText, nullable=False),
    Column("noted_at", CatalogTimestamp, nullable=False),
)


def watermark(catalog: Catalog, watcher: Consumer) -> str | None:
    """Look up what was noted of a watcher; None: nothing was."""
    table = WATERMARKS.of(catalog)
    query = select(table.c.state).where(table.c.watcher == watcher.digest)
    with catalog.dialect.reading() as connection:
        rows = WATERMARKS.rows(connection, catalog, query)
    return rows[0].state if rows else None


def note_watermark(catalog: Catalog, watcher: Consumer, state: str) -> None:
    """Note a watcher's state in place of its last, in a transaction of its own."""
    row = {"watcher": watcher.digest, "watcher_name": watcher.name, "state": state}
    WATERMARKS.replace(catalog, row)
