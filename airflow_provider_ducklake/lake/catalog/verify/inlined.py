"""Check that inlined rows and deletes can be read, refer to something that exists, and have statistics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Row, Select, case, func, literal, or_, select, table, union_all

from ...errors import CatalogError, UnsupportedFeatureError
from ...format.files import ColumnStats, TableColumnStats
from ...format.names.identifiers import fold
from ...format.schema import Column, TableSchema
from ...format.types.ducklake_types import ScalarKind, is_misread_by_filters
from ...planning.reading.pruning import has_bounds
from ...planning.upkeep.findings import Finding
from ...planning.upkeep.findings import FindingCode as Code
from ..database.connect import asked
from ..reports.numbers import inlined_row_counts
from ..snapshot.inlined_read import read_inlined
from ..snapshot.inlined_tables import (
    bare_table,
    inlined_delete_name,
    inlined_delete_table,
    inlined_table,
    names_of,
    why_not_inlined,
)
from ..snapshot.read import TableRow, table_rows
from ..snapshot.read_layouts import layout_schema
from ..snapshot.scan import load_table
from .files import TRANSACTION_LOCAL
from .scope import Check, Fields, Search, VerificationScope
from .statistics import narrow, uncovered

if TYPE_CHECKING:
    from ...format.snapshots import ColumnId
    from ...planning.reading.scan import InlinedRows


_DATA = re.compile(r"ducklake_inlined_data_(\d{1,19})_(\d{1,19})\Z")


def _registered(scope: VerificationScope) -> list[Row[Any]]:
    return [row for row in scope.registered if row.name in scope.existing]


def _unregistered(scope: VerificationScope) -> Iterator[Row[Any]]:
    counts: list[Any] = []
    for name in sorted(scope.existing - {row.name for row in scope.registered}):
        match = _DATA.match(name)
        if match and _is_chosen(scope, int(match[1])):
            rows = table(name, schema=scope.tables.metadata_schema)
            counts.append(_numbers(int(match[1]), name, func.count()).select_from(rows))
    return (row for row in asked(scope.connection, counts) if row.number)


def _is_chosen(scope: VerificationScope, table_id: int) -> bool:
    return table_id in scope.names and (scope.only is None or table_id in scope.only)


def _numbers(table_id: int, name: str, number: ColumnElement[int]) -> Select[int, str, int]:
    return select(literal(table_id).label("table_id"), literal(name).label("name"), number.label("number"))


def _other_columns(scope: VerificationScope) -> Iterator[Fields]:
    """Yield tables without the columns of their schema version, or the newest without the current ones."""
    rows = _registered(scope)
    newest = {row.table_id: row.name for row in rows}
    for row in rows:
        found = scope.catalog.dialect.column_names(scope.connection, row.name, scope.tables.metadata_schema)
        which, expected = "of its schema version", _expected(scope, row.table_id, row.schema_version)
        if newest[row.table_id] == row.name and (expected is None or _same(found, expected)):
            which, expected = "that the table has now", _expected_now(scope, row)
        if expected is not None and not _same(found, expected):
            yield {
                **row._asdict(),
                "found": ", ".join(found),
                "which": which,
                "expected": ", ".join(expected),
            }


def _same(left: Sequence[str], right: Sequence[str]) -> bool:
    return [fold(name) for name in left] == [fold(name) for name in right]


def _expected(scope: VerificationScope, table_id: int, version: int) -> list[str] | None:
    """Return the columns of an inlined table of a schema version; None where that is not known."""
    try:
        schema = layout_schema(scope.connection, scope.tables, table_id, version)
    except CatalogError:  # columns that make no table are findings of their own
        return None
    return names_of(inlined_table(schema, table_id, version, scope.tables)) if schema.columns else None


def _expected_now(scope: VerificationScope, row: Row[Any]) -> list[str] | None:
    """Return the columns that an inlined table must have by now; None: the table's rows go to files."""
    schema = scope.columns.at(row.table_id, scope.head.id)
    if schema is None or not schema.columns:
        return None
    form = scope.catalog.dialect.inlined_form
    if form is not None and why_not_inlined(schema, form, scope.tables.writer) is not None:
        return None
    return names_of(inlined_table(schema, row.table_id, row.schema_version, scope.tables))


