"""Statements of appended data files and of the statistics they widen.

*Source:* docs/sources.md, inserts, added files and known faults.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Table, Update, bindparam

from ...format import files as file_facts
from ...format.names.paths import is_absolute
from ...format.partitioning import check_partition_values
from ...format.types.ducklake_types import DuckLakeType, ScalarKind, is_float
from ...transaction.changes import AppendFiles, FileDeletes, FlushedDeletes
from ...transaction.changes_made import ChangeKind, ChangeRecord
from ..dialects.dialect import Effect, insert
from . import effects_of

if TYPE_CHECKING:
    from ...format.names.identifiers import QualifiedName
    from ...format.schema import TableSchema
    from ...format.snapshots import ColumnId, DataFileId, MappingId, TableId
    from ...transaction.changes import CommitState
    from ..database.tables import CatalogTables


# Statements of the statistics that added rows widen. *Source:* docs/sources.md, inserts and known faults.


def add_to_stats(  # noqa: PLR0913, PLR0917 - what was added, and to what
    table_id: TableId,
    schema: TableSchema,
    row_count: int,
    size_bytes: int,
    incoming: Mapping[ColumnId, file_facts.TableColumnStats | None],
    state: CommitState,
    tables: CatalogTables,
) -> Iterator[Effect]:
    """Yield a table's counts and column statistics after rows were added.

    ``incoming`` has the statistics of the rows' leaf columns; None: not enough is known.
    """
    before = state.stats(table_id)
    incoming = _without_skipped(table_id, incoming, state)
    if before is None:
        yield from begin_stats(
            table_id, file_facts.TableStats().add(row_count, size_bytes), incoming, state, tables
        )
        return
    after = before.add(row_count, size_bytes)
    yield _counts(table_id, after, tables, is_first=False)
    columns, unknown = _widened(table_id, schema, incoming, state)
    yield from _changed(table_id, columns, unknown, state, tables)
    state.set_stats(table_id, after, columns)


def begin_stats(
    table_id: TableId,
    counts: file_facts.TableStats,
    incoming: Mapping[ColumnId, file_facts.TableColumnStats | None],
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
    table_id: TableId, incoming: Mapping[ColumnId, file_facts.TableColumnStats | None], state: CommitState
) -> Mapping[ColumnId, file_facts.TableColumnStats | None]:
    """Replace the rows' statistics by None (unknown) for columns that the table keeps no bounds of.

    A row of the table's statistics then goes, and is never made again: DuckDB 1.5 would take one without
    bounds for one without values.
    """
    skipped = state.skipped(table_id)
    return {one: None if one in skipped else stats for one, stats in incoming.items()}


def _counts(
    table_id: TableId, after: file_facts.TableStats, tables: CatalogTables, *, is_first: bool
) -> Effect:
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


def _bounds(stats: file_facts.TableColumnStats, table: Table) -> dict[str, Any]:
    return {
        "contains_null": stats.contains_null,
        "contains_nan": stats.contains_nan,
        **bounds_of(stats, table),
        **({"extra_stats": stats.extra_stats} if "extra_stats" in table.c else {}),
    }


def bounds_of(stats: file_facts.ColumnStats | file_facts.TableColumnStats, table: Table) -> dict[str, Any]:
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
    table_id: TableId, columns: Mapping[ColumnId, file_facts.TableColumnStats], tables: CatalogTables
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
    incoming: Mapping[ColumnId, file_facts.TableColumnStats | None],
    state: CommitState,
) -> tuple[dict[ColumnId, file_facts.TableColumnStats], list[ColumnId]]:
    """Merge new rows into the existing column statistics; also list the columns that become unknown."""
    types = schema.leaf_types()
    columns: dict[ColumnId, file_facts.TableColumnStats] = {}
    unknown: list[ColumnId] = []
    for column_id, existing in state.column_stats(table_id).items():
        if column_id not in types:
            columns[column_id] = existing
            continue
        addition = incoming.get(column_id)
        is_known = types[column_id].facts.kind is ScalarKind.VARIANT or not (
            _bounds_are_nan(existing, types[column_id]) or _existing_is_unknown(existing, table_id, state)
        )
        if addition is None or not is_known:
            unknown.append(column_id)
        else:
            columns[column_id] = existing.merge(addition, types[column_id])
    return columns, unknown


def _changed(
    table_id: TableId,
    columns: Mapping[ColumnId, file_facts.TableColumnStats],
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


def _existing_is_unknown(
    existing: file_facts.TableColumnStats, table_id: TableId, state: CommitState
) -> bool:
    if existing.extra_stats is not None:
        return False
    missing = (existing.min_value is None) + (existing.max_value is None)
    key = (table_id, existing.column_id)
    return missing == 1 or (missing > 1 and key in state.facts.unbounded) or key in state.facts.retyped


def _bounds_are_nan(existing: file_facts.TableColumnStats, type_: DuckLakeType) -> bool:
    """Return True if NaN is taken for a bound, as the reference does with inlined rows."""
    return is_float(type_) and "nan" in (existing.min_value, existing.max_value)


@effects_of.register(AppendFiles)
def append_files(change: AppendFiles, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the rows of new data files, with row ids and file ids from the snapshot being built."""
    table_id = state.table_id(change.table)
    before = state.stats(table_id) or file_facts.TableStats()
    partition_id = change.partition_id
    if partition_id is None:
        partition_id = state.new_partition_id(table_id)
    files, next_row_id = [], before.next_row_id
    for file in change.files:
        mapping_id, effects = map_file(file, table_id, state, tables)
        yield from effects
        # a file without values is one of none of the partitionings, as those from before the first
        partition = partition_id if file.partition_values or not change.is_partitioned else None
        # DuckDB's merge takes the catalog's word for consecutive ids, and loses those in the files
        start = None if file.has_row_ids else next_row_id
        life = {"row_id_start": start, "partition_id": partition, "mapping_id": mapping_id}
        files.append(NewFile(state.new_file_id(), file, life))
        next_row_id += file.record_count
    yield from add_files(table_id, change.name, files, state, tables)
    if deletes := list(_first_deletes(files, table_id, state)):
        yield insert(tables["delete_file"], *deletes)
    incoming = file_facts.merge_files(
        (file.column_stats for file in change.files), change.schema.leaf_types()
    )
    size = sum(file.file_size_bytes for file in change.files)
    yield from add_to_stats(table_id, change.schema, change.record_count, size, incoming, state, tables)
    state.note_rows(table_id, before.next_row_id, change.record_count)
    state.record(ChangeRecord(ChangeKind.INSERTED_INTO_TABLE, table_id))


