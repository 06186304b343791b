"""The keys of PARTITIONED BY and SORTED BY."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.spec.names.identifiers import fold
from airflow_provider_ducklake.spec.names.quoting import written
from airflow_provider_ducklake.spec.partitioning import TransformKind
from airflow_provider_ducklake.sql.lexer import Kind

if TYPE_CHECKING:
    from airflow_provider_ducklake.sql.duckdb.cursor import Cursor


def read_partition_key(cursor: Cursor) -> str:
    """Read a partition key: a column, or a transform of one."""
    start = cursor.position
    word = fold(cursor.word)
    if word in set(TransformKind) and cursor.sees_call():
        return _read_transform(cursor, word)
    column = written(_read_own_column(cursor, "a partition key"))
    if cursor.sees("("):
        raise cursor.error(
            f"this is not a partition transform. Use one of {', '.join(TransformKind)}.", at=start
        )
    return column


def _read_transform(cursor: Cursor, word: str) -> str:
    cursor.advance()
    cursor.expect_symbol("(")
    count = ""
    if word == TransformKind.BUCKET:
        count = cursor.accept_kind(Kind.NUMBER) or ""
        if not count.isdigit():
            raise cursor.error("write the number of buckets and the column: bucket(16, id).")
        cursor.expect_symbol(",")
        count += ", "
    column = written(_read_own_column(cursor, "a partition key"))
    cursor.expect_symbol(")")
    return f"{word}({count}{column})"


def _read_own_column(cursor: Cursor, use: str) -> str:
    name = cursor.name("column")
    if cursor.sees("."):
        raise cursor.error(
            f"{use} must be a top-level column, not a nested field, and is written without its table."
        )
    return name


def read_sort_key(cursor: Cursor) -> str:
    """Read a sort key of ALTER TABLE: a column, its direction, and where its nulls go."""
    key = [read_sort_column(cursor)]
    if cursor.word in ("ASC", "DESC"):
        key.append(cursor.word)
        cursor.advance()
    if cursor.accept("NULLS"):
        place = cursor.word
        if place not in ("FIRST", "LAST"):
            raise cursor.error("expected NULLS FIRST or NULLS LAST.")
        cursor.advance()
        key.append(f"NULLS {place}")
    return " ".join(key)


def read_sort_column(cursor: Cursor) -> str:
    """Read a sort key that is nothing but a column."""
    start = cursor.position
    name = written(_read_own_column(cursor, "a sort key"))
    if cursor.sees("("):
        raise cursor.unsupported("sorting by an expression is not supported yet. Sort by columns.", at=start)
    return name
