"""Statements of appended data files and of the statistics they widen.

*Source:* dossier §4.1, §12, §13 G1, G2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow_provider_ducklake.catalog.dialects.effect import Effect, insert
from airflow_provider_ducklake.catalog.effects.statistics import add_to_stats
from airflow_provider_ducklake.spec.files import DataFile, NameMapping
from airflow_provider_ducklake.spec.ids import DataFileId, MappingId, TableId
from airflow_provider_ducklake.spec.names.paths import is_absolute
from airflow_provider_ducklake.spec.partitioning import check_partition_values
from airflow_provider_ducklake.spec.stats import TableStats, merge_files
from airflow_provider_ducklake.transaction.changes_made import ChangeKind, ChangeRecord

if TYPE_CHECKING:
    from airflow_provider_ducklake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.transaction.changes import AppendFiles
    from airflow_provider_ducklake.transaction.commit_state import CommitState


def append_files(change: AppendFiles, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the rows of new data files, with row ids and file ids from the snapshot being built."""
    table_id = state.table_id(change.table)
    before = state.stats(table_id) or TableStats()
    files, mappings = [], {}
    for file in change.files:
        mapping_id, effects = map_file(file, table_id, state, tables)
        yield from effects
        if mapping_id is not None:
            mappings[file.path] = mapping_id
        files.append((state.new_file_id(), file))
    yield insert(tables["data_file"], *_file_rows(change, files, mappings, state, before))
    if stats := list(stats_rows(files, table_id)):
        yield insert(tables["file_column_stats"], *stats)
    if values := list(partition_rows(files, table_id, str(change.name))):
        yield insert(tables["file_partition_value"], *values)
    incoming = merge_files((file.column_stats for file in change.files), change.schema.leaf_types())
    size = sum(file.file_size_bytes for file in change.files)
    yield from add_to_stats(table_id, change.schema, change.record_count, size, incoming, state, tables)
    state.note_rows(table_id, before.next_row_id, change.record_count)
    state.record(ChangeRecord(ChangeKind.INSERTED_INTO_TABLE, table_id))


def map_file(
    file: DataFile, table_id: TableId, state: CommitState, tables: CatalogTables
) -> tuple[MappingId | None, list[Effect]]:
    """Return the id of a file's name mapping, None where it has none, and the rows of one that is new."""
    if file.mapping is None:
        return None, []
    mapping_id, is_new = state.mapping_id(table_id, file.mapping)
    return mapping_id, list(_mapping(mapping_id, file.mapping, table_id, tables)) if is_new else []


def _mapping(
    mapping_id: MappingId, mapping: NameMapping, table_id: TableId, tables: CatalogTables
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


Files: TypeAlias = Sequence[tuple[DataFileId, DataFile]]


def _file_rows(
    change: AppendFiles,
    files: Files,
    mappings: Mapping[str, MappingId],
    state: CommitState,
    before: TableStats,
) -> list[dict[str, Any]]:
    table_id = state.table_id(change.table)
    partition_id = (
        change.partition_id if change.partition_id is not None else state.new_partition_id(table_id)
    )
    starts = accumulate((file.record_count for file in change.files), initial=before.next_row_id)
    return [
        {
            **file_row(file_id, file, table_id),
            "begin_snapshot": state.snapshot_id,
            # DuckDB's merge takes the catalog's word for consecutive ids, and loses those in the files
            "row_id_start": None if file.has_row_ids else row_id_start,
            "partition_id": partition_id,
            "mapping_id": mappings.get(file.path),
            "partial_max": None,
        }
        for (file_id, file), row_id_start in zip(files, starts, strict=False)
    ]


def file_row(file_id: DataFileId, file: DataFile, table_id: TableId) -> dict[str, Any]:
    """Return what a new file's row says of the file itself; whose rows it has is said by others."""
    return {
        "data_file_id": file_id,
        "table_id": table_id,
        "end_snapshot": None,
        "file_order": None,
        "path": file.path,
        "path_is_relative": not is_absolute(file.path),
        "file_format": "parquet",
        "record_count": file.record_count,
        "file_size_bytes": file.file_size_bytes,
        "footer_size": file.footer_size,
        "encryption_key": None,
    }


def stats_rows(files: Files, table_id: TableId) -> Iterator[dict[str, Any]]:
    """Yield the statistics of new files."""
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


def partition_rows(files: Files, table_id: TableId, table: str) -> Iterator[dict[str, Any]]:
    """Yield the partition values of new files; ``table`` is for the message of one that cannot be stored."""
    for file_id, file in files:
        check_partition_values(file.partition_values, table)
        for index, value in enumerate(file.partition_values):
            yield {
                "data_file_id": file_id,
                "table_id": table_id,
                "partition_key_index": index,
                "partition_value": value,
            }
