"""A statement with its rows, and how those of one commit get to the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Executable, Insert, Table

    from airflow_provider_ducklake.lake.transaction.commit_state import CommitState


Rows = Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Effect:
    """A statement; ``rows`` are the rows of a multi-row insert or the parameters of a repeated update."""

    statement: Executable
    rows: Rows | None = None


def insert(table: Table, *rows: dict[str, Any]) -> Effect:
    """Return the insertion of rows, each naming its columns."""
    return Effect(_insertion(table), rows)


@lru_cache(maxsize=512)
def _insertion(table: Table) -> Insert:
    """Return a table's insertion, one and the same: what is sent again is not compiled again."""
    return table.insert()


def close(table: Table, state: CommitState, *where: ColumnElement[bool]) -> Effect:
    """Return the end of life of the live rows that match: what the format calls deleting."""
    statement = table.update().where(table.c.end_snapshot.is_(None), *where)
    return Effect(statement.values(end_snapshot=state.snapshot_id))


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

    def prepare(self) -> None:
        """Check, before COMMIT is sent, that what the effects go to may be written to.

        Raises:
            UntrustedValueError: somebody made it more than a plain table.
        """

    def commit(self) -> None:
        """Execute what still waits, and COMMIT."""
        self._connection.commit()
