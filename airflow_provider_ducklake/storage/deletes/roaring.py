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
_HIGHEST = 2**31  # of the high bits: a row of a file has a number of 63 bits


def positions(data: bytes, most: int) -> pa.ChunkedArray:
    """Return the numbers (int64) of a 64-bit bitmap, of which there are ``most`` at most.

    Nothing is allocated for a count that the bytes do not have: a run of 65,536 numbers takes four bytes.

    Raises:
        ValueError: this is no such bitmap, or it has more numbers.
    """
    reader = _Reader(data, most)
    (count,) = reader.unpack("Q")
    chunks: list[pa.Array] = []
    for _ in range(count):  # each takes twelve bytes at least
        chunks += _bitmap(reader)
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


def _bitmap(reader: _Reader) -> Iterator[pa.Array]:
    """Yield the numbers of a bitmap of the low 32 bits, whose high ones stand before it."""
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
        yield pc.add(_container(reader, last + 1, is_runs=is_runs), (high << 32) + (key << 16))


def _container(reader: _Reader, count: int, *, is_runs: bool) -> pa.Array:
    if is_runs:
        return _numbers_of_runs(reader, count)
    if count <= _LARGEST_LIST:
        return pa.array(reader.shorts(count), pa.int64())
    bits = pa.py_buffer(reader.take(_BITMAP_BYTES))
    numbers = pc.indices_nonzero(pa.Array.from_buffers(pa.bool_(), 2**16, [None, bits]))
    if len(numbers) != count:
        raise ValueError(f"the bitmap has {len(numbers)} numbers where it says {count}")
    return numbers.cast(pa.int64())


def _numbers_of_runs(reader: _Reader, count: int) -> pa.Array:
    (runs,) = reader.unpack("H")
    ends = reader.shorts(2 * runs)
    spans = list(zip(ends[::2], ends[1::2], strict=True))
    if sum(more + 1 for _, more in spans) != count:
        raise ValueError("the runs of the bitmap do not have as many numbers as it says")
    numbers = [one for start, more in spans for one in range(start, start + more + 1)]
    if numbers and max(numbers) >= 2**16:
        raise ValueError("a run of the bitmap ends behind its container")
    return pa.array(numbers, pa.int64())
