"""MySQL and MariaDB catalogs: a named lock for writers, READ COMMITTED; one snapshot for readers.

The named lock belongs to the session: it outlives COMMIT and the connection's return to the pool, so it is
released by hand. CREATE, ALTER and DROP commit the open transaction.
"""

from __future__ import annotations

import hashlib
import logging
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, LargeBinary, case, cast, column, func, select, table, text
from sqlalchemy.exc import DBAPIError, OperationalError

from airflow_provider_ducklake.catalog.database.column_types import CatalogTimestamp
from airflow_provider_ducklake.catalog.database.connect import LOCK_TIMEOUT_SECONDS
from airflow_provider_ducklake.catalog.dialects.dialect import ONLY_PLAIN, CatalogDialect
from airflow_provider_ducklake.catalog.dialects.grants import Wanted, mysql_grants
from airflow_provider_ducklake.errors import DuckLakeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import ColumnElement, Select, Table

log = logging.getLogger(__name__)

_LOCK_WAIT_TIMEOUT = 1205
_LOST_RACE = {
    1062,  # ER_DUP_ENTRY: somebody else has the snapshot id
    _LOCK_WAIT_TIMEOUT,
    1213,  # ER_LOCK_DEADLOCK
}
_MISSING_RIGHT = {
    1044,  # ER_DBACCESS_DENIED_ERROR
    1142,  # ER_TABLEACCESS_DENIED_ERROR: "ALTER command denied to user …"
    1143,  # ER_COLUMNACCESS_DENIED_ERROR
    1227,  # ER_SPECIFIC_ACCESS_DENIED_ERROR
}
# Of MySQL alone: names of databases in GRANT are no patterns then.
_EXACT_NAMES = text("SHOW VARIABLES LIKE 'partial\\_revokes'")
_GET_LOCK = text("SELECT GET_LOCK(:name, :seconds)")


class _LockTimeoutError(Exception):
    """GET_LOCK gave up waiting, which it says by a value; with the code of the other locks that do."""


@contextmanager
def _gone_if_interrupted(connection: Connection) -> Iterator[None]:
    """Close a connection in whose use a signal handler raised: its next answer may be the one before."""
    try:
        yield
    except (DBAPIError, DuckLakeError):
        raise
    except BaseException:
        connection.invalidate()
        raise


class MySqlDialect(CatalogDialect):
    """A catalog in one database of a MySQL or MariaDB server; a metadata schema is another database."""

    transactional_ddl = False
    # DuckDB cannot commit most writes to these catalogs, so nobody would flush the rows it inlines.
    initial_options = MappingProxyType({"data_inlining_row_limit": "0"})
    reads_inlined = False
    clock = func.utc_timestamp(6, type_=CatalogTimestamp)

    def __init__(self, engine: Engine, metadata_schema: str | None) -> None:
        super().__init__(engine)
        # Names are server-wide and at most 64 bytes.
        database = metadata_schema or engine.url.database or ""
        self.lock_name = f"ducklake commit {hashlib.sha256(database.encode()).hexdigest()[:40]}"
        self.lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with self.engine.connect() as connection, _gone_if_interrupted(connection):
            self._take_lock(connection)
            try:
                with _gone_if_interrupted(connection):
                    yield connection
            finally:
                self._release_lock(connection)

    def _take_lock(self, connection: Connection) -> None:
        values = {"name": self.lock_name, "seconds": self.lock_timeout_seconds}
        if connection.execute(_GET_LOCK, values).scalar_one() != 1:
            cause = _LockTimeoutError(_LOCK_WAIT_TIMEOUT, "another writer held the commit lock")
            raise OperationalError(str(_GET_LOCK), values, cause)

    def _release_lock(self, connection: Connection) -> None:
        """End what is left of the transaction, then the lock; never fails, which would hide the outcome."""
        if connection.invalidated:
            return  # and with the session goes the lock
        try:
            driver = connection.connection.driver_connection
            assert driver is not None
            driver.rollback()
            with driver.cursor() as cursor:
                cursor.execute("SELECT RELEASE_LOCK(%s)", (self.lock_name,))
        except Exception:
            log.warning(
                "Could not release the commit lock; closing the connection releases it", exc_info=True
            )
            connection.invalidate()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self.engine.connect() as connection, _gone_if_interrupted(connection):
            yield connection.execution_options(isolation_level="REPEATABLE READ")

    def bytewise(self, text: ColumnElement[Any]) -> ColumnElement[Any]:
        return cast(text, LargeBinary)

    @staticmethod
    def relations(schema: str | None) -> Select[Any]:
        """Ask for views, too, which may run as who reads them; triggers run as who made them.

        Of a view that calls what its reader may not call, the server names no columns.
        """
        names = ("table_schema", "table_name")
        found = table("tables", *map(column, (*names, "table_type")), schema="information_schema")
        of_found = ("column_name", "ordinal_position", "extra")
        columns = table("columns", *map(column, (*names, *of_found)), schema="information_schema")
        place = schema or func.database()
        problem = case(
            (found.c.table_type != "BASE TABLE", "is a view" + ONLY_PLAIN),
            (
                columns.c.extra.like("%GENERATED%"),
                "has a column with an expression as its value" + ONLY_PLAIN,
            ),
        )
        is_of = (columns.c.table_schema == place) & (columns.c.table_name == found.c.table_name)
        query = select(found.c.table_name, columns.c.column_name, problem.label("problem"))
        ordered = query.order_by(found.c.table_name, columns.c.ordinal_position)
        return ordered.join_from(found, columns, is_of, isouter=True).where(found.c.table_schema == place)

    def why_not_alter(self, connection: Connection, table: Table) -> str | None:
        """Ask by a statement that alters nothing: rights come by many ways."""
        name = connection.dialect.identifier_preparer.format_table(table)
        try:
            connection.exec_driver_sql(f"ALTER TABLE {name}")
        except DBAPIError as error:
            if not self.is_missing_right(error):
                raise
            return (
                "GRANT the user ALTER, CREATE, DROP and INSERT on the database: "
                'DuckLakeHook.grants("maintainer") returns the statements.'
            )
        return None

    def schema_of(self, connection: Connection, table: Table) -> str:
        return table.schema or str(connection.execute(select(func.database())).scalar_one())

    def grants(self, connection: Connection, wanted: Wanted, schema: str) -> list[str]:
        is_exact = connection.execute(_EXACT_NAMES).first()
        return list(mysql_grants(wanted, schema, has_patterns=is_exact is None or is_exact[1] != "ON"))

    def is_lost_race(self, error: DBAPIError) -> bool:
        return bool(error.orig and error.orig.args and error.orig.args[0] in _LOST_RACE)

    def is_missing_right(self, error: DBAPIError) -> bool:
        return bool(error.orig and error.orig.args and error.orig.args[0] in _MISSING_RIGHT)
