"""CREATE SCHEMA, TABLE and VIEW."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.spec.names.identifiers import fold
from airflow_provider_ducklake.spec.names.quoting import written
from airflow_provider_ducklake.sql.duckdb.column_types import read_column_type
from airflow_provider_ducklake.sql.duckdb.defaults import read_default
from airflow_provider_ducklake.sql.duckdb.layout_keys import read_partition_key, read_sort_column
from airflow_provider_ducklake.sql.duckdb.refusals import COLUMN_OPTIONS, CONSTRAINTS, refuse_object
from airflow_provider_ducklake.sql.duckdb.statements import (
    ColumnDefinition,
    CreateSchema,
    CreateTable,
    CreateView,
    Statement,
)
from airflow_provider_ducklake.sql.duckdb.views import read_query

if TYPE_CHECKING:
    from airflow_provider_ducklake.sql.duckdb.cursor import Cursor


def read_create(cursor: Cursor) -> Statement:
    """Read what follows CREATE."""
    or_replace = cursor.accept("OR", "REPLACE")
    if cursor.accept("TABLE"):
        return _read_table(cursor, or_replace=or_replace)
    if cursor.accept("VIEW"):
        return _read_view(cursor, or_replace=or_replace)
    if cursor.accept("SCHEMA"):
        if or_replace:
            raise cursor.error("a schema cannot be replaced. Drop it with CASCADE, then create it.", back=1)
        return CreateSchema(if_not_exists=_if_not_exists(cursor), name=schema_name(cursor))
    raise refuse_object(cursor, "CREATE")


def schema_name(cursor: Cursor) -> str:
    """Read the name of a schema."""
    name = cursor.name("schema")
    if cursor.sees("."):
        raise cursor.error(
            "give the name of a schema alone. Leave the catalog out: the connection defines it."
        )
    return name


def _if_not_exists(cursor: Cursor, *, or_replace: bool = False) -> bool:
    start = cursor.position
    found = cursor.accept("IF", "NOT", "EXISTS")
    if found and or_replace:
        raise cursor.error("OR REPLACE and IF NOT EXISTS cannot be combined. Keep one.", at=start)
    return found


def _read_table(cursor: Cursor, *, or_replace: bool) -> CreateTable:
    if_not_exists = _if_not_exists(cursor, or_replace=or_replace)
    table = cursor.qualified_name("table")
    if cursor.word == "AS":
        raise cursor.unsupported(
            "CREATE TABLE … AS writes rows. Create the table with its columns here and fill it with the "
            "insert operator, which can also create it (create_table=True)."
        )
    columns = _read_columns(cursor)
    return _read_layout(cursor, CreateTable(table, columns, if_not_exists, or_replace))


def _read_layout(cursor: Cursor, statement: CreateTable) -> CreateTable:
    while cursor.token is not None:
        if not statement.partition_by and cursor.accept("PARTITIONED", "BY"):
            keys = cursor.list_of(lambda: read_partition_key(cursor))
            statement = replace(statement, partition_by=keys)
        elif not statement.sort_by and cursor.accept("SORTED", "BY"):
            statement = replace(statement, sort_by=cursor.list_of(lambda: _read_plain_sort_key(cursor)))
        else:
            raise cursor.error(
                "this does not belong here. Only PARTITIONED BY (…) and SORTED BY (…) may follow the columns."
            )
    return statement


def _read_plain_sort_key(cursor: Cursor) -> str:
    column = read_sort_column(cursor)
    if cursor.word in ("ASC", "DESC", "NULLS"):
        raise cursor.error(
            "CREATE TABLE takes sort keys without a direction, as in DuckDB. Use ALTER TABLE … SET SORTED BY."
        )
    return column


def _read_columns(cursor: Cursor) -> tuple[ColumnDefinition, ...]:
    seen: set[str] = set()

    def read() -> ColumnDefinition:
        start = cursor.position
        column = _read_column(cursor)
        if fold(column.name) in seen:
            raise cursor.error("two columns have this name (names are case-insensitive).", at=start)
        seen.add(fold(column.name))
        return column

    return cursor.list_of(read)


def _read_column(cursor: Cursor) -> ColumnDefinition:
    if cursor.word in CONSTRAINTS:
        raise cursor.error(CONSTRAINTS[cursor.word])
    name = cursor.name("column")
    if cursor.word in ("AS", "GENERATED"):
        raise cursor.error(CONSTRAINTS[cursor.word])
    column = ColumnDefinition(name, read_column_type(cursor, written(name)))
    seen: set[str] = set()
    while not cursor.sees(",") and not cursor.sees(")"):
        start = cursor.position
        kind, column = _read_option(cursor, column)
        if kind in seen:
            raise cursor.error(f"{kind} is given twice. Keep one.", at=start)
        seen.add(kind)
    return column


def _read_option(cursor: Cursor, column: ColumnDefinition) -> tuple[str, ColumnDefinition]:
    if cursor.accept("NOT", "NULL"):
        return "NULL or NOT NULL", replace(column, nullable=False)
    if cursor.accept("NULL"):
        return "NULL or NOT NULL", column
    if cursor.accept("DEFAULT"):
        return "DEFAULT", replace(column, default=read_default(cursor))
    raise cursor.error(
        COLUMN_OPTIONS.get(cursor.word, "expected NOT NULL, DEFAULT, a comma or a closing parenthesis.")
    )


def _read_view(cursor: Cursor, *, or_replace: bool) -> CreateView:
    if_not_exists = _if_not_exists(cursor, or_replace=or_replace)
    view = cursor.qualified_name("view")
    aliases = cursor.list_of(lambda: cursor.name("column")) if cursor.sees("(") else ()
    cursor.expect("AS")
    return CreateView(view, read_query(cursor), aliases, if_not_exists=if_not_exists, or_replace=or_replace)