def _impossible_rows(scope: VerificationScope) -> Iterator[Row[Any]]:
    queries: list[Any] = []
    for row in _registered(scope):
        rows = bare_table(row.name, scope.tables)
        begin, end = rows.c.begin_snapshot, rows.c.end_snapshot
        wrong = or_(begin > scope.head.id, end > scope.head.id, end < begin)
        queries.append(
            _numbers(row.table_id, row.name, func.sum(case((wrong, 1), else_=0))).select_from(rows)
        )
    return (row for row in asked(scope.connection, queries) if row.number)


def _row_ids_twice(scope: VerificationScope) -> Iterator[Row[Any]]:
    live: dict[int, list[Select[Any]]] = {}
    for row in _registered(scope):
        inlined = bare_table(row.name, scope.tables)
        ids = select(inlined.c.row_id).where(inlined.c.end_snapshot.is_(None))
        live.setdefault(row.table_id, []).append(ids)
    queries: list[Any] = []
    for table_id, parts in live.items():
        rows = union_all(*parts).subquery()
        twice = select(rows.c.row_id).group_by(rows.c.row_id).having(func.count() > 1).subquery()
        queries.append(
            select(literal(table_id).label("table_id"), func.count().label("number")).select_from(twice)
        )
    return (row for row in asked(scope.connection, queries) if row.number)


def _deletes_outside(scope: VerificationScope) -> Iterator[Row[Any]]:
    file = scope.tables["data_file"]
    queries: list[Any] = []
    for table_id in sorted(scope.names):
        if inlined_delete_name(table_id) in scope.existing and _is_chosen(scope, table_id):
            deletes = inlined_delete_table(table_id, scope.tables.metadata_schema)
            id_, row_id = deletes.c.file_id, deletes.c.row_id
            queries.append(
                select(
                    literal(table_id).label("table_id"),
                    id_.label("data_file_id"),
                    func.count().label("number"),
                )
                .join(file, file.c.data_file_id == id_)
                .where(or_(row_id < 0, row_id >= file.c.record_count))
                .group_by(id_)
            )
    return asked(scope.connection, queries)


# A table's statistics also cover its inlined rows.


def _beside_statistics(scope: VerificationScope) -> Iterator[Finding]:
    """Yield the columns and counters that leave live inlined rows out."""
    rows = table_rows(scope.connection, scope.tables, scope.head.id)
    chosen = {row.id for row in rows if scope.only is None or row.id in scope.only}
    counts = inlined_row_counts(scope.connection, scope.catalog, chosen, scope.head.id)
    stats = scope.tables["table_stats"]
    query = select(stats.c.table_id, stats.c.next_row_id)
    next_ids = {row.table_id: row.next_row_id for row in scope.connection.execute(query)}
    for row in rows:
        if counts.get(row.id):
            yield from _findings_of_table(scope, row, next_ids.get(row.id))


def _findings_of_table(scope: VerificationScope, row: TableRow, next_row_id: int | None) -> Iterator[Finding]:
    from ...storage.rows.inlined_values import inlined_in_schema, inlined_stats

    try:
        table = load_table(scope.connection, scope.catalog, scope.head, row.qualified, with_files=False)
        parts = read_inlined(scope.connection, scope.catalog, table)
    except (CatalogError, UnsupportedFeatureError):
        return  # a layout that cannot be read is a finding of its own, or of another release
    if next_row_id is None:
        yield Finding(
            Code.TABLE_STATS_MISSING,
            f"{row.qualified} has rows in the catalog but no row in ducklake_table_stats: the next rows get "
            "their ids again.",
            {"table_id": row.id},
        )
        return
    last = max((one for part in parts for one in part.row_ids if one < TRANSACTION_LOCAL), default=None)
    if last is not None and last >= next_row_id:
        yield Finding(
            Code.ROW_COUNTER_BEHIND,
            f"{row.qualified} has rows in the catalog up to id {last}, but would give the next row "
            f"{next_row_id}.",
            {"table_id": row.id, "least": last + 1},
        )
    for column in table.schema.columns:
        yield from _narrower(row, column, parts)
        schema = TableSchema((column,))
        try:
            rows = inlined_in_schema(parts, schema)
        except UnsupportedFeatureError:
            continue
        except CatalogError:
            yield Finding(
                Code.INLINED_VALUE_UNREADABLE,
                f"{row.qualified} has rows in the catalog of which a value of column {column.name} is not a "
                f"valid {column.type}.",
                {"table_id": row.id, "column_id": column.id},
            )
            continue
        if all(has_bounds(leaf.type) for leaf in column.leaves()):
            yield from _not_covered(scope, row.id, inlined_stats(rows, schema))


