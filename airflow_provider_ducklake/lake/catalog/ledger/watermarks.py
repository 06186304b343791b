"""The table of watermarks: what each watcher of the lake has reported.

Our own table beside the format's; DuckDB does not mind it. Airflow 3.3 keeps watermarks itself.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from sqlalchemy import Column, MetaData, String, Table, select

from airflow_provider_ducklake.lake.catalog.database.tables import (
    TABLE_OPTIONS,
    CatalogText,
    CatalogTimestamp,
    catalog_table,
)
from airflow_provider_ducklake.lake.catalog.dialects.dialect import DEFAULT_RETRY, with_retries
from airflow_provider_ducklake.lake.catalog.ledger import own_tables

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.catalog.dialects.dialect import Catalog
    from airflow_provider_ducklake.lake.spec.snapshots import Consumer

NAME = "airflow_ducklake_watermark"
_DIGEST_LENGTH = 64


@lru_cache
def watermark_table(metadata_schema: str | None) -> Table:
    """Return the table; ``state`` is JSON."""
    return catalog_table(
        NAME,
        MetaData(schema=metadata_schema),
        Column("watcher", String(_DIGEST_LENGTH), primary_key=True),
        Column("watcher_name", CatalogText, nullable=False),
        Column("state", CatalogText, nullable=False),
        Column("noted_at", CatalogTimestamp, nullable=False),
        **TABLE_OPTIONS,
    )


def read(catalog: Catalog, watcher: Consumer) -> str | None:
    """Return what was noted of a watcher; None: nothing was."""
    table = watermark_table(catalog.tables.metadata_schema)
    with catalog.dialect.reading() as connection:
        if not catalog.dialect.has_table(connection, NAME, catalog.tables.metadata_schema):
            return None
        query = select(table.c.state).where(table.c.watcher == watcher.digest)
        state: str | None = connection.execute(query).scalar_one_or_none()
        return state


def note(catalog: Catalog, watcher: Consumer, state: str) -> None:
    """Note a watcher's state in place of its last, in a transaction of its own."""
    table = watermark_table(catalog.tables.metadata_schema)
    own_tables.ensure_table(catalog, table)

    def attempt() -> None:
        with catalog.dialect.writing() as connection:
            now = catalog.dialect.server_time(connection)
            connection.execute(table.delete().where(table.c.watcher == watcher.digest))
            row = {"watcher": watcher.digest, "watcher_name": watcher.name, "state": state, "noted_at": now}
            connection.execute(table.insert(), row)
            connection.commit()

    with_retries(catalog.dialect, DEFAULT_RETRY, attempt)
