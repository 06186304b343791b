"""The bytes of variants: how values, objects and arrays lie in them, and how they are put together.

A value is named by where it starts in its bytes; nothing is copied or decoded. Names of fields are in the
metadata, in any order: writers flag it as sorted where it is not.
*Source:* Apache Parquet, "Variant Binary Encoding".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import TypeAlias

from ..limits import cached

VERSION = 1
DEEPEST = 200  # levels of objects and arrays
EMPTY_METADATA = b"\x11\x00\x00"
NULL = b"\x00"
MICROSECONDS_OF_DAY = 86_400 * 10**6
MOST_DIGITS = 38  # of a decimal, and the largest scale

Data: TypeAlias = bytes | memoryview
_SHORTEST_LONG = 64  # bytes of a string that does not fit a header
_MANY = 256  # fields or elements whose count needs four bytes
_SORTED = 0x10
_LENGTH_BYTES = 4


class Basic(IntEnum):
    """The lowest two bits of a value's first byte."""

    PRIMITIVE = 0
    SHORT_STRING = 1
    OBJECT = 2
    ARRAY = 3


class Primitive(IntEnum):
    """The other six bits of a primitive value's first byte."""

    NULL = 0
    TRUE = 1
    FALSE = 2
    INT8 = 3
    INT16 = 4
    INT32 = 5
    INT64 = 6
    DOUBLE = 7
    DECIMAL4 = 8
    DECIMAL8 = 9
    DECIMAL16 = 10
    DATE = 11
    TIMESTAMPTZ = 12
    TIMESTAMP = 13
    FLOAT = 14
    BINARY = 15
    STRING = 16
    TIME = 17
    TIMESTAMPTZ_NS = 18
    TIMESTAMP_NS = 19
    UUID = 20

    @property
    def header(self) -> bytes:
        """The first byte of such values."""
        return bytes([self << 2])

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise DamagedVariantError(f"it has a value of type {value}, which is not known")


SIZES = {  # bytes after the first one, where all values have as many
    Primitive.NULL: 0, Primitive.TRUE: 0, Primitive.FALSE: 0,
    Primitive.INT8: 1, Primitive.INT16: 2, Primitive.INT32: 4, Primitive.INT64: 8,
    Primitive.FLOAT: 4, Primitive.DOUBLE: 8,
    Primitive.DECIMAL4: 5, Primitive.DECIMAL8: 9, Primitive.DECIMAL16: 17,
    Primitive.DATE: 4, Primitive.TIME: 8, Primitive.TIMESTAMP: 8, Primitive.TIMESTAMPTZ: 8,
    Primitive.TIMESTAMP_NS: 8, Primitive.TIMESTAMPTZ_NS: 8, Primitive.UUID: 16,
}  # fmt: skip
_SIZES = {int(kind): size for kind, size in SIZES.items()}


class DamagedVariantError(ValueError):
    """Bytes that are no variant."""


def number_at(data: Data, start: int, width: int) -> int:
    """Return the unsigned integer at ``start``."""
    if start + width > len(data):
        raise DamagedVariantError(f"its {len(data)} bytes are cut off")
    return int.from_bytes(data[start : start + width], "little")


@cached
def read_names(metadata: bytes) -> tuple[str, ...]:
    """Return the names of fields by their ids."""
    if not metadata or metadata[0] & 0x0F != VERSION:
        raise DamagedVariantError("its metadata does not begin with version 1")
    width = (metadata[0] >> 6) + 1
    count = number_at(metadata, 1, width)
    start = 1 + width * (count + 2)
    if start > len(metadata):
        raise DamagedVariantError("its metadata is cut off")
    ends = [number_at(metadata, 1 + width * (place + 1), width) for place in range(count + 1)]
    if ends != sorted(ends) or start + ends[-1] > len(metadata):
        raise DamagedVariantError("its metadata is cut off, or damaged")
    try:
        return tuple(metadata[start + one : start + next_].decode() for one, next_ in pairwise(ends))
    except UnicodeDecodeError:
        raise DamagedVariantError("a name in its metadata is not UTF-8") from None


@cached
def ids_of_names(metadata: bytes) -> dict[str, int]:
    """Return the id of each name in ``metadata``."""
    return {name: place for place, name in reversed([*enumerate(read_names(metadata))])}


def write_names(names: Iterable[str]) -> bytes:
    r"""Return the metadata for objects with these names, sorted.

    >>> write_names(["b", "a"])
    b'\x11\x02\x00\x01\x02ab'
    """
    encoded = [name.encode() for name in sorted(set(names))]
    ends = [0]
    for one in encoded:
        ends.append(ends[-1] + len(one))
    width = width_of(max(ends[-1], len(encoded)))
    header = VERSION | _SORTED | (width - 1) << 6
    return bytes([header]) + _numbers([len(encoded), *ends], width) + b"".join(encoded)


