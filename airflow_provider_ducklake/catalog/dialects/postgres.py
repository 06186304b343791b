"""PostgreSQL catalogs: an advisory transaction lock, READ COMMITTED for writers, one snapshot for readers."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, text

from airflow_provider_ducklake.catalog.dialects.dialect import CatalogDialect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.exc import DBAPIError

_LOST_RACE = {
    "23505",  # unique_violation: somebody else has the snapshot id
    "40001",  # serialization_failure
    "40P01",  # deadlock_detected
    "55P03",  # lock_not_available: lock_timeout ran out
}


class PostgresDialect(CatalogDialect):
    """A catalog in one schema of a PostgreSQL database."""

    def __init__(self, engine: Engine, metadata_schema: str | None) -> None:
        super().__init__(engine)
        digest = hashlib.sha256(f"ducklake commit {metadata_schema or 'public'}".encode()).digest()
        self.lock_key = int.from_bytes(digest[:8], "big", signed=True)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with self.engine.connect() as connection:
            # A statement of its own: together with the head, the waiter would read the state before its wait.
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": self.lock_key})
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self.engine.connect() as connection:
            yield connection.execution_options(isolation_level="REPEATABLE READ")

    def server_time(self, connection: Connection) -> datetime:
        # clock_timestamp() and not now(): the transaction began before we waited for the lock.
        value = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
        assert isinstance(value, datetime)
        return value.astimezone(UTC)

    def is_lost_race(self, error: DBAPIError) -> bool:
        return getattr(error.orig, "sqlstate", None) in _LOST_RACE
