"""What the footer of a file that shreds its variants says of the paths in them.

Of a path something is known where no value in the file lies there in one piece, nor around it. A variant
that is null may: it counts as NULL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider_ducklake.lake.spec.files import PathStats
from airflow_provider_ducklake.lake.spec.names.identifiers import quote
from airflow_provider_ducklake.lake.spec.schema import Column
from airflow_provider_ducklake.lake.spec.snapshots import ColumnId
from airflow_provider_ducklake.lake.spec.types.ducklake_types import catalog_name
from airflow_provider_ducklake.lake.spec.types.variant_bytes import NULL
from airflow_provider_ducklake.lake.storage.parquet.arrow_types import ducklake_type
from airflow_provider_ducklake.lake.storage.parquet.reshape import is_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow.parquet as pq

    from airflow_provider_ducklake.lake.spec.files import ColumnStats

    StatsOf = Callable[[Column, int, pa.DataType], ColumnStats]

_ROOT = "root"
_ONLY = ColumnId(0)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A Parquet column of a group: a value of a type at a path; ``type`` None: values in one piece."""

    path: tuple[str, ...]
    type: pa.DataType | None


def _leaves(group: pa.StructType, path: tuple[str, ...]) -> Iterator[_Leaf]:
    """Yield what each Parquet column of a group is, in their order."""
    for field in group:
        if field.name != "typed_value":
            yield _Leaf(path if field.name == "value" else (_METADATA,), None)
        elif pa.types.is_struct(field.type):
            for child in field.type:
                yield from _leaves(child.type, (*path, quote(child.name)))
        elif is_list(field.type):
            yield from _leaves(field.type.value_type, (*path, "element"))
        else:
            yield _Leaf(path, field.type)


_METADATA = "\0metadata"


def path_stats(
    metadata: pq.FileMetaData, group: pa.DataType, columns: Sequence[int], stats_of: StatsOf
) -> tuple[PathStats, ...]:
    """Return what is known of the paths in the variants of a group, whose Parquet columns are given.

    ``stats_of`` merges what all row groups say of one of them, read as a column.
    """
    if not pa.types.is_struct(group) or "typed_value" not in [field.name for field in group]:
        return ()
    leaves = list(zip(_leaves(group, ()), columns, strict=True))
    whole = {
        leaf.path
        for leaf, column in leaves
        if leaf.type is None and leaf.path != (_METADATA,) and not _is_empty(metadata, column)
    }
    told = (
        _of_path(leaf, stats_of(_column(leaf), column, leaf.type), _slots(metadata, column))
        for leaf, column in leaves
        if leaf.type is not None and not any(leaf.path[: len(one)] == one for one in whole)
    )
    return tuple(one for one in told if one is not None)


def _column(leaf: _Leaf) -> Column:
    assert leaf.type is not None
    return Column(_ONLY, _text(leaf.path), ducklake_type(leaf.type, _text(leaf.path)))


def _text(path: tuple[str, ...]) -> str:
    return ".".join(path) or _ROOT


def _slots(metadata: pq.FileMetaData, column: int) -> int:
    return sum(
        metadata.row_group(group).column(column).num_values for group in range(metadata.num_row_groups)
    )


def _is_empty(metadata: pq.FileMetaData, column: int) -> bool:
    """Whether a Parquet column of values in one piece has none but nulls."""
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(column)
        statistics = chunk.statistics if chunk.is_stats_set else None
        if statistics is None or not statistics.has_null_count:
            return False
        if statistics.null_count == chunk.num_values:
            continue
        if not statistics.has_min_max or not statistics.min_raw == statistics.max_raw == NULL:
            return False
    return True


def _of_path(leaf: _Leaf, stats: ColumnStats, slots: int) -> PathStats | None:
    """Return what is known of a path; None: the footer does not even count its values."""
    values = stats.value_count
    if values is None:
        return None
    return PathStats(
        _text(leaf.path),
        catalog_name(_column(leaf).type),
        slots,
        slots - values,
        stats.column_size_bytes or 0,
        stats.min_value,
        stats.max_value,
        stats.contains_nan,
    )
