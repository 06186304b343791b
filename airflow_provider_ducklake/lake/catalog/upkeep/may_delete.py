"""Whether the database lets its user delete rows, asked before work that would be lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import false

from airflow_provider_ducklake.lake.catalog.dialects.retry import DEFAULT_RETRY, with_retries

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog


def check_may_delete(catalog: Catalog, kind: str) -> None:
    """Delete no row of a table of the format, so that a user who may not delete any is refused."""

    def attempt() -> None:
        with catalog.dialect.writing() as connection:
            connection.execute(catalog.tables[kind].delete().where(false()))

    with_retries(catalog.dialect, DEFAULT_RETRY, attempt)
