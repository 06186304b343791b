"""How a logical column of the catalog is stored per database; nothing else branches on that.

Python values on both sides: int, bool, str, aware UTC ``datetime``; UUIDs are their dashed lower-case text.
*Source:* the declared types of catalogs that the reference made (dossier §1.2).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, Boolean, DateTime, Dialect, Text, TypeDecorator, Uuid
from sqlalchemy.dialects import mysql
from sqlalchemy.types import VARCHAR, TypeEngine

# For each table: MySQL's defaults depend on the server, and most of its collations take A for a.
TABLE_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


class CatalogText(TypeDecorator[str]):
    """Text of any length. MySQL has no VARCHAR without a length, and its TEXT ends at 64 KiB."""

    impl = VARCHAR
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(mysql.LONGTEXT() if dialect.name == "mysql" else VARCHAR())


class CatalogBoolean(TypeDecorator[bool]):
    """A boolean; SQLite catalogs keep it as 0 or 1 in a BIGINT."""

    impl = Boolean
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(BigInteger() if dialect.name == "sqlite" else Boolean())

    def process_bind_param(self, value: bool | None, dialect: Dialect) -> Any:  # noqa: ANN401, FBT001 - SQLAlchemy's
        return int(value) if value is not None and dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> bool | None:  # noqa: ANN401, ARG002
        return None if value is None else bool(value)


class CatalogUuid(TypeDecorator[str]):
    """A UUID as text; native in PostgreSQL."""

    impl = VARCHAR
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name in ("postgresql", "duckdb"):
            return dialect.type_descriptor(Uuid(as_uuid=False))
        return dialect.type_descriptor(Text() if dialect.name == "mysql" else VARCHAR())


class CatalogTimestamp(TypeDecorator[datetime]):
    """An aware UTC time.

    SQLite catalogs keep the text ``2026-11-21 02:44:53.395591+00``, MySQL a zoneless UTC time.
    """

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "sqlite":
            return dialect.type_descriptor(VARCHAR())
        if dialect.name == "mysql":
            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        return dialect.type_descriptor(DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:  # noqa: ANN401
        if value is None:
            return None
        value = value.astimezone(UTC)
        if dialect.name == "sqlite":
            return format_time(value)
        return value.replace(tzinfo=None) if dialect.name == "mysql" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:  # noqa: ANN401, ARG002
        return time_of(value)


def time_of(value: str | datetime | None) -> datetime | None:
    """Return the aware UTC time of a value as any of the databases returns it.

    Raises:
        ValueError: it is no time, as SQLite has no type of its own for them.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return parse_time(value)
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


CATALOG_TYPES = (BigInteger, CatalogText, CatalogBoolean, CatalogUuid, CatalogTimestamp)


def format_time(value: datetime) -> str:
    """Return the text of an aware time in SQLite catalogs.

    >>> format_time(datetime(2026, 1, 2, 3, 4, 5, 600000, tzinfo=UTC))
    '2026-01-02 03:04:05.6+00'
    """
    text = value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0").rstrip(".")
    return f"{text}+00"


_OFFSET_WITHOUT_MINUTES = re.compile(r"([+-]\d\d)\Z")


def parse_time(text: str) -> datetime:
    """Return the aware UTC time of a catalog text, with or without zone and fraction.

    >>> parse_time("2026-01-02 03:04:05.6+00")
    datetime.datetime(2026, 1, 2, 3, 4, 5, 600000, tzinfo=datetime.timezone.utc)
    """
    parsed = datetime.fromisoformat(_OFFSET_WITHOUT_MINUTES.sub(r"\1:00", text) if ":" in text else text)
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
