"""Engines for catalog databases, and what goes wrong when opening one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool

from airflow_provider_ducklake.errors import InvalidInputError

if TYPE_CHECKING:
    import sqlite3

    from sqlalchemy.engine import URL

CONNECT_TIMEOUT_SECONDS = 10
LOCK_TIMEOUT_SECONDS = 60
# Execution option: start the transaction as a writer.
WRITES = "ducklake_writes"

_DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}


def parse_url(url: str | URL) -> URL:
    """Return the URL of a catalog database this release can open, with its driver.

    Raises:
        InvalidInputError: unreadable, another database, or SQLite without a file. The text never holds the
            password.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # a port that is no number is the end of an unquoted password
        raise InvalidInputError(
            "The catalog URL cannot be read; it looks like sqlite:////data/lake.sqlite or "
            "postgresql+psycopg://user:password@host/database, with %40 for an @ in a name or password."
        ) from None
    backend = parsed.get_backend_name()
    if backend not in _DRIVERS:
        raise InvalidInputError(
            f"Catalogs in {backend!r} are not supported by this release; supported: sqlite, postgresql."
        )
    if backend == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise InvalidInputError("A SQLite catalog lives in a file: sqlite:////absolute/path/lake.sqlite.")
    return parsed.set(drivername=_DRIVERS[backend]) if "+" not in parsed.drivername else parsed


def shown(url: URL) -> str:
    """Return the URL for people: without the password, and without query values, which may hold one."""
    return url.set(query={}).render_as_string(hide_password=True)


def open_engine(url: URL) -> Engine:
    """Return an engine with the transactions that commits need: READ COMMITTED, or SQLite's own BEGINs."""
    if url.get_backend_name() == "sqlite":
        return _sqlite_engine(url)
    arguments: dict[str, Any] = {
        "connect_timeout": CONNECT_TIMEOUT_SECONDS,
        "options": f"-c lock_timeout={LOCK_TIMEOUT_SECONDS}s -c timezone=UTC",
        "application_name": "airflow_provider_ducklake",
    }
    arguments = {key: value for key, value in arguments.items() if key not in url.query}
    return create_engine(
        url, connect_args=arguments, isolation_level="READ COMMITTED", pool_size=2, pool_pre_ping=True
    )


def _sqlite_engine(url: URL) -> Engine:
    engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": LOCK_TIMEOUT_SECONDS})

    @event.listens_for(engine, "connect")
    def leave_transactions_to_us(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def sqlite_file(url: URL) -> Path | None:
    """Return the file of a SQLite catalog, None for other databases."""
    return Path(url.database or "") if url.get_backend_name() == "sqlite" else None
