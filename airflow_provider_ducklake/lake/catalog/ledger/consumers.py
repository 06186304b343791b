"""The table of consumers, with the snapshot up to which each has consumed a table's changes.

Our own table beside the format's; DuckDB does not mind it, and expiry leaves it alone. A row is one
consumption, written in the transaction that commits what was made of it. The newest is the consumer's mark;
older ones stay as long as their snapshots, so that a task that is cleared consumes the same again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, MetaData, Row, Select, String, Table, bindparam, func, select

from airflow_provider_ducklake.lake.catalog.database.connect import Question
from airflow_provider_ducklake.lake.catalog.database.tables import (
    TABLE_OPTIONS,
    CatalogInteger,
    CatalogText,
    CatalogTimestamp,
    catalog_table,
)
from airflow_provider_ducklake.lake.catalog.dialects.dialect import (
    DEFAULT_RETRY,
    Effect,
    insert,
    with_retries,
)
from airflow_provider_ducklake.lake.catalog.ledger import own_tables
from airflow_provider_ducklake.lake.errors import TransactionConflictError
from airflow_provider_ducklake.lake.spec.snapshots import (
    FIRST_GENERATION,
    Consumer,
    Consumption,
    SnapshotId,
    TableId,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.dialects.dialect import Catalog
    from airflow_provider_ducklake.lake.spec.snapshots import CommitKey

NAME = "airflow_ducklake_consumer"
_DIGEST_LENGTH = 64


@dataclass(frozen=True, slots=True)
class Consumed:
    """What a commit consumes; ``known`` is what the consumer had consumed when it was planned."""

    consumer: Consumer
    ranges: tuple[Consumption, ...]
    known: tuple[Consumption, ...]


@lru_cache
def consumer_table(metadata_schema: str | None) -> Table:
    """Return the table."""
    return catalog_table(
        NAME,
        MetaData(schema=metadata_schema),
        Column("consumer", String(_DIGEST_LENGTH), primary_key=True),
        Column("table_id", CatalogInteger, primary_key=True, autoincrement=False),
        Column("snapshot_id", CatalogInteger, primary_key=True, autoincrement=False),
        Column("after_snapshot_id", CatalogInteger),
        Column("consumer_name", CatalogText, nullable=False),
        Column("commit_key", String(_DIGEST_LENGTH), nullable=False),
        Column("generation", CatalogInteger, nullable=False),
        Column("consumed_at", CatalogTimestamp, nullable=False),
        **TABLE_OPTIONS,
    )


def ensure_table(catalog: Catalog) -> None:
    """Create the table where it is missing, in a transaction of its own."""
    own_tables.ensure_table(catalog, consumer_table(catalog.tables.metadata_schema))


def which_consumptions(catalog: Catalog, consumer: Consumer) -> Question[tuple[Consumption, ...]]:
    """Ask what a consumer has consumed, oldest first."""
    query = _of_consumer(catalog.tables.metadata_schema)
    return Question(query, _consumptions, {"digest": consumer.digest})


@lru_cache
def _of_consumer(metadata_schema: str | None) -> Select[Any]:
    table = consumer_table(metadata_schema)
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
    """Return what a consumer has consumed, oldest first; nothing where nobody ever consumed."""
    if not catalog.dialect.has_table(connection, NAME, catalog.tables.metadata_schema):
        return ()
    return which_consumptions(catalog, consumer).ask(connection)


def check_unchanged(consumed: Consumed, now: Sequence[Consumption]) -> None:
    """Refuse to consume what somebody else has consumed under the same name meanwhile."""
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
        with_retries(catalog.dialect, DEFAULT_RETRY, lambda: _number_as_earlier_run(catalog, consumer, key))


def _number_as_earlier_run(catalog: Catalog, consumer: Consumer, key: CommitKey) -> None:
    table = consumer_table(catalog.tables.metadata_schema)
    is_ours = (table.c.consumer == consumer.digest) & (table.c.commit_key == key.digest)
    with catalog.dialect.writing() as connection:
        connection.execute(table.update().where(is_ours).values(generation=FIRST_GENERATION - 1))
        connection.commit()


def record_effects(catalog: Catalog, consumed: Consumed, now: datetime) -> Iterator[Effect]:
    """Yield the statements that note what is consumed, in place of what the same commit consumed before."""
    table, digest = consumer_table(catalog.tables.metadata_schema), consumed.consumer.digest
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
