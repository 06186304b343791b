"""Connections to SQLite and DuckDB files that end a statement which computes for too long.

A malicious catalog file may contain a query without end; there is no server whose settings could limit it.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from itertools import repeat
from math import inf
from operator import gt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.lake.errors import CatalogUnavailableError, UntrustedValueError
from airflow_provider_ducklake.lake.storage.files.durable import sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterator


_STEPS = 10_000  # of SQLite's machine, less than a millisecond, between two looks at the clock
_AGAIN_SECONDS = 0.1


def _too_long(catalog: str, seconds: float) -> CatalogUnavailableError:
    return CatalogUnavailableError(
        catalog,
        f"a statement has not ended within {seconds:g} s (statement_timeout_seconds) and was interrupted. A "
        "view or a trigger in the file may be the cause",
    )


class LimitedSqlite(sqlite3.Connection):
    """A connection whose statements, and fetches of their rows, end after ``patience_seconds``."""

    def __init__(self, path: str, *, catalog: str, patience_seconds: float, **named: Any) -> None:  # noqa: ANN401 - sqlite3's own
        super().__init__(path, **named)
        self._catalog, self._patience_seconds = catalog, patience_seconds

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Interrupt what SQLite computes within the block when its time is over.

        No Python code runs during that time: SQLite would drop what a signal handler raised there.
        """
        until = time.monotonic() + self._patience_seconds
        is_over = map(gt, iter(time.monotonic, None), repeat(until))
        self.set_progress_handler(is_over.__next__, _STEPS)
        try:
            yield
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT:
                raise
            raise _too_long(self._catalog, self._patience_seconds) from error
        finally:
            self.set_progress_handler(None, _STEPS)

    def cursor(self, factory: Any = None) -> Any:  # noqa: ANN401 - sqlite3's own
        return _LimitedCursor(super().cursor(factory or sqlite3.Cursor), self)


