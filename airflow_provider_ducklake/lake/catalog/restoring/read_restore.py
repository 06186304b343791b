"""Read what a restore needs of a table at the older and the current snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy import Connection, case, func, select

from ...format.files import LiveDataFile, TableStats
from ...format.snapshots import ColumnId, Snapshot, SnapshotId, TableId, TableSnapshot
from ...format.types.ducklake_types import INTEGERS
from ...planning.reading.scan import InlinedRows, ScanPlan
from ...planning.upkeep.restore import Counters, FileComparison, compare_files
from ...transaction.changes import RestoredRows
from ...transaction.definition import Definition, same_layout
from ..database.connect import in_parts
from ..snapshot import read, read_files
from ..snapshot.inlined_read import inlined_delete_marks, inlined_ended_since, inlined_of, read_inlined
from ..snapshot.inlined_tables import bare_table
from ..snapshot.read_files import file_stats_query
from ..snapshot.read_layouts import columns_query, layout_schema, newest_layouts_query
from ..snapshot.read_statistics import statistics_query
from ..snapshot.scan import load_table

if TYPE_CHECKING:
    from ..database.tables import CatalogTables
    from ..dialects.dialect import Catalog
    from ..snapshot.read import TableRow
    from .plan import Pair

_COMMENT = "comment"


@dataclass(frozen=True, slots=True)
class TableHistory:
    """A table at the target snapshot and now (None: it was dropped), each as a snapshot reads it.

    ``row`` is the table's catalog row at that snapshot, ``since`` the snapshot since which its columns are
    unchanged.
    ``inlined`` are the catalog tables with rows that come or go, ``returning`` the rows that come back, and
    ``retyped`` the leaf columns that had another type since. ``has_layout``: rows of DuckDB's small inserts
    fit the newest catalog table that there is for them.

    ``counters`` are those of a table that comes back as a new one: then ``returning`` are all its rows in the
    catalog, none of which comes back there, and ``retyped`` the columns that ever had another type
    (but integers).
    """

    row: TableRow
    target: ScanPlan
    current: ScanPlan | None
    definition_then: Definition
    definition_now: Definition | None
    files: FileComparison
    since: Mapping[ColumnId, SnapshotId]
    inlined: tuple[RestoredRows, ...]
    returning: tuple[InlinedRows, ...]
    retyped: tuple[ColumnId, ...]
    has_layout: bool
    counters: Counters | None = None


def read_history(  # noqa: PLR0913 - what is restored, from when to when
    connection: Connection,
    catalog: Catalog,
    pair: Pair[TableRow],
    target: Snapshot,
    head: Snapshot,
    *,
    is_moved: bool = False,
) -> TableHistory:
    """Read the history of a table of the target snapshot; ``is_moved``: its schema was dropped."""
    history = _history(connection, catalog, pair, target, head)
    if not is_moved:
        return history
    old = history.target.table
    return replace(
        history,
        inlined=(),
        returning=read_inlined(connection, catalog, old),
        retyped=_ever_retyped(connection, catalog.tables, old),
        counters=_counters(connection, catalog.tables, old.table_id),
    )


def _counters(connection: Connection, tables: CatalogTables, table_id: TableId) -> Counters:
    stats = statistics_query(tables, [table_id]).ask(connection).tables.get(table_id, TableStats())
    return Counters(stats.next_row_id, ColumnId(read.next_column_id(connection, tables, table_id) - 1))


def _history(
    connection: Connection, catalog: Catalog, pair: Pair[TableRow], target: Snapshot, head: Snapshot
) -> TableHistory:
    assert pair.target is not None
    old = _with_files(connection, catalog, target, pair.target)
    new = None if pair.current is None else _with_files(connection, catalog, head, pair.current)
    marks_then = inlined_delete_marks(connection, catalog, pair.target.id, target.id)
    marks_now = inlined_delete_marks(connection, catalog, pair.target.id, head.id)
    definition_then = _definition(connection, catalog.tables, old)
    definition_now = None if new is None else _definition(connection, catalog.tables, new)
    if definition_now is not None:
        definition_then = _without_later_comments(definition_then, definition_now)
    inlined = tuple(_inlined(connection, catalog, old))
    is_returning = any(part.returning for part in inlined)
    return TableHistory(
        pair.target,
        ScanPlan(old, old.files or (), (), inlined_deletes=marks_then),
        None if new is None else ScanPlan(new, new.files or (), (), inlined_deletes=marks_now),
        definition_then,
        definition_now,
        compare_files(old, new, marks_then, marks_now),
        columns_query(catalog.tables, old.table_id).ask(connection).since(target.id),
        inlined,
        inlined_ended_since(connection, catalog, old) if is_returning else (),
        _retyped(connection, catalog.tables, old),
        _has_layout(connection, catalog.tables, old),
    )


def _with_files(connection: Connection, catalog: Catalog, at: Snapshot, row: TableRow) -> TableSnapshot:
    found = load_table(connection, catalog, at, row.qualified, with_files=False)
    files = read_files.data_files(connection, catalog, found, stats_of=())
    return replace(found, files=files)


def _definition(connection: Connection, tables: CatalogTables, found: TableSnapshot) -> Definition:
    tag, at = tables["column_tag"], found.snapshot.id
    query = select(tag.c.column_id, tag.c.value).where(
        tag.c.table_id == found.table_id,
        tag.c.key == _COMMENT,
        tag.c.value.is_not(None),
        read.visible(tag, at),
    )
    texts: dict[ColumnId | None, str | None] = {row.column_id: row.value for row in connection.execute(query)}
    if (text := comment(connection, tables, at, found.table_id)) is not None:
        texts[None] = text
    ids = (None, *(column.id for column in found.schema.walk()))
    return replace(Definition.of(found), comments={one: texts[one] for one in ids if one in texts})


def _without_later_comments(target: Definition, current: Definition) -> Definition:
    """Return a definition that takes away the comments that came since."""
    comments = {
        one: target.comments.get(one)
        for one in (None, *(column.id for column in target.columns.walk()))
        if one in target.comments or one in current.comments
    }
    return replace(target, comments=comments)


def comment(connection: Connection, tables: CatalogTables, at: int, object_id: int) -> str | None:
    """Return the comment of a table or view at a snapshot; None: it has none."""
    tag = tables["tag"]
    query = select(tag.c.value).where(
        tag.c.object_id == object_id, tag.c.key == _COMMENT, read.visible(tag, at)
    )
    return connection.execute(query).scalars().first()


def _inlined(connection: Connection, catalog: Catalog, target: TableSnapshot) -> Iterable[RestoredRows]:
    """Yield the catalog tables with rows that came since, or went."""
    inlined, at = inlined_of(connection, catalog, target), target.snapshot.id
    for layout in inlined.layouts:
        rows = bare_table(layout.name, catalog.tables)
        begin, end = rows.c.begin_snapshot, rows.c.end_snapshot
        query = select(
            func.count(case(((begin <= at) & (end > at), 1))),
            func.count(case(((begin > at) & end.is_(None), 1))),
        ).select_from(rows)
        returning, leaving = connection.execute(query).one()
        if returning or leaving:
            names = inlined.found[rows.name][len(rows.c) :]
            yield RestoredRows(rows.name, tuple(names), returning, leaving)


def _retyped(connection: Connection, tables: CatalogTables, target: TableSnapshot) -> tuple[ColumnId, ...]:
    found = _other_types(connection, tables, target, after=target.snapshot.id)
    return tuple(sorted({column_id for column_id, _ in found}))


def _ever_retyped(
    connection: Connection, tables: CatalogTables, target: TableSnapshot
) -> tuple[ColumnId, ...]:
    """Return the leaf columns that ever had another type; bounds of narrower integers are bounds of wider."""
    types = {leaf.id: leaf.catalog_type for leaf in target.schema.leaves()}
    found = _other_types(connection, tables, target, after=-1)
    return tuple(sorted({one for one, other in found if not INTEGERS.issuperset((other, types[one]))}))


def _other_types(
    connection: Connection, tables: CatalogTables, target: TableSnapshot, *, after: int
) -> set[tuple[ColumnId, str]]:
    """Return leaf columns with types that they had after a snapshot, and lack in that of ``target``."""
    column_ = tables["column"]
    query = select(column_.c.column_id, column_.c.column_type).where(
        column_.c.table_id == target.table_id, column_.c.begin_snapshot > after
    )
    types = {leaf.id: leaf.catalog_type for leaf in target.schema.leaves()}
    had = {(ColumnId(row.column_id), str(row.column_type)) for row in connection.execute(query)}
    return {(one, type_) for one, type_ in had if types.get(one, type_) != type_}


def _has_layout(connection: Connection, tables: CatalogTables, target: TableSnapshot) -> bool:
    newest = newest_layouts_query(tables, [target.table_id]).ask(connection).get(target.table_id)
    if newest is None:
        return False
    return same_layout(layout_schema(connection, tables, target.table_id, newest), target.schema)


def with_statistics(
    connection: Connection, catalog: Catalog, table_id: int, files: Iterable[LiveDataFile]
) -> list[LiveDataFile]:
    """Return data files with the statistics of all their columns."""
    given = list(files)
    stats = {
        file_id: known
        for ids in in_parts(file.id for file in given)
        for file_id, known in file_stats_query(catalog.tables, table_id, ids, None).ask(connection).items()
    }
    return [replace(file, column_stats=stats.get(file.id, {})) for file in given]
