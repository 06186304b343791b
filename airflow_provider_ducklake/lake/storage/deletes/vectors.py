"""Deletion vectors: the deleted positions of a data file as one bitmap, or as one for each snapshot.

A vector is a ``deletion-vector-v1`` blob of Iceberg's: length (4 bytes, big-endian) of magic and payload,
magic, payload, CRC-32 of magic and payload (4 bytes, big-endian). The payload is a 64-bit Roaring bitmap in
the portable layout. The file is one bare vector, or since DuckLake 1.1 a Puffin container of several: the
first bytes show it. *Source:* files of the reference (docs/sources.md, deletes and deletion vectors); the
Puffin specification.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import StorageError
from ..files.filesystem import Location, read_whole, storage_errors
from ..files.writing import OutputFile
from ..parquet.opening import Written

# Puffin containers of deletion vectors: one for each snapshot that deleted rows of a data file.
#
# Each vector has all rows that were deleted up to its snapshot, so a row was deleted by the first that has
# it. The bytes are ``PFA1``, the vectors, ``PFA1``, a JSON document, its length and flags (4 bytes each,
# little-endian), ``PFA1``. *Source:* the Puffin specification; docs/sources.md, deletion vectors.


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
    """Return the vectors of a container, by snapshot; those that do not say one, as they stand."""
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
        properties = {_DATA_FILE: data_file_path, "cardinality": str(count), _SNAPSHOT: str(snapshot_id)}
        # fields and ids of Iceberg's, which mean nothing here
        place = {"fields": [], "snapshot-id": -1, "sequence-number": -1, "offset": len(content)}
        blobs.append({"type": _KIND, **place, "length": len(data), "properties": properties})
        content += data
    footer = {"blobs": blobs, "properties": {"created-by": "airflow_provider_ducklake"}}
    document = json.dumps(footer, separators=(",", ":")).encode()
    return content + MAGIC + document + _END.pack(len(document), 0, MAGIC)


def footer_bytes(data: bytes) -> int:
    """Return the size of a container's footer, its magics and the rest included; 0 for a bare vector."""
    return len(data) - _document(data)[0] if data.startswith(MAGIC) else 0


def _document(data: bytes) -> tuple[int, dict[str, Any]]:
    """Return the end of the vectors, and the JSON document about them."""
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


# Roaring bitmaps of 64-bit numbers, in their portable layout.
#
# *Source:* the Roaring format specification. Little-endian throughout: 64-bit numbers are a bitmap of the
# low 32 bits for each value of the high ones, and that is a container of the low 16 for each value of its
# high 16.


_WITHOUT_RUNS, _WITH_RUNS = 12346, 12347
_FEWEST_WITH_OFFSETS = 4  # of the containers of a bitmap that has runs
_LARGEST_LIST = 4096
_BITMAP_BYTES = 8192
_LONG_RUN = 64  # numbers in a run on average, from which on Arrow copies runs faster than Python counts
_HIGHEST = 2**31  # of the high bits: a row of a file has a number of 63 bits


def positions(data: bytes, most: int) -> pa.ChunkedArray:
    """Return the numbers (int64) of a 64-bit bitmap, at most ``most`` of them.

    Nothing is allocated for a count that the bytes do not have: a run of 65,536 numbers takes four bytes.
    """
    reader, found = _VectorReader(data, most), _Found()
    (count,) = reader.unpack("Q")
    for _ in range(count):  # each takes twelve bytes at least
        _read_bitmap(reader, found)
    return found.numbers()


def bitmap_of(numbers: pa.Array) -> bytes:
    """Return the 64-bit bitmap of numbers (int64, from 0, ascending, unique), as ``positions`` reads it."""
    found: dict[int, list[tuple[int, int, bytes]]] = {}
    for key, low in _by_high_bits(numbers):
        found.setdefault(key >> 16, []).append((key & 0xFFFF, len(low), _packed(low)))
    bitmaps = (struct.pack("<I", high) + _written(containers) for high, containers in found.items())
    return struct.pack("<Q", len(found)) + b"".join(bitmaps)


def _by_high_bits(numbers: pa.Array) -> Iterator[tuple[int, pa.Array]]:
    """Yield the low 16 bits of the numbers for each value of all higher ones."""
    runs = pc.run_end_encode(pc.shift_right(numbers, 16))
    start = 0
    for key, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield key, pc.bit_wise_and(numbers.slice(start, end - start), 0xFFFF)
        start = end


