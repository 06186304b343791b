"""The table of commits with a key, in which a retry finds an earlier try's commit.

Our own table beside the format's; DuckDB does not mind it. One indexed read, at any size.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, MetaData, Row, Select, String, Table, bindparam, func, select

from airflow_provider_ducklake.catalog.database.column_types import (
    TABLE_OPTIONS,
    CatalogInteger,
    CatalogTimestamp,
    catalog_table,
)
from airflow_provider_ducklake.catalog.database.questions import Question
from airflow_provider_ducklake.catalog.dialects.effect import Effect, insert
from airflow_provider_ducklake.catalog.dialects.retry import DEFAULT_RETRY, with_retries
from airflow_provider_ducklake.catalog.ledger import own_tables, restore_log
from airflow_provider_ducklake.spec.commit_key import FIRST_GENERATION, CommitKey, CommitRecord
from airflow_provider_ducklake.spec.ids import SnapshotId, TableId
from airflow_provider_ducklake.transaction.replay import Replay, replay_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

    from airflow_provider_ducklake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.spec.commit_key import OnClear
    from airflow_provider_ducklake.transaction.commit_state import CommitState

NAME = "airflow_ducklake_commit"
_NO_TABLE = 0  # a schema's id, so never a table's
_DIGEST_LENGTH = 64


@lru_cache
def commit_table(metadata_schema: str | None) -> Table:
    """Return the table; its primary key allows one commit of each generation to each table."""
    return catalog_table(
        NAME,
        MetaData(schema=metadata_schema),
        Column("commit_key", String(_DIGEST_LENGTH), primary_key=True),
        Column("generation", CatalogInteger, primary_key=True, autoincrement=False),
        Column("table_id", CatalogInteger, primary_key=True, autoincrement=False),
        Column("snapshot_id", CatalogInteger, nullable=False),
        Column("row_id_start", CatalogInteger, nullable=False),
        Column("row_count", CatalogInteger, nullable=False),
        Column("committed_at", CatalogTimestamp, nullable=False),
        **TABLE_OPTIONS,
    )


def ensure_table(catalog: Catalog) -> None:
    """Create the table where it is missing, in a transaction of its own."""
    own_tables.ensure_table(catalog, commit_table(catalog.tables.metadata_schema))


def records(connection: Connection, catalog: Catalog, key: CommitKey) -> list[CommitRecord]:
    """Return what was committed under the key, of all generations."""
    return which_records(catalog, key).ask(connection)


def which_records(catalog: Catalog, key: CommitKey) -> Question[list[CommitRecord]]:
    """Ask for what was committed under the key, of all generations."""
    return Question(_records_of_key(catalog.tables.metadata_schema), _records, {"digest": key.digest})


@lru_cache
def _records_of_key(metadata_schema: str | None) -> Select[Any]:
    table = commit_table(metadata_schema)
    is_ours = table.c.commit_key == bindparam("digest", type_=String)
    return select(table).where(is_ours).order_by(*table.primary_key)


def _records(rows: Iterable[Row[Any]]) -> list[CommitRecord]:
    return [
        CommitRecord(
            row.generation,
            TableId(row.table_id) if row.table_id != _NO_TABLE else None,
            SnapshotId(row.snapshot_id),
            row.row_id_start,
            row.row_count,
            row.committed_at,
        )
        for row in rows
    ]


def record_effect(catalog: Catalog, key: CommitKey, state: CommitState) -> Effect:
    """Return the rows that say what the commit in the making did under its key."""
    rows = state.added_rows or {TableId(_NO_TABLE): (0, 0)}
    return insert(
        commit_table(catalog.tables.metadata_schema),
        *(
            {
                "commit_key": key.digest,
                "generation": key.generation,
                "table_id": table_id,
                "snapshot_id": state.snapshot_id,
                "row_id_start": start,
                "row_count": row_count,
                "committed_at": state.time,
            }
            for table_id, (start, row_count) in rows.items()
        ),
    )


def record_without_rows(
    connection: Connection, catalog: Catalog, key: CommitKey, snapshot_id: SnapshotId
) -> None:
    """Note that what a key names was done to a snapshot, where that makes none: it was tagged, say."""
    row = {
        "commit_key": key.digest,
        "generation": key.generation,
        "table_id": _NO_TABLE,
        "snapshot_id": snapshot_id,
        "row_id_start": 0,
        "row_count": 0,
        "committed_at": catalog.dialect.server_time(connection),
    }
    connection.execute(commit_table(catalog.tables.metadata_schema).insert(), row)


def replay(
    connection: Connection,
    catalog: Catalog,
    found: Sequence[CommitRecord],
    key: CommitKey,
    on_clear: OnClear,
) -> Replay:
    """Return what the records of a key mean for its next commit; see ``replay_of``."""
    is_again = any(record.generation != key.generation for record in found)
    return replay_of(found, key, on_clear, restore_log.restores(connection, catalog) if is_again else ())


def start_over(catalog: Catalog, key: CommitKey) -> None:
    """Note that a first try begins: what the key names was a run of the same name, deleted since.

    Its commits stay known as of an earlier run, so that this one is a new generation of it.
    """
    with catalog.dialect.reading() as connection:
        found = records(connection, catalog, key)
    if any(record.generation >= FIRST_GENERATION for record in found):
        with_retries(catalog.dialect, DEFAULT_RETRY, lambda: _number_as_earlier_run(catalog, key))


def _number_as_earlier_run(catalog: Catalog, key: CommitKey) -> None:
    """Give all generations numbers below the first, and below those that they had: none is taken twice."""
    table = commit_table(catalog.tables.metadata_schema)
    is_ours = table.c.commit_key == key.digest
    bounds = select(func.min(table.c.generation), func.max(table.c.generation)).where(is_ours)
    with catalog.dialect.writing() as connection:
        oldest, newest = connection.execute(bounds).one()
        if newest is not None and newest >= FIRST_GENERATION:
            distance = newest - min(oldest, FIRST_GENERATION) + 1
            earlier = table.c.generation - distance
            connection.execute(table.update().where(is_ours).values(generation=earlier))
            connection.commit()
