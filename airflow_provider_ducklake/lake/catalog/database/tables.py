"""The catalog's tables and columns, once, for every spec version; in the reference's column order.

DuckDB inserts by position, so the order is part of the format. *Source:* DuckLake spec "Tables"; catalogs
made by the reference (docs/sources.md, catalog tables and versions).
"""

from __future__ import annotations

import re
from collections.abc import Callable, ItemsView, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.types import VARCHAR, TypeEngine

from ...errors import CatalogError
from ...format.versions import SpecVersion, write_version

# How a logical column of the catalog is stored per database; nothing else branches on that.
#
# Python values on both sides: int, bool, str, aware UTC ``datetime``; UUIDs are their dashed lower-case
# text. *Source:* the declared types of catalogs that the reference made (docs/sources.md, databases).


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
    boolean: TypeEngine[Any] = field(default_factory=sa.Boolean)
    timestamp: TypeEngine[Any] = field(default_factory=lambda: sa.DateTime(timezone=True))
    flag: Callable[[bool], Any] = bool
    keeps_types: bool = True  # a column holds values of its type only
    time: Callable[[datetime], Any] = lambda value: value


def _storage(dialect: sa.Dialect) -> _Storage:
    return _STORAGE[dialect.name]


_KEYS = (".encryption_key", ".document_key")  # columns whose values no message shows
MOST_CHARACTERS = 2**21  # of a text of the catalog: parsing one may take a second for each million


class CheckedType(sa.TypeDecorator[Any]):
    """A column's type that refuses what no writer leaves there: NULL where there is always a value.

    And values of another type, as SQLite keeps any in any column; and texts that are too long to be parsed.
    """

    wanted: type | tuple[type, ...]
    called: str
    place = "a column of the catalog"  # that has this type, such as ducklake_table.table_name

    def __init__(self, *, is_needed: bool = False) -> None:
        super().__init__()
        self.is_needed = is_needed  # whether each row has a value

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> Callable[[Any], Any] | None:
        read: Callable[[Any], Any] | None = super().result_processor(dialect, coltype)
        if _storage(dialect).keeps_types and not self.is_needed and self.wanted is not str:
            return read
        wanted = object if _storage(dialect).keeps_types else self.wanted

        def checked(value: Any) -> Any:  # noqa: ANN401 - a row's
            if value is None:
                if self.is_needed:
                    raise self.no_value()
            elif not isinstance(value, wanted):
                raise self._no_such(value)
            elif value.__class__ is str and len(value) > MOST_CHARACTERS:
                raise self._too_long(value)
            return value if read is None else read(value)

        return checked

    def no_value(self) -> CatalogError:
        """Return the error of a row without a value."""
        return CatalogError(
            f"{self.place} is NULL in a row. No writer leaves it so: correct those rows, or restore "
            "the catalog from a backup."
        )

    def _too_long(self, value: str) -> CatalogError:
        return CatalogError(
            f"{self._shown(value[:80])} in {self.place} begins a text of {len(value):,} characters; those of "
            f"a catalog have {MOST_CHARACTERS:,} at most. Find its row by the length, and who wrote it; then "
            "correct it, or restore the catalog from a backup."
        )

    def _no_such(self, value: object) -> CatalogError:
        return CatalogError(
            f"{self._shown(value)} in {self.place} is not {self.called}. SQLite takes any value in any "
            "column: correct that row, or restore the catalog from a backup."
        )

    def _shown(self, value: object) -> str:
        return "a value" if self.place.endswith(_KEYS) else f"{value!r:.80}"


class CatalogInteger(CheckedType):
    """A whole number of 64 bits."""

    impl = sa.BigInteger
    cache_ok = True
    wanted = int
    called = "an integer"


class CatalogText(CheckedType):
    """Text."""

    impl = VARCHAR
    cache_ok = True
    wanted = str
    called = "a string"

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(_storage(dialect).text)


