"""A connection to MySQL that ends a wait for a server that says nothing, also where it does not greet."""

from __future__ import annotations

from typing import Any

from pymysql.connections import Connection  # type: ignore[import-untyped]


class LimitedConnection(Connection):  # type: ignore[misc] # it has no types
    """``patience_seconds``: for how long the server may say nothing."""

    _read_timeout: float
    _write_timeout: float

    @classmethod
    def opened(cls, seconds: float, **named: Any) -> LimitedConnection:  # noqa: ANN401 - PyMySQL's
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
