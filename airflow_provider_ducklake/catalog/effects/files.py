"""Statements of appended data files and of the statistics they widen. *Source:* dossier §4.1, §13 G1, G2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, column, table, update

from airflow_provider_ducklake.catalog.effects.effect import Effect, close, insert
from airflow_provider_ducklake.errors import InvalidPartitionError
from airflow_provider_ducklake.spec.files import DataFile
from airflow_provider_ducklake.spec.ids import ColumnId, DataFileId, TableId
from airflow_provider_ducklake.spec.paths import is_absolute
from airflow_provider_ducklake.spec.stats import TableColumnStats, TableStats, merge_files
from airflow_provider_ducklake.transaction.changes_made import ChangeKind, ChangeRecord

if TYPE_CHECKING:
    from airflow_provider_ducklake.catalog.tables import CatalogTables
    from airflow_provider_ducklake.spec.types import DuckLakeType
    from airflow_provider_ducklake.transaction.changes import AppendFiles, EndFiles, Truncate
    from airflow_provider_ducklake.transaction.commit_state import CommitState


def append_files(change: AppendFiles, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the rows of new data files, with row ids and file ids from the snapshot being built."""
    table_id = state.table_id(change.table)
    before = state.known.tables.get(table_id)
    files = list(zip(_file_ids(change, state), change.files, strict=True))
    yield insert(tables["data_file"], *_file_rows(change, files, table_id, state, before or TableStats()))
    if stats := list(_stats_rows(files, table_id)):
        yield insert(tables["file_column_stats"], *stats)
    if values := list(_partition_rows(change, files, table_id)):
        yield insert(tables["file_partition_value"], *values)
    yield _table_stats(change, table_id, before, tables)
    if before is None:
        yield from _first_column_stats(change, table_id, tables)
    else:
        yield from _widened_column_stats(change, table_id, state, tables)
    state.note_rows(table_id, (before or TableStats()).next_row_id, change.record_count)
    state.record(ChangeRecord(ChangeKind.INSERTED_INTO_TABLE, table_id))