def _narrower(row: TableRow, column: Column, parts: Sequence[InlinedRows]) -> Iterator[Finding]:
    """Note a column that inlined rows have in a type by which DuckDB misreads conditions on it."""
    for part in parts:
        old = next((one.type for one in part.schema.columns if one.id == column.id), column.type)
        if part.rows and is_misread_by_filters(old, column.type):
            yield Finding(
                Code.TYPE_NARROWER,
                f"{part.table_name} of {row.qualified} has column {column.name} as {old}, which is "
                f"{column.type} by now: DuckDB casts values of conditions on it to the former, and finds and "
                "deletes wrong rows.",
                {"table_id": row.id, "column_id": column.id},
            )


def _not_covered(
    scope: VerificationScope, table_id: int, stats: Mapping[ColumnId, TableColumnStats | None]
) -> Iterator[Finding]:
    for column_id, found in stats.items():
        known = scope.statistics.of_live(table_id, column_id)
        types = scope.statistics.types(table_id, column_id)
        # the reference's texts of inlined blobs are in no order
        is_ordered = all(one.facts.kind is not ScalarKind.BLOB for one in types)
        if found is not None and known is not None and is_ordered:
            problem = uncovered(_row_stats(found), known, types)
            if problem is not None:
                yield narrow(scope, table_id, column_id, f"its inlined data {problem}")


def _row_stats(stats: TableColumnStats) -> ColumnStats:
    has_values = stats.min_value is not None or bool(stats.contains_nan)
    return ColumnStats(
        stats.column_id,
        value_count=int(has_values),
        null_count=int(stats.contains_null),
        contains_nan=stats.contains_nan,
        min_value=stats.min_value,
        max_value=stats.max_value,
    )


CHECKS = (
    Check(Code.INLINED_TABLE_MISSING,
          lambda scope: (row for row in scope.registered if row.name not in scope.existing),
          ("table_id", "name"),
          "{name} is registered for rows of {table}, but does not exist."),
    Check(Code.INLINED_TABLE_UNREGISTERED, _unregistered, ("table_id", "name"),
          "{name} holds {number} rows of {table}, but is not registered: no client reads them."),
    Check(Code.INLINED_COLUMNS_DIFFER, _other_columns, ("table_id", "name"),
          "{name} of {table} has the columns {found}, not those {which}: {expected}. DuckDB's small inserts "
          "fail, unless data_inlining_row_limit is 0."),
    Check(Code.INLINED_ROWS_WRONG, _impossible_rows, ("table_id", "name"),
          "{name} has {number} rows of {table} that begin or end at an impossible snapshot."),
    Check(Code.INLINED_ROWS_WRONG, _row_ids_twice, ("table_id",),
          "{table} has {number} row ids twice among its inlined rows."),
    Check(Code.INLINED_DELETE_OUTSIDE, _deletes_outside, ("table_id", "data_file_id"),
          "{number} inlined deletes of data file {data_file_id} of {table} name rows that it does not have."),
    Search(_beside_statistics,
            (Code.TABLE_STATS_MISSING, Code.ROW_COUNTER_BEHIND, Code.TABLE_STATS_NARROW,
            Code.INLINED_VALUE_UNREADABLE, Code.TYPE_NARROWER)),
)  # fmt: skip
