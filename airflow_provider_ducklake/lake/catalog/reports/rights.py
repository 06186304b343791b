"""Check the privileges of a catalog database's user without leaving anything behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.catalog.database.connect import open_engine, parse_url, shown
from airflow_provider_ducklake.lake.catalog.dialects import dialect_of
from airflow_provider_ducklake.lake.catalog.open_lake import translated
from airflow_provider_ducklake.lake.errors import CatalogRefusedError

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

_WHY = (
    "tasks create tables there: those of a new lake, those called airflow_ducklake_…, and those for rows in "
    "the catalog"
)


def check_creates_tables(url: str | URL, metadata_schema: str | None = None) -> None:
    """Refuse a user who may not create tables where a lake's are, or would be; only PostgreSQL tells.

    Raises:
        CatalogRefusedError: says what the database says.
        CatalogUnavailableError: the database cannot be reached, or refuses the login.
    """
    parsed = parse_url(url)
    dialect = dialect_of(open_engine(parsed), metadata_schema)
    try:
        with translated(dialect):
            dialect.try_to_create_table(metadata_schema)
    except CatalogRefusedError as error:
        reason = f"{error.reason}; {_WHY}"
        raise CatalogRefusedError(shown(parsed), reason, error.statement, error.way_out) from None
    finally:
        dialect.engine.dispose()
