"""Engines for catalog databases, and the errors of opening one."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import sqlalchemy as sa
from sqlalchemy import literal
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, PoolProxiedConnection

from ...errors import CatalogError, CatalogUnavailableError, InvalidInputError
from ...format.limits import CONNECT_TIMEOUT_SECONDS, LIMITS, Limits
from ...format.versions import DEFAULT, NEWEST
from .file_connections import OF_DUCKDB, PatientSqlite, check_duckdb, check_sqlite, made_private
from .tables import CatalogTables, catalog_tables

if TYPE_CHECKING:
    import sqlite3

    from sqlalchemy.engine import URL, ExceptionContext
    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.types import TypeEngine

    from ...format.options import OptionRow


# Execution option: start the transaction as a writer.
WRITES = "ducklake_writes"
_RETURNED = "ducklake_returned"  # when a connection came back to the pool
_PROCESS = "ducklake_process"  # that opened a connection
_FILE = "ducklake_file"  # that a connection opened
_COPY = "ducklake_copy"  # the file that a connection may write a copy to
_LIMITS = "ducklake_limits"  # execution option of an engine
_IDLE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class _Database:
    """How catalogs in a database are opened.

    ``file``: what a file of it is called; None for a server. ``has_one_driver``: no other one will do.
    ``modules`` are those that the driver needs, ``packages`` install them.
    """

    driver: str
    open: Callable[[URL, Limits], sa.Engine]
    modules: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    file: str | None = None
    has_one_driver: bool = False


def parse_url(url: str | URL) -> URL:
    """Return the URL of a catalog database this release can open, with its driver."""
    try:
        parsed = sa.make_url(url)
    except (ArgumentError, ValueError):  # an unquoted password may end where the port should be
        raise InvalidInputError(
            "The catalog URL is not valid. Write it like sqlite:////data/lake.sqlite or "
            "postgresql+psycopg://user:password@host/database, with %40 for an @ in a name or password."
        ) from None
    backend = parsed.get_backend_name()
    database = _DATABASES.get(backend)
    if database is None:
        raise InvalidInputError(
            f"This release does not support catalogs in {backend!r}. It supports {', '.join(_DATABASES)}."
        )
    if database.file and parsed.database in (None, "", ":memory:"):
        raise InvalidInputError(
            f"A {database.file} catalog is a file. Give its absolute path: "
            f"{backend}:////absolute/path/lake.{backend}."
        )
    if database.has_one_driver:
        return _with_its_driver(parsed, database.driver)
    return parsed.set(drivername=database.driver) if "+" not in parsed.drivername else parsed


def _with_its_driver(url: URL, drivername: str) -> URL:
    name, _, driver = url.drivername.partition("+")
    ours = drivername.partition("+")[2]
    if driver not in ("", ours):
        raise InvalidInputError(
            f"The driver of a {name} catalog is {ours}, not {driver!r}. Write {drivername}://…"
        )
    if not url.database:
        raise InvalidInputError(f"The catalog URL names no database: {name}://user:password@host/database.")
    return url.set(drivername=drivername)


def shown(url: URL) -> str:
    """Return the URL for people: without the password, and without query values, which may hold one."""
    return url.set(query={}).render_as_string(hide_password=True)


def open_engine(url: URL) -> sa.Engine:
    """Return an engine with the transactions that commits need: READ COMMITTED, or BEGINs of our own."""
    _check_driver(url)
    limits = Limits.of(url.query)
    engine = _DATABASES[url.get_backend_name()].open(url.difference_update_query(LIMITS), limits)
    engine.update_execution_options(**{_LIMITS: limits})
    return engine


def limits_of(engine: sa.Engine) -> Limits:
    """Return the timeouts that an engine was opened with."""
    limits: Limits = engine.get_execution_options().get(_LIMITS, Limits())
    return limits


def _check_driver(url: URL) -> None:
    database = _needed(url)
    missing = [name for name in database.modules if not _is_installed(name)] if database else []
    if missing:
        raise CatalogUnavailableError(
            shown(url),
            f"its driver is not installed here (missing: {', '.join(missing)}). Install it where the task "
            f"runs: {packages_of(url)}.",
        )


def _needed(url: URL) -> _Database | None:
    """Return the database of a URL that is opened by our driver for it; None: by another one."""
    database = _DATABASES[url.get_backend_name()]
    return database if database.driver == url.drivername else None


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # it stands in sys.modules as None
        return False


def _engine(url: URL, **options: Any) -> sa.Engine:  # noqa: ANN401 - those of SQLAlchemy
    """Return an engine that shows no values in logs and errors: the keys of files are among them."""
    return sa.create_engine(url, hide_parameters=True, **options)


# psycopg reads times in no other style, and all digits only where they are sent; intervals are read as text.
_POSTGRES_SESSION = "-c timezone=UTC -c datestyle=ISO -c intervalstyle=postgres -c extra_float_digits=1"
# A network that lost the connection is found out within a minute, however long a statement may take.
_KEEPALIVES = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}


def _postgres_engine(url: URL, limits: Limits) -> sa.Engine:
    """Return an engine whose transactions begin with the text of ``dialects.postgres``.

    ``options`` of the URL are kept. Of two settings of one name the last counts: a user's may replace our
    limits, but not how values are read.
    """
    own = url.query.get("options", ())
    options = " ".join([own] if isinstance(own, str) else own)
    lock_timeout = math.ceil(limits.lock_timeout_seconds * 1000)
    arguments: dict[str, Any] = {
        "connect_timeout": CONNECT_TIMEOUT_SECONDS,
        "client_encoding": "utf8",  # names and values are any text, whatever the server's default
        "options": f"-c lock_timeout={lock_timeout} {options} {_POSTGRES_SESSION}",
        "application_name": "airflow_provider_ducklake",
        "prepare_threshold": None,  # of no use for texts that hold their values; and poolers like it
        **_KEEPALIVES,
        "tcp_user_timeout": 60_000,  # milliseconds, for what was sent
    }
    arguments = {key: one for key, one in arguments.items() if key == "options" or key not in url.query}
    # Looking for hstore would take three round trips.
    engine = _server_engine(url, arguments, isolation_level="AUTOCOMMIT", use_native_hstore=False)

    @sa.event.listens_for(engine, "handle_error")
    def leave_out_values(context: ExceptionContext) -> None:
        """Keep the first line: DETAIL and the text at the error show rows, which may hold keys."""
        original, wrapped = context.original_exception, context.sqlalchemy_exception
        for error in filter(None, (original, wrapped)):
            error.args = (first_line(error),)

    @sa.event.listens_for(engine, "do_connect")
    def connect(_dialect: object, _record: object, given: list[Any], named: dict[str, Any]) -> Any:  # noqa: ANN401 - the driver has its own types
        from .postgres_connection import PostgresConnection

        return PostgresConnection.opened(limits, *given, **named)

    return engine


_VALUE = " with text '"  # what SQLite shows of a value that is no UTF-8
_OF_VALUES = {1292, 1411, 1525, 1526, 3140}  # of MySQL's operational errors those whose words have a value
_COLUMN = re.compile(r" for (?:column|key) (\S+?)(?: at row \d+)?\Z")


def first_line(error: BaseException | None) -> str:
    """Return the first line of a driver's error, without values of rows and without the statement.

    Of an error that is about a value: its code and column, since the server's words may have the value.
    """
    if error is not None and _is_of_a_value(driver := getattr(error, "orig", None) or error):
        code = getattr(driver, "sqlstate", None) or next(iter(driver.args[:-1]), "")
        column = _COLUMN.search(str(driver.args[-1])) if driver.args else None
        return f"{type(driver).__name__} {code}".rstrip() + (f" of {column[1]}" if column else "")
    line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return line.partition(_VALUE)[0]


def _is_of_a_value(driver: BaseException) -> bool:
    """Return True if a driver's error may have a value in its words; those of broken keys have in some."""
    kinds = {one.__name__ for one in type(driver).__mro__}
    if "IntegrityError" in kinds:
        return not (hasattr(driver, "sqlstate") or hasattr(driver, "sqlite_errorname"))
    return "DataError" in kinds or next(iter(driver.args), None) in _OF_VALUES


