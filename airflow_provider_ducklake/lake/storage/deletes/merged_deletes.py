"""Merge the earlier and the new deletes of a data file: the rows of its next delete file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.spec.names.paths import relative_to
from airflow_provider_ducklake.lake.spec.snapshots import SnapshotId
from airflow_provider_ducklake.lake.storage.deletes.delete_files import (
    deleted_rows,
    row_count_of,
    write_delete_file,
)
from airflow_provider_ducklake.lake.storage.deletes.deletion_vectors import write_vectors
from airflow_provider_ducklake.lake.transaction.changes import FileDeletes, Positions, PositionsFile

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from airflow_provider_ducklake.lake.spec.files import LiveDataFile, LiveDeleteFile
    from airflow_provider_ducklake.lake.storage.files.filesystem import Location
    from airflow_provider_ducklake.lake.storage.parquet.opening import Written
    from airflow_provider_ducklake.lake.transaction.changes import RowPositions, UnwrittenDeletes

_POSITION_BYTES = 8


def positions_of(array: pa.Array) -> Positions:
    """Return int64 positions (ascending, unique, no NULL) as a change has them."""
    values = memoryview(array.buffers()[1] or b"")
    start = array.offset * _POSITION_BYTES
    return Positions(values[start : start + len(array) * _POSITION_BYTES].tobytes())


def read_positions(positions: RowPositions, locate: Callable[[str], Location]) -> pa.ChunkedArray:
    """Return the positions of a change (int64, ascending).

    Raises:
        StorageError: the file that they lie in is missing or damaged.
    """
    match positions:
        case Positions(data):
            buffers = [None, pa.py_buffer(data)]
            return pa.chunked_array([pa.Array.from_buffers(pa.int64(), positions.count, buffers)])
        case PositionsFile():
            place = locate(positions.path).with_key(positions.encryption_key)
            return deleted_rows(place, "parquet", 0, positions.count)["pos"]


def deleted_before(
    old: LiveDeleteFile | None,
    marks: Mapping[int, int],
    row_count: int,
    locate: Callable[[str], Location],
) -> pa.Table:
    """Return the rows that a data file has lost: ``pos``, unique, and ``snapshot_id`` (both int64).

    ``marks`` are its inlined deletes: positions, with the snapshots that deleted them. ``row_count`` is how
    many rows it has, with those.

    Raises:
        StorageError: the delete file is missing or damaged.
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

    Raises:
        StorageError: a delete file is missing or damaged.
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
    file: LiveDataFile,
    marks: Mapping[int, int],
    places: Collection[int],
    locate: Callable[[str], Location],
) -> Positions:
    """Return positions of a data file that somebody gave, checked; ``marks`` are its inlined deletes.

    Raises:
        InvalidInputError: the file does not have such a row, or has lost it already.
        StorageError: its delete file is missing or damaged.
    """
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
    """Write a delete file as that snapshot is to have it.

    Raises:
        StorageError: it cannot be written, or what it repeats not be read.
        InvalidInputError: a row was deleted before.
    """
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
    """Write the deleted rows of a data file that is registered with them, and say what it is.

    Raises:
        StorageError: it cannot be written.
    """
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