class CatalogBoolean(CheckedType):
    """A boolean."""

    impl = sa.Boolean
    cache_ok = True
    wanted = int
    called = "a boolean"

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(_storage(dialect).boolean)

    def process_bind_param(self, value: bool | None, dialect: sa.Dialect) -> Any:  # noqa: ANN401, FBT001 - SQLAlchemy's
        return None if value is None else _storage(dialect).flag(value)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> bool | None:  # noqa: ANN401, ARG002
        return None if value is None else bool(value)


class CatalogUuid(CheckedType):
    """A UUID as text; native where the database has the type."""

    impl = VARCHAR
    cache_ok = True
    wanted = str
    called = "a UUID"

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(_storage(dialect).uuid)


class CatalogTimestamp(CheckedType):
    """An aware UTC time."""

    impl = sa.DateTime
    cache_ok = True
    wanted = (str, datetime)
    called = "a time"

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(_storage(dialect).timestamp)

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> Any:  # noqa: ANN401
        return None if value is None else _storage(dialect).time(value.astimezone(UTC))

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> datetime | None:  # noqa: ANN401, ARG002
        try:
            return time_of(value)
        except (ValueError, OverflowError) as error:  # on the edge of the calendar, a zone leads beyond it
            raise self._no_such(value) from error


def time_of(value: str | datetime | None) -> datetime | None:
    """Return the aware UTC time of a value as any of the databases returns it."""
    if value is None:
        return None
    if isinstance(value, str):
        return parse_time(value)
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def catalog_table(name: str, metadata: sa.MetaData, *columns: sa.Column[Any], **options: Any) -> sa.Table:  # noqa: ANN401
    """Return a table whose columns' types say in errors where they are."""
    table = sa.Table(name, metadata, *columns, **options)
    for column in table.columns:
        if isinstance(column.type, CheckedType):
            column.type.place = f"{table.name}.{column.name}"
    return table


def is_needed(column: sa.Column[Any]) -> bool:
    """Return True if no writer leaves a column of the catalog without a value."""
    return isinstance(column.type, CheckedType) and column.type.is_needed


def check_filled(table: sa.Table, row: sa.Row[Any]) -> None:
    """Refuse a row of a table that was read by ``maybe`` and lacks what each row has."""
    for column in table.columns:
        type_ = column.type
        if isinstance(type_, CheckedType) and type_.is_needed and getattr(row, column.name) is None:
            raise type_.no_value()


