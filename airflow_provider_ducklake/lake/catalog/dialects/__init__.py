"""What differs between catalog databases, one file each: commit lock, clock, and what an error means."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from .dialect import CatalogDialect


def dialect_of(engine: Engine, metadata_schema: str | None) -> CatalogDialect:
    """Return the dialect of an engine that ``connect`` opened."""
    match engine.dialect.name:
        case "sqlite":
            from .sqlite import SqliteDialect

            return SqliteDialect(engine)
        case "mysql":
            from .mysql import MySqlDialect

            return MySqlDialect(engine, metadata_schema)
        case "duckdb":
            from .duckdb import DuckDbDialect

            return DuckDbDialect(engine, metadata_schema)
        case "postgresql":
            from .postgres import PostgresDialect

            return PostgresDialect(engine, metadata_schema)
        case name:  # connect opens no others
            raise ValueError(f"{name} has no dialect")
