"""What a commit has to know of the tables it changes, read while it holds the lock."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, literal, select

from airflow_provider_ducklake.catalog.committing.known_targets import with_targets
from airflow_provider_ducklake.catalog.database.questions import in_parts
from airflow_provider_ducklake.catalog.snapshot import (
    read_files,
    read_layouts,
    read_snapshots,
    read_statistics,
)
from airflow_provider_ducklake.catalog.snapshot.inlined_layouts import bare_table
from airflow_provider_ducklake.catalog.snapshot.inlined_read import live_layouts
from airflow_provider_ducklake.catalog.snapshot.inlined_tables import inlined_table
from airflow_provider_ducklake.catalog.snapshot.read_layouts import layout_schema
from airflow_provider_ducklake.catalog.snapshot.registered_files import with_foreign_files
from airflow_provider_ducklake.spec.ids import TableId
from airflow_provider_ducklake.transaction.changes import (
    AddDeletes,
    AppendFiles,
    Change,
    DropTable,
    DropView,
    EndFiles,
    FlushInlined,
    InlineDeletes,
    InlineRows,
    MergeAdjacent,
    NoteRestored,
    RegisterLayout,
    RenameTable,
    RenameView,
    RestoreRows,
    RewriteDeletes,
    Truncate,
)
from airflow_provider_ducklake.transaction.commit_state import KnownStats

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sqlalchemy import Connection

    from airflow_provider_ducklake.catalog.database.questions import Question
    from airflow_provider_ducklake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.spec.ids import ColumnId
    from airflow_provider_ducklake.spec.stats import TableColumnStats


_ROWS_COME = (AppendFiles, InlineRows, RestoreRows)
_ROWS_GO = (  # of files and inlined tables that may be gone
    *(AddDeletes, EndFiles, InlineDeletes, MergeAdjacent, RewriteDeletes),
    FlushInlined,
)


def stats_questions(catalog: Catalog, changes: Collection[Change]) -> dict[str, Question[Any]]:
    """Return what is asked of every commit; ``known_stats`` takes the answers by their names."""
    questions: dict[str, Question[Any]] = {}
    if growing := _tables_of(changes, _ROWS_COME):
        questions["statistics"] = read_statistics.which_statistics(catalog.tables, growing)
    if with_layout := _tables_of(changes, (RegisterLayout, InlineRows, FlushInlined)):
        questions["layouts"] = read_layouts.which_newest_layouts(catalog.tables, with_layout)
    return questions


def known_stats(
    connection: Connection, catalog: Catalog, changes: Collection[Change], answers: Mapping[str, Any]
) -> KnownStats:
    """Return the statistics of the tables that get rows, and where the rows of truncated ones lie."""
    form = catalog.dialect.inlined_form
    truncated = _tables_of(changes, Truncate)
    shortened = _tables_of(changes, InlineDeletes)
    reshaped = [] if form is not None else _tables_of(changes, RegisterLayout)
    statistics: read_statistics.Statistics = answers.get("statistics", read_statistics.Statistics({}, {}))
    known = KnownStats(
        tables=statistics.tables,
        columns=statistics.columns,
        retyped=frozenset(statistics.retyped),
        unbounded=_unbounded(connection, catalog, _columns_that_get_bounds(changes, statistics.columns)),
        live_inlined={
            one: live_inlined_tables(connection, catalog, one) for one in {*truncated, *reshaped, *shortened}
        },
        with_live_files=read_files.tables_with_live_files(connection, catalog.tables, truncated),
        layouts=answers.get("layouts", {}),
        inlined_form=form,
    )
    if any(isinstance(change, _ROWS_GO) for change in changes):
        known = with_targets(connection, catalog, changes, known)
    if wanted := {change.as_of for change in changes if isinstance(change, RestoreRows | NoteRestored)}:
        known = replace(known, snapshots=read_snapshots.existing(connection, catalog.tables, wanted))
    known = replace(known, names=_names_of(connection, catalog.tables, changes))
    return with_foreign_files(connection, catalog, changes, known)


def _names_of(connection: Connection, tables: CatalogTables, changes: Collection[Change]) -> dict[int, str]:
    """Return the names that what is to be dropped or renamed has by now."""
    found: dict[int, str] = {}
    for kinds, kind in (((DropTable, RenameTable), "table"), ((DropView, RenameView), "view")):
        rows = tables[kind]
        object_id, name = rows.c[f"{kind}_id"], rows.c[f"{kind}_name"]
        named = [change for change in changes if isinstance(change, kinds)]
        ids = [getattr(change, f"{kind}_id") for change in named]
        for part in in_parts(ids):
            query = select(object_id, name).where(rows.c.end_snapshot.is_(None), object_id.in_(part))
            found.update({int(one): str(text) for one, text in connection.execute(query)})
    return found


def _columns_that_get_bounds(
    changes: Collection[Change], known: Mapping[TableId, Mapping[ColumnId, TableColumnStats]]
) -> dict[TableId, list[ColumnId]]:
    """Return the columns without bounds that new rows have bounds for: what do the others hold?"""
    found: dict[TableId, list[ColumnId]] = {}
    for change in changes:
        table_id = _existing_table(change)
        if isinstance(change, _ROWS_COME) and table_id is not None:
            bounded = _bounded(change)
            missing = [
                one.column_id
                for one in known.get(table_id, {}).values()
                if one.min_value is None and one.max_value is None and one.column_id in bounded
            ]
            if missing:
                found.setdefault(table_id, []).extend(missing)
    return found


def _bounded(change: AppendFiles | InlineRows | RestoreRows) -> set[ColumnId]:
    parts: list[Mapping[ColumnId, Any]]
    match change:
        case AppendFiles(files=files):
            parts = [file.column_stats for file in files]
        case InlineRows(column_stats=stats):
            parts = [*stats]
        case RestoreRows(files=restored, column_stats=stats):
            parts = [*(one.file.column_stats for one in restored), *stats]
    return {
        column_id
        for part in parts
        for column_id, stats in part.items()
        if stats is not None and (stats.min_value is not None or stats.max_value is not None)
    }


def _tables_of(changes: Collection[Change], kinds: type | tuple[type, ...]) -> list[TableId]:
    """Return the existing tables that changes of these kinds are about, each once."""
    found: dict[TableId, None] = {}
    for change in changes:
        if isinstance(change, kinds) and (table_id := _existing_table(change)) is not None:
            found[table_id] = None
    return list(found)


def _existing_table(change: Change) -> TableId | None:
    table = getattr(change, "table_id", None) or getattr(change, "table", None)
    return TableId(table) if isinstance(table, int) else None


def _unbounded(
    connection: Connection, catalog: Catalog, without_bounds: dict[TableId, list[ColumnId]]
) -> frozenset[tuple[TableId, ColumnId]]:
    unbounded = read_statistics.columns_with_unbounded_values(connection, catalog.tables, without_bounds)
    for table_id, missing in without_bounds.items():
        inlined = _columns_with_inlined_values(connection, catalog, table_id)
        unbounded.update((table_id, column_id) for column_id in missing if column_id in inlined)
    return frozenset(unbounded)


def _columns_with_inlined_values(
    connection: Connection, catalog: Catalog, table_id: TableId
) -> set[ColumnId]:
    """Return the leaf columns that have, or nested may have, a value in the catalog's inlined rows."""
    found: set[ColumnId] = set()
    for layout in live_layouts(connection, catalog, table_id):
        schema = layout_schema(connection, catalog.tables, table_id, layout.schema_version)
        rows = inlined_table(schema, table_id, layout.schema_version, catalog.tables.metadata_schema)
        counts = connection.execute(select(*(func.count(rows.c[name]) for name in schema.names))).one()
        for top, count in zip(schema.columns, counts, strict=True):
            found.update(leaf.id for leaf in top.leaves() if count)
    return found


def live_inlined_tables(connection: Connection, catalog: Catalog, table_id: int) -> tuple[str, ...]:
    """Return the catalog tables that hold live rows of a table."""
    found: list[str] = []
    for layout in live_layouts(connection, catalog, table_id):
        rows = bare_table(catalog.tables, table_id, layout.schema_version)
        query = select(literal(1)).select_from(rows).where(rows.c.end_snapshot.is_(None)).limit(1)
        if connection.execute(query).first():
            found.append(layout.name)
    return tuple(found)
