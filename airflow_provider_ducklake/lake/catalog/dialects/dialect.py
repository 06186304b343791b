"""The interface of a catalog database, with its defaults."""

from __future__ import annotations

import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateSchema
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_random_exponential,
)

from ...errors import CommitRetriesExceededError, InvalidInputError, UntrustedValueError
from ...format.log_lines import logger
from ...format.names.paths import why_not_ours
from ...format.options import OptionRow, Options
from ...storage.files.local import lies_below
from ..database.connect import Question, driver_error, limits_of, parameters, values_of
from ..database.tables import MOST_CHARACTERS, CatalogTables

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from ...format.files import InlinedForm
    from ...format.schema import TableSchema
    from ...transaction.changes import CommitState


# A statement with its rows, and how those of one commit get to the database.


Rows = Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Effect:
    """A statement; ``rows`` are the rows of a multi-row insert or the parameters of a repeated update."""

    statement: sa.Executable
    rows: Rows | None = None


def insert(table: sa.Table, *rows: dict[str, Any]) -> Effect:
    """Return the insertion of rows, each naming its columns; no text that would not be read again."""
    for row in rows:
        for name, value in row.items():
            if value.__class__ is str and len(value) > MOST_CHARACTERS:
                raise InvalidInputError(
                    f"{table.name}.{name} would have {len(value):,} characters, and {MOST_CHARACTERS:,} are "
                    "read. Shorten it, or split the transaction."
                )
    return Effect(_insertion(table), rows)


@lru_cache(maxsize=512)
def _insertion(table: sa.Table) -> sa.Insert:
    """Return a table's insertion, one and the same: what is sent again is not compiled again."""
    return table.insert()


def close(table: sa.Table, state: CommitState, *where: sa.ColumnElement[bool]) -> Effect:
    """Return the end of life of the live rows that match: what the format calls deleting."""
    statement = table.update().where(table.c.end_snapshot.is_(None), *where)
    return Effect(statement.values(end_snapshot=state.snapshot_id))


