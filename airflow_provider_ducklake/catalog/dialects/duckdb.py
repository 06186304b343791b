"""Catalogs in a DuckDB file: one process at a time, so nothing stays open between two transactions.

Our own processes queue on a side lock file. A client of another kind that has the file open is waited for a
moment, and then named in an error.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import duckdb
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from airflow_provider_ducklake.catalog.database.connect import CONNECT_TIMEOUT_SECONDS, duckdb_engine, shown
from airflow_provider_ducklake.catalog.dialects.dialect import CatalogDialect
from airflow_provider_ducklake.catalog.dialects.lock_file import locked
from airflow_provider_ducklake.errors import CatalogUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HAS_TABLE = text(
    "SELECT count(*) FROM duckdb_tables() WHERE database_name = current_database()"
    " AND schema_name = :schema AND table_name = :name"
)
_TABLE_NAMES = text(
    "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()"
    " AND schema_name = :schema"
)
_COLUMN_NAMES = text(
    "SELECT column_name FROM duckdb_columns() WHERE database_name = current_database()"
    " AND schema_name = :schema AND table_name = :name ORDER BY column_index"
)
_CURRENT = text("SELECT current_database()")
_COPY = "airflow_ducklake_copy"
_ADVICE = (
    "A DuckDB file admits one process at a time, which has to close it (or DETACH the lake) first. For "
    "several clients at once keep the catalog in PostgreSQL."
)


class DuckDbDialect(CatalogDialect):
    """A catalog in one DuckDB file on one host."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.patience_seconds: float = CONNECT_TIMEOUT_SECONDS
        self._reader = duckdb_engine(engine.url, read_only=True)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with locked(self.engine.url), self._connect(self.engine) as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with locked(self.engine.url, shared=True), self._connect(self._reader) as connection:
            yield connection

    def _connect(self, engine: Engine) -> Connection:
        """Open the file; an I/O error, such as a lock of another process, is tried again for a while."""
        retrying = Retrying(
            retry=retry_if_exception(_is_io_error),
            wait=wait_fixed(0.1),
            stop=stop_after_delay(self.patience_seconds),
            reraise=True,
        )
        try:
            connection: Connection = retrying(engine.connect)
        except DBAPIError as error:
            said = str(error.orig).strip().splitlines()[0]
            raise CatalogUnavailableError(shown(engine.url), f"{said} {_ADVICE}") from error
        return connection

    def is_lost_race(self, error: DBAPIError) -> bool:
        return isinstance(error.orig, duckdb.ConstraintException | duckdb.TransactionException)

    def copy_file(self, connection: Connection, target: Path) -> None:
        """Copy by DuckDB itself, and end the transaction: one can write to one file alone."""
        quote = connection.dialect.identifier_preparer.quote_identifier
        source = quote(connection.execute(_CURRENT).scalar_one())
        path = str(target).replace("'", "''")
        connection.commit()
        for statement in (
            f"ATTACH '{path}' AS {_COPY}",
            f"COPY FROM DATABASE {source} TO {_COPY}",
            f"DETACH {_COPY}",
        ):
            connection.exec_driver_sql(statement)
            connection.commit()

    def has_table(self, connection: Connection, name: str, schema: str | None) -> bool:
        """Ask DuckDB's own tables; its SQLAlchemy dialect asks PostgreSQL's, which DuckDB has not all of."""
        values = {"schema": schema or "main", "name": name}
        return bool(connection.execute(_HAS_TABLE, values).scalar_one())

    def table_names(self, connection: Connection, schema: str | None) -> set[str]:
        """Ask DuckDB's own tables, as ``has_table`` does."""
        return set(connection.execute(_TABLE_NAMES, {"schema": schema or "main"}).scalars())

    def column_names(self, connection: Connection, table: str, schema: str | None) -> list[str]:
        """Ask DuckDB's own tables, as ``has_table`` does."""
        values = {"schema": schema or "main", "name": table}
        return list(connection.execute(_COLUMN_NAMES, values).scalars())


def _is_io_error(error: BaseException) -> bool:
    return isinstance(error, DBAPIError) and isinstance(error.orig, duckdb.IOException)
