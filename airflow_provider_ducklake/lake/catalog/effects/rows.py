"""Statements of rows that are deleted, inlined or flushed, and of files that are compacted.

*Source:* rows the reference writes (docs/sources.md, deletes, inlining and maintenance).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sqlalchemy import Table, Update, delete, update
from sqlalchemy.schema import CreateTable, DropTable

from ...errors import CatalogError, UnsupportedFeatureError
from ...format.files import TableStats, merge_known
from ...transaction import changes as kinds
from ...transaction.changes_made import ChangeKind, ChangeRecord
from ..database.connect import in_parts
from ..dialects.dialect import Effect, close, insert
from ..snapshot.inlined_tables import (
    BEGIN_SNAPSHOT,
    END_SNAPSHOT,
    ROW_ID,
    bare_table,
    cell_key,
    inlined_delete_table,
    inlined_table,
    inlined_table_name,
    why_not_inlined,
)
from . import effects_of
from .files import NewFile, add_files, add_to_stats, delete_row, schedule

if TYPE_CHECKING:
    from ...format.schema import TableSchema
    from ...format.snapshots import TableId
    from ...transaction.changes import CommitState
    from ..database.tables import CatalogTables


@effects_of.register(kinds.EndFiles)
def end_files(change: kinds.EndFiles, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the end of data files; their delete files stay as they are, as the reference leaves them."""
    file = tables["data_file"]
    for ids in in_parts(change.file_ids):
        yield close(file, state, file.c.table_id == change.table_id, file.c.data_file_id.in_(ids))
    if change.file_ids:
        state.record(ChangeRecord(ChangeKind.DELETED_FROM_TABLE, change.table_id))