class Writer:
    """Executes effects one by one."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def send(self, effect: Effect) -> None:
        """Execute an effect, at the latest with the COMMIT."""
        if effect.rows is None:
            self._connection.execute(effect.statement)
        else:
            self._connection.execute(effect.statement, list(effect.rows))

    def prepare(self) -> None:
        """Check, before COMMIT is sent, that what the effects go to may be written to."""

    def commit(self) -> None:
        """Execute what still waits, and COMMIT."""
        self._connection.commit()


ONLY_PLAIN = ", where only a plain table is safe to use"  # ends the problem of a relation


class CatalogDialect(ABC):
    """One catalog database: the part that differs from the others.

    ``transactional_ddl``: whether CREATE and DROP are part of the transaction; where they are not, they would
    commit it, and must run before it begins or after it ended. ``initial_options``: rows of
    ``ducklake_metadata`` that new lakes get there. ``clock`` is the server's time. ``reads_inlined``: whether
    we can read its tables of inlined rows; ``inlined_form``: their form, None where we write none.
    ``compares_decimals``: whether it compares all digits of decimals.
    """

    transactional_ddl: ClassVar[bool] = True
    initial_options: ClassVar[Mapping[str, str]] = MappingProxyType({})
    clock: ClassVar[sa.ColumnElement[datetime] | None] = None
    reads_inlined: ClassVar[bool] = True
    inlined_form: ClassVar[InlinedForm | None] = None
    compares_decimals: ClassVar[bool] = False

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.limits = limits_of(engine)

    @abstractmethod
    def writing(self) -> AbstractContextManager[sa.Connection]:
        """Hold the commit lock and yield a connection inside a transaction; the caller commits.

        Our writers queue here instead of racing; DuckDB ignores the lock. A wait of some seconds is
        logged with who holds it, and has a limit.
        """

    def creating(self) -> AbstractContextManager[sa.Connection]:
        """Like ``writing``, where there may be no tables of a catalog yet."""
        return self.writing()

    @contextmanager
    def writing_after(
        self, questions: Mapping[str, Question[Any]]
    ) -> Iterator[tuple[sa.Connection, dict[str, Any]]]:
        """Like ``writing``, and also yield the answers to questions asked under the lock."""
        with self.writing() as connection:
            yield connection, self.ask(connection, questions)

    def ask_at_once(self, questions: Mapping[str, Question[Any]]) -> dict[str, Any]:
        """Answer the questions, by their names, in a transaction of their own."""
        with self.reading() as connection:
            return self.ask(connection, questions)

    def ask(
        self,
        connection: sa.Connection,
        questions: Mapping[str, Question[Any]],
        *,
        is_last: bool = False,  # noqa: ARG002 - the end of a transaction is no round trip of its own everywhere
    ) -> dict[str, Any]:
        """Return the answers to the questions by their names, in one round trip where the database can.

        ``is_last``: they are the last thing that the connection's transaction, which wrote nothing, is for.
        """
        return {name: question.ask(connection) for name, question in questions.items()}

    @property
    def name(self) -> str:
        """SQLAlchemy's name of the database."""
        return self.engine.dialect.name

    def inlined_cells(self, rows: sa.Table, schema: TableSchema) -> sa.Select[Any]:  # noqa: ARG002 - for DuckDB
        """Return the query for the rows of a catalog table that inlines rows of those columns."""
        return sa.select(*rows.c)

    def with_literals(self, row: dict[str, Any], schema: TableSchema) -> dict[str, Any]:  # noqa: ARG002 - as well
        """Return a row of such a query with its nested values as DuckDB's literals."""
        return row

    def is_ordered(self, times: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:  # noqa: ARG002 - for SQLite
        """Return the condition for times of a column that the database compares correctly."""
        return sa.true()

    def bytewise(self, text: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """Return a text that compares byte by byte, whatever the database's collation."""
        return text

    def writer(self, connection: sa.Connection) -> Writer:
        """Return the writer that executes the effects of a commit, and ends it."""
        return Writer(connection)

    def insert_rows(self, connection: sa.Connection, table: sa.Table, rows: list[dict[str, Any]]) -> None:
        """Insert one or more rows, by the keys of the table's columns; what is missing is NULL."""
        names = dict.fromkeys(name for row in rows for name in row)
        connection.execute(table.insert(), [{name: row.get(name) for name in names} for row in rows])

    @abstractmethod
    def reading(self) -> AbstractContextManager[sa.Connection]:
        """Yield a connection whose statements all see one state of the catalog."""

    @contextmanager
    def reading_after(
        self, questions: Mapping[str, Question[Any]]
    ) -> Iterator[tuple[sa.Connection, dict[str, Any]]]:
        """Like ``reading``, and also yield the answers to the first questions."""
        with self.reading() as connection:
            yield connection, self.ask(connection, questions)

    def server_time(self, connection: sa.Connection) -> datetime:
        """Return the catalog's clock as an aware time; a file has none of its own."""
        asked = self.time_query()
        return asked["time"].ask(connection) if asked else datetime.now(UTC)

    def time_query(self) -> dict[str, Question[datetime]]:
        """Return the query for the ``time`` on the catalog's clock; of a file nothing is asked."""
        if self.clock is None:
            return {}
        return {"time": Question(sa.select(self.clock), lambda rows: rows[0][0])}

    @abstractmethod
    def is_lost_race(self, error: DBAPIError) -> bool:
        """Return True if another writer came first, by the driver's error code: a retry may succeed."""

    @abstractmethod
    def is_lock_timeout(self, error: DBAPIError) -> bool:
        """Return True if the database timed out waiting for a lock, by the driver's error code."""

    def lock_holder(self, error: DBAPIError) -> str:
        """Describe the holder of the lock of such an error, if it is known."""
        notes: list[str] = getattr(error.orig, "__notes__", [])
        return next(filter(None, notes), "another session, which the database does not name")

    def is_refusal(self, error: DBAPIError) -> bool:  # noqa: ARG002 - most databases leave it open
        """Return True if an error of COMMIT proves that it did not happen."""
        return False

    def is_wrong_address(self, error: DBAPIError) -> bool:  # noqa: ARG002 - a file has neither host nor login
        """Return True if a connection failed for its login, database or host, which no retry cures."""
        return False

    def is_missing_right(self, error: DBAPIError) -> bool:  # noqa: ARG002 - a file has no users
        """Return True if the database's user may not do this, by the driver's error code."""
        return False

    def lacking_rights(self, error: DBAPIError) -> str:  # noqa: ARG002 - MySQL's error says it
        """Return a sentence about the rights that the user lacks, where such an error leaves it open."""
        return ""

    @contextmanager
    def opening_after(
        self, schema: str | None, questions: Mapping[str, Question[Any]]
    ) -> Iterator[tuple[sa.Connection, str | None, dict[str, Any]]]:
        """Like ``reading_after``, and also yield the schema of the catalog's tables, given or found."""
        with self.reading_after(questions) as (connection, answers):
            yield connection, schema, answers

    def home(self, schema: str | None) -> str | None:
        """Return the schema that a new catalog's tables are to be in, given or found."""
        return schema

    def create_metadata_schema(self, connection: sa.Connection, name: str | None) -> None:
        """Create the database schema that holds the catalog's tables, where the database has such a thing."""
        if name is not None:
            connection.execute(CreateSchema(name, if_not_exists=True))

    def try_to_create_table(self, schema: str | None) -> None:  # noqa: B027 - a file has no users
        """Create a table where the catalog's are, and take it back, to see whether the user may."""

    def why_not_alter(self, connection: sa.Connection, table: sa.Table) -> str | None:  # noqa: ARG002 - a file has no users
        """Explain what to do if the user may not alter a table; None: they may.

        It may end the connection's transaction, which changed nothing.
        """
        return None

    @staticmethod
    @abstractmethod
    def relations(schema: str | None) -> sa.Select[Any]:
        """Return the query for the tables of a schema, and for what is in the place of one.

        Of each there is the name, a column or a list of all in their order, and why it is not to be used:
        no code of a user who may create objects in the catalog must run as the user who reads or writes rows.
        """

    @staticmethod
    def folded(name: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
        """Return the name of a relation as LIKE is to compare it, where names of any case are one name.

        LIKE itself disregards case in SQLite, and in MySQL where names do.
        """
        return name

    def columns_query(self, like: Collection[str], schema: str | None) -> Question[dict[str, list[str]]]:
        """Return the query for the columns of the tables whose names are like some patterns (``%``).

        The answer raises an UntrustedValueError where there is anything but a plain table.
        """
        patterns = [one.replace("_", f"{_ESCAPE}_") for one in like]
        return Question(_columns_like(type(self), schema, len(like)), _by_table, values_of(patterns))

    def has_table(self, connection: sa.Connection, name: str, schema: str | None) -> bool:
        """Return True if the database has a table of that name."""
        return name in self.columns_query((name,), schema).ask(connection)

    def table_names(self, connection: sa.Connection, schema: str | None) -> set[str]:
        """Return the names of a lake's tables in the database, or in a schema of it."""
        return set(self.columns_query(("ducklake_%", "airflow_ducklake_%"), schema).ask(connection))

    def index_names(self, connection: sa.Connection, table: str, schema: str | None) -> set[str]:
        """Return the names of a table's indexes."""
        return {str(one["name"]) for one in sa.inspect(connection).get_indexes(table, schema=schema)}

    def column_names(self, connection: sa.Connection, table: str, schema: str | None) -> list[str]:
        """Return the names of a table's columns, in order; none where there is no such table."""
        return self.columns_query((table,), schema).ask(connection).get(table, [])

    def inlined_types(
        self,
        connection: sa.Connection,  # noqa: ARG002 - for PostgreSQL, as the next
        schema: str | None,  # noqa: ARG002
    ) -> dict[str, dict[str, str]]:
        """Return the declared types of the columns of tables for inlined rows, where 0.3 had others."""
        return {}

    def copy_file(self, connection: sa.Connection, target: Path) -> None:
        """Copy a catalog that is a file, as the connection's transaction, which changed nothing, sees it."""
        raise NotImplementedError


_ESCAPE = "|"


@lru_cache
def _columns_like(dialect: type[CatalogDialect], schema: str | None, count: int) -> sa.Select[Any]:
    query = dialect.relations(schema)
    name = dialect.folded(next(iter(query.selected_columns)))
    return query.where(sa.or_(*(name.like(one, escape=_ESCAPE) for one in parameters(count, sa.String()))))


def _by_table(rows: Iterable[Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, columns, problem in rows:
        if problem is not None:
            raise UntrustedValueError("The catalog", name, problem)
        found.setdefault(name, []).extend([columns] if isinstance(columns, str) else columns)
    return found


# Start a catalog transaction again when another writer committed first.


log = logger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CommitRetryPolicy:
    """How long to fight against others; with a busy SQLite file each attempt may take a minute."""

    max_attempts: int = 30
    longest_wait_seconds: float = 2.0
    longest_seconds: float = 300.0


DEFAULT_RETRY = CommitRetryPolicy()


class _LostRaceError(Exception):
    """Another writer came first; internal, never leaves this module."""

    def __init__(self, error: DBAPIError) -> None:
        super().__init__()
        self.error = error


def is_unknown_host(url: URL) -> bool:
    """Return True if no name server has the one host of a URL; False if none answers."""
    host = str(url.query.get("host") or url.host or "/")
    if host.startswith("/") or "," in host:  # a socket's directory, several hosts
        return False
    try:
        socket.getaddrinfo(host, None)
    except socket.gaierror as error:
        return error.errno == socket.EAI_NONAME
    except (OSError, UnicodeError):
        return False
    return False


def with_retries(
    dialect: CatalogDialect, policy: CommitRetryPolicy, attempt: Callable[[], T]
) -> tuple[T, int]:
    """Run ``attempt``, one whole transaction, again after lost races; return its result and the attempts."""
    started = time.monotonic()
    retrying = Retrying(
        retry=retry_if_exception_type(_LostRaceError),
        wait=wait_random_exponential(multiplier=0.01, max=policy.longest_wait_seconds),
        stop=stop_after_attempt(policy.max_attempts) | stop_after_delay(policy.longest_seconds),
        before_sleep=_log_lost_race,
        reraise=True,
    )
    try:
        result = retrying(_once, dialect, attempt, started + dialect.limits.lock_timeout_seconds)
    except _LostRaceError as error:
        attempts = retrying.statistics["attempt_number"]
        if dialect.is_lock_timeout(error.error):
            raise error.error from None
        raise CommitRetriesExceededError(attempts, time.monotonic() - started) from error.__cause__
    return result, retrying.statistics["attempt_number"]


def _once(dialect: CatalogDialect, attempt: Callable[[], T], locks_until: float) -> T:
    try:
        return attempt()
    except DBAPIError as error:
        has_waited = dialect.is_lock_timeout(error) and time.monotonic() >= locks_until
        if dialect.is_lost_race(error) and not has_waited:
            raise _LostRaceError(error) from driver_error(error)
        raise


def _log_lost_race(state: RetryCallState) -> None:
    log.info("Another writer committed first; starting attempt %d", state.attempt_number + 1)


def in_transaction(dialect: CatalogDialect, write: Callable[[sa.Connection], T]) -> T:
    """Commit what ``write`` does under the commit lock, and start it again after a lost race."""

    def attempt() -> T:
        with dialect.writing() as connection:
            result = write(connection)
            connection.commit()
        return result

    return with_retries(dialect, DEFAULT_RETRY, attempt)[0]


# A catalog database, opened: what every operation on it needs.


@dataclass(frozen=True, slots=True)
class Catalog:
    """The database's ways, its tables, and the root of the lake's files (ends with ``/``).

    ``foreign_files``: files outside of that root may be written and deleted, too. ``key_bytes`` is the length
    of new files' keys, 0 in a lake that is not encrypted.
    """

    dialect: CatalogDialect
    tables: CatalogTables
    data_path: str
    foreign_files: bool = False
    key_bytes: int = 0

    def options(
        self, rows: Iterable[OptionRow], schema_id: int | None = None, table_id: int | None = None
    ) -> Options:
        """Return the options for that scope, with the lake's length of keys."""
        return Options.effective(rows, schema_id, table_id).with_keys_of(self.key_bytes)

    @property
    def only_below(self) -> str | None:
        """The folder outside of which no file is written or deleted; None: the user allows it elsewhere."""
        return None if self.foreign_files else self.data_path

    def check_writable(self, directory: str) -> None:
        """Refuse a directory, which rows of the catalog name, before files are written or deleted there."""
        problem = why_not_ours(directory, self.data_path, foreign_files=self.foreign_files)
        if problem is None and not self.foreign_files and not lies_below(directory, self.data_path):
            problem = f"leads outside of the data path {self.data_path} by a link"
        if problem is not None:
            raise UntrustedValueError("The catalog", directory, problem)
