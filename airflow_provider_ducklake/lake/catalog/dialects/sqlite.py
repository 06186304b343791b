"""SQLite catalogs: writers queue on a lock file of their own, because SQLite's waiting starves some."""

from __future__ import annotations

import errno
import fcntl
import getpass
import os
import random
import socket
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ...errors import CatalogUnavailableError, LockTimeoutError, UntrustedValueError
from ...format.files import InlinedForm
from ...format.log_lines import logger
from ...format.types.ducklake_types import ScalarKind
from ..database.connect import WRITES, shown
from ..database.file_connections import check_plain, check_sqlite, processes_that_lock
from ..database.tables import OTHER_PREFIXES, format_names
from .dialect import ONLY_PLAIN, CatalogDialect

if TYPE_CHECKING:
    from sqlalchemy.engine import URL
    from sqlalchemy.exc import DBAPIError

    from ...format.limits import Limits


# A lock file next to a catalog file: this provider's clients queue on it; other clients ignore it.
#
# The holder writes its name into it. Only users who may write the catalog may open it: to hold
# a lock, it is enough to read a file.


log = logger(__name__)

_LONGEST_PAUSE_SECONDS = 0.005  # drawn again each time, for an equal chance
_SIGNED = "the process "  # begins what a holder writes
_SHOWN = 200  # characters of it
# A link is not followed, and a pipe is not waited for.
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_HELD = {errno.EAGAIN, errno.EACCES}


@contextmanager
def locked(url: URL, limits: Limits, *, shared: bool = False) -> Iterator[None]:
    """Hold the catalog's lock, alone or together with other ``shared`` holders."""
    file = _open(url)
    try:
        _take(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, url, limits)
        _sign(file)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # a fork has the file open as well
    finally:
        os.close(file)


def _open(url: URL) -> int:
    """Open the lock file, and make it where there is none; what is no lock file of ours stays as it is."""
    path = Path(f"{url.database}.lock")
    mode = _mode_of_writers(Path(url.database or ""))
    try:
        check_plain(str(path))
        file = os.open(path, _FLAGS, mode)
    except OSError as error:
        raise _unavailable(url, path, f"cannot be opened: {error.strerror}") from error
    try:
        _check_ours(file, path, url)
        with suppress(PermissionError):  # it is another writer's, who did the same
            if stat.S_IMODE(os.fstat(file).st_mode) != mode:
                os.fchmod(file, mode)
    except BaseException:
        os.close(file)
        raise
    return file


def _check_ours(file: int, path: Path, url: URL) -> None:
    """Check what was opened: only one look shows at once that this is the file there, and its only name."""
    found = check_plain(str(path))
    if found is None or not os.path.samestat(found, os.fstat(file)):
        raise _unavailable(url, path, "was replaced while it was opened")
    if not (_written(file) or _SIGNED).startswith(_SIGNED):
        problem = "is not a lock file of this provider: it has other text in it. Move it away"
        raise UntrustedValueError(f"The directory {path.parent}", path.name, problem)


def _unavailable(url: URL, path: Path, problem: str) -> CatalogUnavailableError:
    return CatalogUnavailableError(shown(url), f"its lock file {path} {problem}")


def _mode_of_writers(catalog: Path) -> int:
    """Return the mode that lets exactly the users open a file who may write the catalog."""
    try:
        writes = stat.S_IMODE(catalog.stat().st_mode) & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)
    except FileNotFoundError:  # it is made under the lock, and the next one to come has its mode
        writes = stat.S_IWUSR
    return writes | writes << 1


def _take(file: int, operation: int, url: URL, limits: Limits) -> None:
    """Ask for the lock again and again: waiting in the kernel for it has no limit."""
    started = time.monotonic()
    logged_at = started + limits.logged_after_seconds
    while not _is_taken(file, operation):
        now = time.monotonic()
        if now - started > limits.lock_timeout_seconds:
            raise LockTimeoutError(shown(url), limits.lock_timeout_seconds, _holder(file))
        if now > logged_at:
            log.warning("Waiting for the lock file %s.lock: it is held by %s", url.database, _holder(file))
            logged_at = started + limits.lock_timeout_seconds
        time.sleep(random.uniform(0, _LONGEST_PAUSE_SECONDS))