def _packed(low: pa.Array) -> bytes:
    if len(low) > _LARGEST_LIST:
        return bytes(pc.is_in(_every(), value_set=low).buffers()[1])[:_BITMAP_BYTES]
    return bytes(low.cast(pa.uint16()).buffers()[1])[: 2 * len(low)]


def _written(containers: list[tuple[int, int, bytes]]) -> bytes:
    """Return a bitmap of the low 32 bits, without runs."""
    header = struct.pack("<II", _WITHOUT_RUNS, len(containers))
    header += b"".join(struct.pack("<HH", key, count - 1) for key, count, _ in containers)
    place = len(header) + 4 * len(containers)
    offsets = []
    for _, _, data in containers:
        offsets.append(place)
        place += len(data)
    return header + struct.pack(f"<{len(offsets)}I", *offsets) + b"".join(data for *_, data in containers)


class _VectorReader:
    def __init__(self, data: bytes, most: int) -> None:
        self._data, self._place = data, 0
        self._most = self._left = most

    def take(self, size: int) -> bytes:
        if size > len(self._data) - self._place:
            raise ValueError("the bitmap is cut off")
        self._place += size
        return self._data[self._place - size : self._place]

    def unpack(self, format_: str) -> tuple[int, ...]:
        return struct.unpack(f"<{format_}", self.take(struct.calcsize(f"<{format_}")))

    def shorts(self, count: int) -> tuple[int, ...]:
        return self.unpack(f"{count}H")

    def expect(self, numbers: int) -> None:
        """Count numbers that are about to be read."""
        self._left -= numbers
        if self._left < 0:
            raise ValueError(f"the bitmap has more numbers than the {self._most} that it may have")


class _Found:
    """The numbers that were read; those of small containers in one array, as each array has its price."""

    def __init__(self) -> None:
        self._chunks: list[pa.Array] = []
        self._few: list[int] = []

    def add(self, base: int, low: Sequence[int] | pa.Array) -> None:
        """Add numbers of a container, which are ``base`` higher."""
        if isinstance(low, pa.Array):
            self._end()
            self._chunks.append(pc.add(low, base))
            return
        self._few += [base + one for one in low]
        if len(self._few) > _LARGEST_LIST:
            self._end()

    def _end(self) -> None:
        if self._few:
            self._chunks.append(pa.array(self._few, pa.int64()))
            self._few = []

    def numbers(self) -> pa.ChunkedArray:
        """Return all of them; each must be greater than the one before it, as a bitmap has each once."""
        self._end()
        found = pa.chunked_array(self._chunks, pa.int64())
        if pc.any(pc.less_equal(found[1:], found[:-1])).as_py():
            raise ValueError("the bitmap has numbers that do not ascend")
        return found


