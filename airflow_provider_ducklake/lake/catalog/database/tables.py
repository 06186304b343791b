"""The catalog's tables and columns, once, for every spec version; in the reference's column order.

DuckDB inserts by position, so the order is part of the format. *Source:* DuckLake spec "Tables"; catalogs
made by the reference (docs/sources.md, catalog tables and versions).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from sqlalchemy import Column, MetaData

from airflow_provider_ducklake.lake.catalog.database.column_types import (
    TABLE_OPTIONS,
    CatalogBoolean,
    CatalogInteger,
    CatalogText,
    CatalogTimestamp,
    CatalogType,
    CatalogUuid,
    catalog_table,
)
from airflow_provider_ducklake.lake.spec.versions import SpecVersion, write_version

if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterator

    from sqlalchemy import Table


@dataclass(frozen=True, slots=True)
class _Column:
    """A column and the versions that have it: from ``since`` on, and before ``until``.

    ``nullable`` is as the table is declared, ``is_needed`` whether every writer gives it a value even so.
    """

    name: str
    type: type[CatalogType]
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


def _needed_time(name: str) -> _Column:
    """Return a time that each row has."""
    return _Column(name, CatalogTimestamp, is_needed=True)


def _time(name: str) -> _Column:
    return _Column(name, CatalogTimestamp)


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
        _needed_time("snapshot_time"),
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
    _table("files_scheduled_for_deletion", _int("data_file_id"), *_PATH, _time("schedule_start")),
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
        self.metadata = MetaData(schema=metadata_schema)
        self._tables = dict(self._build())

    def _build(self) -> Iterator[tuple[str, Table]]:
        for table in _TABLES:
            if table.since is None or table.since <= self.version:
                yield (
                    table.name.removeprefix("ducklake_"),
                    catalog_table(
                        table.name_in(self.version),
                        self.metadata,
                        *(
                            Column(
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

    def __getitem__(self, name: str) -> Table:
        """Return the table of that name, without its ``ducklake_`` prefix; of one renamed, of its newest."""
        return self._tables[name]

    def items(self) -> ItemsView[str, Table]:
        """Return all tables by those names."""
        return self._tables.items()

    def __contains__(self, name: str) -> bool:
        """Whether the version has that table."""
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
