"""A connection to MySQL that ends a wait for a server that does not answer, also where it does not greet.

The driver has a limit for each read of its socket, which a server that sends a byte now and then never meets.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from pymysql.connections import Connection  # type: ignore[import-untyped]

from .connect import AnswerWait

if TYPE_CHECKING:
    import socket

    from _typeshed import WriteableBuffer

_AT_ONCE = 0.001  # seconds; 0 would be a socket that does not wait


class MySQLConnection(Connection):  # type: ignore[misc] # it has no types
    """``patience_seconds``: how long the server has to answer."""

    _read_timeout: float
    _write_timeout: float
    _sock: socket.socket
    _reader: io.BufferedReader | None = None

    @classmethod
    def opened(cls, seconds: float, **named: Any) -> MySQLConnection:  # noqa: ANN401 - PyMySQL's
        """Connect; the driver's ``connect_timeout`` does not count for the greeting."""
        greeted_within = named["connect_timeout"]
        connection = cls(**{"read_timeout": greeted_within, "write_timeout": greeted_within, **named})
        if "read_timeout" not in named:
            connection.patience_seconds = seconds
        return connection

    @property
    def patience_seconds(self) -> float:
        """Seconds."""
        return self._read_timeout

    @patience_seconds.setter
    def patience_seconds(self, seconds: float) -> None:
        self._read_timeout = self._write_timeout = seconds

    def connect(self, sock: socket.socket | None = None) -> None:
        """Connect, as the driver does."""
        self._wait = AnswerWait()
        self._wait.begin(self._read_timeout)
        super().connect(sock)

    def _execute_command(self, command: int, sql: str | bytes) -> None:
        self._wait.begin(self._read_timeout)
        super()._execute_command(command, sql)

    @property
    def _rfile(self) -> io.BufferedReader | None:
        """The stream that the driver reads answers from; it makes another one for TLS."""
        return self._reader

    @_rfile.setter
    def _rfile(self, file: io.BufferedReader | None) -> None:
        if file is not None:
            file = io.BufferedReader(_Pieces(file.detach(), self._sock, self._wait))
        self._reader = file


class _Pieces(io.RawIOBase):
    """A socket's file, whose reads wait for no longer than is left of the wait for an answer."""

    def __init__(self, file: io.RawIOBase, sock: socket.socket, wait: AnswerWait) -> None:
        self._file, self._sock, self._wait = file, sock, wait

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        if self._wait.left <= 0 and self._wait.has_heard:
            raise TimeoutError("timed out")
        timeout = self._sock.gettimeout()
        self._sock.settimeout(max(self._wait.left, _AT_ONCE))  # once more: this process may have been stopped
        count = self._file.readinto(buffer)
        self._sock.settimeout(timeout)  # as the driver remembers it
        self._wait.heard(count or 0)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()