class DriverError(Exception):
    """A driver's error, as the cause of an error of ours: without the statement and its values."""


def driver_error(error: BaseException) -> BaseException:
    """Return the cause that a traceback may show, of an error that holds a statement's values."""
    if not isinstance(error, DBAPIError):
        return error
    return DriverError(f"{type(error.orig).__name__}: {first_line(error.orig)}")


def _server_engine(url: URL, arguments: dict[str, Any], **options: Any) -> sa.Engine:  # noqa: ANN401 - SQLAlchemy's
    """Return an engine that asks a connection whether it still lives where it lay idle for a moment."""
    engine = _engine(url, connect_args=arguments, pool_size=2, **options)
    _leave_connections_to_their_process(engine)

    @sa.event.listens_for(engine, "checkin")
    def note_time(_connection: DBAPIConnection | None, record: ConnectionPoolEntry) -> None:
        record.info[_RETURNED] = time.monotonic()

    @sa.event.listens_for(engine, "checkout")
    def ping(connection: DBAPIConnection, record: ConnectionPoolEntry, _proxy: object) -> None:
        if time.monotonic() - record.info.get(_RETURNED, math.inf) < _IDLE_SECONDS:
            return
        try:
            with _in_a_hurry(connection):
                engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise DisconnectionError from error

    return engine


