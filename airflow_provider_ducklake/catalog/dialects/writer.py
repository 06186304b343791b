"""The statements of one commit, on their way to the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from airflow_provider_ducklake.catalog.dialects.effect import Effect


class Writer:
    """Executes effects one by one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, effect: Effect) -> None:
        """Execute an effect, at the latest with the COMMIT."""
        if effect.rows is None:
            self._connection.execute(effect.statement)
        else:
            self._connection.execute(effect.statement, list(effect.rows))

    def commit(self) -> None:
        """Execute what still waits, and COMMIT."""
        self._connection.commit()
