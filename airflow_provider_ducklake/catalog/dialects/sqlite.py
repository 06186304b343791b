"""SQLite catalogs: writers queue on a lock file of their own, because SQLite's waiting starves some."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import String, and_, case, column, exists, func, select, table, type_coerce

from airflow_provider_ducklake.catalog.database.connect import WRITES
from airflow_provider_ducklake.catalog.dialects.dialect import ONLY_PLAIN, CatalogDialect
from airflow_provider_ducklake.catalog.dialects.lock_file import locked, processes_that_lock
from airflow_provider_ducklake.spec.inlined_form import InlinedForm
from airflow_provider_ducklake.spec.types.scalars import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import ColumnElement, Connection, Select
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

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with locked(self.engine.url, self.limits), self.engine.connect() as connection:
            try:
                yield connection.execution_options(**{WRITES: True})
            except BaseException:
                # A failed COMMIT leaves SQLite's transaction open behind SQLAlchemy's back.
                if not connection.invalidated and connection.connection.driver_connection is not None:
                    connection.connection.driver_connection.rollback()
                raise

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self.engine.connect() as connection:
            yield connection

    def copy_file(self, connection: Connection, target: Path) -> None:  # noqa: ARG002 - another one reads
        """Copy by SQLite itself: closing a file that something else has opened would drop its locks."""
        source = sqlite3.connect(self.engine.url.database or "")
        with closing(source), closing(sqlite3.connect(target)) as copy:
            source.backup(copy)

    def is_ordered(self, times: ColumnElement[Any]) -> ColumnElement[bool]:
        """Return which are of our form, as times are texts, which others may have written in another form."""
        text = type_coerce(times, String)
        return and_(text.like(_OWN_FORM), text.not_like(_WITH_LAST_ZERO))

    @staticmethod
    def relations(schema: str | None) -> Select[Any]:
        of_schema = table("sqlite_master", *map(column, ("name", "type", "tbl_name", "sql")), schema=schema)
        trigger = of_schema.alias("trigger_of")
        has_trigger = exists().where(trigger.c.type == "trigger", trigger.c.tbl_name == of_schema.c.name)
        problem = case(
            (of_schema.c.type != "table", "is a view" + ONLY_PLAIN),
            (of_schema.c.sql.like("CREATE VIRTUAL %"), "is a virtual table" + ONLY_PLAIN),
            (has_trigger, "has a trigger" + ONLY_PLAIN),
        )
        info = func.pragma_table_info(of_schema.c.name).table_valued("cid", "name", joins_implicitly=True)
        query = select(of_schema.c.name, info.c.name.label("column_name"), problem.label("problem"))
        is_one = of_schema.c.type.in_(("table", "view"))
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
