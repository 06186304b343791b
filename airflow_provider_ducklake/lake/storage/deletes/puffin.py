"""Puffin containers of deletion vectors: one for each snapshot that deleted rows of a data file.

Each vector has all rows that were deleted up to its snapshot, so a row was deleted by the first that has it.
The bytes are ``PFA1``, the vectors, ``PFA1``, a JSON document, its length and flags (4 bytes each,
little-endian), ``PFA1``.
*Source:* the Puffin specification; docs/sources.md, deletion vectors.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

MAGIC = b"PFA1"
FOOTER_BYTES = 16  # besides the document: its first magic, its length, the flags, and the last magic
_END = struct.Struct("<II4s")
_KIND = "deletion-vector-v1"
_SNAPSHOT = "ducklake-snapshot-id"
_DATA_FILE = "referenced-data-file"


@dataclass(frozen=True, slots=True)
class Vector:
    """Where a vector lies in a container, and the snapshot up to which it counts; None: it does not say.

    ``data_file`` is the path of the data file, where it says one.
    """

    offset: int
    length: int
    snapshot_id: int | None
    data_file: str | None = None


def vectors_of(data: bytes) -> list[Vector]:
    """Return the vectors of a container, by snapshot; those that do not say one, as they stand.

    Raises:
        ValueError: it is damaged, or has something else than deletion vectors.
    """
    start, document = _document(data)
    blobs = document.get("blobs")
    if not isinstance(blobs, list):
        raise ValueError("its footer lists no vectors")  # noqa: TRY004 - of a document
    found = [_vector(blob, start) for blob in blobs]
    places = sorted((one.offset, one.offset + one.length) for one in found)
    if any(next_[0] < one[1] for one, next_ in pairwise(places)):  # or few bytes would be any number of rows
        raise ValueError("its vectors lie in each other")
    stamped = [one.snapshot_id for one in found if one.snapshot_id is not None]
    if stamped and len(stamped) < len(found):
        raise ValueError("only some of its vectors say by which snapshot")
    return sorted(found, key=lambda one: one.snapshot_id or 0)


def container_of(vectors: Iterable[tuple[int, int, bytes]], data_file_path: str) -> bytes:
    """Return the container of vectors, oldest first: each with its snapshot and the number of its rows."""
    content, blobs = MAGIC, []
    for snapshot_id, count, data in vectors:
        properties = {
            _DATA_FILE: data_file_path,
            "cardinality": str(count),
            _SNAPSHOT: str(snapshot_id),
        }
        # fields and ids of Iceberg's, which mean nothing here
        place = {"fields": [], "snapshot-id": -1, "sequence-number": -1, "offset": len(content)}
        blobs.append({"type": _KIND, **place, "length": len(data), "properties": properties})
        content += data
    said = {"blobs": blobs, "properties": {"created-by": "airflow_provider_ducklake"}}
    document = json.dumps(said, separators=(",", ":")).encode()
    return content + MAGIC + document + _END.pack(len(document), 0, MAGIC)


def footer_bytes(data: bytes) -> int:
    """Return the size of a container's footer, its magics and the rest included; 0 for a bare vector.

    Raises:
        ValueError: it is damaged.
    """
    return len(data) - _document(data)[0] if data.startswith(MAGIC) else 0


def _document(data: bytes) -> tuple[int, dict[str, Any]]:
    """Return where the vectors end, and what is said of them."""
    if len(data) < len(MAGIC) + FOOTER_BYTES or not data.startswith(MAGIC):
        raise ValueError("it is truncated")
    length, flags, magic = _END.unpack(data[-_END.size :])
    start = len(data) - FOOTER_BYTES - length
    if magic != MAGIC or start < len(MAGIC) or data[start : start + len(MAGIC)] != MAGIC:
        raise ValueError("its footer is not where it should be")
    if flags:
        raise ValueError(f"its footer has the flags {flags:#x}: a compressed footer cannot be read")
    try:
        document = json.loads(data[start + len(MAGIC) : -_END.size])
    except (ValueError, RecursionError):
        raise ValueError("its footer is not a JSON document") from None
    if not isinstance(document, dict):
        raise ValueError("its footer is not a JSON object")  # noqa: TRY004 - of a document
    return start, document


def _vector(blob: object, end: int) -> Vector:
    if not isinstance(blob, dict) or blob.get("type") != _KIND or blob.get("compression-codec") is not None:
        raise ValueError(f"it has a blob that is not an uncompressed {_KIND}")
    offset, length = blob.get("offset"), blob.get("length")
    if type(offset) is not int or type(length) is not int or offset < len(MAGIC) or length < 0:
        raise ValueError(f"a vector lies at {offset!a:.40}, with {length!a:.40} bytes")
    if offset + length > end:
        raise ValueError("a vector ends behind the place of the footer")
    properties = blob.get("properties")
    if not isinstance(properties, dict):
        properties = {}
    text, data_file = properties.get(_SNAPSHOT), properties.get(_DATA_FILE)
    return Vector(
        offset,
        length,
        None if text is None else _snapshot_id(text),
        data_file if isinstance(data_file, str) else None,
    )


def _snapshot_id(text: object) -> int:
    if not isinstance(text, str) or not (text.isascii() and text.isdigit()) or int(text) >= 2**63:
        raise ValueError(f"a vector has the snapshot {text!a:.40}")
    return int(text)