@contextmanager
def _in_a_hurry(connection: Any) -> Iterator[None]:  # noqa: ANN401 - PostgresConnection or MySQLConnection
    """Wait for an answer no longer than for a new connection."""
    patience = connection.patience_seconds
    connection.patience_seconds = min(patience, CONNECT_TIMEOUT_SECONDS)
    try:
        yield
    finally:
        connection.patience_seconds = patience


def _leave_connections_to_their_process(engine: sa.Engine) -> None:
    """Make a forked process open its own connections: two processes must not share one."""

    @sa.event.listens_for(engine, "connect")
    def note_process(_connection: DBAPIConnection, record: ConnectionPoolEntry) -> None:
        record.info[_PROCESS] = os.getpid()

    @sa.event.listens_for(engine, "checkout")
    def check_process(
        _connection: DBAPIConnection, record: ConnectionPoolEntry, proxy: PoolProxiedConnection
    ) -> None:
        if record.info[_PROCESS] != os.getpid():
            record.dbapi_connection = proxy.dbapi_connection = None  # type: ignore[misc]
            raise DisconnectionError


# A value that does not fit must be an error, and no mode of the server may change what our statements mean.
_MYSQL_SESSION = (
    "SET time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', "
    "innodb_lock_wait_timeout = {}"
)
# The server ends the session with codes of its own, which SQLAlchemy does not list: shutdown, killed.
_MYSQL_LOST = {1053, 1927}


def _mysql_engine(url: URL, limits: Limits) -> sa.Engine:
    arguments = {"connect_timeout": CONNECT_TIMEOUT_SECONDS, "charset": "utf8mb4"}
    arguments = {key: value for key, value in arguments.items() if key not in url.query}
    arguments["init_command"] = _MYSQL_SESSION.format(math.ceil(limits.lock_timeout_seconds))
    engine = _server_engine(url, arguments, isolation_level="READ COMMITTED")

    @sa.event.listens_for(engine, "do_connect")
    def connect(_dialect: object, _record: object, _given: object, named: dict[str, Any]) -> Any:  # noqa: ANN401 - the driver has its own types
        from .mysql_connection import MySQLConnection

        return MySQLConnection.opened(limits.statement_timeout_seconds, **named)

    @sa.event.listens_for(engine, "handle_error")
    def recognise_lost_connections(context: ExceptionContext) -> None:
        code = next(iter(context.original_exception.args), None)
        if code in _MYSQL_LOST:
            context.is_disconnect = True

    return engine


_STORAGE_VERSION = "v1.0.0"  # DuckDB 2.0 would make files that 1.5 cannot open


def duckdb_engine(url: URL, _limits: Limits | None = None, *, read_only: bool = False) -> sa.Engine:
    """Return an engine that keeps no connection: an open one shuts all other clients out.

    Nothing is fetched from the network in the middle of a commit, so no extension installs itself. A new file
    is one that every DuckDB 1.x opens, whichever DuckDB makes it; an existing one keeps its version. What
    others put into the file reaches no other one, and no network: ``copy_of`` names the only exception.
    """
    config: dict[str, Any] = {
        "autoinstall_known_extensions": False,
        "storage_compatibility_version": _STORAGE_VERSION,
    }
    if read_only:  # connections of one process share what the first one of them set
        config |= {"enable_external_access": False, "lock_configuration": True}
    engine = _engine(url, poolclass=NullPool, connect_args={"read_only": read_only, "config": config})
    _check_first(engine, check_duckdb)
    if not read_only:
        sa.event.listen(engine, "connect", _stay_beside(Path(url.database or "")))
    return engine


