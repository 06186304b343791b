"""What differs between catalog databases, one file each: commit lock, clock, and what an error means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .mysql import MySqlDialect
from .sqlite import SqliteDialect

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from .dialect import CatalogDialect


def dialect_of(engine: Engine, metadata_schema: str | None) -> CatalogDialect:
    """Return the dialect of an engine that ``connect`` opened."""
    match engine.dialect.name:
        case "sqlite":
            return SqliteDialect(engine)
        case "mysql":
            return MySqlDialect(engine, metadata_schema)
        case "duckdb":
            from .duckdb import DuckDbDialect  # noqa: PLC0415 - optional

            return DuckDbDialect(engine, metadata_schema)
        case "postgresql":
            from .postgres import PostgresDialect  # noqa: PLC0415 - as well

            return PostgresDialect(engine, metadata_schema)
        case name:  # connect opens no others
            raise ValueError(f"{name} has no dialect")
