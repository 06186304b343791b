"""Delete files of a job: tasks write one for each data file, straight to its final name.

As with data files, what successful attempts report is what counts.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ...format.snapshots import DataFileId
from ...planning.writing.write import NewDeletes
from ...storage.deletes.deletes import write_delete_file
from ...storage.files.filesystem import open_filesystem
from ...storage.files.parallel import in_threads
from ..job.codec import decode, encode
from ..sessions.kind import BatchFunction, kind_of, map_in_arrow

FILE_ID, POSITION = "file_id", "position"
_RESULT = t.StructType([t.StructField("file", t.StringType(), nullable=False)])
_ARROW_RESULT = pa.schema([pa.field("file", pa.string(), nullable=False)])
_TASKS_PER_CORE = 2
_FEW_ROWS = 2**20  # 16 MiB of places


@dataclass(frozen=True, slots=True)
class DeleteFolder:
    """Where delete files go: a directory, ending in ``/``, and how long their keys are; 0: there are none."""

    directory: str
    key_bytes: int = 0


def write(
    rows: DataFrame, count: int, paths: Mapping[int, str], place: DeleteFolder
) -> tuple[NewDeletes, ...]:
    """Write a delete file for each data file of ``paths``, its path by its id, and return what is in them.

    ``rows``, ``count`` of them, have the columns ``FILE_ID`` and ``POSITION``; a row that comes again is
    written once.
    """
    if count <= _FEW_ROWS:
        return _write_here(rows, paths, place)
    cores = kind_of(rows.sparkSession).cores()
    tasks = max(1, min(len(paths), cores * _TASKS_PER_CORE))
    sorted_rows = (
        rows.select(FILE_ID, POSITION)
        .repartition(tasks, f.col(FILE_ID))
        .sortWithinPartitions(FILE_ID, POSITION)
    )
    written = map_in_arrow(sorted_rows, _task(dict(paths), place), _RESULT).collect()
    return tuple(decode(json.loads(row.file), NewDeletes) for row in written)


def _write_here(rows: DataFrame, paths: Mapping[int, str], place: DeleteFolder) -> tuple[NewDeletes, ...]:
    """Write them in this process: sooner done than tasks have begun."""
    places = rows.select(FILE_ID, POSITION).toArrow()
    in_order = places.sort_by([(FILE_ID, "ascending"), (POSITION, "ascending")])
    files = list(positions_by_file(iter(in_order.to_batches())))
    return tuple(in_threads(lambda one: write_one(one[0], one[1], paths[one[0]], place), files))


def _task(paths: dict[int, str], place: DeleteFolder) -> BatchFunction:
    """Return the function that a task runs; it carries plain values, and the job's zip brings the rest."""
    directory, key_bytes = place.directory, place.key_bytes

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for file_id, positions in positions_by_file(batches):
            deletes = write_one(file_id, positions, paths[file_id], DeleteFolder(directory, key_bytes))
            text = json.dumps(encode(deletes, NewDeletes))
            yield pa.RecordBatch.from_arrays([pa.array([text])], schema=_ARROW_RESULT)

    return run


def positions_by_file(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.ChunkedArray]]:
    """Yield each file's id and positions, of batches that are sorted by the two."""
    current: int | None = None
    chunks: list[pa.Array] = []
    for batch in batches:
        file_ids, positions = batch.columns
        runs = pc.run_end_encode(file_ids)
        start = 0
        for file_id, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            if current is not None and file_id != current:
                yield current, pa.chunked_array(chunks, pa.int64())
                chunks = []
            current = file_id
            chunks.append(positions.slice(start, end - start))
            start = end
    if current is not None:
        yield current, pa.chunked_array(chunks, pa.int64())


def write_one(file_id: int, found: pa.ChunkedArray, data_file_path: str, place: DeleteFolder) -> NewDeletes:
    """Write the delete file of one data file, of positions in their order."""
    path = f"{place.directory}ducklake-{uuid.uuid4()}-delete.parquet"
    positions = found.unique()
    written = write_delete_file(
        open_filesystem(path).of_lake(place.key_bytes), data_file_path, pa.table({"pos": positions})
    )
    return NewDeletes(
        DataFileId(file_id),
        path,
        len(positions),
        written.file_size_bytes,
        written.footer_size,
        written.encryption_key,
    )
