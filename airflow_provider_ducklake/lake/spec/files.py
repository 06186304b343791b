"""Data and delete files: as a job wrote them, and as a snapshot holds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_ducklake.lake.spec.encryption import FileKey
    from airflow_provider_ducklake.lake.spec.ids import (
        ColumnId,
        DataFileId,
        DeleteFileId,
        MappingId,
        PartitionId,
        SnapshotId,
    )
    from airflow_provider_ducklake.lake.spec.stats import ColumnStats


@dataclass(frozen=True, slots=True)
class MappedColumn:
    """A column or nested field of a file, by the file's own name, and the table's column that it fills.

    ``parent`` is the place of the enclosing field in the same mapping. With ``is_partition`` the value does
    not lie in the file: it is the one of the folder ``name=value``.
    """

    source_name: str
    column_id: ColumnId
    parent: int | None = None
    is_partition: bool = False


NameMapping: TypeAlias = tuple[MappedColumn, ...]


def same_mapping_key(mapping: NameMapping) -> frozenset[tuple[tuple[str, ...], ColumnId, bool]]:
    """Return what is equal for mappings that say the same; the order of a file's columns says nothing."""
    paths: list[tuple[str, ...]] = []
    for one in mapping:
        above = () if one.parent is None else paths[one.parent]
        paths.append((*above, one.source_name))
    return frozenset(
        (path, one.column_id, one.is_partition) for path, one in zip(paths, mapping, strict=True)
    )


@dataclass(frozen=True, slots=True)
class FirstDeletes:
    """The delete file of a data file that is registered with it: rows that no snapshot of the lake shows.

    ``path`` is absolute, or relative to the table's directory.
    """

    path: str
    delete_count: int
    file_size_bytes: int
    footer_size: int
    format: str = "parquet"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that was written and is not registered yet.

    ``path`` is absolute, or relative to the table's directory. ``footer_size`` is the length word before the
    trailing magic. ``column_stats`` has an entry for each leaf column; ``partition_values`` one text (or None
    for NULL) for each key of the partition spec, in key order. ``mapping`` is that of a file whose columns
    are found by name; without one they are found by field id. ``has_row_ids``: its rows say their row ids, as
    they had them before. ``row_group_count``: None where nobody looked. ``deletes``: rows of it that were
    deleted elsewhere.
    """

    path: str
    record_count: int
    file_size_bytes: int
    footer_size: int | None
    column_stats: Mapping[ColumnId, ColumnStats] = field(default_factory=dict)
    partition_values: tuple[str | None, ...] = ()
    mapping: NameMapping | None = None
    has_row_ids: bool = False
    row_group_count: int | None = None
    encryption_key: FileKey | None = None
    deletes: FirstDeletes | None = None

    @property
    def live_count(self) -> int:
        """How many rows the lake shows of it."""
        return self.record_count - (self.deletes.delete_count if self.deletes else 0)


@dataclass(frozen=True, slots=True)
class LiveDeleteFile:
    """The delete file attached to a data file at a snapshot."""

    id: DeleteFileId
    path: str  # absolute
    format: str
    delete_count: int
    file_size_bytes: int
    begin_snapshot: SnapshotId
    partial_max: SnapshotId | None
    footer_size: int | None = None
    encryption_key: FileKey | None = None


@dataclass(frozen=True, slots=True)
class LiveDataFile:
    """A data file as a snapshot holds it; ``mapping`` is that of ``mapping_id``.

    ``snapshot_counts`` is how catalogs before 0.4 say which rows of a merged file are whose: for each
    snapshot, ascending, the number of rows up to it, in file order. ``older_delete_files`` are others beside
    ``delete_file``, which there should not be: a flush of the reference's makes one of the marks of a file
    that has ended with a delete file of its own (observed on 1.5.5). The rows of all of them are deleted.
    """

    id: DataFileId
    path: str  # absolute
    record_count: int
    file_size_bytes: int
    footer_size: int | None
    row_id_start: int | None
    begin_snapshot: SnapshotId
    partition_id: PartitionId | None = None
    mapping_id: MappingId | None = None
    mapping: NameMapping | None = None
    partial_max: SnapshotId | None = None
    snapshot_counts: tuple[tuple[SnapshotId, int], ...] = ()
    delete_file: LiveDeleteFile | None = None
    older_delete_files: tuple[LiveDeleteFile, ...] = ()
    column_stats: Mapping[ColumnId, ColumnStats] = field(default_factory=dict)
    partition_values: tuple[str | None, ...] = ()
    encryption_key: FileKey | None = None
