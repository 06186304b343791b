"""Tables of ours beside the format's: their names begin with ``airflow_ducklake_``; DuckDB does not mind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.catalog.retry import DEFAULT_RETRY, with_retries

if TYPE_CHECKING:
    from sqlalchemy import Table

    from airflow_provider_ducklake.catalog.catalog import Catalog


def ensure_table(catalog: Catalog, table: Table) -> None:
    """Create a table of ours where it is missing, in a transaction of its own."""
    dialect = catalog.dialect
    with dialect.reading() as connection:
        if dialect.has_table(connection, table.name, table.schema):
            return

    def create() -> None:
        with dialect.writing() as connection:
            if not dialect.has_table(connection, table.name, table.schema):
                table.create(connection)
            connection.commit()

    with_retries(dialect, DEFAULT_RETRY, create)
