"""The scalar types in Arrow and Parquet: a row for each of ``format/types/ducklake_types.py``."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InvalidInputError
from ...format.types.ducklake_types import SCALARS, Scalar, ScalarKind
from ...format.types.texts import INTERVAL, format_interval
from ..nested_values.geometries import WKB
from ..nested_values.shredding import STORED_VARIANT, VARIANT, VARIANT_OF_SPARK
from .reshape import in_turn, ordinals

if TYPE_CHECKING:
    from ...format.types.values import Physical


# Intervals in Arrow: Arrow's own type for users, their parts for Spark, and the 12 bytes of Parquet.
#
# Files count milliseconds, and nothing below zero. DuckDB refuses negative intervals; it silently drops
# microseconds, and 2**32 milliseconds, too (observed on 1.5.5): we write none of these.
# *Source:* Apache Parquet, ``LogicalTypes.md``, "INTERVAL"; Arrow's columnar format,
# "MonthDayNano", on a machine whose numbers begin with the lowest byte.


ARROW_INTERVAL = pa.month_day_nano_interval()
INTERVAL_PARTS = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("microseconds", pa.int64())])
STORED_INTERVAL = pa.binary(12)  # months, days and milliseconds, each of 32 bits without a sign
_MOST_MILLISECONDS = 2**32 - 1


def interval_array(values: Sequence[Physical | None]) -> pa.Array:
    """Return intervals that are in physical form."""
    return pa.array([None if value is None else _arrow_value(value) for value in values], ARROW_INTERVAL)


def _arrow_value(value: Physical) -> pa.MonthDayNano:
    assert isinstance(value, bytes)
    months, days, microseconds = INTERVAL.unpack(value)
    if abs(microseconds) >= 2**63 // 1000:
        raise ValueError(f"Arrow counts nanoseconds, and has none of {format_interval(value)}")
    return pa.MonthDayNano([months, days, microseconds * 1000])


def interval_values(array: pa.Array) -> list[bytes | None]:
    """Return the physical form of intervals in Arrow's own type."""
    found = array.to_pylist()
    return [None if one is None else INTERVAL.pack(one[0], one[1], one[2] // 1000) for one in found]


def parts_of_arrow(array: pa.Array) -> pa.StructArray:
    """Return months, days and microseconds of intervals in Arrow's own type."""
    months, days, nanos = _numbers(array)
    mask = array.is_null() if array.null_count else None
    arrays = [months, days, pc.divide(nanos, 1000)]
    return pa.StructArray.from_arrays(arrays, fields=list(INTERVAL_PARTS), mask=mask)


def arrow_of_parts(array: pa.StructArray) -> pa.Array:
    """Return intervals, one by one, in Arrow's own type."""
    found = [None if one is None else INTERVAL.pack(*one.values()) for one in array.to_pylist()]
    return interval_array(found)


def _numbers(array: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the months, days and nanoseconds: Arrow keeps two words of 32 bits, and one of 64."""
    places = pc.add(ordinals(len(array)), array.offset)
    words, longs = _words(array, pa.int32(), 4), _words(array, pa.int64(), 2)
    first = pc.multiply(places, 4)
    nanos = longs.take(pc.add(pc.multiply(places, 2), 1))
    return words.take(first), words.take(pc.add(first, 1)), nanos


def _words(array: pa.Array, type_: pa.DataType, count: int) -> pa.Array:
    """Return the values of an array, and those before its offset, as ``count`` numbers each."""
    if not len(array):
        return pa.array([], type_)
    return pa.Array.from_buffers(type_, count * (array.offset + len(array)), [None, array.buffers()[1]])


def from_stored(array: pa.FixedSizeBinaryArray) -> pa.Array:
    """Return the intervals of a file in Arrow's own type."""
    words, valid = _words(array, pa.uint32(), 3), pc.invert(array.is_null())
    first = pc.multiply(pc.add(ordinals(len(array)), array.offset), 3)
    months, days, millis = (
        pc.if_else(valid, words.take(pc.add(first, place)), pa.scalar(0, pa.uint32())) for place in range(3)
    )
    low, high = months.cast(pa.int32()).cast(pa.int64()), days.cast(pa.int32()).cast(pa.int64())
    nanos = pc.multiply(millis.cast(pa.int64()), 10**6)
    return _array_of_words(ARROW_INTERVAL, [pc.bit_wise_or(low, pc.shift_left(high, 32)), nanos], valid)


def stored_intervals(array: pa.Array) -> pa.FixedSizeBinaryArray:
    """Return intervals, in Arrow's own type or their parts, as files have them."""
    wrong = unstorable(array)
    if wrong:
        place, shown = wrong[0]
        raise InvalidInputError(
            f"The interval {shown}, in row {place + 1} of those written together, cannot be written: files "
            f"have whole milliseconds up to {_MOST_MILLISECONDS}, and no negative ones."
        )
    months, days, fine, per_millisecond = _counted(array)
    valid = pc.invert(array.is_null())
    zero = pa.scalar(0, pa.int64())
    words = [
        pc.if_else(valid, one.cast(pa.int64()), zero).cast(pa.uint32())
        for one in (months, days, pc.divide(fine, per_millisecond))
    ]
    return _array_of_words(STORED_INTERVAL, words, valid)


def _array_of_words(type_: pa.DataType, words: Sequence[pa.Array], valid: pa.BooleanArray) -> pa.Array:
    """Return an array of values that each consist of one of each of ``words``, in turn."""
    bits = None if pc.all(valid).as_py() else valid.buffers()[1]
    return pa.Array.from_buffers(type_, len(valid), [bits, in_turn(words)])


def unstorable(array: pa.Array) -> list[tuple[int, str]]:
    """Return the places of intervals, in either type, that files cannot hold, and DuckDB's texts of them."""
    months, days, fine, per_millisecond = _counted(array)
    whole = pc.multiply(pc.divide(fine, per_millisecond), per_millisecond)
    is_held = pc.and_(
        pc.and_(pc.greater_equal(months, 0), pc.greater_equal(days, 0)),
        pc.and_(
            pc.and_(pc.equal(whole, fine), pc.greater_equal(fine, 0)),
            pc.less_equal(pc.divide(fine, per_millisecond), _MOST_MILLISECONDS),
        ),
    )
    is_wrong = pc.and_(array.is_valid(), pc.invert(pc.fill_null(is_held, fill_value=False)))
    places = pc.indices_nonzero(is_wrong).to_pylist()
    return [(place, _shown(array[place])) for place in places]


def _counted(array: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array, int]:
    """Return months, days, the rest in smaller units, and the number of these in a millisecond."""
    if array.type == ARROW_INTERVAL:
        return *_numbers(array), 10**6
    months, days, microseconds = (array.field(place) for place in range(3))
    return months, days, microseconds, 10**3


def _shown(value: pa.Scalar) -> str:
    if value.type == ARROW_INTERVAL:
        months, days, nanos = value.as_py()
        if nanos % 1000:
            return repr(f"{months} months {days} days {nanos} nanoseconds")
        parts = (months, days, nanos // 1000)
    else:
        parts = tuple(value.as_py().values())
    if None in parts:
        return repr(value.as_py())
    return repr(format_interval(INTERVAL.pack(*parts)))


Decoder: TypeAlias = Callable[[Any], "Physical | None"]
FileDecoder: TypeAlias = Callable[[Scalar, pa.DataType], Decoder | None]

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_UUID = pa.binary(16)


def scaled(factor: int) -> Decoder:
    """Return a decoder for integers of another unit, or for the bytes of big decimals."""

    def decode(raw: int | bytes) -> int:
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
        return unscaled * factor

    return decode


def _booleans(_: Scalar, file_type: pa.DataType) -> Decoder | None:
    return bool if pa.types.is_boolean(file_type) else None


def _integers(_: Scalar, file_type: pa.DataType) -> Decoder | None:
    if pa.types.is_unsigned_integer(file_type):  # the raw statistics are the signed reading of the same bits
        mask = 2**64 - 1 if pa.types.is_uint64(file_type) else 2**32 - 1
        return lambda raw: raw & mask
    return int if pa.types.is_signed_integer(file_type) else None


def _floats(_: Scalar, file_type: pa.DataType) -> Decoder | None:
    if pa.types.is_float16(file_type):
        return lambda raw: float(struct.unpack("<e", raw)[0])
    return float if pa.types.is_floating(file_type) else None


def _texts(_: Scalar, file_type: pa.DataType) -> Decoder | None:
    file_type = _storage_type(file_type)
    return _unchanged if pa.types.is_string(file_type) or pa.types.is_binary(file_type) else None


def _blobs(row: Scalar, file_type: pa.DataType) -> Decoder | None:
    is_fixed = pa.types.is_fixed_size_binary(_storage_type(file_type))
    return _unchanged if is_fixed else _texts(row, file_type)


def _uuids(_: Scalar, file_type: pa.DataType) -> Decoder | None:
    return _unchanged if _storage_type(file_type) == _UUID else None


def _storage_type(file_type: pa.DataType) -> pa.DataType:
    return file_type.storage_type if isinstance(file_type, pa.BaseExtensionType) else file_type


def _unchanged(raw: bytes) -> bytes:
    return raw


def _dates(_: Scalar, file_type: pa.DataType) -> Decoder | None:
    return int if pa.types.is_date32(file_type) else None


def _clocks(row: Scalar, file_type: pa.DataType) -> Decoder | None:
    return _in_units(row, file_type) if pa.types.is_time(file_type) else None


def _timestamps(row: Scalar, file_type: pa.DataType) -> Decoder | None:
    if not pa.types.is_timestamp(file_type) or (file_type.tz is not None) != row.zoned:
        return None
    found = PER_SECOND[file_type.unit]
    if row.zoned and found > row.per_second:
        return _cut(found // row.per_second)
    return _in_units(row, file_type)


def _cut(factor: int) -> Decoder:
    """Return a decoder for integers of a smaller unit: toward zero, as they are read."""

    def decode(raw: int) -> int:
        return raw // factor if raw >= 0 else -(-raw // factor)

    return decode


def _in_units(row: Scalar, file_type: pa.DataType) -> Decoder | None:
    found = PER_SECOND[file_type.unit]
    return scaled(row.per_second // found) if row.per_second >= found else None


def _unknown(_row: Scalar, _: pa.DataType) -> None:
    return None


@dataclass(frozen=True, slots=True)
class ArrowScalar:
    """A scalar type in Arrow, in which its values come back.

    ``stored`` is its type in files that we write, ``carrier`` that in which Spark takes values from Arrow,
    each None where it is the same. ``given`` are other Arrow types, whatever their parameters, and
    ``extension`` is the name of one, that make a column of this type. ``decoder`` says how raw statistics of
    a file's column, whose type may be narrower or count in other units, become physical values.
    """

    arrow: pa.DataType | None
    decoder: FileDecoder = _unknown
    carrier: pa.DataType | None = None
    stored: pa.DataType | None = None
    given: tuple[pa.DataType, ...] = ()
    extension: str = ""
    reads_texts: bool = False  # Arrow's cast of DuckDB's text is the value, or an error


_SPARKS_LONGEST = pa.decimal128(38, 0)
_JSON = pa.json_() if hasattr(pa, "json_") else None
_LARGE_TEXTS = (pa.large_string(), pa.string_view())
_LARGE_BLOBS = (pa.large_binary(), pa.binary_view(), pa.binary(1))

ARROW_SCALARS = {
    "boolean": ArrowScalar(pa.bool_(), _booleans, extension="arrow.bool8"),
    "int8": ArrowScalar(pa.int8(), _integers, reads_texts=True),
    "int16": ArrowScalar(pa.int16(), _integers, reads_texts=True),
    "int32": ArrowScalar(pa.int32(), _integers, reads_texts=True),
    "int64": ArrowScalar(pa.int64(), _integers, reads_texts=True),
    "int128": ArrowScalar(pa.decimal256(39, 0), carrier=_SPARKS_LONGEST, stored=pa.float64()),
    "uint8": ArrowScalar(pa.uint8(), _integers, pa.int16(), reads_texts=True),
    "uint16": ArrowScalar(pa.uint16(), _integers, pa.int32(), reads_texts=True),
    "uint32": ArrowScalar(pa.uint32(), _integers, pa.int64(), reads_texts=True),
    "uint64": ArrowScalar(pa.uint64(), _integers, pa.decimal128(20, 0)),
    "uint128": ArrowScalar(pa.decimal256(39, 0), carrier=_SPARKS_LONGEST, stored=pa.float64()),
    "float32": ArrowScalar(pa.float32(), _floats, given=(pa.float16(),)),
    "float64": ArrowScalar(pa.float64(), _floats, reads_texts=True),
    "varchar": ArrowScalar(pa.string(), _texts, given=_LARGE_TEXTS, reads_texts=True),
    "json": ArrowScalar(pa.string(), _texts, stored=_JSON, extension="arrow.json", reads_texts=True),
    "blob": ArrowScalar(pa.binary(), _blobs, given=_LARGE_BLOBS, reads_texts=True),
    "uuid": ArrowScalar(pa.uuid(), _uuids, pa.binary(), extension="arrow.uuid"),
    "date": ArrowScalar(pa.date32(), _dates, given=(pa.date64(),), reads_texts=True),
    "time": ArrowScalar(pa.time64("us"), _clocks, pa.int64(), given=(pa.time32("ms"), pa.time64("us"))),
    "timetz": ArrowScalar(pa.time64("us"), carrier=pa.int64()),
    "time_ns": ArrowScalar(pa.time64("ns"), carrier=pa.int64()),
    "timestamp": ArrowScalar(pa.timestamp("us"), _timestamps, reads_texts=True),
    "timestamp_s": ArrowScalar(pa.timestamp("s"), _timestamps, pa.timestamp("us"), stored=pa.timestamp("us")),
    "timestamp_ms": ArrowScalar(pa.timestamp("ms"), _timestamps, pa.int64()),
    "timestamp_ns": ArrowScalar(pa.timestamp("ns"), _timestamps, pa.int64(), reads_texts=True),
    "timestamptz": ArrowScalar(pa.timestamp("us", "UTC"), _timestamps),
    "timestamptz_ns": ArrowScalar(pa.timestamp("ns", "UTC"), _timestamps, pa.int64()),
    "interval": ArrowScalar(ARROW_INTERVAL, carrier=INTERVAL_PARTS, stored=STORED_INTERVAL),
    "variant": ArrowScalar(VARIANT, carrier=VARIANT_OF_SPARK, stored=STORED_VARIANT),
    "geometry": ArrowScalar(pa.binary(), stored=WKB, extension="geoarrow.wkb"),
    "null": ArrowScalar(pa.null()),
    "unknown": ArrowScalar(None),
}


def name_of_arrow(type_: pa.DataType) -> str | None:
    """Return the scalar type, of those that any lake may have, for values of an Arrow type; None: none."""
    if isinstance(type_, pa.BaseExtensionType):
        return _OF_EXTENSION.get(type_.extension_name)
    if pa.types.is_timestamp(type_):
        return _OF_TIMESTAMP[pa.timestamp("us", "UTC") if type_.tz is not None else pa.timestamp(type_.unit)]
    return _OF_ID.get(type_.id)


_OF_EXTENSION = {row.extension: name for name, row in ARROW_SCALARS.items() if row.extension}
_OF_TIMESTAMP = {
    row.arrow: name for name, row in ARROW_SCALARS.items() if SCALARS[name].kind is ScalarKind.TIMESTAMP
}
_OF_ID = {  # the first of several wins
    one.id: name
    for name, row in reversed(ARROW_SCALARS.items())
    for one in (row.arrow, *row.given)
    if SCALARS[name].storable and SCALARS[name].since is None and not isinstance(one, pa.BaseExtensionType)
    if not pa.types.is_decimal(one)
}
