"""The statement with which DuckDB attaches the lake of a connection.

It holds no password: DuckDB's clients of PostgreSQL and MySQL take it from the environment (``PGPASSWORD``,
``MYSQL_PWD``) or from a secret of DuckDB's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.hooks.connection_form import CATALOG_TYPES
from airflow_provider_ducklake.spec.names.quoting import written

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from airflow_provider_ducklake.hooks.connection_settings import ConnectionSettings


def attach_statement(settings: ConnectionSettings, alias: str) -> str:
    """Return ``ATTACH 'ducklake:…' AS alias``."""
    schema = settings.metadata_schema
    options = f" (METADATA_SCHEMA {_literal(schema)})" if schema is not None else ""
    return f"ATTACH {_literal('ducklake:' + _catalog(settings.url))} AS {written(alias)}{options}"


def _catalog(url: URL) -> str:
    kind = next(one for one in CATALOG_TYPES.values() if one.driver == url.drivername)
    return kind.attach + (url.database or "" if kind.server is None else _parameters(url, *kind.server))


def _parameters(url: URL, database: str, quote: str) -> str:
    values = {database: url.database, "host": url.host, "port": url.port, "user": url.username}
    return " ".join(f"{name}={_quoted(str(value), quote)}" for name, value in values.items() if value)


def _quoted(value: str, quote: str) -> str:
    """Write a value as libpq and DuckDB's MySQL client read it."""
    if value and not set(value) & set(" '\"\\="):
        return value
    escaped = value.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    return f"{quote}{escaped}{quote}"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