@effects_of.register(kinds.Truncate)
def truncate(change: kinds.Truncate, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the end of all data files of a table, and of its rows in the catalog."""
    file = tables["data_file"]
    if change.table_id in state.facts.live_files:
        yield close(file, state, file.c.table_id == change.table_id)
        state.record(ChangeRecord(ChangeKind.DELETED_FROM_TABLE, change.table_id))
    for name in state.facts.live_inlined.get(change.table_id, ()):
        yield Effect(_end_inlined(name, state, tables)[1])
        state.record(ChangeRecord(ChangeKind.INLINED_DELETE, change.table_id))


@effects_of.register(kinds.AddDeletes)
def add_deletes(change: kinds.AddDeletes, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield delete files; one that is replaced goes at once, and its file is scheduled for deletion."""
    replaced = [file.replaces for file in change.files if file.replaces is not None]
    if replaced:
        if lost := [one for one in replaced if one not in state.facts.delete_file_paths]:
            raise CatalogError(
                f"Where delete file {lost[0]} of table {change.table_id} lies is not known: the catalog has "
                "no live row of the file, of the table or of its schema. lake.verify() says which is wrong."
            )
        yield schedule({one: state.facts.delete_file_paths[one] for one in replaced}, state, tables)
        old = tables["delete_file"]
        for part in in_parts(replaced):
            yield Effect(delete(old).where(old.c.delete_file_id.in_(part)))
    yield insert(tables["delete_file"], *(_row(file, change.table_id, state) for file in change.files))
    marks = inlined_delete_table(change.table_id, tables.metadata_schema)
    for ids in in_parts(change.folded_marks):
        yield Effect(delete(marks).where(marks.c.file_id.in_(ids)))
    if not change.of_rewrite:
        state.record(ChangeRecord(ChangeKind.DELETED_FROM_TABLE, change.table_id))


def _row(
    file: kinds.FileDeletes | kinds.UnwrittenDeletes, table_id: TableId, state: CommitState
) -> dict[str, object]:
    assert isinstance(file, kinds.FileDeletes)
    assert file.stamped_for in (None, state.snapshot_id)
    return delete_row(table_id, file.data_file_id, file, state)


@effects_of.register(kinds.InlineDeletes)
def inline_deletes(
    change: kinds.InlineDeletes, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    """Yield marks for rows of data files, and the end of inlined rows."""
    marks = inlined_delete_table(change.table_id, tables.metadata_schema)
    rows = [
        {"file_id": file_id, "row_id": position, "begin_snapshot": state.snapshot_id}
        for file_id, positions in change.positions.items()
        for position in positions
    ]
    if rows:
        if change.table_id not in state.facts.with_inlined_deletes:
            yield Effect(CreateTable(marks))
        yield insert(marks, *rows)
    for name in state.facts.live_inlined.get(change.table_id, ()):
        rows_of, ended = _end_inlined(name, state, tables)
        for ids in in_parts(change.row_ids):
            yield Effect(ended.where(rows_of.c.row_id.in_(ids)))
    state.record(ChangeRecord(ChangeKind.INLINED_DELETE, change.table_id))


def _end_inlined(name: str, state: CommitState, tables: CatalogTables) -> tuple[Table, Update]:
    """Return a table of inlined rows, and the end of all its live ones."""
    rows = bare_table(name, tables)
    return rows, update(rows).where(rows.c.end_snapshot.is_(None)).values(end_snapshot=state.snapshot_id)


# Statements of rows kept in the catalog, and of the tables that hold them.
#
# *Source:* docs/sources.md, inlining.


@effects_of.register(kinds.RegisterLayout)
def register_layout(
    change: kinds.RegisterLayout, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    """Yield a catalog table for rows with a table's new columns; older ones keep their rows.

    Where columns now keep a table's rows out of the catalog there is none, and the older ones stay.
    """
    table_id = state.table_id(change.table)
    registered = state.layout(table_id) is not None
    if why_not_inlined(change.schema, state.facts.inlined_form, tables.writer) is None:
        if registered or not change.only_if_registered:
            yield from _layout(table_id, change.schema, state, tables)
    elif registered and state.facts.inlined_form is None:
        yield from _forget_layouts(change, table_id, state, tables)


def _layout(
    table_id: TableId, schema: TableSchema, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    table = inlined_table(schema, table_id, state.schema_version, tables)
    yield Effect(CreateTable(table))
    yield insert(
        tables["inlined_data_tables"],
        {"table_id": table_id, "table_name": table.name, "schema_version": state.schema_version},
    )
    state.add_layout(table_id)


def _forget_layouts(
    change: kinds.RegisterLayout, table_id: TableId, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    """Yield the end of empty layouts, which do not fit the new columns; DuckDB makes one when it needs it."""
    if state.facts.live_inlined.get(table_id):
        raise UnsupportedFeatureError(
            f"{change.name} has inlined rows ({', '.join(state.facts.live_inlined[table_id])}). In this "
            "catalog database, its columns, name and partition keys cannot change while it has them. Flush "
            "them with DuckDB's ducklake_flush_inlined_data first; on MySQL and MariaDB, where DuckDB cannot "
            "flush, copy the table with DuckDB (CREATE TABLE … AS FROM …) and drop this one."
        )
    registry = tables["inlined_data_tables"]
    yield Effect(registry.delete().where(registry.c.table_id == table_id))


@effects_of.register(kinds.InlineRows)
def inline_rows(change: kinds.InlineRows, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield rows in the table's newest layout, or in a new one where none fits."""
    table_id = state.table_id(change.table)
    if change.lacks_layout(state.layout(table_id)):
        yield from _layout(table_id, change.schema, state, tables)
    version = state.layout(table_id)
    assert version is not None
    start = (state.stats(table_id) or TableStats()).next_row_id
    keys = {column.id: cell_key(column.name) for column in change.schema.columns}
    rows = [
        {
            ROW_ID: start + number,
            BEGIN_SNAPSHOT: state.snapshot_id,
            END_SNAPSHOT: None,
            **{key: row.get(column_id) for column_id, key in keys.items()},
        }
        for number, row in enumerate(change.rows)
    ]
    yield insert(inlined_table(change.schema, table_id, version, tables), *rows)
    incoming = merge_known(change.column_stats, change.schema.leaf_types())
    yield from add_to_stats(table_id, change.schema, len(rows), 0, incoming, state, tables)
    if table_id not in state.added_rows:
        state.new_file_id()  # for no file: DuckDB caches statistics by this counter
    state.note_rows(table_id, start, len(rows))
    state.record(ChangeRecord(ChangeKind.INLINED_INSERT, table_id))


# Statements that replace inlined rows with files.
#
# *Source:* rows the reference writes (docs/sources.md, inlining).


@effects_of.register(kinds.FlushInlined)
def flush_inlined(change: kinds.FlushInlined, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the rows of new files and of their delete files, and the end of those in the catalog.

    Of the table's statistics the size grows, and files count NULLs where rows in the catalog have none:
    lists and maps that are empty or NULL. All else is the same, as the rows are.
    """
    if change.files:
        yield from _new_files(change, state, tables)
    for one in change.layouts:
        if _is_superseded(change, one.schema_version, state):
            yield from _forget(change, one.schema_version, tables)
        else:
            rows = bare_table(inlined_table_name(change.table_id, one.schema_version), tables)
            yield Effect(delete(rows).where(rows.c.begin_snapshot <= change.read_at))
    state.record(ChangeRecord(ChangeKind.INLINE_FLUSH, change.table_id))


def _new_files(change: kinds.FlushInlined, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    files = [
        NewFile(
            state.new_file_id(),
            one.file,
            {  # without row_id_start, by which the reference's merge would renumber sorted rows
                "begin_snapshot": one.begin_snapshot,
                "end_snapshot": one.end_snapshot,
                "partition_id": one.partition_id,
                "partial_max": one.partial_max,
            },
        )
        for one in change.files
    ]
    yield from add_files(change.table_id, change.name, files, state, tables)
    deletes = [
        delete_row(change.table_id, new.id, one.deletes, state)
        for new, one in zip(files, change.files, strict=True)
        if one.deletes is not None
    ]
    if deletes:
        yield insert(tables["delete_file"], *deletes)
    counts = tables["table_stats"]
    size = sum(one.file.file_size_bytes for one in files)
    yield Effect(
        counts.update()
        .where(counts.c.table_id == change.table_id)
        .values(file_size_bytes=counts.c.file_size_bytes + size)
    )
    with_nulls = {
        known.column_id for new in files for known in new.file.column_stats.values() if known.null_count
    }
    if with_nulls:
        bounds = tables["table_column_stats"]
        found = bounds.c.table_id == change.table_id, bounds.c.column_id.in_(sorted(with_nulls))
        yield Effect(bounds.update().where(*found).values(contains_null=True))


def _is_superseded(change: kinds.FlushInlined, schema_version: int, state: CommitState) -> bool:
    """Return True if an inlined table is empty and gets no more rows: the table has other columns."""
    is_newest = state.layout(change.table_id) == schema_version
    return not is_newest and (change.table_id, schema_version) in state.facts.emptied


def _forget(change: kinds.FlushInlined, schema_version: int, tables: CatalogTables) -> Iterator[Effect]:
    registry = tables["inlined_data_tables"]
    yield Effect(
        registry.delete().where(
            registry.c.table_id == change.table_id, registry.c.schema_version == schema_version
        )
    )
    gone = bare_table(inlined_table_name(change.table_id, schema_version), tables)
    yield Effect(DropTable(gone))


# Statements that replace files with compacted ones.
#
# *Source:* rows the reference writes (docs/sources.md, maintenance).


OF_DATA_FILE = ("file_column_stats", "file_variant_stats", "file_partition_value")  # rows that go with a file


@effects_of.register(kinds.MergeAdjacent)
def merge_adjacent(
    change: kinds.MergeAdjacent, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    """Yield the rows of merged files; those of their sources go at once, and the files are scheduled."""
    yield schedule({one: state.facts.sources[one] for one in change.sources}, state, tables)
    for ids in in_parts(change.sources):
        for name in (*OF_DATA_FILE, "data_file"):
            table = tables[name]
            yield Effect(delete(table).where(table.c.data_file_id.in_(ids)))
    files = [
        NewFile(
            state.new_file_id(),
            merged.file,
            {
                "begin_snapshot": merged.begin_snapshot,
                "row_id_start": merged.row_id_start,
                "partition_id": merged.partition_id,
                "partial_max": merged.partial_max,
            },
        )
        for merged in change.files
    ]
    yield from add_files(change.table_id, change.name, files, state, tables)
    state.record(ChangeRecord(ChangeKind.MERGE_ADJACENT, change.table_id))


@effects_of.register(kinds.RewriteDeletes)
def rewrite_deletes(
    change: kinds.RewriteDeletes, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    """Yield the end of files with deletes, and the rows of those that take their place.

    The statistics of the table stay: older snapshots have the rows that are left out.
    """
    file, deletes = tables["data_file"], tables["delete_file"]
    for ids in in_parts(change.file_ids):
        for table in (file, deletes):
            yield close(table, state, table.c.table_id == change.table_id, table.c.data_file_id.in_(ids))
    files = [
        NewFile(state.new_file_id(), one.file, {"partition_id": one.partition_id})
        for one in change.files
        if one.file is not None
    ]
    if files:
        yield from add_files(change.table_id, change.name, files, state, tables)
    state.record(ChangeRecord(ChangeKind.REWRITE_DELETE, change.table_id))
