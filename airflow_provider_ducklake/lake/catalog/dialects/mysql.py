"""MySQL and MariaDB catalogs: a named lock for writers, READ COMMITTED; one snapshot for readers.

The named lock belongs to the session: it outlives COMMIT and the connection's return to the pool, so it is
released by hand. CREATE, ALTER and DROP commit the open transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa
from sqlalchemy import table, text
from sqlalchemy.exc import DBAPIError, OperationalError

from ...errors import DuckLakeError
from ...format.log_lines import logger
from ..database.tables import CatalogTimestamp
from .dialect import ONLY_PLAIN, CatalogDialect, is_unknown_host

log = logger(__name__)

_LOCK_WAIT_TIMEOUT = 1205
_LOST_RACE = {
    1062,  # ER_DUP_ENTRY: another writer has the snapshot id
    1213,  # ER_LOCK_DEADLOCK
}
_MISSING_RIGHT = {
    1044,  # ER_DBACCESS_DENIED_ERROR
    1142,  # ER_TABLEACCESS_DENIED_ERROR: "ALTER command denied to user …"
    1143,  # ER_COLUMNACCESS_DENIED_ERROR
    1227,  # ER_SPECIFIC_ACCESS_DENIED_ERROR
}
_GET_LOCK = text("SELECT GET_LOCK(:name, :seconds)")
_HOLDER = text("SELECT IS_USED_LOCK(:name)")
# Without the privilege PROCESS a user sees its own sessions alone.
_SESSION = text("SELECT user, host, time FROM information_schema.processlist WHERE id = :id")


class _LockTimeoutError(Exception):
    """GET_LOCK timed out, which it reports by its result; with the error code of other lock timeouts."""


def _lock_name(text: str) -> str:
    """Return a name of at most 64 bytes; names are server-wide."""
    return f"ducklake commit {hashlib.sha256(text.encode()).hexdigest()[:40]}"


def _is_taken(connection: sa.Connection, name: str, seconds: float) -> bool:
    return bool(connection.execute(_GET_LOCK, {"name": name, "seconds": seconds}).scalar_one() == 1)


def _holder(connection: sa.Connection, name: str) -> str:
    """Describe the session that has a lock."""
    number = connection.execute(_HOLDER, {"name": name}).scalar_one()
    if number is None:
        return "a session that has ended"
    session = connection.execute(_SESSION, {"id": number}).first()
    of = "" if session is None else f" of user {session.user} at {session.host}"
    since = "" if session is None else f", whose state is {session.time} s old"
    return f"the session {number}{of}{since}; its owner can end it by KILL {number}"


@contextmanager
def _gone_if_interrupted(connection: sa.Connection) -> Iterator[None]:
    """Close a connection in whose use a signal handler raised: its next answer may be the one before."""
    try:
        yield
    except (DBAPIError, DuckLakeError):
        raise
    except BaseException:
        connection.invalidate()
        raise


_WRONG_LOGIN = {1045, 1049}  # wrong password, no such database


class MySqlDialect(CatalogDialect):
    """A catalog in one database of a MySQL or MariaDB server; a metadata schema is another database."""

    transactional_ddl = False
    # DuckDB cannot commit most writes to these catalogs, so the rows it inlines could not be flushed.
    initial_options = MappingProxyType({"data_inlining_row_limit": "0"})
    reads_inlined = False
    clock = sa.func.utc_timestamp(6, type_=CatalogTimestamp)

    def __init__(self, engine: sa.Engine, metadata_schema: str | None) -> None:
        super().__init__(engine)
        self._metadata_schema = metadata_schema

    @cached_property
    def lock_name(self) -> str:
        """The lock's name: any user of the server can take a lock whose name it can guess.

        A schema's UUID is random; who cannot read the catalog does not see it.
        """
        names = ("schema_uuid", "schema_id", "begin_snapshot")
        schema = table("ducklake_schema", *map(sa.column, names), schema=self._metadata_schema)
        query = sa.select(schema.c.schema_uuid).order_by(schema.c.schema_id, schema.c.begin_snapshot).limit(1)
        with self.engine.connect() as connection:
            return _lock_name(f"{self._database} {connection.execute(query).scalar()}")

    @property
    def _database(self) -> str:
        return self._metadata_schema or self.engine.url.database or ""

    def writing(self) -> AbstractContextManager[sa.Connection]:
        return self._holding(self.lock_name)

    def creating(self) -> AbstractContextManager[sa.Connection]:
        return self._holding(_lock_name(self._database))

    @contextmanager
    def _holding(self, name: str) -> Iterator[sa.Connection]:
        with self.engine.connect() as connection, _gone_if_interrupted(connection):
            self._take_lock(name, connection)
            try:
                with _gone_if_interrupted(connection):
                    yield connection
            finally:
                self._release_lock(name, connection)

    def _take_lock(self, name: str, connection: sa.Connection) -> None:
        first, limit = self.limits.logged_after_seconds, self.limits.lock_timeout_seconds
        if _is_taken(connection, name, first):
            return
        log.warning("Waiting for the commit lock of the catalog: it is held by %s", _holder(connection, name))
        if _is_taken(connection, name, limit - first):
            return
        cause = _LockTimeoutError(_LOCK_WAIT_TIMEOUT, "another writer held the commit lock")
        cause.add_note(_holder(connection, name))
        raise OperationalError(str(_GET_LOCK), {"name": name}, cause)

    def _release_lock(self, name: str, connection: sa.Connection) -> None:
        """End what is left of the transaction, then the lock; never fails, which would hide the outcome."""
        if connection.invalidated:
            return  # and with the session goes the lock
        try:
            driver = connection.connection.driver_connection
            assert driver is not None
            driver.rollback()
            with driver.cursor() as cursor:
                cursor.execute("SELECT RELEASE_LOCK(%s)", (name,))
        except Exception:
            log.warning(
                "Could not release the commit lock; closing the connection releases it", exc_info=True
            )
            connection.invalidate()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        with self.engine.connect() as connection, _gone_if_interrupted(connection):
            yield connection.execution_options(isolation_level="REPEATABLE READ")

    def bytewise(self, text: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        return sa.cast(text, sa.LargeBinary)

    @staticmethod
    def relations(schema: str | None) -> sa.Select[Any]:
        """Ask for views, too, which may run as who reads them; triggers run as who made them.

        Of a view that calls what its reader may not call, the server names no columns.
        """
        names = ("table_schema", "table_name")
        found = table("tables", *map(sa.column, (*names, "table_type")), schema="information_schema")
        of_found = ("column_name", "ordinal_position", "extra")
        columns = table("columns", *map(sa.column, (*names, *of_found)), schema="information_schema")
        place = schema or sa.func.database()
        problem = sa.case(
            (found.c.table_type != "BASE TABLE", "is a view" + ONLY_PLAIN),
            (
                columns.c.extra.like("%GENERATED%"),
                "has a column with an expression as its value" + ONLY_PLAIN,
            ),
        )
        is_of = (columns.c.table_schema == place) & (columns.c.table_name == found.c.table_name)
        query = sa.select(found.c.table_name, columns.c.column_name, problem.label("problem"))
        ordered = query.order_by(found.c.table_name, columns.c.ordinal_position)
        return ordered.join_from(found, columns, is_of, isouter=True).where(found.c.table_schema == place)

    def why_not_alter(self, connection: sa.Connection, table: sa.Table) -> str | None:
        """Ask by a statement that alters nothing: rights come by many ways."""
        name = connection.dialect.identifier_preparer.format_table(table)
        try:
            connection.exec_driver_sql(f"ALTER TABLE {name}")
        except DBAPIError as error:
            if not self.is_missing_right(error):
                raise
            return (
                "GRANT the user ALTER, CREATE, DROP and INSERT on the database: docs/roles.md has the "
                "statements for a maintainer."
            )
        return None

    def is_lost_race(self, error: DBAPIError) -> bool:
        return bool(error.orig and error.orig.args and error.orig.args[0] in _LOST_RACE)

    def is_lock_timeout(self, error: DBAPIError) -> bool:
        return bool(error.orig and error.orig.args and error.orig.args[0] == _LOCK_WAIT_TIMEOUT)

    def is_wrong_address(self, error: DBAPIError) -> bool:
        code = error.orig.args[0] if error.orig and error.orig.args else None
        return code in _WRONG_LOGIN or is_unknown_host(self.engine.url)

    def is_missing_right(self, error: DBAPIError) -> bool:
        return bool(error.orig and error.orig.args and error.orig.args[0] in _MISSING_RIGHT)