def _first_deletes(
    files: Sequence[NewFile], table_id: TableId, state: CommitState
) -> Iterator[dict[str, object]]:
    """Yield the rows of delete files of new files, as the reference has rows that come and go at once."""
    for new in files:
        if (gone := new.file.deletes) is not None:
            sizes = (gone.delete_count, gone.file_size_bytes, gone.footer_size)
            deletes = FileDeletes(new.id, gone.path, *sizes, format=gone.format)
            yield delete_row(table_id, new.id, deletes, state)


def map_file(
    file: file_facts.DataFile, table_id: TableId, state: CommitState, tables: CatalogTables
) -> tuple[MappingId | None, list[Effect]]:
    """Return the id of a file's name mapping, None where it has none, and the rows of one that is new."""
    if file.mapping is None:
        return None, []
    mapping_id, is_new = state.mapping_id(table_id, file.mapping)
    return mapping_id, list(_mapping(mapping_id, file.mapping, table_id, tables)) if is_new else []


def _mapping(
    mapping_id: MappingId, mapping: file_facts.NameMapping, table_id: TableId, tables: CatalogTables
) -> Iterator[Effect]:
    yield insert(
        tables["column_mapping"], {"mapping_id": mapping_id, "table_id": table_id, "type": "map_by_name"}
    )
    rows = [
        {
            "mapping_id": mapping_id,
            "column_id": ordinal,
            "source_name": one.source_name,
            "target_field_id": one.column_id,
            "parent_column": one.parent,
            "is_partition": one.is_partition,
        }
        for ordinal, one in enumerate(mapping)
    ]
    if rows:
        yield insert(tables["name_mapping"], *rows)


