"""Deletion vectors by hand."""

import json
import struct
import zlib

from pyroaring import BitMap64


def vector(*positions: int) -> bytes:
    body = b"\xd1\xd3\x39\x64" + BitMap64(positions).serialize()
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def container(*vectors: tuple[str | None, bytes], flags: int = 0, **changed: object) -> bytes:
    """Return a file of vectors, each with its snapshot; ``changed`` keys of all that is said of them."""
    content, blobs = b"PFA1", []
    for snapshot, data in vectors:
        said = {"type": "deletion-vector-v1", "offset": len(content), "length": len(data), "fields": []}
        properties = {} if snapshot is None else {"ducklake-snapshot-id": snapshot}
        blobs.append(said | {"properties": properties} | changed)
        content += data
    document = json.dumps({"blobs": blobs}).encode()
    return content + b"PFA1" + document + struct.pack("<II", len(document), flags) + b"PFA1"
