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

from airflow_provider_ducklake.errors import StorageError
from airflow_provider_ducklake.storage.deletes.puffin import MAGIC, container_of, footer_bytes, vectors_of
from airflow_provider_ducklake.storage.deletes.roaring import bitmap_of, positions
from airflow_provider_ducklake.storage.files.filesystem import naming_errors, open_input
from airflow_provider_ducklake.storage.files.output_file import OutputFile
from airflow_provider_ducklake.storage.parquet.opening import Written

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_ducklake.storage.files.filesystem import Location

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


def deletion_vector(location: Location) -> tuple[pa.ChunkedArray, pa.ChunkedArray | None]:
    """Return the positions (int64, unique) of a file, and the snapshot that deleted each, where it says so.

    Raises:
        StorageError: it is missing or damaged.
    """
    with naming_errors(location.uri, "read"), open_input(location) as source:
        data = source.read()
    if not data.startswith(MAGIC):
        return _positions(data, location.uri), None
    try:
        vectors = vectors_of(data)
    except ValueError as error:
        raise _damaged(location.uri, str(error)) from error
    parts = [_positions(data[one.offset : one.offset + one.length], location.uri) for one in vectors]
    stamps = [one.snapshot_id for one in vectors]
    rows = pa.table(
        {
            "pos": pa.chunked_array([chunk for part in parts for chunk in part.chunks], pa.int64()),
            "by": pa.chunked_array(
                [
                    pa.repeat(pa.scalar(stamp, pa.int64()), len(part))
                    for stamp, part in zip(stamps, parts, strict=True)
                ],
                pa.int64(),
            ),
        }
    )
    first = rows.group_by("pos").aggregate([("by", "min")]).sort_by("pos")
    return first["pos"], None if None in stamps else first["by_min"]


def referenced_vectors(location: Location) -> dict[str, pa.Array]:
    """Return the positions (int64, unique) of each data file that a container of Iceberg's has a vector of.

    Raises:
        StorageError: it is missing or damaged, or a vector does not say whose it is.
    """
    with naming_errors(location.uri, "read"), open_input(location) as source:
        data = source.read()
    try:
        vectors = vectors_of(data)
    except ValueError as error:
        raise _damaged(location.uri, str(error)) from error
    found: dict[str, pa.Array] = {}
    for one in vectors:
        if one.data_file is None or one.data_file in found:
            raise _damaged(location.uri, "a vector does not say its data file, or two are of the same one")
        blob = data[one.offset : one.offset + one.length]
        found[one.data_file] = _positions(blob, location.uri).combine_chunks()
    return found


def _positions(blob: bytes, where: str) -> pa.ChunkedArray:
    body = blob[_WORD.size : -_WORD.size]
    is_whole = len(blob) > 2 * _WORD.size + len(_VECTOR_MAGIC) and _WORD.unpack_from(blob)[0] == len(body)
    if (
        not is_whole
        or not body.startswith(_VECTOR_MAGIC)
        or _WORD.unpack(blob[-_WORD.size :])[0] != zlib.crc32(body)
    ):
        raise _damaged(where, "it is not a deletion vector, is truncated or has a wrong checksum")
    try:
        return positions(body[len(_VECTOR_MAGIC) :])
    except ValueError as error:
        raise _damaged(where, f"its bitmap cannot be read ({error})") from error


def _damaged(where: str, problem: str) -> StorageError:
    return StorageError(
        f"{where} is damaged: {problem}. Restore the file from a backup; lake.verify() lists all that is "
        "damaged."
    )
