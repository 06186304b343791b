"""Deletion vectors: the deleted positions of a data file as one bitmap, or as one for each snapshot.

A vector is a ``deletion-vector-v1`` blob of Iceberg's: length (4 bytes, big-endian) of magic and payload,
magic, payload, CRC-32 of magic and payload (4 bytes, big-endian). The payload is a 64-bit Roaring bitmap in
the portable layout. The file is one bare vector, or since DuckLake 1.1 a Puffin container of several; its
first bytes tell. *Source:* files that the reference writes (docs/sources.md, deletes and deletion vectors);
the Puffin specification.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.lake.storage.deletes.puffin import (
    MAGIC,
    Vector,
    container_of,
    footer_bytes,
    vectors_of,
)
from airflow_provider_ducklake.lake.storage.deletes.roaring import bitmap_of, positions
from airflow_provider_ducklake.lake.storage.files.filesystem import naming_errors, read_whole
from airflow_provider_ducklake.lake.storage.files.output_file import OutputFile
from airflow_provider_ducklake.lake.storage.parquet.opening import Written

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from airflow_provider_ducklake.lake.storage.files.filesystem import Location

_VECTOR_MAGIC = b"\xd1\xd3\x39\x64"
_WORD = struct.Struct(">I")


def vector_of(positions: pa.Array) -> bytes:
    """Return the vector of positions (int64, ascending, unique)."""
    body = _VECTOR_MAGIC + bitmap_of(positions)
    return _WORD.pack(len(body)) + body + _WORD.pack(zlib.crc32(body))


def write_vectors(location: Location, data_file_path: str, deleted: pa.Table) -> Written:
    """Write the deleted rows of a data file and return what the catalog is to know of it.

    ``deleted`` has the column ``pos`` (int64, ascending, unique), and ``snapshot_id`` (int64) where the file
    is to have a vector for each snapshot.

    Raises:
        StorageError: it cannot be written.
    """
    positions = deleted["pos"].combine_chunks()
    if "snapshot_id" not in deleted.column_names:
        content = vector_of(positions)
    else:
        stamps = deleted["snapshot_id"].combine_chunks()
        content = container_of(_cumulative(positions, stamps), data_file_path)
    with naming_errors(location.uri, "write"):
        sink = OutputFile(location)
        try:
            sink.write(content)
            sink.finish()
        except BaseException:
            sink.abort()
            raise
    return Written(len(content), footer_bytes(content), None)  # no client encrypts vectors


def _cumulative(positions: pa.Array, stamps: pa.Array) -> Iterator[tuple[int, int, bytes]]:
    """Yield for each snapshot, oldest first, all that was deleted up to it."""
    for snapshot_id in sorted(pc.unique(stamps).to_pylist()):
        gone = positions.filter(pc.less_equal(stamps, snapshot_id))
        yield snapshot_id, len(gone), vector_of(gone)


def deletion_vector(location: Location, row_count: int) -> tuple[pa.ChunkedArray, pa.ChunkedArray | None]:
    """Return the positions (int64, unique) of a file, and the snapshot that deleted each, where it says so.

    ``row_count`` is how many rows the data file has.

    Raises:
        StorageError: it is missing or damaged, or deletes more rows.
    """
    with naming_errors(location.uri, "read"):
        data = read_whole(location)
        if not data.startswith(MAGIC):
            return _positions(data, location.uri, row_count), None
        vectors = _vectors(data, location.uri)
        rows = _first_of_each(vectors, data, location.uri, row_count)
    return rows["pos"], None if None in {one.snapshot_id for one in vectors} else rows["by"]


def _vectors(data: bytes, where: str) -> list[Vector]:
    try:
        return vectors_of(data)
    except ValueError as error:
        raise _damaged(where, str(error)) from error


def _first_of_each(vectors: Iterable[Vector], data: bytes, where: str, row_count: int) -> pa.Table:
    """Return the positions (``pos``) in the vectors, and the snapshot (``by``) of the first that has each.

    Each vector repeats those before it, so that only one is held beside what was found.
    """
    found, stamps = pa.array([], pa.int64()), pa.array([], pa.int64())
    for one in vectors:
        part = _positions_of(one, data, where, row_count)
        new = part.filter(pc.invert(pc.is_in(part, value_set=found)))
        found = pa.concat_arrays([found, new])
        stamps = pa.concat_arrays([stamps, pa.repeat(pa.scalar(one.snapshot_id, pa.int64()), len(new))])
        if len(found) > row_count:
            raise _damaged(where, f"its vectors delete more than the {row_count} rows of the data file")
    return pa.table({"pos": found, "by": stamps}).sort_by("pos")


def referenced_vectors(location: Location, row_counts: Mapping[str, int]) -> dict[str, pa.Array]:
    """Return the positions (int64, unique) of those data files that a container of Iceberg's has a vector of.

    ``row_counts`` are how many rows each data file has, by the path that the metadata has for it; vectors of
    others are not read.

    Raises:
        StorageError: it is missing or damaged, a vector does not say whose it is, or deletes more rows.
    """
    with naming_errors(location.uri, "read"):
        data = read_whole(location)
        vectors = _vectors(data, location.uri)
        by_file = {one.data_file: one for one in vectors if one.data_file is not None}
        if len(by_file) < len(vectors):
            raise _damaged(location.uri, "a vector does not say its data file, or two are of the same one")
        return {
            path: _positions_of(one, data, location.uri, row_counts[path])
            for path, one in by_file.items()
            if path in row_counts
        }


def _positions_of(one: Vector, data: bytes, where: str, row_count: int) -> pa.Array:
    return _positions(data[one.offset : one.offset + one.length], where, row_count).combine_chunks()


def _positions(blob: bytes, where: str, row_count: int) -> pa.ChunkedArray:
    body = blob[_WORD.size : -_WORD.size]
    is_whole = len(blob) > 2 * _WORD.size + len(_VECTOR_MAGIC) and _WORD.unpack_from(blob)[0] == len(body)
    if (
        not is_whole
        or not body.startswith(_VECTOR_MAGIC)
        or _WORD.unpack(blob[-_WORD.size :])[0] != zlib.crc32(body)
    ):
        raise _damaged(where, "it is not a deletion vector, is truncated or has a wrong checksum")
    try:
        return positions(body[len(_VECTOR_MAGIC) :], row_count)
    except ValueError as error:
        raise _damaged(where, f"its bitmap cannot be read ({error})") from error


def _damaged(where: str, problem: str) -> StorageError:
    return StorageError(
        f"{where} is damaged: {problem}. Restore the file from a backup; lake.verify() lists all that is "
        "damaged."
    )
