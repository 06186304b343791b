"""A connection to PostgreSQL that ends a wait for a server that does not answer, and names who holds a lock.

psycopg waits for an answer as long as it takes, also for a process that is stopped. It asks for one in short
turns, between which this connection looks at the clock.
"""

from __future__ import annotations

import fcntl
import struct
import termios
import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import psycopg

from ...format.limits import CONNECT_TIMEOUT_SECONDS, Limits
from ...format.log_lines import logger
from .connect import AnswerWait

log = logger(__name__)
T = TypeVar("T")

# A user who may create in a schema of the path may make functions that fit better than PostgreSQL's own.
SAFE_PATH = "SET search_path = pg_catalog, pg_temp"
_ASKED_AGAIN_SECONDS = 30.0
_PIECE_BYTES = 16_384  # about what libpq takes at once
# The sessions at the beginning of the queue that a session is in: they wait for no other session.
_BLOCKERS = (
    "WITH RECURSIVE queue(pid) AS (SELECT unnest(pg_blocking_pids(%(pid)s))"
    " UNION SELECT unnest(pg_blocking_pids(queue.pid)) FROM queue)"
    " SELECT pid, usename, application_name, client_addr::text, xact_start"
    " FROM queue JOIN pg_stat_activity USING (pid) WHERE cardinality(pg_blocking_pids(pid)) = 0 ORDER BY pid"
)


class PostgresConnection(psycopg.Connection[Any]):
    """``patience_seconds``: how long the server has to answer; ``again`` connects once more."""

    limits: Limits = Limits()
    patience_seconds: float = limits.statement_timeout_seconds
    again: Callable[[], PostgresConnection] | None = None
    _blockers: str = ""

    @classmethod
    def opened(cls, limits: Limits, *arguments: Any, **named: Any) -> PostgresConnection:  # noqa: ANN401 - libpq's
        """Connect."""
        connection = cls.connect(*arguments, **named)
        connection.limits, connection.patience_seconds = limits, limits.statement_timeout_seconds
        connection.again = lambda: cls.connect(*arguments, **{**named, "autocommit": True})
        return connection

    def wait(self, gen: Generator[Any, Any, T], *arguments: Any, **named: Any) -> T:  # noqa: ANN401 - psycopg's
        """Wait for what a generator of psycopg's returns."""
        return super().wait(self._watched(gen), *arguments, **named)

    def _watched(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        self._blockers = ""
        wait = AnswerWait()
        wait.begin(self.patience_seconds)
        asked_at = time.monotonic() + self.limits.logged_after_seconds
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    wait.heard(self._piece(ready))
                elif time.monotonic() > asked_at:
                    self._find_blockers()
                    asked_at = time.monotonic() + _ASKED_AGAIN_SECONDS
                wanted = gen.send(ready)
                if wait.left <= 0:  # after the last look: this process may have been suspended
                    self._end_silence()
        except StopIteration as end:
            answer: T = end.value
            return answer
        except psycopg.errors.LockNotAvailable as error:
            error.add_note(self._blockers)
            raise

    def _piece(self, ready: int) -> int:
        """Return the number of bytes to read or write at once; notices count as rows do."""
        if not ready & psycopg.waiting.READY_R:
            return _PIECE_BYTES
        waiting = fcntl.ioctl(self.pgconn.socket, termios.FIONREAD, bytes(4))
        return min(int(struct.unpack("i", waiting)[0]), _PIECE_BYTES)

    def _end_silence(self) -> None:
        self.pgconn.finish()
        raise psycopg.OperationalError(
            f"the server has not answered for {self.patience_seconds:g} s (statement_timeout_seconds)"
        )

    def _find_blockers(self) -> None:
        """Ask which sessions hold what this one waits for, and log them; a slow statement has none."""
        if self.again is None:
            return
        try:
            with self.again() as other:
                other.patience_seconds = CONNECT_TIMEOUT_SECONDS
                other.execute(SAFE_PATH)
                rows = other.execute(_BLOCKERS, {"pid": self.info.backend_pid}).fetchall()
        except psycopg.Error:
            log.debug("Who holds the lock cannot be asked", exc_info=True)
            return
        found = " and ".join(_shown(*row) for row in rows)
        if found and found != self._blockers:
            log.warning("Waiting for a lock of the catalog: it is held by %s", found)
        self._blockers = found or self._blockers


def _shown(pid: int, user: str, application: str, address: str | None, since: object) -> str:
    """Describe a session by what its server shows: of other users' it hides some."""
    details = [f"of user {user}"]
    details += [f"at {address}"] if address else []
    details += [f"({application})"] if application else []
    details += [f"in a transaction since {since}"] if since else []
    way_out = f"its owner can end it by SELECT pg_terminate_backend({pid})"
    return f"the session {pid} {' '.join(details)}; {way_out}"