def width_of(number: int) -> int:
    """Return the number of bytes that a number takes, at least one."""
    return max(1, (number.bit_length() + 7) // 8)


def _numbers(numbers: Iterable[int], width: int) -> bytes:
    return b"".join(number.to_bytes(width, "little") for number in numbers)


def basic_at(data: Data, start: int) -> Basic:
    """Read the basic type of the value that starts there."""
    return Basic(number_at(data, start, 1) & 0x03)


def value_end(data: Data, start: int) -> int:
    """Return the end of the value that starts at ``start``, by its own first bytes."""
    header = number_at(data, start, 1)
    match header & 0x03:
        case Basic.SHORT_STRING:
            end = start + 1 + (header >> 2)
        case Basic.PRIMITIVE if (size := _SIZES.get(header >> 2)) is not None:
            end = start + 1 + size
        case Basic.PRIMITIVE:
            end = start + 1 + _LENGTH_BYTES + _length_of_bytes(data, start, header >> 2)
        case Basic.OBJECT:
            _, ends, values = _object_layout(data, start)
            end = values + ends[-1]
        case _:
            ends, values = _array_layout(data, start)
            end = values + ends[-1]
    if end > len(data):
        raise DamagedVariantError(f"its {len(data)} bytes are cut off")
    return end


def _length_of_bytes(data: Data, start: int, kind: int) -> int:
    if kind not in (Primitive.BINARY, Primitive.STRING):
        raise DamagedVariantError(f"it has a value of type {kind}, which is not known")
    return number_at(data, start + 1, _LENGTH_BYTES)


def object_items(data: Data, start: int) -> list[tuple[int, int]]:
    """Return the id of the name, and the start of the value, of each field of the object at ``start``."""
    ids, starts, values = _object_layout(data, start)
    return [(id_, values + place) for id_, place in zip(ids, starts[:-1], strict=True)]


def array_items(data: Data, start: int) -> list[int]:
    """Return the start of each element of the array at ``start``."""
    starts, values = _array_layout(data, start)
    return [values + place for place in starts[:-1]]


def _object_layout(data: Data, start: int) -> tuple[list[int], list[int], int]:
    header = data[start] >> 2
    count, place = _count(data, start, is_large=bool(header & 0x10))
    width = ((header >> 2) & 0x03) + 1
    ids, place = _numbers_at(data, place, width, count)
    offsets, place = _numbers_at(data, place, (header & 0x03) + 1, count + 1)
    if count and max(offsets) != offsets[-1]:
        raise DamagedVariantError("a field of an object lies outside it")
    return ids, offsets, place


def _array_layout(data: Data, start: int) -> tuple[list[int], int]:
    header = data[start] >> 2
    count, place = _count(data, start, is_large=bool(header & 0x04))
    offsets, place = _numbers_at(data, place, (header & 0x03) + 1, count + 1)
    if offsets != sorted(offsets):
        raise DamagedVariantError("an element of an array lies outside it")
    return offsets, place


def _count(data: Data, start: int, *, is_large: bool) -> tuple[int, int]:
    width = 4 if is_large else 1
    return number_at(data, start + 1, width), start + 1 + width


def _numbers_at(data: Data, start: int, width: int, count: int) -> tuple[list[int], int]:
    end = start + width * count
    if end > len(data):
        raise DamagedVariantError(f"its {len(data)} bytes are cut off")
    if width == 1:
        return list(data[start:end]), end
    return [int.from_bytes(data[at : at + width], "little") for at in range(start, end, width)], end


def check_variant(metadata: bytes, value: bytes) -> None:
    """Look at every value within ``value``, whose first bytes must be a whole variant."""
    names = read_names(metadata)
    if value_end(value, 0) != len(value):
        raise DamagedVariantError("bytes follow its value")
    level = [0]
    for _ in range(DEEPEST + 1):
        level = [below for start in level for below in _checked(value, start, names)]
        if len(level) > len(value):  # more values than bytes: some are shared
            raise DamagedVariantError("its values lie in each other")
        if not level:
            return
    raise DamagedVariantError(f"it has more than {DEEPEST} levels")


def primitives_of(value: bytes) -> frozenset[int]:
    """Return the types of the primitive values within a variant that was checked; see ``Primitive``."""
    found: set[int] = set()
    waiting = [0]
    while waiting:
        start = waiting.pop()
        match value[start] & 0x03:
            case Basic.OBJECT:
                waiting += [place for _, place in object_items(value, start)]
            case Basic.ARRAY:
                waiting += array_items(value, start)
            case Basic.PRIMITIVE:
                found.add(value[start] >> 2)
            case _:
                pass
    return frozenset(found)


def _checked(data: bytes, start: int, names: Sequence[str]) -> list[int]:
    end = value_end(data, start)
    header = data[start]
    match header & 0x03:
        case Basic.OBJECT:
            ids, offsets, values = _object_layout(data, start)
            if any(id_ >= len(names) for id_ in ids):
                raise DamagedVariantError("an object has a field whose name its metadata lacks")
            if len({names[id_] for id_ in ids}) < len(ids):
                raise DamagedVariantError("an object has two fields of one name")
            ends = [next_ if next_ > one else offsets[-1] for one, next_ in pairwise(offsets)]
            return _apart(data, values, offsets, ends)
        case Basic.ARRAY:
            offsets, values = _array_layout(data, start)
            return _apart(data, values, offsets, offsets[1:])
        case Basic.SHORT_STRING:
            _checked_text(data[start + 1 : end])
        case _ if header >> 2 == Primitive.STRING:
            _checked_text(data[start + 1 + _LENGTH_BYTES : end])
        case _:
            _checked_number(header >> 2, data[start + 1 : end])
    return []


def _apart(data: bytes, start: int, offsets: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Return the start of each value; refuse overlapping ones: cut at these places they would lose bytes."""
    places = [start + offset for offset in offsets[:-1]]
    if any(value_end(data, place) > start + end for place, end in zip(places, ends, strict=True)):
        raise DamagedVariantError("its values lie in each other")
    return places


def _checked_number(kind: int, raw: bytes) -> None:
    match kind:
        case Primitive.DECIMAL4 | Primitive.DECIMAL8 | Primitive.DECIMAL16:
            if raw[0] > MOST_DIGITS:
                raise DamagedVariantError(f"it has a decimal of scale {raw[0]}")
            if abs(int.from_bytes(raw[1:], "little", signed=True)) >= 10**MOST_DIGITS:
                raise DamagedVariantError(f"it has a decimal of more than {MOST_DIGITS} digits")
        case Primitive.TIME:
            microseconds = int.from_bytes(raw, "little", signed=True)
            if not 0 <= microseconds < MICROSECONDS_OF_DAY:
                raise DamagedVariantError(f"it has a time of {microseconds} microseconds")
        case _:
            pass


def _checked_text(raw: bytes) -> None:
    try:
        raw.decode()
    except UnicodeDecodeError:
        raise DamagedVariantError("a string in it is not UTF-8") from None


def string_bytes(raw: bytes) -> bytes:
    """Return the variant of a string in UTF-8."""
    if len(raw) < _SHORTEST_LONG:
        return bytes([len(raw) << 2 | Basic.SHORT_STRING]) + raw
    return Primitive.STRING.header + len(raw).to_bytes(_LENGTH_BYTES, "little") + raw


def object_head(ids: Sequence[int], width: int) -> bytes:
    """Write the part of an object before its offsets; fields are in the order of their names."""
    is_large = len(ids) >= _MANY
    id_width = width_of(max(ids, default=0))
    header = (is_large << 4 | (id_width - 1) << 2 | (width - 1)) << 2 | Basic.OBJECT
    return bytes([header]) + len(ids).to_bytes(4 if is_large else 1, "little") + _numbers(ids, id_width)


def array_head(count: int, width: int) -> bytes:
    """Write the part of an array before its offsets."""
    is_large = count >= _MANY
    header = (is_large << 2 | (width - 1)) << 2 | Basic.ARRAY
    return bytes([header]) + count.to_bytes(4 if is_large else 1, "little")


def object_bytes(ids: dict[str, int], fields: dict[str, bytes]) -> bytes:
    """Return an object of variants; ``ids`` are those of the names in the metadata."""
    names = sorted(fields)
    offsets, values = _laid_out([fields[name] for name in names])
    return object_head([ids[name] for name in names], width_of(len(values))) + offsets + values


def array_bytes(elements: Sequence[bytes]) -> bytes:
    """Return an array of variants."""
    offsets, values = _laid_out(elements)
    return array_head(len(elements), width_of(len(values))) + offsets + values


def _laid_out(values: Sequence[bytes]) -> tuple[bytes, bytes]:
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value))
    return _numbers(ends, width_of(ends[-1])), b"".join(values)


def merged_objects(metadata: bytes, one: bytes, other: bytes, not_in_other: frozenset[str]) -> bytes:
    """Merge the fields of two objects; the second one may not have certain names."""
    names = read_names(metadata)
    if basic_at(other, 0) is not Basic.OBJECT:
        raise DamagedVariantError("it has shredded fields, and a value that is no object")
    fields = _fields(one, names)
    for name, value in _fields(other, names).items():
        if name in not_in_other:
            raise DamagedVariantError(f"its field {name!r} is shredded, and in its value, too")
        fields[name] = value
    return object_bytes(ids_of_names(metadata), fields)


def _fields(data: bytes, names: Sequence[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for id_, start in object_items(data, 0):
        if id_ >= len(names):
            raise DamagedVariantError("an object has a field whose name its metadata lacks")
        found[names[id_]] = bytes(data[start : value_end(data, start)])
    return found
