"""Tables of ours beside the format's: their names begin with ``airflow_ducklake_``; DuckDB does not mind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.catalog.added_columns import AddColumn
from airflow_provider_ducklake.catalog.retry import DEFAULT_RETRY, with_retries

if TYPE_CHECKING:
    from typing import Any

    from sqlalchemy import Column, Connection, Table

    from airflow_provider_ducklake.catalog.catalog import Catalog
    from airflow_provider_ducklake.catalog.dialects.dialect import CatalogDialect


def ensure_table(catalog: Catalog, table: Table) -> None:
    """Create a table of ours where it is missing, or its newer columns, in a transaction of its own.

    Older releases go on beside newer columns, which are NULL in their rows.
    """
    dialect = catalog.dialect
    with dialect.reading() as connection:
        if not _missing(dialect, connection, table):
            return

    def create() -> None:
        with dialect.writing() as connection:
            missing = _missing(dialect, connection, table)
            if len(missing) == len(table.columns):
                table.create(connection)
            else:
                for column in missing:
                    connection.execute(AddColumn(column))
            connection.commit()

    with_retries(dialect, DEFAULT_RETRY, create)


def _missing(dialect: CatalogDialect, connection: Connection, table: Table) -> list[Column[Any]]:
    """Return the columns that the database lacks; all of them where it lacks the table."""
    if not dialect.has_table(connection, table.name, table.schema):
        return list(table.columns)
    known = dialect.column_names(connection, table.name, table.schema)
    return [column for column in table.columns if column.name not in known]