def _check_first(engine: sa.Engine, check: Callable[[str], None]) -> None:
    """Check a catalog file, and those beside it, before it is opened and before each transaction.

    SQLite looks for a journal then. A change of the directory in the moment after the check is not detected.
    """
    file = engine.url.database or ""

    @sa.event.listens_for(engine, "do_connect")
    def before_opening(*_: object) -> None:
        check(file)

    @sa.event.listens_for(engine, "begin")
    def before_transaction(_connection: sa.Connection) -> None:
        check(file)


def _stay_beside(file: Path) -> Callable[[DBAPIConnection, ConnectionPoolEntry], None]:
    """Build a handler that keeps a connection from all files but the catalog's own, and its copy.

    Neither setting can be taken back; others have to stay free for COPY FROM DATABASE. The
    copy's name is random and drawn by the connection, so that no file can be placed there before.
    """

    def stay(connection: DBAPIConnection, record: ConnectionPoolEntry) -> None:
        folder = file.with_name(f".{file.name}.{secrets.token_hex(8)}.copy")
        record.info[_COPY] = copy = folder / "copy"
        literal = str(copy).replace("'", "''")
        allowed = ", ".join(f"'{literal}{end}'" for end in ("", *OF_DUCKDB))
        cursor = connection.cursor()
        cursor.execute(f"SET allowed_paths = [{allowed}]")
        cursor.execute("SET enable_external_access = false")
        cursor.close()

    return stay


def copy_of(connection: sa.Connection) -> Path:
    """Return the only other file that a connection to DuckDB may open: where it copies the catalog to.

    Its directory, which is beside the catalog, is to be made.
    """
    copy: Path = connection.info[_COPY]
    return copy


