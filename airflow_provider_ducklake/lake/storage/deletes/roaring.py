"""Roaring bitmaps of 64-bit numbers, in their portable layout.

*Source:* the Roaring format specification. Little-endian throughout: 64-bit numbers are a bitmap of the low
32 bits for each value of the high ones, and that is a container of the low 16 for each value of its high 16.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_WITHOUT_RUNS, _WITH_RUNS = 12346, 12347
_FEWEST_WITH_OFFSETS = 4  # of the containers of a bitmap that has runs
_LARGEST_LIST = 4096
_BITMAP_BYTES = 8192
_LONG_RUN = 64  # numbers in a run on average, from which on Arrow copies runs faster than Python counts
_HIGHEST = 2**31  # of the high bits: a row of a file has a number of 63 bits


def positions(data: bytes, most: int) -> pa.ChunkedArray:
    """Return the numbers (int64) of a 64-bit bitmap, of which there are ``most`` at most.

    Nothing is allocated for a count that the bytes do not have: a run of 65,536 numbers takes four bytes.

    Raises:
        ValueError: this is no such bitmap, or it has more numbers.
    """
    reader, found = _Reader(data, most), _Found()
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
        """Return all of them in their order."""
        self._end()
        return pa.chunked_array(self._chunks, pa.int64())


def _read_bitmap(reader: _Reader, found: _Found) -> None:
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


def _container(reader: _Reader, count: int, *, is_runs: bool) -> Sequence[int] | pa.Array:
    if is_runs:
        return _numbers_of_runs(reader, count)
    if count <= _LARGEST_LIST:
        return reader.shorts(count)
    bits = pa.py_buffer(reader.take(_BITMAP_BYTES))
    numbers = pc.indices_nonzero(pa.Array.from_buffers(pa.bool_(), 2**16, [None, bits]))
    if len(numbers) != count:
        raise ValueError(f"the bitmap has {len(numbers)} numbers where it says {count}")
    return numbers.cast(pa.int64())


def _numbers_of_runs(reader: _Reader, count: int) -> Sequence[int] | pa.Array:
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
