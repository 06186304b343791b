"""Check that inlined rows and deletes can be read and refer to something that exists."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Any

from sqlalchemy import case, column, func, literal, or_, select, table, union_all

from airflow_provider_ducklake.lake.catalog.database.connect import asked
from airflow_provider_ducklake.lake.catalog.reports.numbers import inlined_row_counts
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_read import read_inlined
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_tables import (
    bare_table,
    inlined_table,
    names_of,
    why_not_inlined,
)
from airflow_provider_ducklake.lake.catalog.snapshot.read import table_rows
from airflow_provider_ducklake.lake.catalog.snapshot.read_layouts import layout_schema
from airflow_provider_ducklake.lake.catalog.snapshot.scan import load_table
from airflow_provider_ducklake.lake.catalog.verify.files import TRANSACTION_LOCAL
from airflow_provider_ducklake.lake.catalog.verify.statistics import RowStats, narrow, uncovered
from airflow_provider_ducklake.lake.errors import CatalogError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.planning.reading.pruning import has_bounds
from airflow_provider_ducklake.lake.planning.upkeep.findings import Finding, FindingCode
from airflow_provider_ducklake.lake.spec.names.identifiers import fold
from airflow_provider_ducklake.lake.spec.schema import TableSchema
from airflow_provider_ducklake.lake.spec.types.ducklake_types import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import FromClause, Row, Select

    from airflow_provider_ducklake.lake.catalog.snapshot.read import TableRow
    from airflow_provider_ducklake.lake.catalog.verify.definitions import Columns
    from airflow_provider_ducklake.lake.catalog.verify.look import Look
    from airflow_provider_ducklake.lake.catalog.verify.statistics import Known
    from airflow_provider_ducklake.lake.planning.reading.scan import InlinedRows
    from airflow_provider_ducklake.lake.spec.files import TableColumnStats


_DATA = re.compile(r"ducklake_inlined_data_(\d{1,19})_(\d{1,19})\Z")
_DELETES = "ducklake_inlined_delete_"


def check_inlined(look: Look, columns: Columns) -> Iterator[Finding]:
    """Yield what is wrong with the catalog's dynamic tables."""
    existing = look.catalog.dialect.table_names(look.connection, look.tables.metadata_schema)
    registered = _registered(look)
    there = [row for row in registered if row.table_name in existing]
    yield from chain(
        _missing(look, [row for row in registered if row.table_name not in existing]),
        _unregistered(look, existing - {row.table_name for row in registered}),
        _layouts(look, columns, there),
        _rows(look, there),
        _row_ids(look, there),
        _deletes(look, existing),
    )


def _registered(look: Look) -> Sequence[Row[Any]]:
    registry = look.tables["inlined_data_tables"]
    query = (
        select(registry)
        .where(look.chosen(registry.c.table_id))
        .order_by(registry.c.table_id, registry.c.schema_version)
    )
    return look.connection.execute(query).all()


def _dynamic(look: Look, name: str, *columns: str) -> FromClause:
    return table(name, *(column(one) for one in columns), schema=look.tables.metadata_schema)


def _missing(look: Look, rows: Sequence[Row[Any]]) -> Iterator[Finding]:
    for row in rows:
        yield Finding(
            FindingCode.INLINED_TABLE_MISSING,
            f"{row.table_name} is registered for rows of {look.table(row.table_id)}, but does not exist.",
            {"table_id": row.table_id, "name": row.table_name},
        )


def _unregistered(look: Look, names: set[str]) -> Iterator[Finding]:
    found = [(name, int(match[1])) for name in sorted(names) if (match := _DATA.match(name))]
    counts: list[Any] = [
        select(
            literal(name).label("name"), literal(table_id).label("table_id"), func.count().label("number")
        ).select_from(_dynamic(look, name))
        for name, table_id in found
        if table_id in look.names and (look.only is None or table_id in look.only)
    ]
    for row in asked(look.connection, counts):
        if row.number:
            yield Finding(
                FindingCode.INLINED_TABLE_UNREGISTERED,
                f"{row.name} holds {row.number} rows of {look.table(row.table_id)}, but is not registered: "
                "nobody reads them.",
                {"table_id": row.table_id, "name": row.name},
            )


def _layouts(look: Look, columns: Columns, rows: Sequence[Row[Any]]) -> Iterator[Finding]:
    newest = {row.table_id: row.table_name for row in rows}
    for row in rows:
        found = look.catalog.dialect.column_names(
            look.connection, row.table_name, look.tables.metadata_schema
        )
        made = _expected(look, row.table_id, row.schema_version)
        if made is not None and not _same(found, made):
            yield _differs(look, row, found, made, "of its schema version")
            continue
        now = _expected_now(look, columns, row)
        if newest[row.table_id] == row.table_name and now is not None and not _same(found, now):
            yield _differs(look, row, found, now, "that the table has now")