def _sqlite_engine(url: URL, limits: Limits) -> sa.Engine:
    engine = _engine(url, pool_size=2, connect_args={"factory": partial(PatientSqlite, limits=limits)})
    _check_first(engine, check_sqlite)
    _leave_connections_to_their_process(engine)
    _follow_the_file(engine, Path(url.database or ""))

    @sa.event.listens_for(engine, "connect")
    def leave_transactions_to_us(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA trusted_schema = OFF")  # any client may have written the file

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get(WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _follow_the_file(engine: sa.Engine, path: Path) -> None:
    """Let go of a file that another one took the place of: a backup that was restored, say."""
    was_there = False

    @sa.event.listens_for(engine, "do_connect")
    def make_it_once(*_: object) -> None:
        if was_there and not path.exists():  # SQLite would make an empty one
            raise CatalogUnavailableError(shown(engine.url), "its file no longer exists")

    @sa.event.listens_for(engine, "connect")
    def note_file(_connection: DBAPIConnection, record: ConnectionPoolEntry) -> None:
        nonlocal was_there
        was_there = True
        record.info[_FILE] = _identity(path)

    @sa.event.listens_for(engine, "checkout")
    def check_file(
        _connection: DBAPIConnection, record: ConnectionPoolEntry, _proxy: PoolProxiedConnection
    ) -> None:
        if _identity(path) != record.info[_FILE]:
            raise DisconnectionError


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file, None if it does not exist."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def catalog_file(url: URL) -> Path | None:
    """Return the file of a SQLite or DuckDB catalog, None for a server's database."""
    return Path(url.database or "") if _DATABASES[url.get_backend_name()].file else None


def check_directory(url: URL) -> None:
    """Check that a SQLite or DuckDB file can be made where it is to be."""
    file = catalog_file(url)
    if file is not None and file.is_symlink() and not file.exists():
        raise CatalogUnavailableError(
            shown(url), "it is a symbolic link to a file that does not exist. Give that file's own path."
        )
    if file is not None and not file.parent.is_dir():
        raise CatalogUnavailableError(
            shown(url), f"its directory {file.parent} does not exist. Create it, or correct the path."
        )


def make_private(url: URL) -> None:
    """Make the empty file of a new catalog for its owner alone: a driver lets others read it, too."""
    file = catalog_file(url)
    if file is None or file.exists():
        return
    try:
        with made_private(file) as made:
            engine = open_engine(url.set(database=str(made)))
            with engine.connect():
                pass
            engine.dispose()
    except OSError as error:
        raise CatalogUnavailableError(shown(url), f"its file cannot be made: {error.strerror}") from error


def packages_of(url: URL) -> str:
    """Return the command that installs a catalog's driver."""
    database = _needed(url)
    packages = database.packages if database and database.packages else (f"{url.drivername}'s driver",)
    return f"pip install {' '.join(map(repr, packages))}"


# the packages are those of pyproject.toml's extras: this package is on no index
_POSTGRES = _Database("postgresql+psycopg", _postgres_engine, ("psycopg",), ("psycopg[binary]>=3.2",))
_MYSQL = _Database("mysql+pymysql", _mysql_engine, ("pymysql",), ("pymysql>=1.1.1",), has_one_driver=True)
_DUCKDB = ("duckdb>=1.4.1", "duckdb-engine>=0.17", "pytz>=2024.1")
_DATABASES = {
    "sqlite": _Database("sqlite", _sqlite_engine, file="SQLite"),
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "duckdb": _Database("duckdb", duckdb_engine, ("duckdb", "duckdb_engine", "pytz"), _DUCKDB, file="DuckDB"),
}


# The columns that a catalog has, beside those of the version that it says it has.
#
# Only tables are looked at that newer versions than 1.0 changed.


@lru_cache(maxsize=1)
def columns_newer_than_1_0() -> dict[str, tuple[str, ...]]:
    """Return the columns that are newer than 1.0, by their tables."""
    old, new = catalog_tables(DEFAULT).metadata.tables, catalog_tables(NEWEST).metadata.tables
    added = {
        name: tuple(one.name for one in table.columns if name not in old or one.name not in old[name].columns)
        for name, table in new.items()
    }
    return {name: columns for name, columns in added.items() if columns}


def check_complete(found: Mapping[str, Sequence[str]], tables: CatalogTables, catalog: str) -> None:
    """Refuse a catalog that lacks what its version has."""
    missing = _without(_columns_by_table(tables), found)
    if missing:
        version = tables.version.value
        raise CatalogError(
            f"{catalog} says that it has DuckLake {version}, and lacks {', '.join(missing)}. A migration by "
            "other means that did not finish may have left it so. Restore the catalog from a backup, or set "
            f"its version in ducklake_metadata to {tables.writer.unfinished.value!r} and complete it with "
            f"DuckLakeMigrateOperator(to_version={version!r}). MySQL and MariaDB also hide tables from "
            "users without rights on them: grant again, as docs/roles.md says."
        )


def superfluous(found: Mapping[str, Sequence[str]], tables: CatalogTables) -> list[str]:
    """Return the tables and columns that a catalog has although only newer versions have them."""
    there = {
        table: [one for one in columns if one in found.get(table, ())]
        for table, columns in columns_newer_than_1_0().items()
    }
    return _without(there, _columns_by_table(tables))


def _columns_by_table(tables: CatalogTables) -> dict[str, list[str]]:
    """Return those of the columns that a version has."""
    known = {table.name: table.columns for table in tables.metadata.sorted_tables}
    return {
        name: [one for one in columns if name in known and one in known[name]]
        for name, columns in columns_newer_than_1_0().items()
    }


def _without(ours: Mapping[str, Sequence[str]], theirs: Mapping[str, Sequence[str]]) -> list[str]:
    """List the tables, and the columns of other tables, that ours has and theirs lacks."""
    found = []
    for table, columns in ours.items():
        lacking = [one for one in columns if one not in theirs.get(table, ())]
        is_whole = lacking and not theirs.get(table)
        is_new = table not in catalog_tables(DEFAULT).metadata.tables
        found += [table] if is_whole and is_new else [f"{table}.{one}" for one in lacking]
    return found


# Queries of a catalog as values, so that several can share a round trip.


Answer = TypeVar("Answer")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Question(Generic[Answer]):
    """A query with its parameters, and how to read its rows.

    A query is compiled once for as long as it lives: those asked in every commit are built once and kept,
    with parameters for what changes.
    """

    query: sa.Select[Any]
    read: Callable[[Sequence[Any]], Answer]
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def ask(self, connection: sa.Connection) -> Answer:
        """Run the query alone, in its own round trip, and return the answer."""
        return self.read(connection.execute(self.query, dict(self.parameters)).all())


AT = sa.bindparam("at", type_=sa.BigInteger())  # a snapshot
OF_TABLE = sa.bindparam("table", type_=sa.BigInteger())


def one_of(column: sa.Column[Any], count: int) -> sa.ColumnElement[bool]:
    """Return the condition that a column is one of ``count`` parameters, for ``values_of``."""
    return column.in_(parameters(count, column.type))


def parameters(count: int, type_: TypeEngine[Any]) -> list[sa.BindParameter[Any]]:
    """Return ``count`` parameters, for ``values_of``."""
    return [sa.bindparam(f"value_{number}", type_=type_) for number in range(count)]


def values_of(values: Collection[Any]) -> dict[str, Any]:
    """Return the values of ``parameters``."""
    return {f"value_{number}": one for number, one in enumerate(values)}


_VALUES_AT_ONCE = 10_000  # databases limit the parameters of a statement: SQLite to 32,766


def in_parts(values: Iterable[Value], at_once: int = _VALUES_AT_ONCE) -> Iterator[tuple[Value, ...]]:
    """Yield so many of the values at once, by default as one statement takes, until none are left."""
    rest = iter(values)
    while part := tuple(islice(rest, at_once)):
        yield part


_QUERIES_AT_ONCE = 200  # which one statement joins


def asked(connection: sa.Connection, queries: Sequence[Any]) -> Iterator[sa.Row[Any]]:
    """Yield the rows of queries with the same columns, of many in one statement."""
    for part in in_parts(queries, _QUERIES_AT_ONCE):
        yield from connection.execute(sa.union_all(*part)).all()


_ROWS_AT_ONCE = 10_000


def streamed(connection: sa.Connection, query: sa.Select[Any] | sa.CompoundSelect[Any]) -> Generator[Any]:
    """Yield the rows of a query without holding them all; stopping early leaves no cursor open.

    No other statement may run on the connection until then: MySQL and DuckDB end the rows there, without an
    error.
    """
    for rows in streamed_parts(connection, query, _ROWS_AT_ONCE):
        yield from rows


def streamed_parts(
    connection: sa.Connection, query: sa.Select[Any] | sa.CompoundSelect[Any], size: int
) -> Iterator[Sequence[Any]]:
    """Yield them so many at a time."""
    with connection.execute(query, execution_options={"yield_per": size}) as found:
        yield from found.partitions()


# Options in ``ducklake_metadata``: rows that are written in place, outside every snapshot.


def write_option(connection: sa.Connection, tables: CatalogTables, option: OptionRow) -> None:
    """Set an option in its scope; the row is updated where there is one."""
    metadata = tables["metadata"]
    scope = metadata.c.scope.is_(None) if option.scope is None else metadata.c.scope == option.scope
    scope_id = (
        metadata.c.scope_id.is_(None) if option.scope_id is None else metadata.c.scope_id == option.scope_id
    )
    where = (metadata.c.key == option.key, scope, scope_id)
    if connection.execute(sa.select(literal(1)).select_from(metadata).where(*where)).first():
        connection.execute(metadata.update().where(*where).values(value=option.value))
    else:
        connection.execute(
            metadata.insert(),
            {"key": option.key, "value": option.value, "scope": option.scope, "scope_id": option.scope_id},
        )


# How long a server is waited for that answers something, but never all of it.
#
# A limit for each read is none: a server that sends a byte now and then would be waited for without end.


_BYTES_PER_SECOND = 65_536  # of a long answer that is waited for beyond the limit
_LONGEST = 10.0  # limits, however fast the answer comes


class AnswerWait:
    """The wait for the answer to one statement after the other."""

    def __init__(self) -> None:
        self.begin(0.0)

    def begin(self, seconds: float) -> None:
        """Begin to wait for an answer, which has so many seconds, and more as long as it comes fast."""
        self._limit = seconds
        self._ends = time.monotonic() + seconds
        self._bought = 0.0
        self.has_heard = False

    def heard(self, byte_count: int) -> None:
        """Record a part of the answer: it extends the limit by its time at the lowest accepted speed."""
        self.has_heard = True
        self._bought = min(self._bought + byte_count / _BYTES_PER_SECOND, (_LONGEST - 1) * self._limit)

    @property
    def left(self) -> float:
        """Seconds; at most 0 when the wait is over."""
        return self._ends + self._bought - time.monotonic()
