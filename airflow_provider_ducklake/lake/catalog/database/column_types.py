"""How a logical column of the catalog is stored per database; nothing else branches on that.

Python values on both sides: int, bool, str, aware UTC ``datetime``; UUIDs are their dashed lower-case text.
*Source:* the declared types of catalogs that the reference made (docs/sources.md, databases).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    DateTime,
    Dialect,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    Uuid,
    type_coerce,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.types import VARCHAR, TypeEngine

from airflow_provider_ducklake.lake.errors import CatalogError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Row

# For each table: MySQL's defaults depend on the server, and most of its collations take A for a.
TABLE_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


@dataclass(frozen=True, slots=True)
class _Storage:
    """The types of one database; ``time`` and ``flag`` turn Python's values into the driver's."""

    text: TypeEngine[Any]
    uuid: TypeEngine[Any]
    boolean: TypeEngine[Any] = field(default_factory=Boolean)
    timestamp: TypeEngine[Any] = field(default_factory=lambda: DateTime(timezone=True))
    flag: Callable[[bool], Any] = bool
    keeps_types: bool = True  # a column holds values of its type only
    time: Callable[[datetime], Any] = lambda value: value


def _storage(dialect: Dialect) -> _Storage:
    return _STORAGE[dialect.name]


_KEYS = (".encryption_key", ".document_key")  # columns whose values no message shows


class CatalogType(TypeDecorator[Any]):
    """A column's type that refuses what no writer leaves there: NULL where there is always a value.

    And values of another type, as SQLite keeps any in any column.
    """

    wanted: type | tuple[type, ...]
    called: str
    place = "a column of the catalog"  # that has this type, such as ducklake_table.table_name

    def __init__(self, *, is_needed: bool = False) -> None:
        super().__init__()
        self.is_needed = is_needed  # whether each row has a value

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        read: Callable[[Any], Any] | None = super().result_processor(dialect, coltype)
        if _storage(dialect).keeps_types and not self.is_needed:
            return read
        wanted = object if _storage(dialect).keeps_types else self.wanted

        def checked(value: Any) -> Any:  # noqa: ANN401 - a row's
            if value is None:
                if self.is_needed:
                    raise self.no_value()
            elif not isinstance(value, wanted):
                raise self._no_such(value)
            return value if read is None else read(value)

        return checked

    def no_value(self) -> CatalogError:
        """Return the error of a row without a value."""
        return CatalogError(
            f"{self.place} is NULL in a row. No writer leaves it so: correct those rows, or restore "
            "the catalog from a backup."
        )

    def _no_such(self, value: object) -> CatalogError:
        shown = "a value" if self.place.endswith(_KEYS) else f"{value!r:.80}"
        return CatalogError(
            f"{shown} in {self.place} is not {self.called}. SQLite takes any value in any column: "
            "correct that row, or restore the catalog from a backup."
        )


class CatalogInteger(CatalogType):
    """A whole number of 64 bits."""

    impl = BigInteger
    cache_ok = True
    wanted = int
    called = "an integer"


class CatalogText(CatalogType):
    """Text of any length."""

    impl = VARCHAR
    cache_ok = True
    wanted = str
    called = "a string"

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(_storage(dialect).text)


class CatalogBoolean(CatalogType):
    """A boolean."""

    impl = Boolean
    cache_ok = True
    wanted = int
    called = "a boolean"

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(_storage(dialect).boolean)

    def process_bind_param(self, value: bool | None, dialect: Dialect) -> Any:  # noqa: ANN401, FBT001 - SQLAlchemy's
        return None if value is None else _storage(dialect).flag(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> bool | None:  # noqa: ANN401, ARG002
        return None if value is None else bool(value)


class CatalogUuid(CatalogType):
    """A UUID as text; native where the database has the type."""

    impl = VARCHAR
    cache_ok = True
    wanted = str
    called = "a UUID"

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(_storage(dialect).uuid)


class CatalogTimestamp(CatalogType):
    """An aware UTC time."""

    impl = DateTime
    cache_ok = True
    wanted = (str, datetime)
    called = "a time"

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(_storage(dialect).timestamp)

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:  # noqa: ANN401
        return None if value is None else _storage(dialect).time(value.astimezone(UTC))

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:  # noqa: ANN401, ARG002
        try:
            return time_of(value)
        except (ValueError, OverflowError) as error:  # on the edge of the calendar, a zone leads beyond it
            raise self._no_such(value) from error


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


def catalog_table(name: str, metadata: MetaData, *columns: Column[Any], **options: Any) -> Table:  # noqa: ANN401
    """Return a table whose columns' types say in errors where they are."""
    table = Table(name, metadata, *columns, **options)
    for column in table.columns:
        if isinstance(column.type, CatalogType):
            column.type.place = f"{table.name}.{column.name}"
    return table


def is_needed(column: Column[Any]) -> bool:
    """Whether no writer leaves a column of the catalog without a value."""
    return isinstance(column.type, CatalogType) and column.type.is_needed


def check_filled(table: Table, row: Row[Any]) -> None:
    """Refuse a row of a table that was read by ``maybe`` and lacks what each row has.

    Raises:
        CatalogError: names the column.
    """
    for column in table.columns:
        type_ = column.type
        if isinstance(type_, CatalogType) and type_.is_needed and getattr(row, column.name) is None:
            raise type_.no_value()


def maybe(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return a needed column as an outer join or an aggregate has it, of which there may be no row."""
    type_: Any = column.type.copy()
    type_.is_needed = False
    return type_coerce(column, type_)


def format_time(value: datetime) -> str:
    """Return the text of an aware time in SQLite catalogs.

    >>> format_time(datetime(2026, 1, 2, 3, 4, 5, 600000, tzinfo=UTC))
    '2026-01-02 03:04:05.6+00'
    """
    text = value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0").rstrip(".")
    return f"{text}+00"


# By SQLAlchemy's names of the databases.
_STORAGE = {
    "postgresql": _Storage(VARCHAR(), Uuid(as_uuid=False)),
    "duckdb": _Storage(VARCHAR(), Uuid(as_uuid=False)),
    # a boolean is 0 or 1, a time the text 2026-11-21 02:44:53.395591+00
    "sqlite": _Storage(
        VARCHAR(), VARCHAR(), BigInteger(), VARCHAR(), flag=int, keeps_types=False, time=format_time
    ),
    # no VARCHAR without a length, and TEXT ends at 64 KiB; times are UTC without a zone
    "mysql": _Storage(
        mysql.LONGTEXT(),
        Text(),
        timestamp=mysql.DATETIME(fsp=6),
        time=lambda value: value.replace(tzinfo=None),
    ),
}

_OFFSET_WITHOUT_MINUTES = re.compile(r"([+-]\d\d)\Z")


def parse_time(text: str) -> datetime:
    """Return the aware UTC time of a catalog text, with or without zone and fraction.

    >>> parse_time("2026-01-02 03:04:05.6+00")
    datetime.datetime(2026, 1, 2, 3, 4, 5, 600000, tzinfo=datetime.timezone.utc)
    """
    parsed = datetime.fromisoformat(_OFFSET_WITHOUT_MINUTES.sub(r"\1:00", text) if ":" in text else text)
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