def _is_taken(file: int, operation: int) -> bool:
    try:
        fcntl.flock(file, operation | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _HELD:
            raise
        return False
    return True


def _sign(file: int) -> None:
    """Write down who holds the lock, for those who wait; a full disk leaves the one before."""
    text = f"{_SIGNED}{os.getpid()} of {_user()} on host {socket.gethostname()}, since {_now()}"
    with suppress(OSError):
        os.ftruncate(file, os.pwrite(file, text.encode(), 0))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"user {os.getuid()}"


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _written(file: int) -> str:
    return os.pread(file, _SHOWN, 0).decode(errors="replace")


def _holder(file: int) -> str:
    """Return the name that the holder wrote, with printable characters only."""
    return "".join(filter(str.isprintable, _written(file))) or "a process that left no name in its lock file"


_BUSY, _LOCKED, _FULL = 5, 6, 13
_CONSTRAINT_PRIMARY_KEY, _CONSTRAINT_UNIQUE = 1555, 2067

_OWN_FORM = "____-__-__ __:__:__%+00"  # LIKE patterns; texts of this form are in the order of their times
_WITH_LAST_ZERO = "%.%0+00"


class SqliteDialect(CatalogDialect):
    """A catalog in one file on one host."""

    inlined_form = InlinedForm(
        max_columns=2000, native=frozenset({ScalarKind.BLOB}), has_decimals=False, nested_nul=True
    )

    def __init__(self, engine: sa.Engine) -> None:
        super().__init__(engine)
        self._schema_version: int | None = None

    def _check_changes(self, connection: sa.Connection) -> None:
        """Refuse a view or trigger put in a table's place since the transaction before.

        The first transaction of an open lake checks that itself.
        """
        version = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
        if self._schema_version not in (None, version):
            names = (*sorted(format_names()), *(f"{one}%" for one in OTHER_PREFIXES))
            self.columns_query(names, None).ask(connection)
        self._schema_version = version

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
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
    def reading(self) -> Iterator[sa.Connection]:
        with self.engine.connect() as connection:
            self._check_changes(connection)
            yield connection

    def copy_file(self, connection: sa.Connection, target: Path) -> None:  # noqa: ARG002 - another one reads
        """Copy by SQLite itself: closing a file that something else has opened would drop its locks."""
        check_sqlite(self.engine.url.database or "")
        source = sqlite3.connect(self.engine.url.database or "")
        with closing(source), closing(sqlite3.connect(target)) as copy:
            source.backup(copy)

    def is_ordered(self, times: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
        """Return the condition for texts in our own form: other clients may use another form."""
        text = sa.type_coerce(times, sa.String)
        return sa.and_(text.like(_OWN_FORM), text.not_like(_WITH_LAST_ZERO))

    @staticmethod
    def relations(schema: str | None) -> sa.Select[Any]:
        """Read SQLite's own table, in which a writer of the file chooses the case of names and of types."""
        of_schema = sa.table(
            "sqlite_master", *map(sa.column, ("name", "type", "tbl_name", "sql")), schema=schema
        )
        trigger = of_schema.alias("trigger_of")
        kind = sa.func.lower(of_schema.c.type)
        has_trigger = sa.exists().where(
            sa.func.lower(trigger.c.type) == "trigger",
            sa.func.lower(trigger.c.tbl_name) == sa.func.lower(of_schema.c.name),
        )
        problem = sa.case(
            (kind != "table", "is a view" + ONLY_PLAIN),
            (of_schema.c.sql.not_like("CREATE TABLE %"), "is a virtual table" + ONLY_PLAIN),
            (has_trigger, "has a trigger" + ONLY_PLAIN),
        )
        info = sa.func.pragma_table_info(of_schema.c.name).table_valued("cid", "name", joins_implicitly=True)
        query = sa.select(of_schema.c.name, info.c.name.label("column_name"), problem.label("problem"))
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
        """Return True if the disk is full: a COMMIT that says so has written no end of its transaction."""
        return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF == _FULL