def maybe(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Return a needed column as nullable, as an outer join or an aggregate without rows yields it."""
    type_: Any = column.type.copy()
    type_.is_needed = False
    return sa.type_coerce(column, type_)


def format_time(value: datetime) -> str:
    """Return the text of an aware time in SQLite catalogs.

    >>> format_time(datetime(2026, 1, 2, 3, 4, 5, 600000, tzinfo=UTC))
    '2026-01-02 03:04:05.6+00'
    """
    text = value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0").rstrip(".")
    return f"{text}+00"


# By SQLAlchemy's names of the databases.
_STORAGE = {
    "postgresql": _Storage(VARCHAR(), sa.Uuid(as_uuid=False)),
    "duckdb": _Storage(VARCHAR(), sa.Uuid(as_uuid=False)),
    # a boolean is 0 or 1, a time the text 2026-11-21 02:44:53.395591+00
    "sqlite": _Storage(
        VARCHAR(), VARCHAR(), sa.BigInteger(), VARCHAR(), flag=int, keeps_types=False, time=format_time
    ),
    # no VARCHAR without a length, and TEXT ends at 64 KiB; times are UTC without a zone
    "mysql": _Storage(
        mysql.LONGTEXT(),
        sa.Text(),
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


@dataclass(frozen=True, slots=True)
class _Column:
    """A column and the versions that have it: from ``since`` on, and before ``until``.

    ``nullable`` is as the table is declared, ``is_needed``: every writer gives it a value even so.
    """

    name: str
    type: type[CheckedType]
    primary_key: bool = False
    nullable: bool = True
    is_needed: bool = False
    since: SpecVersion | None = None
    until: SpecVersion | None = None

    def exists_in(self, version: SpecVersion) -> bool:
        return (self.since is None or self.since <= version) and (self.until is None or version < self.until)


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    columns: tuple[_Column, ...]
    since: SpecVersion | None = None
    former_name: str | None = None  # before 0.3

    def name_in(self, version: SpecVersion) -> str:
        return self.former_name if self.former_name is not None and version < _V03 else self.name


def _key(name: str) -> _Column:
    return _Column(name, CatalogInteger, primary_key=True, nullable=False, is_needed=True)


def _needed_int(name: str) -> _Column:
    """Return a number that each row has."""
    return _Column(name, CatalogInteger, is_needed=True)


def _int(name: str, *, since: SpecVersion | None = None) -> _Column:
    return _Column(name, CatalogInteger, since=since)


def _needed_text(name: str, *, nullable: bool = True, since: SpecVersion | None = None) -> _Column:
    """Return a text that each row has."""
    return _Column(name, CatalogText, nullable=nullable, is_needed=True, since=since)


def _text(name: str, *, since: SpecVersion | None = None, until: SpecVersion | None = None) -> _Column:
    return _Column(name, CatalogText, since=since, until=until)


def _bool(name: str, *, since: SpecVersion | None = None) -> _Column:
    return _Column(name, CatalogBoolean, since=since)


def _uuid(name: str) -> _Column:
    return _Column(name, CatalogUuid)


def _table(
    name: str, *columns: _Column, since: SpecVersion | None = None, former_name: str | None = None
) -> _Table:
    return _Table(f"ducklake_{name}", columns, since, former_name)


_LIFETIME = (_needed_int("begin_snapshot"), _int("end_snapshot"))
_V02 = SpecVersion.V0_2
_V03 = SpecVersion.V0_3
_V04 = SpecVersion.V0_4
_V11 = SpecVersion.V1_1
_PATH = (_needed_text("path"), _bool("path_is_relative"))
_FOLDER = (_text("path", since=_V02), _bool("path_is_relative", since=_V02))  # of schemas and tables
_FILE_COLUMN = (_needed_int("data_file_id"), _needed_int("table_id"), _needed_int("column_id"))
_COUNTS = (_int("column_size_bytes"), _int("value_count"), _int("null_count"))
_BOUNDS = (_text("min_value"), _text("max_value"))
_EXACTNESS = (_bool("min_is_exact", since=_V11), _bool("max_is_exact", since=_V11))

_TABLES = (
    _table(
        "metadata",
        _needed_text("key", nullable=False),
        _needed_text("value", nullable=False),
        _text("scope", since=_V02),
        _int("scope_id", since=_V02),
    ),
    _table(
        "snapshot",
        _key("snapshot_id"),
        _Column("snapshot_time", CatalogTimestamp, is_needed=True),
        _needed_int("schema_version"),
        _needed_int("next_catalog_id"),
        _needed_int("next_file_id"),
    ),
    _table(
        "snapshot_changes",
        _key("snapshot_id"),
        _text("changes_made"),
        _text("author", since=_V03),
        _text("commit_message", since=_V03),
        _text("commit_extra_info", since=_V03),
    ),
    _table(
        "schema",
        _key("schema_id"),
        _uuid("schema_uuid"),
        *_LIFETIME,
        _needed_text("schema_name"),
        *_FOLDER,
        _int("parent_schema_id", since=_V11),
    ),
    _table(
        "table",
        _needed_int("table_id"),
        _uuid("table_uuid"),
        *_LIFETIME,
        _needed_int("schema_id"),
        _needed_text("table_name"),
        *_FOLDER,
    ),
    _table(
        "view",
        _needed_int("view_id"),
        _uuid("view_uuid"),
        *_LIFETIME,
        _needed_int("schema_id"),
        _needed_text("view_name"),
        _text("dialect"),
        _needed_text("sql"),
        _text("column_aliases"),
    ),
    _table("tag", _needed_int("object_id"), *_LIFETIME, _needed_text("key"), _text("value")),
    _table(
        "column_tag",
        _needed_int("table_id"),
        _needed_int("column_id"),
        *_LIFETIME,
        _needed_text("key"),
        _text("value"),
    ),
    _table(
        "view_column_tag",
        _needed_int("view_id"),
        _needed_text("column_name"),
        *_LIFETIME,
        _needed_text("key"),
        _text("value"),
        since=_V11,
    ),
    _table(
        "data_file",
        _key("data_file_id"),
        _needed_int("table_id"),
        *_LIFETIME,
        _int("file_order"),
        *_PATH,
        _text("file_format"),
        _needed_int("record_count"),
        _needed_int("file_size_bytes"),
        _int("footer_size"),
        _int("row_id_start"),
        _int("partition_id"),
        _text("encryption_key"),
        _text("partial_file_info", until=_V04),
        _int("mapping_id", since=_V02),
        _int("partial_max", since=_V04),
        _int("row_group_count", since=_V11),
    ),
    _table(
        "file_column_stats",
        *_FILE_COLUMN,
        *_COUNTS,
        *_BOUNDS,
        _bool("contains_nan"),
        _text("extra_stats", since=_V03),
        *_EXACTNESS,
        former_name="ducklake_file_column_statistics",
    ),
    _table(
        "file_variant_stats",
        *_FILE_COLUMN,
        _needed_text("variant_path"),
        _text("shredded_type"),
        *_COUNTS,
        *_BOUNDS,
        _bool("contains_nan"),
        _text("extra_stats"),
        since=_V04,
    ),
    _table(
        "delete_file",
        _key("delete_file_id"),
        _needed_int("table_id"),
        *_LIFETIME,
        _needed_int("data_file_id"),
        *_PATH,
        _text("format"),
        _needed_int("delete_count"),
        _int("file_size_bytes"),
        _int("footer_size"),
        _text("encryption_key"),
        _int("partial_max", since=_V04),
        _int("row_group_count", since=_V11),
    ),
    _table(
        "column",
        _needed_int("column_id"),
        *_LIFETIME,
        _needed_int("table_id"),
        _needed_int("column_order"),
        _needed_text("column_name"),
        _needed_text("column_type"),
        _text("initial_default"),
        _text("default_value"),
        _bool("nulls_allowed"),
        _int("parent_column"),
        _text("default_value_type", since=_V04),
        _text("default_value_dialect", since=_V04),
    ),
    _table(
        "table_stats",
        _needed_int("table_id"),
        _int("record_count"),
        _int("next_row_id"),
        _int("file_size_bytes"),
    ),
    _table(
        "table_column_stats",
        _needed_int("table_id"),
        _needed_int("column_id"),
        _bool("contains_null"),
        _bool("contains_nan"),
        *_BOUNDS,
        _text("extra_stats", since=_V03),
        *_EXACTNESS,
    ),
    _table("partition_info", _needed_int("partition_id"), _needed_int("table_id"), *_LIFETIME),
    _table(
        "partition_column",
        _needed_int("partition_id"),
        _needed_int("table_id"),
        _needed_int("partition_key_index"),
        _int("column_id"),  # DuckDB's migration of 0.1 leaves NULL for an ended key on a dropped column
        _needed_text("transform"),
    ),
    _table(
        "file_partition_value",
        _needed_int("data_file_id"),
        _needed_int("table_id"),
        _needed_int("partition_key_index"),
        _text("partition_value"),
    ),
    _table(
        "files_scheduled_for_deletion",
        _int("data_file_id"),
        *_PATH,
        _Column("schedule_start", CatalogTimestamp),
    ),
    _table(
        "inlined_data_tables",
        _needed_int("table_id"),
        _needed_text("table_name"),
        _needed_int("schema_version"),
    ),
    _table(
        "column_mapping", _needed_int("mapping_id"), _needed_int("table_id"), _needed_text("type"), since=_V02
    ),
    _table(
        "name_mapping",
        _needed_int("mapping_id"),
        _needed_int("column_id"),
        _needed_text("source_name"),
        _needed_int("target_field_id"),
        _int("parent_column"),
        _bool("is_partition", since=_V03),
        since=_V02,
    ),
    _table(
        "schema_versions",
        _needed_int("begin_snapshot"),
        _needed_int("schema_version"),
        _int("table_id", since=_V04),
        since=_V03,
    ),
    _table(
        "macro",
        _needed_int("schema_id"),
        _needed_int("macro_id"),
        _needed_text("macro_name"),
        *_LIFETIME,
        since=_V04,
    ),
    _table(
        "macro_impl",
        _needed_int("macro_id"),
        _needed_int("impl_id"),
        _text("dialect"),
        _text("sql"),
        _text("type"),
        since=_V04,
    ),
    _table(
        "macro_parameters",
        _needed_int("macro_id"),
        _needed_int("impl_id"),
        _needed_int("column_id"),
        _text("parameter_name"),
        _text("parameter_type"),
        _text("default_value"),
        _text("default_value_type"),
        since=_V04,
    ),
    _table("sort_info", _needed_int("sort_id"), _needed_int("table_id"), *_LIFETIME, since=_V04),
    _table(
        "sort_expression",
        _needed_int("sort_id"),
        _needed_int("table_id"),
        _needed_int("sort_key_index"),
        _needed_text("expression"),
        _text("dialect"),
        _text("sort_direction"),
        _text("null_order"),
        since=_V04,
    ),
)


class CatalogTables:
    """The SQLAlchemy tables of one spec version, in one database schema (None: the connection's default)."""

    def __init__(self, version: SpecVersion, metadata_schema: str | None = None) -> None:
        self.version = version
        self.writer = write_version(version)
        self.metadata_schema = metadata_schema
        self.metadata = sa.MetaData(schema=metadata_schema)
        self._tables = dict(self._build())

    def _build(self) -> Iterator[tuple[str, sa.Table]]:
        for table in _TABLES:
            if table.since is None or table.since <= self.version:
                yield (
                    table.name.removeprefix("ducklake_"),
                    catalog_table(
                        table.name_in(self.version),
                        self.metadata,
                        *(
                            sa.Column(
                                column.name,
                                column.type(is_needed=column.is_needed),
                                primary_key=column.primary_key,
                                nullable=column.nullable,
                                autoincrement=False,
                            )
                            for column in table.columns
                            if column.exists_in(self.version)
                        ),
                        **TABLE_OPTIONS,
                    ),
                )

    def __getitem__(self, name: str) -> sa.Table:
        """Return the table of that name, without its ``ducklake_`` prefix; of one renamed, of its newest."""
        return self._tables[name]

    def items(self) -> ItemsView[str, sa.Table]:
        """Return all tables by those names."""
        return self._tables.items()

    def __contains__(self, name: str) -> bool:
        """Return True if the version has that table."""
        return name in self._tables


@lru_cache
def catalog_tables(version: SpecVersion, metadata_schema: str | None = None) -> CatalogTables:
    """Return the tables of a version; always the same, so that SQLAlchemy's statement cache works."""
    return CatalogTables(version, metadata_schema)


OTHER_PREFIXES = ("ducklake_inlined_", "airflow_ducklake_")  # of a lake's tables, beside those of the format


@cache
def format_names() -> frozenset[str]:
    """Return the names of the tables of the format, in whatever version."""
    return frozenset(
        table.name for one in SpecVersion for table in catalog_tables(one).metadata.sorted_tables
    )
