"""Catalogs in a DuckDB file: one process at a time, so nothing stays open between two transactions.

Our own processes queue on a side lock file. A client of another kind that has the file open is waited for a
moment, and then named in an error.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import NullType
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from ...errors import CatalogUnavailableError, UntrustedValueError
from ...format.limits import CONNECT_TIMEOUT_SECONDS
from ...format.types.ducklake_types import DuckLakeType, ScalarKind, holds_variants
from ...format.types.literals import format_literal, parse_cast
from ..database.connect import copy_of, duckdb_engine, first_line, shown
from ..database.tables import (
    OTHER_PREFIXES,
    CatalogBoolean,
    CatalogInteger,
    CatalogText,
    CatalogTimestamp,
    CatalogUuid,
    format_names,
)
from .dialect import ONLY_PLAIN, CatalogDialect
from .sqlite import locked

if TYPE_CHECKING:
    from ...format.schema import TableSchema

_INDEX_NAMES = sa.text(
    "SELECT index_name FROM duckdb_indexes() WHERE database_name = current_database()"
    " AND schema_name = :schema AND table_name = :table"
)
# Asked without a function or an operator that is not qualified: the file may have its own.
_VIEWS = sa.text(
    "SELECT view_name FROM system.main.duckdb_views() WHERE NOT internal"
    " AND database_name = system.main.current_database() AND schema_name = :schema"
)
_FUNCTIONS = "SELECT system.main.lower(function_name) FROM system.main.duckdb_functions() WHERE "
_MACROS, _OWN_FUNCTIONS = sa.text(f"{_FUNCTIONS} NOT internal"), sa.text(f"{_FUNCTIONS} internal")
_CURRENT = sa.text("SELECT current_database()")
_COPY = "airflow_ducklake_copy"
_ROWS = "airflow_ducklake_rows"
_ADVICE = (
    "Only one process at a time can open a DuckDB file: the other one has to close it (or DETACH the lake) "
    "first. For several clients at once, keep the catalog in PostgreSQL."
)
_NEWER_FILE = (
    f"DuckDB {duckdb.__version__} is installed here, and a newer one made or changed this file. Install that "
    "one (pip install --upgrade duckdb), or have it copy the catalog into a file that every DuckDB opens: "
    "ATTACH 'new.duckdb' AS new (STORAGE_VERSION 'v1.0.0'); COPY FROM DATABASE lake TO new."
)
_CONFLICTS = ("conflict", "Conflict", "constraint violation")
_NOT_WRITTEN = "Failed to commit: Could not write file"
# DuckDB's errors have no codes. What it says of the file itself, no waiting changes.
_ADVICE_ON_FILE = {
    "with version number": _NEWER_FILE,
    "storage version greater": _NEWER_FILE,
    "No space left": "Make room on its disk.",
    "not a valid DuckDB database": "Check the path of the catalog, or restore the file from a backup.",
}


class DuckDbDialect(CatalogDialect):
    """A catalog in one DuckDB file on one host."""

    def __init__(self, engine: sa.Engine, metadata_schema: str | None = None) -> None:
        super().__init__(engine)
        self._schema = metadata_schema or "main"
        self._checked: tuple[object, ...] = ()
        self.patience_seconds: float = CONNECT_TIMEOUT_SECONDS
        self._reader = duckdb_engine(engine.url, read_only=True)

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        with locked(self.engine.url, self.limits), self._connect(self.engine) as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        with locked(self.engine.url, self.limits, shared=True), self._connect(self._reader) as connection:
            yield connection

    def _connect(self, engine: sa.Engine) -> sa.Connection:
        """Open the file, and check its objects if it was changed since the last time."""
        connection = self._opened(engine)
        try:
            found = tuple(_state(f"{engine.url.database}{end}") for end in ("", ".wal"))
            if found != self._checked:
                self._check_objects(connection)
                connection.rollback()
            self._checked = found
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_objects(self, connection: sa.Connection) -> None:
        """Refuse views in the place of tables, and macros in the place of functions, in names of any case.

        No other process can change the file while it is open. Nothing interrupts DuckDB before it has put
        together what a statement means, which views of views make long.
        """
        views = connection.execute(_VIEWS, {"schema": self._schema}).scalars()
        for name in views:
            if name.lower() in format_names() or name.lower().startswith(OTHER_PREFIXES):
                raise UntrustedValueError("The catalog", name, "is a view" + ONLY_PLAIN)
        macros = {*connection.execute(_MACROS).scalars()}
        if macros and (taken := macros.intersection(connection.execute(_OWN_FUNCTIONS).scalars())):
            raise UntrustedValueError(
                "The catalog", min(taken), "is a macro with the name of a function of DuckDB's"
            )

    def _opened(self, engine: sa.Engine) -> sa.Connection:
        """Open the file; an I/O error, such as a lock of another process, is tried again for a while."""
        retrying = Retrying(
            retry=retry_if_exception(_may_pass),
            wait=wait_fixed(0.1),
            stop=stop_after_delay(self.patience_seconds),
            reraise=True,
        )
        try:
            connection: sa.Connection = retrying(engine.connect)
        except DBAPIError as error:
            advice = _advice_on_file(error) or _ADVICE
            raise CatalogUnavailableError(shown(engine.url), f"{first_line(error.orig)} {advice}") from error
        return connection

    def insert_rows(self, connection: sa.Connection, table: sa.Table, rows: list[dict[str, Any]]) -> None:
        """Insert by Arrow, which takes a thousandth of the time; mixed cells of inlined rows one by one."""
        import pyarrow as pa

        columns = [(column, [row.get(column.key) for row in rows]) for column in table.columns]
        try:
            arrow = pa.table({f"c{place}": _arrow(*one) for place, one in enumerate(columns)})
        except (pa.ArrowException, TypeError, OverflowError):
            super().insert_rows(connection, table, rows)
            return
        driver: Any = connection.connection.driver_connection
        name = connection.dialect.identifier_preparer.format_table(table)
        driver.register(_ROWS, arrow)
        connection.exec_driver_sql(f"INSERT INTO {name} SELECT * FROM {_ROWS}")  # noqa: S608 - names of ours
        driver.unregister(_ROWS)

    def inlined_cells(self, rows: sa.Table, schema: TableSchema) -> sa.Select[Any]:
        """Ask for columns of DuckDB's own types as its texts: Python's types end sooner."""
        cells = list(rows.c)
        first = len(cells) - len(schema.columns)
        typed = zip(cells[first:], schema.columns, strict=True)
        return sa.select(*cells[:first], *(_cell(cell, column.type) for cell, column in typed))

    def with_literals(self, row: dict[str, Any], schema: TableSchema) -> dict[str, Any]:
        for column in schema.columns:
            if column.children and row[column.name] is not None and not holds_variants(column.type):
                row[column.name] = format_literal(column.type, parse_cast(column.type, row[column.name]))
        return row

    def is_lost_race(self, error: DBAPIError) -> bool:
        """Return True if a conflict is what a transaction failed for: a disk makes it fail, too."""
        if isinstance(error.orig, duckdb.TransactionException):
            is_conflict = any(word in str(error.orig) for word in _CONFLICTS)
            return is_conflict and not self.is_refusal(error)
        return isinstance(error.orig, duckdb.ConstraintException)

    def is_refusal(self, error: DBAPIError) -> bool:
        """Return True if the disk did not take the end of the transaction, because it is full, say."""
        return _NOT_WRITTEN in str(error.orig)

    def is_lock_timeout(self, error: DBAPIError) -> bool:  # noqa: ARG002 - open files exclude other processes
        return False

    def copy_file(self, connection: sa.Connection, target: Path) -> None:
        """Copy by DuckDB itself, and end the transaction: one can write to one file alone.

        It is allowed one file beside the catalog, by whatever name the copy is to have then.
        """
        quote = connection.dialect.identifier_preparer.quote_identifier
        source = quote(connection.execute(_CURRENT).scalar_one())
        made = copy_of(connection)
        path = str(made).replace("'", "''")
        connection.commit()
        made.parent.mkdir(mode=stat.S_IRWXU)
        try:
            for statement in (
                f"ATTACH '{path}' AS {_COPY}",
                f"COPY FROM DATABASE {source} TO {_COPY}",
                f"DETACH {_COPY}",
            ):
                connection.exec_driver_sql(statement)
                connection.commit()
            made.rename(target)
        finally:
            shutil.rmtree(made.parent)

    @staticmethod
    def relations(schema: str | None) -> sa.Select[Any]:
        """Ask DuckDB's own tables; its SQLAlchemy dialect asks PostgreSQL's, which DuckDB has not all of."""
        names = ("database_name", "schema_name", "table_name", "column_name", "column_index")
        found = sa.func.system.main.duckdb_columns().table_valued(*names)
        views = sa.func.system.main.duckdb_views().table_valued("database_name", "schema_name", "view_name")
        is_view = sa.exists().where(
            views.c.database_name == found.c.database_name,
            views.c.schema_name == found.c.schema_name,
            views.c.view_name == found.c.table_name,
        )
        is_there = sa.and_(
            found.c.database_name == sa.func.system.main.current_database(),
            found.c.schema_name == (schema or "main"),
        )
        problem = sa.case((is_view, "is a view" + ONLY_PLAIN))
        query = sa.select(found.c.table_name, found.c.column_name, problem.label("problem")).where(is_there)
        return query.order_by(found.c.table_name, found.c.column_index)

    @staticmethod
    def folded(name: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
        lower: sa.ColumnElement[str] = sa.func.system.main.lower(name)
        return lower

    def index_names(self, connection: sa.Connection, table: str, schema: str | None) -> set[str]:
        """List a table's indexes from DuckDB's own functions: its SQLAlchemy dialect lists none."""
        names = connection.execute(_INDEX_NAMES, {"schema": schema or "main", "table": table})
        return set(names.scalars())


def _arrow(column: sa.Column[Any], values: list[Any]) -> Any:  # noqa: ANN401 - pyarrow has no types to name
    """Return the values of a column; of users' own columns, whatever type they have."""
    import pyarrow as pa

    match column.type:
        case CatalogInteger():
            return pa.array(values, pa.int64())
        case CatalogBoolean():
            return pa.array(values, pa.bool_())
        case CatalogTimestamp():
            return pa.array(values, pa.timestamp("us", "UTC"))
        case CatalogText() | CatalogUuid():
            return pa.array(values, pa.string())
        case _:
            return pa.array(values)


def _state(path: str) -> tuple[int, ...] | None:
    """Return values that change with a file; a writer cannot choose the last one (ctime). None: no file."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a name that is no Path yet
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns


def _may_pass(error: BaseException) -> bool:
    if not (isinstance(error, DBAPIError) and isinstance(error.orig, duckdb.IOException)):
        return False
    return _advice_on_file(error) is None


def _advice_on_file(error: DBAPIError) -> str | None:
    text = str(error.orig)
    return next((advice for words, advice in _ADVICE_ON_FILE.items() if words in text), None)


def _cell(cell: sa.ColumnElement[Any], type_: DuckLakeType) -> sa.ColumnElement[Any]:
    if type_.facts.kind is ScalarKind.BLOB:
        return sa.type_coerce(cell, sa.LargeBinary)
    untyped = sa.type_coerce(cell, NullType())
    if type_.facts.kind is ScalarKind.VARIANT:
        return sa.case((untyped.is_not(None), sa.func.variant_to_parquet_variant(untyped)))
    return untyped if type_.facts.kind is ScalarKind.STRING else sa.cast(untyped, sa.VARCHAR)