class LimitedDuckDb:
    """A connection of duckdb_engine's whose statements, and fetches of their rows, end after some seconds.

    DuckDB has no such limit. A thread that lives as long as the connection interrupts it from outside.
    """

    def __init__(self, connection: Any, catalog: str, seconds: float) -> None:  # noqa: ANN401 - it has no types
        self._connection, self._catalog, self._seconds = connection, catalog, seconds
        self._until = inf
        self._is_late = False
        self._closed = threading.Event()
        arguments = (weakref.ref(self), self._closed, seconds)
        threading.Thread(target=_watch, args=arguments, name="ducklake limit", daemon=True).start()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the connection has
        return getattr(self._connection, name)

    def cursor(self) -> _LimitedCursor:
        """Return a cursor with the same limit."""
        return _LimitedCursor(self._connection.cursor(), self)

    def close(self) -> None:
        """Close the connection, and end the thread."""
        self._closed.set()
        self._connection.close()

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Interrupt what DuckDB computes within the block when its time is over."""
        self._is_late, self._until = False, time.monotonic() + self._seconds
        try:
            yield
        except Exception as error:
            if not self._is_late:  # of an interrupted fetch it has several errors
                raise
            raise _too_long(self._catalog, self._seconds) from error
        finally:
            self._until = inf

    def interrupt_if_late(self) -> float:
        """Interrupt a statement whose time is over, and return in how many seconds to look again."""
        left = min(self._seconds, self._until - time.monotonic())
        if left > 0:
            return left
        self._is_late = True
        with suppress(Exception):  # it may be closed by now
            self._connection.interrupt()
        return _AGAIN_SECONDS


def _watch(found: weakref.ref[LimitedDuckDb], closed: threading.Event, left: float) -> None:
    """Look at a connection as long as it is in use, whenever its current statement can be late."""
    while not closed.wait(left):
        connection = found()
        if connection is None:
            return
        left = connection.interrupt_if_late()
        del connection


_COMPUTES = {"execute", "executemany", "fetchone", "fetchmany", "fetchall"}


class _LimitedCursor:
    """A driver's cursor whose statements, and fetches of their rows, have its connection's limit."""

    def __init__(self, cursor: Any, connection: LimitedSqlite | LimitedDuckDb) -> None:  # noqa: ANN401 - of two drivers
        self._cursor, self._connection = cursor, connection

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the cursor has
        found = getattr(self._cursor, name)
        if name not in _COMPUTES:
            return found

        def limited(*arguments: Any) -> Any:  # noqa: ANN401 - the driver's own
            with self._connection.limited():
                return found(*arguments)

        return limited


# The files beside a catalog file that are opened by their names: anyone who may write the directory can make
# them.
#
# SQLite and DuckDB open their journals and logs as they find them, and so does this provider its lock file:
# a link there would make them write another file, and a pipe would make them wait for ever.


_JOURNAL = "-journal"
_OF_SQLITE = (_JOURNAL, "-wal", "-shm")
OF_DUCKDB = (".wal", ".wal.recovery", ".wal.checkpoint")
_SPILLED = ".tmp"  # DuckDB's directory for what does not fit into memory
# Ends a journal that names the journal of a commit to several files, which SQLite deletes once it has rolled
# back. Only a program that writes two attached SQLite files in one transaction makes such a one: neither this
# provider nor DuckDB, which has a connection of SQLite's for each file. *Source:*
# https://www.sqlite.org/fileformat2.html#the_rollback_journal
_END_OF_NAME = bytes.fromhex("d9d505f920a163d7")


def check_sqlite(catalog: str) -> None:
    """Check that a SQLite file, and the files that SQLite opens beside it or its target, are plain files."""
    for place in _places(catalog):
        for end in _OF_SQLITE:
            if check_plain(place + end) is not None and end == _JOURNAL:
                _check_journal(place + end)


def check_duckdb(catalog: str) -> None:
    """Check that a DuckDB file, and the files that DuckDB opens beside it or its target, are plain files."""
    for place in _places(catalog):
        for end in OF_DUCKDB:
            check_plain(place + end)
        _check_own_directory(place + _SPILLED)


def _places(catalog: str) -> Iterator[str]:
    """Yield the path of a catalog, which may be a link to a regular file, and that of the file."""
    yield catalog
    try:
        mode = os.stat(catalog).st_mode  # noqa: PTH116 - paths take time, at each transaction
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # drivers refuse directories
            raise _refusal(catalog, "is not a regular file")
    except FileNotFoundError:
        return
    if os.path.islink(catalog):  # noqa: PTH114
        yield os.path.realpath(catalog)


def check_plain(path: str) -> os.stat_result | None:
    """Check that there is a regular file of no other name, and return its state, or that there is none."""
    found = _state(path)
    if found is None:
        return None
    if stat.S_ISLNK(found.st_mode):
        raise _refusal(path, "is a symbolic link")
    if not stat.S_ISREG(found.st_mode):
        raise _refusal(path, "is not a regular file")
    if found.st_nlink > 1:
        raise _refusal(path, "is a hard link to a file that has other names")
    return found


def _state(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def _check_own_directory(path: str) -> None:
    """Check that a path is a directory of this user, or nothing: others may put links in theirs."""
    found = _state(path)
    if found is not None and not (stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()):
        raise _refusal(path, "is not a directory of the user who runs this")


def _check_journal(path: str) -> None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # most of the time there is none; what we may not read, SQLite may not either
        return
    try:
        size = os.fstat(file).st_size
        end = os.pread(file, len(_END_OF_NAME), max(0, size - len(_END_OF_NAME)))
    finally:
        os.close(file)
    if end == _END_OF_NAME:
        raise _refusal(path, "names another file, which SQLite would delete")


def _refusal(path: str, problem: str) -> UntrustedValueError:
    way_out = "While no program works on the catalog, move it away"
    folder, name = os.path.split(path)
    return UntrustedValueError(f"The directory {folder}", name, f"{problem}. {way_out}")


# Files with a catalog in them: who may read a new one, and a copy.


EVERYBODY = stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH  # may read
_OWNERS = stat.S_IRUSR | stat.S_IWUSR
_GROUPS = stat.S_IRWXG


def readers(file: Path) -> int:
    """Return the mode of a new read-only file that only the readers of this one may read."""
    found = file.stat()
    mode = stat.S_IRUSR | (stat.S_IMODE(found.st_mode) & EVERYBODY)
    is_of_our_group = found.st_gid == os.getegid()
    return mode if is_of_our_group or mode & stat.S_IROTH else mode & ~_GROUPS


@contextmanager
def made_private(target: Path, like: Path | None = None) -> Iterator[Path]:
    """Yield a path in a directory of this user alone; after the block the file made there is at ``target``.

    There it is for its owner alone, or for those who may open the file that it is ``like``. A file that is
    there already stays.
    """
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
        made = Path(folder) / target.name
        yield made
        made.chmod(_OWNERS)
        if like is not None:
            _open_as(made, like.stat())
        _place(made, target)
        sync_directory(target.parent)


def _open_as(made: Path, like: os.stat_result) -> None:
    """Give a file the mode of another, but nothing to a group that the other one does not have."""
    mode = stat.S_IMODE(like.st_mode)
    try:
        os.chown(made, -1, like.st_gid)
    except PermissionError:
        mode &= ~_GROUPS
    made.chmod(mode)


def _place(made: Path, target: Path) -> None:
    try:
        target.hardlink_to(made)  # unlike a rename it fails where something is
    except FileExistsError:
        return
    except OSError:  # a file system without links
        if not target.exists():
            made.replace(target)
