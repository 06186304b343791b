"""Deletion vectors: the deleted positions of a data file as one bitmap.

The file is a bare ``deletion-vector-v1`` blob of Iceberg's, without the Puffin container that its name
promises: length (4 bytes, big-endian) of magic and payload, magic, payload, CRC-32 of magic and payload (4
bytes, big-endian). The payload is a 64-bit Roaring bitmap in the portable layout. *Source:* files that the
reference writes (docs/sources.md, deletes); the Puffin specification.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import StorageError
from airflow_provider_ducklake.storage.deletes.roaring import positions
from airflow_provider_ducklake.storage.files.filesystem import naming_errors, open_input

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ducklake.storage.files.filesystem import Location

_MAGIC = b"\xd1\xd3\x39\x64"
_WORD = struct.Struct(">I")


def deletion_vector(location: Location) -> pa.ChunkedArray:
    """Return the positions (int64, ascending) of a deletion vector.

    Raises:
        StorageError: it is missing or damaged.
    """
    with naming_errors(location.uri, "read"), open_input(location) as source:
        blob = source.read()
    return _positions(blob, location.uri)


def _positions(blob: bytes, where: str) -> pa.ChunkedArray:
    body = blob[_WORD.size : -_WORD.size]
    is_whole = len(blob) > 2 * _WORD.size + len(_MAGIC) and _WORD.unpack_from(blob)[0] == len(body)
    if (
        not is_whole
        or not body.startswith(_MAGIC)
        or _WORD.unpack(blob[-_WORD.size :])[0] != zlib.crc32(body)
    ):
        raise StorageError(
            f"{where} is damaged: it is not a deletion vector, is truncated or has a wrong checksum."
        )
    try:
        return positions(body[len(_MAGIC) :])
    except ValueError as error:
        raise StorageError(f"{where} is damaged: its bitmap cannot be read ({error}).") from error
