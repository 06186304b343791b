"""Roaring bitmaps of 64-bit numbers, in their portable layout.

*Source:* the Roaring format specification. Little-endian throughout: 64-bit numbers are a bitmap of the low
32 bits for each value of the high ones, and that is a container of the low 16 for each value of its high 16.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator

_WITHOUT_RUNS, _WITH_RUNS = 12346, 12347
_FEWEST_WITH_OFFSETS = 4  # of the containers of a bitmap that has runs
_LARGEST_LIST = 4096
_BITMAP_BYTES = 8192


def positions(data: bytes) -> pa.ChunkedArray:
    """Return the numbers (int64, ascending) of a 64-bit bitmap.

    Raises:
        ValueError: this is no such bitmap.
    """
    reader = _Reader(data)
    try:
        (count,) = reader.unpack("Q")
        chunks = [chunk for _ in range(count) for chunk in _bitmap(reader)]
    except (struct.error, pa.ArrowInvalid) as error:
        raise ValueError("the bitmap is cut off") from error
    return pa.chunked_array(chunks, pa.int64())


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
        every = pa.array(range(2**16), pa.int64())
        return bytes(pc.is_in(every, value_set=low).buffers()[1])[:_BITMAP_BYTES]
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


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    def take(self, size: int) -> bytes:
        taken = self._data[self._place : self._place + size]
        if len(taken) != size:
            raise ValueError("the bitmap is cut off")
        self._place += size
        return taken

    def unpack(self, format_: str) -> tuple[int, ...]:
        return struct.unpack(f"<{format_}", self.take(struct.calcsize(f"<{format_}")))

    def shorts(self, count: int) -> tuple[int, ...]:
        return self.unpack(f"{count}H")


def _bitmap(reader: _Reader) -> Iterator[pa.Array]:
    """Yield the numbers of a bitmap of the low 32 bits, whose high ones stand before it."""
    high, cookie = reader.unpack("II")
    kind = cookie & 0xFFFF
    if kind == _WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = reader.take((count + 7) // 8)
        has_runs = [bool(flags[place // 8] >> place % 8 & 1) for place in range(count)]
    elif cookie == _WITHOUT_RUNS:
        (count,) = reader.unpack("I")
        has_runs = [False] * count
    else:
        raise ValueError(f"no bitmap begins with {cookie}")
    header = reader.shorts(2 * count)
    if kind != _WITH_RUNS or count >= _FEWEST_WITH_OFFSETS:
        reader.take(4 * count)  # where each container begins
    for key, last, is_runs in zip(header[::2], header[1::2], has_runs, strict=True):
        yield pc.add(_container(reader, last + 1, is_runs=is_runs), (high << 32) + (key << 16))


def _container(reader: _Reader, count: int, *, is_runs: bool) -> pa.Array:
    if is_runs:
        (runs,) = reader.unpack("H")
        ends = reader.shorts(2 * runs)
        spans = zip(ends[::2], ends[1::2], strict=True)
        return pa.array([one for start, more in spans for one in range(start, start + more + 1)], pa.int64())
    if count <= _LARGEST_LIST:
        return pa.array(reader.shorts(count), pa.int64())
    bits = pa.py_buffer(reader.take(_BITMAP_BYTES))
    return pc.indices_nonzero(pa.Array.from_buffers(pa.bool_(), 2**16, [None, bits])).cast(pa.int64())
