"""The table with the key by which documents of jobs are sealed: one row, of lakes whose files are encrypted.

Our own table beside the format's; DuckDB does not mind it. Whoever reads it reads the keys of all files, too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from sqlalchemy import Column, Integer, MetaData, Table, select

from airflow_provider_ducklake.lake.catalog.database.tables import (
    TABLE_OPTIONS,
    CatalogText,
    catalog_table,
)
from airflow_provider_ducklake.lake.catalog.dialects.dialect import DEFAULT_RETRY, with_retries
from airflow_provider_ducklake.lake.catalog.ledger import own_tables
from airflow_provider_ducklake.lake.errors import CatalogError

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.dialects.dialect import Catalog

NAME = "airflow_ducklake_document_key"
_ONLY = 1


@lru_cache
def document_key_table(metadata_schema: str | None) -> Table:
    """Return the table; ``document_key`` is base64."""
    return catalog_table(
        NAME,
        MetaData(schema=metadata_schema),
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("document_key", CatalogText, nullable=False),
        **TABLE_OPTIONS,
    )


def read(catalog: Catalog) -> str | None:
    """Return the key; None: no job has needed one."""
    table = document_key_table(catalog.tables.metadata_schema)
    with catalog.dialect.reading() as connection:
        if not catalog.dialect.has_table(connection, NAME, table.schema):
            return None
        return _only_key(connection, table)


def _only_key(connection: Connection, table: Table) -> str | None:
    keys = connection.execute(select(table.c.document_key).limit(2)).scalars().all()
    if len(keys) > 1:
        raise CatalogError(
            f"The catalog's table {NAME} has several rows, of which one alone is the key that seals "
            f"documents. Find out who wrote the others, and delete all rows but the one with id {_ONLY}."
        )
    return keys[0] if keys else None


def ensure(catalog: Catalog, new: str) -> str:
    """Return the key, which is ``new`` if there was none."""
    found = read(catalog)
    if found is not None:
        return found
    table = document_key_table(catalog.tables.metadata_schema)
    own_tables.ensure_table(catalog, table)

    def attempt() -> str:
        with catalog.dialect.writing() as connection:
            known = _only_key(connection, table)
            if known is None:
                connection.execute(table.insert(), {"id": _ONLY, "document_key": new})
                connection.commit()
            return known or new

    return with_retries(catalog.dialect, DEFAULT_RETRY, attempt)[0]
