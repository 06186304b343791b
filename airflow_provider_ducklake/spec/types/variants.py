"""Variants as inlined tables hold them: the bytes of the metadata, then those of the value.

*Source:* Apache Parquet, "Variant Binary Encoding"; DuckLake 1.1 writes no length between both
(docs/sources.md, inlining).
"""

from __future__ import annotations

_VERSION = 1


def split_variant(blob: bytes) -> tuple[bytes, bytes]:
    r"""Return metadata and value of a variant.

    >>> split_variant(bytes.fromhex("010000" "0c05"))
    (b'\x01\x00\x00', b'\x0c\x05')

    Raises:
        ValueError: the bytes are no variant.
    """
    end = _end_of_metadata(blob)
    if end >= len(blob):
        raise ValueError(f"its {len(blob)} bytes are cut off")
    return blob[:end], blob[end:]


def _end_of_metadata(blob: bytes) -> int:
    """Return where the names of fields end: after a header, their count and the offset of each name."""
    if not blob or blob[0] & 0x0F != _VERSION:
        raise ValueError("it does not begin with version 1")
    width = (blob[0] >> 6) + 1
    count = int.from_bytes(blob[1 : 1 + width], "little")
    names = 1 + width * (count + 2)
    return names + int.from_bytes(blob[names - width : names], "little")
