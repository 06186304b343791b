"""Which rows of data files an Iceberg snapshot has deleted: position delete files, and deletion vectors.

*Source:* Iceberg's specification, "Row-level deletes" and "Deletion vectors"; the Puffin specification. A
vector has all positions that older ones of its data file had, so that one that was replaced and still lies in
a container adds nothing.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.lake.storage.deletes.deletion_vectors import referenced_vectors
from airflow_provider_ducklake.lake.storage.deletes.merged_deletes import positions_of
from airflow_provider_ducklake.lake.storage.files.filesystem import naming_errors
from airflow_provider_ducklake.lake.storage.files.parallel import in_threads
from airflow_provider_ducklake.lake.storage.parquet.footer_end import check_row_counts
from airflow_provider_ducklake.lake.storage.parquet.opening import open_plain_parquet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from airflow_provider_ducklake.lake.storage.files.filesystem import Location
    from airflow_provider_ducklake.lake.transaction.changes import Positions

_PATH, _POSITION = "file_path", "pos"


@dataclass(frozen=True, slots=True)
class IcebergDeletes:
    """A file of deletes, by its path as the lake spells it, and the sequence number that it came with."""

    path: str
    is_vectors: bool
    sequence_number: int


def deleted_rows_of(
    deletes: Iterable[IcebergDeletes],
    sequence_numbers: Mapping[str, int],
    row_counts: Mapping[str, int],
    locate: Callable[[str], Location],
) -> dict[str, Positions]:
    """Return the deleted rows of data files, by the path that the metadata has for these.

    ``sequence_numbers`` are those of the data files: only deletes that came with them or later count.
    ``row_counts`` are how many rows they have, deleted ones included.

    Raises:
        StorageError: a file is missing or damaged.
    """
    found: defaultdict[str, list[pa.Array]] = defaultdict(list)
    files = list(deletes)
    for one, rows in zip(files, in_threads(lambda one: _rows(one, row_counts, locate), files), strict=True):
        for path, positions in rows.items():
            if path in sequence_numbers and one.sequence_number >= sequence_numbers[path]:
                found[path].append(positions)
    return {path: positions_of(_joined(parts)) for path, parts in found.items()}


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    return pc.unique(pa.concat_arrays(parts)).sort()


def _rows(
    one: IcebergDeletes, row_counts: Mapping[str, int], locate: Callable[[str], Location]
) -> Mapping[str, pa.Array]:
    place = locate(one.path)
    return referenced_vectors(place, row_counts) if one.is_vectors else _positions(place)


def _positions(place: Location) -> dict[str, pa.Array]:
    with naming_errors(place.uri, "read"), open_plain_parquet(place) as source:
        file = pq.ParquetFile(source, read_dictionary=[_PATH])
        if not {_PATH, _POSITION} <= set(file.schema_arrow.names):
            raise StorageError(
                f"{place.uri} is not a position delete file: its columns are {file.schema_arrow.names}."
            )
        check_row_counts(file.metadata, place.uri)
        rows = file.read(columns=[_PATH, _POSITION])
        if rows[_PATH].null_count or rows[_POSITION].null_count:
            raise StorageError(f"{place.uri} is damaged: a deleted row has no file or no position.")
        places = rows[_POSITION].cast(pa.int64())
        paths = rows[_PATH].cast(pa.dictionary(pa.int32(), pa.string()))
        rows = pa.table({_PATH: paths, _POSITION: places}).unify_dictionaries()
    parts: defaultdict[str, list[pa.Array]] = defaultdict(list)
    for batch in rows.to_batches():
        for path, positions in _by_path(batch.column(_PATH), batch.column(_POSITION)):
            parts[path].append(positions)
    return {path: pa.concat_arrays(chunks) for path, chunks in parts.items()}


def _by_path(paths: pa.DictionaryArray, positions: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield the positions of each path; one sort finds them all, however many paths there are."""
    order = pc.sort_indices(paths.indices)
    positions, start = positions.take(order), 0
    for code, count in zip(*pc.value_counts(paths.indices.take(order)).flatten(), strict=True):
        yield paths.dictionary[code.as_py()].as_py(), positions.slice(start, count.as_py())
        start += count.as_py()