def _same(left: Sequence[str], right: Sequence[str]) -> bool:
    return [fold(name) for name in left] == [fold(name) for name in right]


def _expected(look: Look, table_id: int, version: int) -> list[str] | None:
    """Return the columns of an inlined table of a schema version; None where that is not known."""
    try:
        schema = layout_schema(look.connection, look.tables, table_id, version)
    except CatalogError:  # columns that make no table are findings of their own
        return None
    return names_of(inlined_table(schema, table_id, version, look.tables)) if schema.columns else None


def _expected_now(look: Look, columns: Columns, row: Row[Any]) -> list[str] | None:
    """Return the columns that an inlined table must have by now; None: the table's rows go to files."""
    schema = columns.at(row.table_id, look.head.id)
    if schema is None or not schema.columns:
        return None
    form = look.catalog.dialect.inlined_form
    if form is not None and why_not_inlined(schema, form, look.tables.writer) is not None:
        return None
    return names_of(inlined_table(schema, row.table_id, row.schema_version, look.tables))


def _differs(look: Look, row: Row[Any], found: Sequence[str], expected: Sequence[str], which: str) -> Finding:
    return Finding(
        FindingCode.INLINED_COLUMNS_DIFFER,
        f"{row.table_name} of {look.table(row.table_id)} has the columns {', '.join(found)}, not those "
        f"{which}: {', '.join(expected)}. DuckDB's small inserts fail, unless data_inlining_row_limit is 0.",
        {"table_id": row.table_id, "name": row.table_name},
    )


def _rows(look: Look, rows: Sequence[Row[Any]]) -> Iterator[Finding]:
    queries: list[Any] = []
    for row in rows:
        inlined = bare_table(row.table_name, look.tables)
        begin, end = inlined.c.begin_snapshot, inlined.c.end_snapshot
        wrong = or_(begin > look.head.id, end > look.head.id, end < begin)
        queries.append(
            select(
                literal(row.table_id).label("table_id"),
                literal(row.table_name).label("name"),
                func.sum(case((wrong, 1), else_=0)).label("number"),
            ).select_from(inlined)
        )
    for row in asked(look.connection, queries):
        if row.number:
            yield Finding(
                FindingCode.INLINED_ROWS_WRONG,
                f"{row.name} has {row.number} rows of {look.table(row.table_id)} that begin or end at an "
                "impossible snapshot.",
                {"table_id": row.table_id, "name": row.name},
            )


def _row_ids(look: Look, rows: Sequence[Row[Any]]) -> Iterator[Finding]:
    by_table: dict[int, list[str]] = {}
    for row in rows:
        by_table.setdefault(row.table_id, []).append(row.table_name)
    queries: list[Any] = []
    for table_id, names in by_table.items():
        live = union_all(*(_live_ids(look, name) for name in names)).subquery()
        twice = select(live.c.row_id).group_by(live.c.row_id).having(func.count() > 1).subquery()
        queries.append(
            select(literal(table_id).label("table_id"), func.count().label("number")).select_from(twice)
        )
    for row in asked(look.connection, queries):
        if row.number:
            yield Finding(
                FindingCode.INLINED_ROWS_WRONG,
                f"{look.table(row.table_id)} has {row.number} row ids twice among its inlined rows.",
                {"table_id": row.table_id},
            )


def _live_ids(look: Look, name: str) -> Select[Any]:
    inlined = bare_table(name, look.tables)
    return select(inlined.c.row_id).where(inlined.c.end_snapshot.is_(None))


def _deletes(look: Look, existing: set[str]) -> Iterator[Finding]:
    file = look.tables["data_file"]
    queries: list[Any] = []
    for table_id in sorted(look.names):
        name = f"{_DELETES}{table_id}"
        if name in existing and (look.only is None or table_id in look.only):
            marks = _dynamic(look, name, "file_id", "row_id")
            outside = or_(marks.c.row_id < 0, marks.c.row_id >= file.c.record_count)
            queries.append(
                select(
                    literal(table_id).label("table_id"),
                    marks.c.file_id,
                    func.count().label("number"),
                )
                .select_from(marks.join(file, file.c.data_file_id == marks.c.file_id))
                .where(outside)
                .group_by(marks.c.file_id)
            )
    for row in asked(look.connection, queries):
        yield Finding(
            FindingCode.INLINED_DELETE_OUTSIDE,
            f"{row.number} inlined deletes of data file {row.file_id} of {look.table(row.table_id)} name "
            "rows that it does not have.",
            {"table_id": row.table_id, "data_file_id": row.file_id},
        )


# Check that a table's statistics also cover its inlined rows.


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
