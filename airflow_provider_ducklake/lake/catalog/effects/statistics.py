"""Statements of the statistics that added rows widen. *Source:* docs/sources.md, inserts and known faults."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table, Update, bindparam

from airflow_provider_ducklake.lake.catalog.dialects.effect import Effect, insert
from airflow_provider_ducklake.lake.spec.files import TableColumnStats, TableStats
from airflow_provider_ducklake.lake.spec.types.ducklake_types import Kind, is_float

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.spec.files import ColumnStats
    from airflow_provider_ducklake.lake.spec.schema import TableSchema
    from airflow_provider_ducklake.lake.spec.snapshots import ColumnId, TableId
    from airflow_provider_ducklake.lake.spec.types.ducklake_types import DuckLakeType
    from airflow_provider_ducklake.lake.transaction.commit_state import CommitState


def add_to_stats(  # noqa: PLR0913, PLR0917 - what was added, and to what
    table_id: TableId,
    schema: TableSchema,
    row_count: int,
    size_bytes: int,
    incoming: Mapping[ColumnId, TableColumnStats | None],
    state: CommitState,
    tables: CatalogTables,
) -> Iterator[Effect]:
    """Yield a table's counts and column statistics after rows were added.

    ``incoming`` says what is known of the rows' leaf columns; None is not enough.
    """
    before = state.stats(table_id)
    incoming = _without_skipped(table_id, incoming, state)
    if before is None:
        yield from begin_stats(table_id, TableStats().add(row_count, size_bytes), incoming, state, tables)
        return
    after = before.add(row_count, size_bytes)
    yield _counts(table_id, after, tables, is_first=False)
    columns, unknown = _widened(table_id, schema, incoming, state)
    yield from _changed(table_id, columns, unknown, state, tables)
    state.set_stats(table_id, after, columns)


def begin_stats(
    table_id: TableId,
    counts: TableStats,
    incoming: Mapping[ColumnId, TableColumnStats | None],
    state: CommitState,
    tables: CatalogTables,
) -> Iterator[Effect]:
    """Yield a table's counts and column statistics with its first rows; ``incoming`` as above."""
    known = _without_skipped(table_id, incoming, state)
    columns = {column_id: stats for column_id, stats in known.items() if stats is not None}
    yield _counts(table_id, counts, tables, is_first=True)
    yield from _first(table_id, columns, tables)
    state.set_stats(table_id, counts, columns)


def _without_skipped(
    table_id: TableId, incoming: Mapping[ColumnId, TableColumnStats | None], state: CommitState
) -> Mapping[ColumnId, TableColumnStats | None]:
    """Return what is known of rows, as unknown where the table keeps no bounds.

    A row of the table's statistics then goes, and is never made again: DuckDB 1.5 would take one without
    bounds for one without values.
    """
    skipped = state.skipped(table_id)
    return {one: None if one in skipped else stats for one, stats in incoming.items()}


def _counts(table_id: TableId, after: TableStats, tables: CatalogTables, *, is_first: bool) -> Effect:
    values = {
        "record_count": after.record_count,
        "next_row_id": after.next_row_id,
        "file_size_bytes": after.file_size_bytes,
    }
    table = tables["table_stats"]
    if is_first:
        return insert(table, {"table_id": table_id, **values})
    return Effect(_counts_update(table), [{"of_table": table_id, **values}])


@lru_cache
def _counts_update(table: Table) -> Update:
    return table.update().where(table.c.table_id == bindparam("of_table"))


def _bounds(stats: TableColumnStats, table: Table) -> dict[str, Any]:
    return {
        "contains_null": stats.contains_null,
        "contains_nan": stats.contains_nan,
        **bounds_of(stats, table),
        **({"extra_stats": stats.extra_stats} if "extra_stats" in table.c else {}),
    }


def bounds_of(stats: ColumnStats | TableColumnStats, table: Table) -> dict[str, Any]:
    """Return bounds as columns of a table of statistics, and whether they are values where it says so."""
    bounds = {"min_value": stats.min_value, "max_value": stats.max_value}
    if "min_is_exact" not in table.c:
        return bounds
    return {**bounds, "min_is_exact": stats.min_is_exact, "max_is_exact": stats.max_is_exact}


def no_bounds(table: Table) -> dict[str, None]:
    """Return the columns of bounds, and what belongs to them, without values."""
    names = ("min_value", "max_value", "min_is_exact", "max_is_exact")
    return {name: None for name in names if name in table.c}


def _first(
    table_id: TableId, columns: Mapping[ColumnId, TableColumnStats], tables: CatalogTables
) -> Iterator[Effect]:
    if columns:
        table = tables["table_column_stats"]
        rows = (
            {"table_id": table_id, "column_id": column_id, **_bounds(stats, table)}
            for column_id, stats in columns.items()
        )
        yield insert(table, *rows)


def _widened(
    table_id: TableId,
    schema: TableSchema,
    incoming: Mapping[ColumnId, TableColumnStats | None],
    state: CommitState,
) -> tuple[dict[ColumnId, TableColumnStats], list[ColumnId]]:
    """Return what the rows that exist become, and those that would claim too much."""
    types = schema.leaf_types()
    columns: dict[ColumnId, TableColumnStats] = {}
    unknown: list[ColumnId] = []
    for column_id, existing in state.column_stats(table_id).items():
        if column_id not in types:
            columns[column_id] = existing
            continue
        addition = incoming.get(column_id)
        is_known = types[column_id].facts.kind is Kind.VARIANT or not (
            _bounds_are_nan(existing, types[column_id]) or _existing_is_unknown(existing, table_id, state)
        )
        if addition is None or not is_known:
            unknown.append(column_id)
        else:
            columns[column_id] = existing.merge(addition, types[column_id])
    return columns, unknown


def _changed(
    table_id: TableId,
    columns: Mapping[ColumnId, TableColumnStats],
    unknown: list[ColumnId],
    state: CommitState,
    tables: CatalogTables,
) -> Iterator[Effect]:
    """Yield the update of the rows that changed; a row that is missing is never made again."""
    table, before = tables["table_column_stats"], state.column_stats(table_id)
    widened = [
        {"of_table": table_id, "of_column": column_id, **_bounds(stats, table)}
        for column_id, stats in columns.items()
        if stats != before[column_id]
    ]
    if widened:
        yield Effect(_bounds_update(table), widened)
    if unknown:
        yield Effect(table.delete().where(table.c.table_id == table_id, table.c.column_id.in_(unknown)))


@lru_cache
def _bounds_update(table: Table) -> Update:
    where = (table.c.table_id == bindparam("of_table"), table.c.column_id == bindparam("of_column"))
    return table.update().where(*where)


def _existing_is_unknown(existing: TableColumnStats, table_id: TableId, state: CommitState) -> bool:
    if existing.extra_stats is not None:
        return False
    missing = (existing.min_value is None) + (existing.max_value is None)
    key = (table_id, existing.column_id)
    return missing == 1 or (missing > 1 and key in state.facts.unbounded) or key in state.facts.retyped


def _bounds_are_nan(existing: TableColumnStats, type_: DuckLakeType) -> bool:
    """Whether NaN is taken for a bound, as the reference does with inlined rows."""
    return is_float(type_) and "nan" in (existing.min_value, existing.max_value)
