"""Connections to SQLite and DuckDB files that end a statement which computes for too long.

Whoever writes a catalog file may put a query without end into it; no server's settings limit it there.
"""

from __future__ import annotations

import sqlite3
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from itertools import repeat
from math import inf
from operator import gt
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.lake.errors import CatalogUnavailableError

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

        Not a line of Python runs meanwhile: SQLite would drop what a signal handler raised there.
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
