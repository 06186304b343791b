"""Statements of restores. *Source:* old ids under new rows, as the reference reads them (ADR 0015)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnClause, TableClause, column, func, literal, null, quoted_name, select, table

from ...format.files import TableColumnStats, TableStats, merge_files, merge_known
from ...transaction.changes import NewTableRef, RestoredFile, RestoredRows, RestoreRows, RestoreTable
from ...transaction.changes_made import ChangeKind, ChangeRecord
from ..dialects.dialect import Effect, insert
from . import effects_of
from .files import NewFile, add_files, add_to_stats, begin_stats, map_file
from .tables import all_columns, new_schema_version

if TYPE_CHECKING:
    from ...format.snapshots import ColumnId, PartitionId, SnapshotId, TableId
    from ...transaction.changes import CommitState
    from ..database.tables import CatalogTables


@effects_of.register(RestoreTable)
def restore_table(change: RestoreTable, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield a second row of a dropped table, and its columns under their ids.

    Files that another client left open when it dropped the table (verify's ``table-ended``) end with it: else
    they would be live again beside those that come back.
    """
    dropped = tables["table"]
    ended_with = select(func.max(dropped.c.end_snapshot)).where(dropped.c.table_id == change.table_id)
    for kind in ("data_file", "delete_file"):
        file = tables[kind]
        left_open = file.update().where(file.c.table_id == change.table_id, file.c.end_snapshot.is_(None))
        yield Effect(left_open.values(end_snapshot=ended_with.scalar_subquery()))
    yield insert(
        tables["table"],
        {
            "table_id": change.table_id,
            "table_uuid": change.uuid,
            "begin_snapshot": state.snapshot_id,
            "end_snapshot": None,
            "schema_id": state.schema_id(change.schema),
            "table_name": change.name.name,
            "path": change.path.path,
            "path_is_relative": change.path.is_relative,
        },
    )
    yield all_columns(change.columns, change.table_id, state, tables)
    yield from new_schema_version(change.table_id, state, tables)
    state.record(ChangeRecord(ChangeKind.CREATED_TABLE, name=change.name))


@effects_of.register(RestoreRows)
def restore_rows(change: RestoreRows, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield new files with old rows, and the rows of the catalog that end and that begin again.

    The table's next row id stays: no row is new. A new table gets that of the one whose place it takes, also
    where no row comes back, so that no row id is given out twice. Its statistics are widened by what comes
    back, since others may have narrowed them to what was left.
    """
    table_id = state.table_id(change.table)
    yield from _forget_bounds(change, table_id, state, tables)
    if change.files:
        yield from _files(change, table_id, state, tables)
    for part in change.inlined:
        yield from _inlined(part, change.as_of, state, tables)
    if isinstance(change.table, NewTableRef):
        yield from _first_statistics(change, table_id, state, tables)
    elif change.files or any(part.returning for part in change.inlined):
        yield from _statistics(change, table_id, state, tables)
    _record(change, table_id, state)


def _files(
    change: RestoreRows, table_id: TableId, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    mapping_ids = []
    for one in change.files:
        mapping_id, effects = map_file(one.file, table_id, state, tables)
        yield from effects
        mapping_ids.append(mapping_id if one.mapping_id is None else one.mapping_id)
    files = [
        NewFile(
            state.new_file_id(),
            one.file,
            {
                "row_id_start": one.row_id_start,
                "partition_id": _partition_id(one, table_id, state),
                "mapping_id": mapping_id,
            },
        )
        for one, mapping_id in zip(change.files, mapping_ids, strict=True)
    ]
    yield from add_files(table_id, change.name, files, state, tables)


def _partition_id(one: RestoredFile, table_id: TableId, state: CommitState) -> PartitionId | None:
    if one.partition_id is None and one.file.partition_values:
        return state.new_partition_id(table_id)
    return one.partition_id


def _statistics(
    change: RestoreRows, table_id: TableId, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    stats = _stats_of(change)
    yield from add_to_stats(table_id, change.schema, 0, _size_of(change), stats, state, tables)


def _first_statistics(
    change: RestoreRows, table_id: TableId, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    """Yield the first statistics of a new table; the reference accepts a table with counts only."""
    row_count = sum(one.file.record_count for one in change.files)
    counts = TableStats(row_count, max(row_count, change.next_row_id), _size_of(change))
    if counts.next_row_id:
        yield from begin_stats(table_id, counts, _stats_of(change), state, tables)


def _size_of(change: RestoreRows) -> int:
    return sum(one.file.file_size_bytes for one in change.files)


def _stats_of(change: RestoreRows) -> dict[ColumnId, TableColumnStats | None]:
    types = change.schema.leaf_types()
    of_files = merge_files((one.file.column_stats for one in change.files), types)
    stats = merge_known([*([of_files] if change.files else []), *change.column_stats], types)
    return {**stats, **dict.fromkeys(change.retyped)}


def _forget_bounds(
    change: RestoreRows, table_id: TableId, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    """Yield the end of bounds of another type; those that are missing claim nothing."""
    if not change.retyped or isinstance(change.table, NewTableRef):
        return
    stats = tables["table_column_stats"]
    yield Effect(stats.delete().where(stats.c.table_id == table_id, stats.c.column_id.in_(change.retyped)))
    counts, known = state.stats(table_id), state.column_stats(table_id)
    if counts is not None:
        kept = {one: bounds for one, bounds in known.items() if one not in change.retyped}
        state.set_stats(table_id, counts, kept)


def _inlined(
    part: RestoredRows, as_of: SnapshotId, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    rows = _rows(part, tables)
    _, begin, end, *_ = rows.c
    if part.leaving:
        leaving = rows.update().where(begin > as_of, end.is_(None))
        yield Effect(leaving.values({end.name: state.snapshot_id}))
    if part.returning:
        changed = {begin.name: literal(state.snapshot_id), end.name: null()}
        again = select(*(changed.get(one.name, one) for one in rows.c)).where(begin <= as_of, end > as_of)
        yield Effect(rows.insert().from_select([one.name for one in rows.c], again))


def _rows(part: RestoredRows, tables: CatalogTables) -> TableClause:
    names = (*tables.writer.inlined_columns, *part.columns)
    columns: list[ColumnClause[Any]] = [column(quoted_name(name, quote=True)) for name in names]
    return table(part.table_name, *columns, schema=tables.metadata_schema)


def _record(change: RestoreRows, table_id: TableId, state: CommitState) -> None:
    returning = any(part.returning for part in change.inlined)
    kinds = {
        ChangeKind.INSERTED_INTO_TABLE: bool(change.files),
        ChangeKind.INLINED_INSERT: returning,
        ChangeKind.INLINED_DELETE: any(part.leaving for part in change.inlined),
    }
    for kind, happened in kinds.items():
        if happened:
            state.record(ChangeRecord(kind, table_id))
    if returning and not change.files:
        state.new_file_id()  # for no file: DuckDB caches statistics by this counter
