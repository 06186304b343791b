"""The values of a Parquet file in Arrow: as DuckDB reads them, and as many as there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_provider_ducklake.lake.storage.files.filesystem import Location

# rows that are decoded at once where more of them are more than Arrow's nested types hold: 2 GiB of text
_BATCHES = (8_192, 256, 16, 1)
_BATCH_ROWS = 65_536
_TOO_MANY = (pa.ArrowNotImplementedError, pa.ArrowCapacityError)


def parquet_file(source: pa.NativeFile, location: Location) -> pq.ParquetFile:
    """Return a file to read values of; an INT96 is microseconds, since no other unit holds the year 9999."""
    return pq.ParquetFile(source, pre_buffer=not location.is_local, coerce_int96_timestamp_unit="us")


def read_columns(
    source: pq.ParquetFile, columns: Sequence[str], row_groups: Sequence[int], *, use_threads: bool
) -> pa.Table:
    """Return columns of some row groups, in batches where they hold more than Arrow decodes at once."""
    try:
        return source.read_row_groups(row_groups, columns=columns, use_threads=use_threads)
    except _TOO_MANY:
        return _in_batches(source, columns, row_groups, use_threads=use_threads)


def _in_batches(
    source: pq.ParquetFile, columns: Sequence[str], row_groups: Sequence[int], *, use_threads: bool
) -> pa.Table:
    for size in _BATCHES:
        try:
            batches = source.iter_batches(size, row_groups, columns, use_threads=use_threads)
            return pa.Table.from_batches(batches)
        except _TOO_MANY:
            if size == 1:
                raise
    raise AssertionError(_BATCHES)


def batches(source: pq.ParquetFile, columns: Sequence[str], row_group: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a row group in batches, smaller ones if they hold more than Arrow decodes."""
    done = 0
    for size in (_BATCH_ROWS, *_BATCHES):
        seen = 0
        try:
            for batch in source.iter_batches(size, [row_group], columns):
                seen += batch.num_rows
                if seen > done:  # each size is a multiple of the next
                    done = seen
                    yield batch
        except _TOO_MANY:
            if size == 1:
                raise
        else:
            return


def limit_of(error: Exception) -> str | None:
    """Return the way out where an error says no damage of a file but a limit of those who read it."""
    if isinstance(error, MemoryError):
        return "The machine has too little memory for it: read fewer columns, or with Spark."
    is_overflow = isinstance(error, pa.ArrowInvalid) and "overflow" in str(error)
    if isinstance(error, _TOO_MANY) or is_overflow:
        return "That is a limit of pyarrow, and no damage: read it with DuckDB, or without that column."
    return None
