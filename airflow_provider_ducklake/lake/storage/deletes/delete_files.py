"""Delete files: the positions of a data file's deleted rows, with the snapshots that deleted them.

*Source:* what the reference writes and reads (docs/sources.md, deletes). The columns that name rows have the
ids and the nullability that Iceberg's specification gives them. The reference writes other ids, by which
Iceberg finds no column (its issue 378), and reads columns by their place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_ducklake.lake.errors import StorageError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.storage.deletes.deletion_vectors import deletion_vector
from airflow_provider_ducklake.lake.storage.files.filesystem import naming_errors
from airflow_provider_ducklake.lake.storage.parquet.footer import read_metadata
from airflow_provider_ducklake.lake.storage.parquet.footer_end import check_row_counts
from airflow_provider_ducklake.lake.storage.parquet.opening import ParquetOutput, Written, open_parquet

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_ducklake.lake.spec.files import LiveDataFile
    from airflow_provider_ducklake.lake.storage.files.filesystem import Location

_SNAPSHOT_ID = "_ducklake_internal_snapshot_id"


def _field(name: str, type_: pa.DataType, field_id: int) -> pa.Field:
    metadata = {b"PARQUET:field_id": str(field_id).encode()}
    return pa.field(name, type_, nullable=False, metadata=metadata)


_SCHEMA = pa.schema(
    [
        _field("file_path", pa.dictionary(pa.int32(), pa.string()), 2147483546),  # in Parquet a plain string
        _field("pos", pa.int64(), 2147483545),
    ]
)
_STAMPED_SCHEMA = _SCHEMA.append(_field(_SNAPSHOT_ID, pa.int64(), 2147483539))


def write_delete_file(location: Location, data_file_path: str, deleted: pa.Table) -> Written:
    """Write a delete file and return what the catalog is to know of it.

    ``deleted`` has the columns ``pos`` (int64, ascending, unique) and, where the file is to say which
    snapshot deleted each row, ``snapshot_id`` (int64).

    Raises:
        StorageError: it cannot be written.
    """
    zeros = pa.repeat(pa.scalar(0, pa.int32()), deleted.num_rows)
    paths = pa.DictionaryArray.from_arrays(zeros, pa.array([data_file_path], pa.string()))
    schema = _STAMPED_SCHEMA if "snapshot_id" in deleted.column_names else _SCHEMA
    rows = pa.Table.from_arrays([pa.chunked_array([paths]), *deleted.columns], schema=schema)
    with naming_errors(location.uri, "write"):
        output = ParquetOutput(location)
        try:
            with pq.ParquetWriter(output.sink, schema, compression="zstd", store_schema=False) as writer:
                writer.write_table(rows)
            return output.finish()
        except BaseException:
            output.abort()
            raise


def row_count_of(file: LiveDataFile, locate: Callable[[str], Location]) -> int:
    """Return how many rows of a data file there are to delete.

    A vector of a few bytes deletes millions of rows, so that a count of the catalog beyond those is compared
    with the data file's own.

    Raises:
        StorageError: the data file is missing or damaged.
    """
    if file.record_count <= _MOST_UNCHECKED:
        return file.record_count
    metadata, _, _ = read_metadata(locate(file.path).with_key(file.encryption_key))
    return min(file.record_count, int(metadata.num_rows))


_MOST_UNCHECKED = 2**24  # positions of so many rows take 128 MiB


def deleted_rows(location: Location, file_format: str, default_snapshot_id: int, row_count: int) -> pa.Table:
    """Return the columns ``pos`` and ``snapshot_id`` (both int64): what was deleted, and by which snapshot.

    Positions without an id were deleted by ``default_snapshot_id``. ``row_count`` is how many rows the data
    file has: a delete file that has more is not read.

    Raises:
        StorageError: it is missing or damaged.
        UnsupportedFeatureError: another format than Parquet or Iceberg's deletion vectors.
    """
    match file_format:
        case "parquet":
            positions, stamps = _parquet_deletes(location, row_count)
        case "puffin":
            positions, stamps = deletion_vector(location, row_count)
        case _:
            raise UnsupportedFeatureError(
                f"The delete file {location.uri} has the format {file_format!r}, which this release cannot "
                "read. It reads parquet and puffin."
            )
    default = pa.scalar(default_snapshot_id, pa.int64())
    stamps = pa.repeat(default, len(positions)) if stamps is None else pc.fill_null(stamps, default)
    return pa.table({"pos": positions, "snapshot_id": stamps})


def _parquet_deletes(location: Location, row_count: int) -> tuple[pa.ChunkedArray, pa.ChunkedArray | None]:
    """Return positions and stamps; the column before them repeats the data file's path, and is not read."""
    with naming_errors(location.uri, "read"), open_parquet(location) as source:
        file = pq.ParquetFile(source)
        names = file.schema_arrow.names
        if len(names) < 2 or not pa.types.is_integer(file.schema_arrow.types[1]):  # noqa: PLR2004 - path, position
            raise StorageError(f"{location.uri} is not a delete file: its columns are {names}.")
        check_row_counts(file.metadata, location.uri, row_count)
        rows = file.read(columns=[names[1], *([_SNAPSHOT_ID] if _SNAPSHOT_ID in names else [])])
        positions = rows.column(names[1]).cast(pa.int64())
        if positions.null_count:
            raise StorageError(f"{location.uri} is damaged: a deleted row has no position.")
        stamps = rows.column(_SNAPSHOT_ID).cast(pa.int64()) if _SNAPSHOT_ID in rows.column_names else None
    return positions, stamps