def _read_bitmap(reader: _VectorReader, found: _Found) -> None:
    """Read a bitmap of the low 32 bits, whose high ones stand before it."""
    high, cookie = reader.unpack("II")
    if high >= _HIGHEST:
        raise ValueError(f"the bitmap has numbers with the high bits {high:#x}, beyond 63 bits")
    flags: bytes | None = None
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = reader.take((count + 7) // 8)
    elif cookie == _WITHOUT_RUNS:
        (count,) = reader.unpack("I")
    else:
        raise ValueError(f"no bitmap begins with {cookie}")
    header = reader.shorts(2 * count)
    if flags is None or count >= _FEWEST_WITH_OFFSETS:
        reader.take(4 * count)  # where each container begins
    reader.expect(sum(header[1::2]) + count)
    for place, (key, last) in enumerate(zip(header[::2], header[1::2], strict=True)):
        is_runs = flags is not None and bool(flags[place // 8] >> place % 8 & 1)
        found.add((high << 32) + (key << 16), _container(reader, last + 1, is_runs=is_runs))


def _container(reader: _VectorReader, count: int, *, is_runs: bool) -> Sequence[int] | pa.Array:
    if is_runs:
        return _numbers_of_runs(reader, count)
    if count <= _LARGEST_LIST:
        return reader.shorts(count)
    bits = pa.py_buffer(reader.take(_BITMAP_BYTES))
    numbers = pc.indices_nonzero(pa.Array.from_buffers(pa.bool_(), 2**16, [None, bits]))
    if len(numbers) != count:
        raise ValueError(f"the bitmap has {len(numbers)} numbers where it says {count}")
    return numbers.cast(pa.int64())


def _numbers_of_runs(reader: _VectorReader, count: int) -> Sequence[int] | pa.Array:
    (runs,) = reader.unpack("H")
    ends = reader.shorts(2 * runs)
    spans = list(zip(ends[::2], ends[1::2], strict=True))
    if sum(more + 1 for _, more in spans) != count:
        raise ValueError("the runs of the bitmap do not have as many numbers as it says")
    if any(start + more >= 2**16 for start, more in spans):
        raise ValueError("a run of the bitmap ends behind its container")
    if count < _LONG_RUN * runs:
        return [one for start, more in spans for one in range(start, start + more + 1)]
    every = _every()
    return pa.concat_arrays([every.slice(start, more + 1) for start, more in spans])


@cache
def _every() -> pa.Array:
    return pa.array(range(2**16), pa.int64())


VECTOR_MAGIC = b"\xd1\xd3\x39\x64"
_WORD = struct.Struct(">I")


def vector_of(positions: pa.Array) -> bytes:
    """Return the vector of positions (int64, ascending, unique)."""
    body = VECTOR_MAGIC + bitmap_of(positions)
    return _WORD.pack(len(body)) + body + _WORD.pack(zlib.crc32(body))


def write_vectors(location: Location, data_file_path: str, deleted: pa.Table) -> Written:
    """Write the deleted rows of a data file and return the file's entry for the catalog.

    ``deleted`` has the column ``pos`` (int64, ascending, unique), and ``snapshot_id`` (int64) where the file
    is to have a vector for each snapshot.
    """
    positions = deleted["pos"].combine_chunks()
    if "snapshot_id" not in deleted.column_names:
        content = vector_of(positions)
    else:
        stamps = deleted["snapshot_id"].combine_chunks()
        content = container_of(_cumulative(positions, stamps), data_file_path)
    with storage_errors(location.uri, "write"):
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
    """
    with storage_errors(location.uri, "read"):
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

    Each vector repeats those before it, so that only one is held beside what was found. Short ones wait until
    they are together as long as that: comparing takes time in proportion to it.
    """
    found = _stamped(pa.array([], pa.int64()), None)
    waiting: list[pa.Table] = []
    count = 0
    for one in vectors:
        part = _positions_of(one, data, where, row_count)
        if not len(part):
            continue
        waiting.append(_stamped(part, one.snapshot_id))
        count += len(part)
        if count >= len(found):
            found = _with_new(found, waiting, where, row_count)
            waiting, count = [], 0
    if waiting:
        found = _with_new(found, waiting, where, row_count)
    return found.sort_by("pos")


def _stamped(positions: pa.Array, snapshot_id: int | None) -> pa.Table:
    return pa.table({"pos": positions, "by": pa.repeat(pa.scalar(snapshot_id, pa.int64()), len(positions))})


def _with_new(found: pa.Table, parts: Sequence[pa.Table], where: str, row_count: int) -> pa.Table:
    rows = pa.concat_tables(parts)
    new = rows.filter(pc.invert(pc.is_in(rows["pos"], value_set=found["pos"])))
    if len(parts) > 1:
        new = new.group_by("pos").aggregate([("by", "min")]).select(["pos", "by_min"])
    if len(found) + len(new) > row_count:
        raise _damaged(where, f"its vectors delete more than the {row_count} rows of the data file")
    return pa.concat_tables([found, new.rename_columns(["pos", "by"])])


def referenced_vectors(location: Location, row_counts: Mapping[str, int]) -> dict[str, pa.Array]:
    """Return the positions (int64, unique) of those data files that a container of Iceberg's has a vector of.

    ``row_counts`` are how many rows each data file has, by the path that the metadata has for it; vectors of
    others are not read.
    """
    with storage_errors(location.uri, "read"):
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
    is_whole = len(blob) > 2 * _WORD.size + len(VECTOR_MAGIC) and _WORD.unpack_from(blob)[0] == len(body)
    if (
        not is_whole
        or not body.startswith(VECTOR_MAGIC)
        or _WORD.unpack(blob[-_WORD.size :])[0] != zlib.crc32(body)
    ):
        raise _damaged(where, "it is not a deletion vector, is truncated or has a wrong checksum")
    try:
        return positions(body[len(VECTOR_MAGIC) :], row_count)
    except ValueError as error:
        raise _damaged(where, f"its bitmap cannot be read ({error})") from error


def _damaged(where: str, problem: str) -> StorageError:
    return StorageError(
        f"{where} is damaged: {problem}. Restore the file from a backup; lake.verify() lists all that is "
        "damaged."
    )