class NewFile(NamedTuple):
    """A new data file, and what its row says of its rows: since when they are there, and as what."""

    id: DataFileId
    file: file_facts.DataFile
    life: Mapping[str, int | None]


def add_files(
    table_id: TableId,
    name: QualifiedName,
    files: Sequence[NewFile],
    state: CommitState,
    tables: CatalogTables,
) -> Iterator[Effect]:
    """Yield the rows of new data files; the statistics of the table are another matter."""
    yield insert(tables["data_file"], *(_file_row(one, table_id, state, tables) for one in files))
    skipped = state.skipped(table_id)
    if stats := list(_stats_rows(files, table_id, skipped, tables["file_column_stats"])):
        yield insert(tables["file_column_stats"], *stats)
    if values := list(_partition_rows(files, table_id, str(name))):
        yield insert(tables["file_partition_value"], *values)


def _file_row(new: NewFile, table_id: TableId, state: CommitState, tables: CatalogTables) -> dict[str, Any]:
    file = new.file
    has_groups = "row_group_count" in tables["data_file"].c
    return {
        "data_file_id": new.id,
        "table_id": table_id,
        "begin_snapshot": state.snapshot_id,
        "end_snapshot": None,
        "file_order": None,
        "path": file.path,
        "path_is_relative": not is_absolute(file.path),
        "file_format": "parquet",
        "record_count": file.record_count,
        "file_size_bytes": file.file_size_bytes,
        "footer_size": file.footer_size,
        "encryption_key": file_facts.key_text(file.encryption_key),
        "row_id_start": None,
        "partition_id": None,
        "mapping_id": None,
        "partial_max": None,
        **({"row_group_count": file.row_group_count} if has_groups else {}),
        **new.life,
    }


def _stats_rows(
    files: Sequence[NewFile], table_id: TableId, skipped: Collection[ColumnId], table: Table
) -> Iterator[dict[str, Any]]:
    for file_id, file, _ in files:
        for column_id, known in sorted(file.column_stats.items()):
            stats = known.without_bounds() if column_id in skipped else known
            yield {
                "data_file_id": file_id,
                "table_id": table_id,
                "column_id": column_id,
                "column_size_bytes": stats.column_size_bytes,
                "value_count": stats.value_count,
                "null_count": stats.null_count,
                **bounds_of(stats, table),
                "contains_nan": stats.contains_nan,
                "extra_stats": stats.extra_stats,
            }


def _partition_rows(files: Sequence[NewFile], table_id: TableId, table: str) -> Iterator[dict[str, Any]]:
    for file_id, file, _ in files:
        check_partition_values(file.partition_values, table)
        for index, value in enumerate(file.partition_values):
            yield {
                "data_file_id": file_id,
                "table_id": table_id,
                "partition_key_index": index,
                "partition_value": value,
            }


def delete_row(
    table_id: TableId, data_file_id: DataFileId, deletes: FileDeletes | FlushedDeletes, state: CommitState
) -> dict[str, object]:
    """Return the row of a delete file that is new."""
    return {
        "delete_file_id": state.new_file_id(),
        "table_id": table_id,
        "begin_snapshot": deletes.begin_snapshot or state.snapshot_id,
        "end_snapshot": None,
        "data_file_id": data_file_id,
        "path": deletes.path,
        "path_is_relative": not is_absolute(deletes.path),
        "format": deletes.format if isinstance(deletes, FileDeletes) else "parquet",
        "delete_count": deletes.delete_count,
        "file_size_bytes": deletes.file_size_bytes,
        "footer_size": deletes.footer_size,
        "encryption_key": file_facts.key_text(deletes.encryption_key),
        "partial_max": deletes.partial_max,
    }


def schedule(paths: Mapping[int, str], state: CommitState, tables: CatalogTables) -> Effect:
    """Return that files, by their ids, are to be deleted once their snapshots are gone."""
    rows = (
        {
            "data_file_id": file_id,
            "path": path,
            "path_is_relative": not is_absolute(path),
            "schedule_start": state.time,
        }
        for file_id, path in paths.items()
    )
    return insert(tables["files_scheduled_for_deletion"], *rows)
