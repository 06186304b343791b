"""ALTER TABLE and ALTER VIEW."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.spec.names.identifiers import split_parts
from airflow_provider_ducklake.lake.sql.duckdb.column_types import read_column_type
from airflow_provider_ducklake.lake.sql.duckdb.create import read_partition_key, read_sort_key
from airflow_provider_ducklake.lake.sql.duckdb.cursor import written_path
from airflow_provider_ducklake.lake.sql.duckdb.defaults import read_default, read_literal_default
from airflow_provider_ducklake.lake.sql.duckdb.option_lists import (
    read_option,
    read_option_name,
    refuse_repeated,
)
from airflow_provider_ducklake.lake.sql.duckdb.refusals import (
    COLUMN_OPTIONS,
    CONSTRAINTS,
    EXISTING,
    refuse_object,
)
from airflow_provider_ducklake.lake.sql.duckdb.statements import (
    AddColumn,
    DropColumn,
    DropDefault,
    DropNotNull,
    RenameColumn,
    RenameTable,
    RenameView,
    ResetOptions,
    SetColumnType,
    SetDefault,
    SetNotNull,
    SetOptions,
    SetPartitionedBy,
    SetSortedBy,
    Statement,
)

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName
    from airflow_provider_ducklake.lake.sql.duckdb.cursor import Cursor


def read_alter(cursor: Cursor) -> Statement:
    """Read what follows ALTER."""
    if cursor.accept("TABLE"):
        _refuse_if_exists(cursor)
        return _read_table_action(cursor, cursor.qualified_name("table"))
    if cursor.accept("VIEW"):
        _refuse_if_exists(cursor)
        view = cursor.qualified_name("view")
        cursor.expect("RENAME", "TO")
        return RenameView(view, _read_new_name(cursor, "view"))
    if cursor.word == "SCHEMA":
        raise cursor.error("DuckLake cannot alter or rename a schema. Create another one and move the data.")
    raise refuse_object(cursor, "ALTER")


def _refuse_if_exists(cursor: Cursor) -> None:
    start = cursor.position
    if cursor.accept("IF", "EXISTS"):
        raise cursor.unsupported(EXISTING, at=start)


def _read_table_action(cursor: Cursor, table: QualifiedName) -> Statement:
    if cursor.accept("RENAME"):
        return _read_rename(cursor, table)
    if cursor.accept("ADD"):
        return _read_add(cursor, table)
    if cursor.accept("DROP"):
        return _read_drop(cursor, table)
    if cursor.accept("ALTER"):
        return _read_alter_column(cursor, table)
    if cursor.accept("SET"):
        return _read_set(cursor, table)
    if cursor.accept("RESET"):
        return _read_reset(cursor, table)
    raise cursor.error("expected RENAME, ADD, DROP, ALTER, SET or RESET.")


def _read_new_name(cursor: Cursor, kind: str) -> str:
    name = cursor.name(kind)
    if cursor.sees("."):
        raise cursor.error(f"give the new name of a {kind} alone: it stays in its schema.")
    return name


def _read_path(cursor: Cursor) -> str:
    return written_path(cursor.path("column"))


def _read_rename(cursor: Cursor, table: QualifiedName) -> Statement:
    if cursor.accept("TO"):
        return RenameTable(table, _read_new_name(cursor, "table"))
    cursor.accept("COLUMN")
    path = _read_path(cursor)
    cursor.expect("TO")
    return RenameColumn(table, path, _read_new_name(cursor, "column"))


def _read_add(cursor: Cursor, table: QualifiedName) -> AddColumn:
    if cursor.word in CONSTRAINTS:
        raise cursor.error(CONSTRAINTS[cursor.word])
    cursor.accept("COLUMN")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    path = _read_path(cursor)
    type_ = read_column_type(cursor, path)
    default = read_literal_default(cursor) if cursor.accept("DEFAULT") else None
    if cursor.word == "NOT":
        raise cursor.error(
            "existing rows have no value for a new column, so it cannot be NOT NULL. Fill it first, then "
            "ALTER COLUMN … SET NOT NULL."
        )
    if cursor.word in COLUMN_OPTIONS:
        raise cursor.error(COLUMN_OPTIONS[cursor.word])
    cursor.accept("NULL")
    return AddColumn(table, path, type_, default, if_not_exists)


def _read_drop(cursor: Cursor, table: QualifiedName) -> DropColumn:
    if cursor.word in CONSTRAINTS:
        raise cursor.error(CONSTRAINTS[cursor.word])
    cursor.accept("COLUMN")
    if_exists = cursor.accept("IF", "EXISTS")
    path = _read_path(cursor)
    read_restrict(cursor, "column")
    return DropColumn(table, path, if_exists)


def read_restrict(cursor: Cursor, kind: str) -> None:
    """Pass RESTRICT, which says what is done anyway."""
    if cursor.word == "CASCADE":
        raise cursor.error(f"nothing depends on a {kind}. Leave CASCADE out.")
    cursor.accept("RESTRICT")


def _read_alter_column(cursor: Cursor, table: QualifiedName) -> Statement:
    cursor.accept("COLUMN")
    start = cursor.position
    path = _read_path(cursor)
    if cursor.accept("SET", "DATA", "TYPE") or cursor.accept("SET", "TYPE") or cursor.accept("TYPE"):
        return _read_set_type(cursor, table, path)
    action = _read_column_action(cursor, table, path)
    if len(split_parts(path)) > 1:
        raise cursor.error("a nested field cannot have a default or NOT NULL.", at=start)
    return action


def _read_column_action(cursor: Cursor, table: QualifiedName, path: str) -> Statement:
    if cursor.accept("SET", "DEFAULT"):
        return SetDefault(table, path, read_default(cursor))
    if cursor.accept("DROP", "DEFAULT"):
        return DropDefault(table, path)
    if cursor.accept("SET", "NOT", "NULL"):
        return SetNotNull(table, path)
    if cursor.accept("DROP", "NOT", "NULL"):
        return DropNotNull(table, path)
    raise cursor.error("expected TYPE, SET DEFAULT, DROP DEFAULT, SET NOT NULL or DROP NOT NULL.")


def _read_set_type(cursor: Cursor, table: QualifiedName, path: str) -> SetColumnType:
    type_ = read_column_type(cursor, path)
    if cursor.word == "USING":
        raise cursor.error(
            "DuckLake can only widen a type and computes no values. Leave USING out; for computed values, "
            "add a column."
        )
    return SetColumnType(table, path, type_)


def _read_set(cursor: Cursor, table: QualifiedName) -> Statement:
    if cursor.accept("PARTITIONED", "BY"):
        return SetPartitionedBy(
            table, cursor.list_of(lambda: read_partition_key(cursor), may_end_in_comma=True)
        )
    if cursor.accept("SORTED", "BY"):
        return SetSortedBy(table, cursor.list_of(lambda: read_sort_key(cursor), may_end_in_comma=True))
    if cursor.sees("("):
        options = cursor.list_of(lambda: read_option(cursor), may_end_in_comma=True)
        refuse_repeated(cursor, [name for name, _ in options])
        return SetOptions(table, options)
    if cursor.word == "SCHEMA":
        raise cursor.error("a table cannot move to another schema. Create it there and move the data.")
    raise cursor.error("expected PARTITIONED BY, SORTED BY or options in parentheses.")


def _read_reset(cursor: Cursor, table: QualifiedName) -> Statement:
    if cursor.accept("PARTITIONED", "BY"):
        return SetPartitionedBy(table, ())
    if cursor.accept("SORTED", "BY"):
        return SetSortedBy(table, ())
    if cursor.sees("("):
        names = cursor.list_of(lambda: _read_reset_option(cursor), may_end_in_comma=True)
        refuse_repeated(cursor, names)
        return ResetOptions(table, names)
    raise cursor.error("expected PARTITIONED BY, SORTED BY or options in parentheses.")


def _read_reset_option(cursor: Cursor) -> str:
    name = read_option_name(cursor)
    if cursor.sees("="):
        raise cursor.error("RESET takes names of options only. To give a value, use SET.")
    return name
