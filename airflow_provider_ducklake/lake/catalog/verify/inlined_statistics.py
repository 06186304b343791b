"""Check that a table's statistics also cover its inlined rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from airflow_provider_ducklake.lake.catalog.reports.table_info import inlined_row_counts
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_read import read_inlined
from airflow_provider_ducklake.lake.catalog.snapshot.read import table_rows
from airflow_provider_ducklake.lake.catalog.snapshot.table_snapshot import load_table
from airflow_provider_ducklake.lake.catalog.verify.file_rows import TRANSACTION_LOCAL
from airflow_provider_ducklake.lake.catalog.verify.statistics import RowStats, narrow, uncovered
from airflow_provider_ducklake.lake.errors import CatalogError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.planning.reading.pruning import has_bounds
from airflow_provider_ducklake.lake.planning.upkeep.findings import Finding, FindingCode
from airflow_provider_ducklake.lake.spec.schema import TableSchema
from airflow_provider_ducklake.lake.spec.types.ducklake_types import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_ducklake.lake.catalog.snapshot.read import TableRow
    from airflow_provider_ducklake.lake.catalog.verify.look import Look
    from airflow_provider_ducklake.lake.catalog.verify.statistics import Known
    from airflow_provider_ducklake.lake.planning.reading.scan import InlinedRows
    from airflow_provider_ducklake.lake.spec.files import TableColumnStats


def check_inlined_statistics(look: Look, known: Known) -> Iterator[Finding]:
    """Yield the columns and counters that leave live rows in the catalog out."""
    rows = table_rows(look.connection, look.tables, look.head.id)
    asked = {row.id for row in rows if look.only is None or row.id in look.only}
    counts = inlined_row_counts(look.connection, look.catalog, asked, look.head.id)
    stats = look.tables["table_stats"]
    next_ids = {
        row.table_id: row.next_row_id
        for row in look.connection.execute(select(stats.c.table_id, stats.c.next_row_id))
    }
    for row in rows:
        if counts.get(row.id):
            yield from _of_table(look, known, row, next_ids.get(row.id))


def _of_table(look: Look, known: Known, row: TableRow, next_row_id: int | None) -> Iterator[Finding]:
    from airflow_provider_ducklake.lake.storage.rows.inlined_values import (  # noqa: PLC0415 - heavy
        inlined_in_schema,
        inlined_stats,
    )

    try:
        table = load_table(look.connection, look.catalog, look.head, row.qualified, with_files=False)
        parts = read_inlined(look.connection, look.catalog, table)
        schema = _with_bounds(table.schema)
        stats = inlined_stats(inlined_in_schema(parts, schema), schema)
    except (CatalogError, UnsupportedFeatureError):
        return  # rows that cannot be read are a finding of their own, or of another release
    if next_row_id is None:
        yield _without_statistics(row)
        return
    yield from _row_counter(row, parts, next_row_id)
    for column_id, found in stats.items():
        told, types = known.of_table(row.id, column_id), known.types(row.id, column_id)
        # the reference's texts of inlined blobs are in no order
        is_ordered = all(one.facts.kind is not Kind.BLOB for one in types)
        if found is not None and told is not None and is_ordered:
            problem = uncovered(_row_stats(found), told, types)
            if problem is not None:
                yield narrow(look, row.id, column_id, f"its inlined data {problem}")


def _with_bounds(schema: TableSchema) -> TableSchema:
    return TableSchema(
        tuple(column for column in schema.columns if all(has_bounds(leaf.type) for leaf in column.leaves()))
    )


def _row_stats(stats: TableColumnStats) -> RowStats:
    has_values = stats.min_value is not None or bool(stats.contains_nan)
    return RowStats(
        value_count=int(has_values),
        null_count=int(stats.contains_null),
        contains_nan=stats.contains_nan,
        min_value=stats.min_value,
        max_value=stats.max_value,
    )


def _without_statistics(row: TableRow) -> Finding:
    return Finding(
        FindingCode.TABLE_STATS_MISSING,
        f"{row.qualified} has rows in the catalog but no row in ducklake_table_stats: the next rows get "
        "their ids again.",
        {"table_id": row.id},
    )


def _row_counter(row: TableRow, parts: tuple[InlinedRows, ...], next_row_id: int) -> Iterator[Finding]:
    ids = [one for part in parts for one in part.row_ids if one < TRANSACTION_LOCAL]
    if ids and max(ids) >= next_row_id:
        yield Finding(
            FindingCode.ROW_COUNTER_BEHIND,
            f"{row.qualified} has rows in the catalog up to id {max(ids)}, but would give the next row "
            f"{next_row_id}.",
            {"table_id": row.id, "least": max(ids) + 1},
        )