def end_files(change: EndFiles, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the end of data files; their delete files stay as they are, as the reference leaves them."""
    file = tables["data_file"]
    yield close(file, state, file.c.table_id == change.table_id, file.c.data_file_id.in_(change.file_ids))
    state.record(ChangeRecord(ChangeKind.DELETED_FROM_TABLE, change.table_id))


def truncate(change: Truncate, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the end of all data files of a table, and of its rows in the catalog."""
    file = tables["data_file"]
    yield close(file, state, file.c.table_id == change.table_id)
    state.record(ChangeRecord(ChangeKind.DELETED_FROM_TABLE, change.table_id))
    for name in state.known.live_inlined.get(change.table_id, ()):
        rows = table(name, column("end_snapshot"), schema=tables.metadata_schema)
        yield Effect(update(rows).where(rows.c.end_snapshot.is_(None)).values(end_snapshot=state.snapshot_id))
        state.record(ChangeRecord(ChangeKind.INLINED_DELETE, change.table_id))


def _file_ids(change: AppendFiles, state: CommitState) -> list[DataFileId]:
    return [state.new_file_id() for _ in change.files]


_Files = Sequence[tuple[DataFileId, DataFile]]


def _file_rows(
    change: AppendFiles, files: _Files, table_id: TableId, state: CommitState, before: TableStats
) -> list[dict[str, Any]]:
    partition_id = (
        change.partition_id if change.partition_id is not None else state.new_partition_id(table_id)
    )
    starts = accumulate((file.record_count for file in change.files), initial=before.next_row_id)
    return [
        {
            "data_file_id": file_id,
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
            "row_id_start": row_id_start,
            "partition_id": partition_id,
            "encryption_key": None,
            "mapping_id": None,
            "partial_max": None,
        }
        for (file_id, file), row_id_start in zip(files, starts, strict=False)
    ]


def _stats_rows(files: _Files, table_id: TableId) -> Iterator[dict[str, Any]]:
    for file_id, file in files:
        for column_id, stats in sorted(file.column_stats.items()):
            yield {
                "data_file_id": file_id,
                "table_id": table_id,
                "column_id": column_id,
                "column_size_bytes": stats.column_size_bytes,
                "value_count": stats.value_count,
                "null_count": stats.null_count,
                "min_value": stats.min_value,
                "max_value": stats.max_value,
                "contains_nan": stats.contains_nan,
                "extra_stats": stats.extra_stats,
            }


def _partition_rows(change: AppendFiles, files: _Files, table_id: TableId) -> Iterator[dict[str, Any]]:
    for file_id, file in files:
        for index, value in enumerate(file.partition_values):
            if value is not None and "\0" in value:
                raise InvalidPartitionError(
                    f"The partition value {value!r} of {change.name} holds a NUL character, which a catalog "
                    "cannot store. Leave it out of the rows, or partition by another column."
                )
            yield {
                "data_file_id": file_id,
                "table_id": table_id,
                "partition_key_index": index,
                "partition_value": value,
            }


def _table_stats(
    change: AppendFiles, table_id: TableId, before: TableStats | None, tables: CatalogTables
) -> Effect:
    after = (before or TableStats()).add(
        change.record_count, sum(file.file_size_bytes for file in change.files)
    )
    values = {
        "record_count": after.record_count,
        "next_row_id": after.next_row_id,
        "file_size_bytes": after.file_size_bytes,
    }
    table = tables["table_stats"]
    if before is None:
        return insert(table, {"table_id": table_id, **values})
    return Effect(table.update().where(table.c.table_id == table_id).values(**values))


def _bounds(stats: TableColumnStats) -> dict[str, Any]:
    return {
        "contains_null": stats.contains_null,
        "contains_nan": stats.contains_nan,
        "min_value": stats.min_value,
        "max_value": stats.max_value,
    }


def _first_column_stats(change: AppendFiles, table_id: TableId, tables: CatalogTables) -> Iterator[Effect]:
    incoming = merge_files((file.column_stats for file in change.files), change.schema.leaf_types())
    rows = [
        {"table_id": table_id, "column_id": column_id, **_bounds(stats), "extra_stats": None}
        for column_id, stats in incoming.items()
        if stats is not None
    ]
    if rows:
        yield insert(tables["table_column_stats"], *rows)


def _widened_column_stats(
    change: AppendFiles, table_id: TableId, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    """Widen the rows that exist, drop those that would claim too much; a missing row is never made again."""
    types = change.schema.leaf_types()
    incoming = merge_files((file.column_stats for file in change.files), types)
    widened: list[dict[str, Any]] = []
    unknown: list[ColumnId] = []
    for column_id, existing in state.known.columns.get(table_id, {}).items():
        addition = incoming.get(column_id)
        if column_id not in types:
            continue
        is_known = not _bounds_are_nan(existing, types[column_id]) and not _existing_is_unknown(
            existing, table_id, state
        )
        if addition is None or not is_known:
            unknown.append(column_id)
        elif (merged := existing.merge(addition, types[column_id])) != existing:
            widened.append({"of_column": column_id, **_bounds(merged)})
    table = tables["table_column_stats"]
    if widened:
        where = (table.c.table_id == table_id, table.c.column_id == bindparam("of_column"))
        yield Effect(table.update().where(*where), widened)
    if unknown:
        yield Effect(table.delete().where(table.c.table_id == table_id, table.c.column_id.in_(unknown)))


def _existing_is_unknown(existing: TableColumnStats, table_id: TableId, state: CommitState) -> bool:
    missing = (existing.min_value is None) + (existing.max_value is None)
    return missing == 1 or (missing > 1 and (table_id, existing.column_id) in state.known.unbounded)


def _bounds_are_nan(existing: TableColumnStats, type_: DuckLakeType) -> bool:
    """Whether NaN is taken for a bound, as the reference does with inlined rows."""
    return str(type_) in ("float32", "float64") and "nan" in (existing.min_value, existing.max_value)
