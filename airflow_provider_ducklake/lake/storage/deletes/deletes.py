"""Delete files: the positions of a data file's deleted rows, with the snapshots that deleted them.

*Source:* what the reference writes and reads (docs/sources.md, deletes). The columns that name rows have the
ids and the nullability that Iceberg's specification gives them. The reference writes other ids, with which
Iceberg finds no column (its issue 378), and reads columns by their place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...errors import InvalidInputError, StorageError, UnsupportedFeatureError
from ...format.names.paths import relative_to
from ...format.snapshots import SnapshotId
from ...transaction.changes import FileDeletes, Positions, PositionsFile, RowPositions, UnwrittenDeletes
from ..files.filesystem import Location, storage_errors
from ..parquet.footer import read_metadata
from ..parquet.modules import check_row_counts
from ..parquet.opening import ParquetOutput, Written, open_parquet

if TYPE_CHECKING:
    from ...format.files import LiveDataFile, LiveDeleteFile


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
    """Write a delete file and return its entry for the catalog.

    ``deleted`` has the columns ``pos`` (int64, ascending, unique) and, if the file is to record the
    snapshot that deleted each row, ``snapshot_id`` (int64).
    """
    zeros = pa.repeat(pa.scalar(0, pa.int32()), deleted.num_rows)
    paths = pa.DictionaryArray.from_arrays(zeros, pa.array([data_file_path], pa.string()))
    schema = _STAMPED_SCHEMA if "snapshot_id" in deleted.column_names else _SCHEMA
    rows = pa.Table.from_arrays([pa.chunked_array([paths]), *deleted.columns], schema=schema)
    with storage_errors(location.uri, "write"):
        output = ParquetOutput(location)
        try:
            with pq.ParquetWriter(output.sink, schema, compression="zstd", store_schema=False) as writer:
                writer.write_table(rows)
            return output.finish()
        except BaseException:
            output.abort()
            raise


def row_count_of(file: LiveDataFile, locate: Callable[[str], Location]) -> int:
    """Count the rows of a data file that can be deleted.

    A vector of a few bytes deletes millions of rows, so that a count of the catalog beyond those is compared
    with the data file's own.
    """
    if file.record_count <= _MOST_UNCHECKED:
        return file.record_count
    metadata, _, _ = read_metadata(locate(file.path).with_key(file.encryption_key))
    return min(file.record_count, int(metadata.num_rows))


_MOST_UNCHECKED = 2**24  # positions of so many rows take 128 MiB


def deleted_rows(location: Location, file_format: str, default_snapshot_id: int, row_count: int) -> pa.Table:
    """Read the columns ``pos`` and ``snapshot_id`` (both int64): deleted rows and the snapshots that did it.

    Positions without an id were deleted by ``default_snapshot_id``. ``row_count`` counts the rows of the data
    file: a delete file that has more is not read.
    """
    match file_format:
        case "parquet":
            positions, stamps = _parquet_deletes(location, row_count)
        case "puffin":
            from .vectors import deletion_vector

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
    with storage_errors(location.uri, "read"), open_parquet(location) as source:
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


# Merge the earlier and the new deletes of a data file: the rows of its next delete file.


_POSITION_BYTES = 8


def positions_of(array: pa.Array) -> Positions:
    """Return int64 positions (ascending, unique, no NULL) as a change has them."""
    values = memoryview(array.buffers()[1] or b"")
    start = array.offset * _POSITION_BYTES
    return Positions(values[start : start + len(array) * _POSITION_BYTES].tobytes())


def read_positions(positions: RowPositions, locate: Callable[[str], Location]) -> pa.ChunkedArray:
    """Return the positions of a change (int64, ascending)."""
    match positions:
        case Positions(data):
            buffers = [None, pa.py_buffer(data)]
            return pa.chunked_array([pa.Array.from_buffers(pa.int64(), positions.count, buffers)])
        case PositionsFile():
            place = locate(positions.path).with_key(positions.encryption_key)
            return deleted_rows(place, "parquet", 0, positions.count)["pos"]


def deleted_before(
    old: LiveDeleteFile | None, marks: Mapping[int, int], row_count: int, locate: Callable[[str], Location]
) -> pa.Table:
    """Return the rows that a data file has lost: ``pos``, unique, and ``snapshot_id`` (both int64).

    ``marks`` are its inlined deletes: positions, with the snapshots that deleted them. ``row_count`` is how
    many rows it has, with those.
    """
    marked = pa.table(
        {"pos": pa.array(marks.keys(), pa.int64()), "snapshot_id": pa.array(marks.values(), pa.int64())}
    )
    if old is None:
        return marked
    place = locate(old.path).with_key(old.encryption_key)
    in_file = deleted_rows(place, old.format, old.begin_snapshot, row_count)
    if not marks:
        return in_file
    first = pa.concat_tables([in_file, marked]).group_by("pos").aggregate([("snapshot_id", "min")])
    return first.select(["pos", "snapshot_id_min"]).rename_columns(["pos", "snapshot_id"])


def joined_deletes(files: Sequence[tuple[Location, str, int, int]]) -> pa.Table | None:
    """Return the rows of delete files that each repeat the one before, in order.

    Each file is (place, format, snapshot, rows of the data file). The rows are ``pos`` (ascending, unique)
    and ``snapshot_id``, the first that deleted it (both int64). None where the last file lacks a row of an
    earlier one.
    """
    parts = [deleted_rows(*file) for file in files]
    first = pa.concat_tables(parts).group_by("pos").aggregate([("snapshot_id", "min")])
    if first.num_rows != parts[-1].num_rows:
        return None
    return first.select(["pos", "snapshot_id_min"]).rename_columns(["pos", "snapshot_id"]).sort_by("pos")


def without(positions: pa.Array, deleted: pa.Table) -> pa.Array:
    """Return those of the positions that are not deleted, in their order."""
    return positions.filter(pc.invert(pc.is_in(positions, value_set=deleted["pos"].combine_chunks())))


def live_positions(
    file: LiveDataFile, marks: Mapping[int, int], places: Collection[int], locate: Callable[[str], Location]
) -> Positions:
    """Check positions of a data file that a user gave; ``marks`` are its inlined deletes."""
    chosen = pa.array(sorted(set(places)), pa.int64())
    outside = chosen.filter(pc.or_(pc.less(chosen, 0), pc.greater_equal(chosen, file.record_count)))
    if len(outside):
        raise InvalidInputError(
            f"Data file {file.path} has the positions 0 to {file.record_count - 1}, not {outside[0]}."
        )
    before = deleted_before(file.delete_file, marks, row_count_of(file, locate), locate)
    twice = chosen.filter(pc.is_in(chosen, value_set=before["pos"].combine_chunks()))
    if len(twice):
        raise InvalidInputError(f"Position {twice[0]} of data file {file.path} is already deleted.")
    return positions_of(chosen)


def write_deletes(
    deletes: UnwrittenDeletes, path: str, snapshot_id: SnapshotId, locate: Callable[[str], Location]
) -> FileDeletes:
    """Write the delete file of a data file for that snapshot."""
    from .vectors import write_vectors

    new = read_positions(deletes.positions, locate)
    rows, begin, newest = pa.table({"pos": new}), None, None
    if deletes.holds_ids:
        before = deleted_before(deletes.old, deletes.marks, deletes.row_count, locate)
        rows = _together(before, new, snapshot_id, deletes.data_file_path)
        begin, newest = (SnapshotId(one.as_py()) for one in pc.min_max(rows["snapshot_id"]).values())
    is_bare = deletes.format == "puffin" and deletes.is_of_one_snapshot
    if is_bare:
        rows, newest = rows.select(["pos"]), None
    write = write_vectors if deletes.format == "puffin" else write_delete_file
    written = write(locate(path), deletes.data_file_path, rows)
    return FileDeletes(
        deletes.data_file_id,
        relative_to(path, deletes.root).path or "",
        delete_count=rows.num_rows,
        file_size_bytes=written.file_size_bytes,
        footer_size=written.footer_size,
        encryption_key=written.encryption_key,
        replaces=deletes.replaces,
        begin_snapshot=begin,
        stamped_for=snapshot_id if deletes.holds_ids and not is_bare and len(new) else None,
        partial_max=newest,
        format=deletes.format,
    )


def write_first_deletes(
    location: Location, data_file_path: str, positions: Positions, *, as_vectors: bool
) -> Written:
    """Write the deleted rows of a data file that is registered with them, and say what it is."""
    from .vectors import write_vectors

    buffers = [None, pa.py_buffer(positions.data)]
    rows = pa.table({"pos": pa.Array.from_buffers(pa.int64(), positions.count, buffers)})
    return (write_vectors if as_vectors else write_delete_file)(location, data_file_path, rows)


def _together(before: pa.Table, new: pa.ChunkedArray, snapshot_id: SnapshotId, file: str) -> pa.Table:
    stamps = pa.repeat(pa.scalar(snapshot_id, pa.int64()), len(new))
    rows = pa.concat_tables([before, pa.table({"pos": new, "snapshot_id": stamps})]).sort_by("pos")
    places = rows["pos"].combine_chunks()
    repeated = places.slice(1).filter(pc.equal(places.slice(1), places.slice(0, max(len(places) - 1, 0))))
    if len(repeated):
        raise InvalidInputError(f"Position {repeated[0]} of data file {file} is already deleted.")
    return rows
