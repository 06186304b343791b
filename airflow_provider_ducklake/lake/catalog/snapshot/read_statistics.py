"""Cumulative statistics of tables, which every append widens."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Row, Select, Subquery, Table, and_, func, null, or_, select

from airflow_provider_ducklake.lake.catalog.database.column_types import maybe
from airflow_provider_ducklake.lake.catalog.database.questions import Question, one_of, values_of
from airflow_provider_ducklake.lake.spec.files import TableColumnStats, TableStats
from airflow_provider_ducklake.lake.spec.options import SKIP_STATS_COLUMNS, Options
from airflow_provider_ducklake.lake.spec.snapshots import ColumnId, TableId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables


@dataclass(frozen=True, slots=True)
class Statistics:
    """The cumulative statistics of some tables: of those that have any, and of their columns."""

    tables: dict[TableId, TableStats]
    columns: dict[TableId, dict[ColumnId, TableColumnStats]]
    retyped: set[tuple[TableId, ColumnId]] = field(default_factory=set)  # whose bounds may be of another type


def which_statistics(tables: CatalogTables, table_ids: Collection[int]) -> Question[Statistics]:
    """Ask for the cumulative statistics of tables."""
    return Question(_statistics_of(tables, len(table_ids)), _statistics, values_of(table_ids))


def _retyped(tables: CatalogTables, count: int) -> Subquery:
    """Return the columns of ``count`` tables that had a type whose bounds do not fit today's type.

    DuckDB keeps the bounds when it changes a type, and then loses rows by them; ours go with the change.
    """
    before, now = tables["column"].alias(), tables["column"].alias()
    is_exact = or_(now.c.column_type.like("%int%"), now.c.column_type.like("decimal%"))
    return (
        select(now.c.table_id, now.c.column_id)
        .join(before, and_(before.c.table_id == now.c.table_id, before.c.column_id == now.c.column_id))
        .where(
            one_of(now.c.table_id, count),
            now.c.end_snapshot.is_(None),
            before.c.end_snapshot.is_not(None),
            before.c.column_type != now.c.column_type,
            or_(~is_exact, before.c.column_type == "boolean"),
        )
        .distinct()
        .subquery()
    )


@lru_cache
def _statistics_of(tables: CatalogTables, count: int) -> Select[Any]:
    table, column = tables["table_stats"], tables["table_column_stats"]
    others = [maybe(one).label(one.name) for one in column.c if one.key != "table_id"]
    retyped = _retyped(tables, count)
    is_same = and_(retyped.c.table_id == column.c.table_id, retyped.c.column_id == column.c.column_id)
    return (
        select(table, *others, *_missing(column), maybe(retyped.c.column_id).label("retyped_id"))
        .outerjoin(column, column.c.table_id == table.c.table_id)
        .outerjoin(retyped, is_same)
        .where(one_of(table.c.table_id, count))
    )


def _missing(column: Table) -> list[ColumnElement[Any]]:
    """Return NULL for what the table's version does not have."""
    return [null().label(name) for name in ("min_is_exact", "max_is_exact") if name not in column.c]


def _statistics(rows: Iterable[Row[Any]]) -> Statistics:
    found = Statistics({}, {})
    for row in rows:
        table_id = TableId(row.table_id)
        found.tables[table_id] = TableStats(row.record_count, row.next_row_id, row.file_size_bytes or 0)
        columns = found.columns.setdefault(table_id, {})
        if row.column_id is not None:
            if row.retyped_id is not None:
                found.retyped.add((table_id, ColumnId(row.column_id)))
            columns[ColumnId(row.column_id)] = TableColumnStats(
                ColumnId(row.column_id),
                contains_null=row.contains_null is not False,
                contains_nan=row.contains_nan,
                min_value=row.min_value,
                max_value=row.max_value,
                extra_stats=row.extra_stats,
                min_is_exact=row.min_is_exact,
                max_is_exact=row.max_is_exact,
            )
    return found


@lru_cache
def _skip_rows(tables: CatalogTables, count: int) -> Select[Any]:
    metadata = tables["metadata"]
    of_table = (metadata.c.scope == "table", one_of(metadata.c.scope_id, count))
    return select(metadata.c.scope_id, metadata.c.value).where(
        metadata.c.key == SKIP_STATS_COLUMNS, *of_table
    )


def which_skipped(
    tables: CatalogTables, table_ids: Collection[int]
) -> Question[dict[TableId, frozenset[int]]]:
    """Ask for the columns that tables' option names for statistics without bounds."""
    return Question(_skip_rows(tables, len(table_ids)), _skipped, values_of(table_ids))


def _skipped(rows: Iterable[Row[Any]]) -> dict[TableId, frozenset[int]]:
    return {
        TableId(row.scope_id): Options({SKIP_STATS_COLUMNS: row.value or ""}).skipped_columns for row in rows
    }


def with_what_lies_in_them(
    connection: Connection, tables: CatalogTables, columns: Mapping[TableId, frozenset[int]]
) -> dict[TableId, frozenset[ColumnId]]:
    """Return columns of tables and all that ever lay in them, at any depth."""
    column = tables["column"]
    found: dict[TableId, frozenset[ColumnId]] = {}
    for table_id, ids in ((one, ids) for one, ids in columns.items() if ids):
        query = select(column.c.column_id, column.c.parent_column).where(column.c.table_id == table_id)
        children: dict[int, set[int]] = {}
        for child, parent in connection.execute(query.distinct()):
            children.setdefault(parent, set()).add(child)
        reached, new = set(ids), set(ids)
        while new := {child for one in new for child in children.get(one, ())} - reached:
            reached |= new
        found[table_id] = frozenset(map(ColumnId, reached))
    return found


def columns_with_unbounded_values(
    connection: Connection, tables: CatalogTables, columns: Mapping[TableId, Iterable[ColumnId]]
) -> set[tuple[TableId, ColumnId]]:
    """Return the columns that not every data file says to be without values: there NULL means *unknown*."""
    file, stats = tables["data_file"], tables["file_column_stats"]
    found: set[tuple[TableId, ColumnId]] = set()
    for table_id, column_ids in columns.items():
        files = select(func.count()).where(file.c.table_id == table_id)
        without_values = (
            select(stats.c.column_id, func.count().label("files"))
            .where(stats.c.table_id == table_id, stats.c.value_count == 0)
            .group_by(stats.c.column_id)
        )
        all_files = connection.execute(files).scalar_one()
        empty = {row.column_id: row.files for row in connection.execute(without_values)}
        found.update((table_id, one) for one in column_ids if empty.get(one, 0) != all_files)
    return found
