"""SQLite catalogs: writers queue on a lock file of their own, because SQLite's waiting starves some."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import String, and_, case, column, exists, func, select, table, type_coerce

from airflow_provider_ducklake.lake.catalog.database.companions import check_sqlite
from airflow_provider_ducklake.lake.catalog.database.connect import WRITES
from airflow_provider_ducklake.lake.catalog.database.tables import OTHER_PREFIXES, format_names
from airflow_provider_ducklake.lake.catalog.dialects.dialect import ONLY_PLAIN, CatalogDialect
from airflow_provider_ducklake.lake.catalog.dialects.lock_file import locked, processes_that_lock
from airflow_provider_ducklake.lake.spec.files import InlinedForm
from airflow_provider_ducklake.lake.spec.types.ducklake_types import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import ColumnElement, Connection, Engine, Select
    from sqlalchemy.exc import DBAPIError

_BUSY, _LOCKED, _FULL = 5, 6, 13
_CONSTRAINT_PRIMARY_KEY, _CONSTRAINT_UNIQUE = 1555, 2067

_OWN_FORM = "____-__-__ __:__:__%+00"  # LIKE patterns; texts of this form are in the order of their times
_WITH_LAST_ZERO = "%.%0+00"


class SqliteDialect(CatalogDialect):
    """A catalog in one file on one host."""

    inlined_form = InlinedForm(
        max_columns=2000,
        native=frozenset({Kind.BLOB}),
        has_decimals=False,
        nested_nul=True,
    )

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._schema_version: int | None = None

    def _check_changes(self, connection: Connection) -> None:
        """Refuse what somebody put in a table's place since the transaction before.

        The first transaction of an open lake asks that itself.

        Raises:
            UntrustedValueError: a table of a lake is not plain any more.
        """
        version = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
        if self._schema_version not in (None, version):
            names = (*sorted(format_names()), *(f"{one}%" for one in OTHER_PREFIXES))
            self.which_columns(names, None).ask(connection)
        self._schema_version = version

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with locked(self.engine.url, self.limits), self.engine.connect() as opened:
            connection = opened.execution_options(**{WRITES: True})
            try:
                self._check_changes(connection)
                yield connection
            except BaseException:
                # A failed COMMIT leaves SQLite's transaction open behind SQLAlchemy's back.
                if not connection.invalidated and connection.connection.driver_connection is not None:
                    connection.connection.driver_connection.rollback()
                raise

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self.engine.connect() as connection:
            self._check_changes(connection)
            yield connection

    def copy_file(self, connection: Connection, target: Path) -> None:  # noqa: ARG002 - another one reads
        """Copy by SQLite itself: closing a file that something else has opened would drop its locks."""
        check_sqlite(self.engine.url.database or "")
        source = sqlite3.connect(self.engine.url.database or "")
        with closing(source), closing(sqlite3.connect(target)) as copy:
            source.backup(copy)

    def is_ordered(self, times: ColumnElement[Any]) -> ColumnElement[bool]:
        """Return which are of our form, as times are texts, which others may have written in another form."""
        text = type_coerce(times, String)
        return and_(text.like(_OWN_FORM), text.not_like(_WITH_LAST_ZERO))

    @staticmethod
    def relations(schema: str | None) -> Select[Any]:
        """Ask SQLite's own table, in which whoever writes the file chooses the case of names and of types."""
        of_schema = table("sqlite_master", *map(column, ("name", "type", "tbl_name", "sql")), schema=schema)
        trigger = of_schema.alias("trigger_of")
        kind = func.lower(of_schema.c.type)
        has_trigger = exists().where(
            func.lower(trigger.c.type) == "trigger",
            func.lower(trigger.c.tbl_name) == func.lower(of_schema.c.name),
        )
        problem = case(
            (kind != "table", "is a view" + ONLY_PLAIN),
            (of_schema.c.sql.not_like("CREATE TABLE %"), "is a virtual table" + ONLY_PLAIN),
            (has_trigger, "has a trigger" + ONLY_PLAIN),
        )
        info = func.pragma_table_info(of_schema.c.name).table_valued("cid", "name", joins_implicitly=True)
        query = select(of_schema.c.name, info.c.name.label("column_name"), problem.label("problem"))
        is_one = kind.in_(("table", "view"))
        return query.select_from(of_schema, info).where(is_one).order_by(of_schema.c.name, info.c.cid)

    def is_lost_race(self, error: DBAPIError) -> bool:
        code = getattr(error.orig, "sqlite_errorcode", 0)
        return code & 0xFF in (_BUSY, _LOCKED) or code in (_CONSTRAINT_PRIMARY_KEY, _CONSTRAINT_UNIQUE)

    def is_lock_timeout(self, error: DBAPIError) -> bool:
        return getattr(error.orig, "sqlite_errorcode", 0) == _BUSY

    def lock_holder(self, error: DBAPIError) -> str:  # noqa: ARG002 - the system is asked
        return processes_that_lock(Path(self.engine.url.database or ""))

    def is_refusal(self, error: DBAPIError) -> bool:
        """Whether the disk is full: a COMMIT that says so has written no end of its transaction."""
        return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF == _FULL
