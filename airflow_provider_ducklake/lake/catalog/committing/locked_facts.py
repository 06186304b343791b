"""Read the facts about the lake that a commit needs while it holds the lock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection, func, select

from ...format.snapshots import ColumnId, DataFileId, DeleteFileId, SnapshotId, TableId
from ...transaction.declared import FlushedLayout, LockedFacts, Needs
from ..database.connect import Question, in_parts
from ..snapshot import read_files, read_layouts, read_snapshots, read_statistics
from ..snapshot.inlined_read import live_layouts
from ..snapshot.inlined_tables import bare_table, cell_key, inlined_delete_table, inlined_table
from ..snapshot.read_files import FilePlaces, mappings_of, mark_counts, mergeable_files, registered
from ..snapshot.read_layouts import layout_schema, rows_of_layout

if TYPE_CHECKING:
    from ..database.tables import CatalogTables
    from ..dialects.dialect import Catalog

One = TypeVar("One")


def questions_of(catalog: Catalog, needs: Needs) -> dict[str, Question[Any]]:
    """Build the queries that share a round trip; ``locked_facts`` takes their answers and reads the rest."""
    questions: dict[str, Question[Any]] = {}
    if needs.statistics:
        questions["statistics"] = read_statistics.statistics_query(catalog.tables, needs.statistics)
    if needs.skips:
        questions["skipped"] = read_statistics.skipped_query(catalog.tables, needs.skips)
    if needs.layouts:
        questions["layouts"] = read_layouts.newest_layouts_query(catalog.tables, needs.layouts)
    targets = read_files.live_targets_query(catalog.tables, needs.targets)
    questions |= {f"{_TARGETS}{number}": one for number, one in enumerate(targets)}
    for table_id, ids in _by_table(needs.replaced).items():
        places = read_files.delete_file_places_query(catalog.tables, table_id, ids)
        questions |= {f"{_REPLACED}{table_id} {number}": one for number, one in enumerate(places)}
    return questions


_TARGETS, _REPLACED = "targets ", "replaced "  # begin the names of questions


def locked_facts(
    connection: Connection, catalog: Catalog, head: SnapshotId, needs: Needs, answers: Mapping[str, Any]
) -> LockedFacts:
    """Read the facts that the changes need, and no others."""
    form, tables = catalog.dialect.inlined_form, catalog.tables
    statistics: read_statistics.Statistics = answers.get("statistics", read_statistics.Statistics({}, {}))
    reshaped = () if form is not None else needs.reshaped
    flushed, emptied = _flushed(connection, catalog, needs)
    return LockedFacts(
        head,
        form,
        tables=statistics.tables,
        columns=statistics.columns,
        skipped=read_statistics.with_what_lies_in_them(connection, tables, answers.get("skipped", {})),
        unbounded=_unbounded(connection, catalog, needs, statistics),
        retyped=frozenset(statistics.retyped),
        layouts=answers.get("layouts", {}),
        live_inlined={
            one: live_inlined_tables(connection, catalog, one) for one in {*needs.live_inlined, *reshaped}
        },
        live_files=read_files.rows_of_live_files(connection, tables, needs.live_files),
        targets=_joined(answers[one] for one in answers if one.startswith(_TARGETS)),
        delete_file_paths=_paths(answers[one] for one in answers if one.startswith(_REPLACED)),
        sources=_sources(connection, catalog, needs),
        delete_counts={one: mark_counts(connection, catalog, one) for one in needs.delete_counts},
        with_inlined_deletes=_with_inlined_deletes(connection, catalog, needs),
        flushed=flushed,
        emptied=emptied,
        mappings={one: mappings_of(connection, catalog, one) for one in needs.mappings},
        registered=registered(connection, catalog, needs.paths) if needs.paths else frozenset(),
        snapshots=read_snapshots.existing(connection, tables, needs.snapshots),
        names=_names(connection, tables, needs),
    )


def _by_table(pairs: Iterable[tuple[TableId, One]]) -> dict[TableId, list[One]]:
    found: dict[TableId, list[One]] = defaultdict(list)
    for table_id, one in pairs:
        found[table_id].append(one)
    return found


def _joined(parts: Iterable[Mapping[DataFileId, One]]) -> dict[DataFileId, One]:
    return {key: value for part in parts for key, value in part.items()}


def _paths(places: Iterable[FilePlaces]) -> dict[DeleteFileId, str]:
    return {DeleteFileId(one): path for of_table in places for one, path in of_table.scheduled().items()}


def _sources(connection: Connection, catalog: Catalog, needs: Needs) -> dict[DataFileId, str]:
    wanted = _by_table(needs.sources).items()
    return _joined(mergeable_files(connection, catalog, one, file_ids) for one, file_ids in wanted)


def _with_inlined_deletes(connection: Connection, catalog: Catalog, needs: Needs) -> frozenset[TableId]:
    made = ((one, inlined_delete_table(one, catalog.tables.metadata_schema)) for one in needs.inlined_deletes)
    return frozenset(
        one for one, rows in made if catalog.dialect.has_table(connection, rows.name, rows.schema)
    )


def _flushed(
    connection: Connection, catalog: Catalog, needs: Needs
) -> tuple[dict[tuple[TableId, int], FlushedLayout], frozenset[tuple[TableId, int]]]:
    found = {
        (table_id, version): rows
        for table_id, version, read_at in needs.flushed
        if (rows := rows_of_layout(connection, catalog, table_id, version, read_at)) is not None
    }
    upto = {key: rows.upto for key, rows in found.items()}
    return upto, frozenset(key for key, rows in found.items() if not rows.newer_count)


def _names(connection: Connection, tables: CatalogTables, needs: Needs) -> dict[int, str]:
    found: dict[int, str] = {}
    for kind, ids in (("table", needs.table_names), ("view", needs.view_names)):
        rows = tables[kind]
        object_id, name = rows.c[f"{kind}_id"], rows.c[f"{kind}_name"]
        for part in in_parts(ids):
            query = select(object_id, name).where(rows.c.end_snapshot.is_(None), object_id.in_(part))
            found.update({int(one): str(text) for one, text in connection.execute(query)})
    return found


def _unbounded(
    connection: Connection, catalog: Catalog, needs: Needs, statistics: read_statistics.Statistics
) -> frozenset[tuple[TableId, ColumnId]]:
    """Return the columns without bounds, of those that new rows have bounds for, that have values."""
    bounded = set(needs.bounded)
    missing = _by_table(
        (table_id, one.column_id)
        for table_id, columns in statistics.columns.items()
        for one in columns.values()
        if one.min_value is None and one.max_value is None and (table_id, one.column_id) in bounded
    )
    unbounded = read_statistics.columns_with_unbounded_values(connection, catalog.tables, missing)
    for table_id, column_ids in missing.items():
        inlined = _columns_with_inlined_values(connection, catalog, table_id)
        unbounded.update((table_id, column_id) for column_id in column_ids if column_id in inlined)
    return frozenset(unbounded)


def _columns_with_inlined_values(
    connection: Connection, catalog: Catalog, table_id: TableId
) -> set[ColumnId]:
    """Return the leaf columns that have, or nested may have, a value in the catalog's inlined rows."""
    found: set[ColumnId] = set()
    for layout in live_layouts(connection, catalog, table_id):
        schema = layout_schema(connection, catalog.tables, table_id, layout.schema_version)
        rows = inlined_table(schema, table_id, layout.schema_version, catalog.tables)
        counts = connection.execute(
            select(*(func.count(rows.c[cell_key(name)]) for name in schema.names))
        ).one()
        for top, count in zip(schema.columns, counts, strict=True):
            found.update(leaf.id for leaf in top.leaves() if count)
    return found


def live_inlined_tables(connection: Connection, catalog: Catalog, table_id: int) -> dict[str, int]:
    """Return the catalog tables that hold live rows of a table, and how many."""
    found: dict[str, int] = {}
    for layout in live_layouts(connection, catalog, table_id):
        rows = bare_table(layout.name, catalog.tables)
        query = select(func.count()).select_from(rows).where(rows.c.end_snapshot.is_(None))
        if count := connection.execute(query).scalar_one():
            found[layout.name] = count
    return found
