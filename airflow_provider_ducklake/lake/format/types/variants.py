"""Variants: as Python values, and as inlined tables hold them, the bytes of the metadata, then of the value.

*Source:* Apache Parquet, "Variant Binary Encoding"; DuckLake 1.1 writes no length between both
(docs/sources.md, inlining).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any, TypeAlias
from uuid import UUID

from .variant_bytes import (
    DEEPEST,
    EMPTY_METADATA,
    MICROSECONDS_OF_DAY,
    NULL,
    SIZES,
    Basic,
    DamagedVariantError,
    Primitive,
    array_bytes,
    array_items,
    check_variant,
    ids_of_names,
    object_bytes,
    object_items,
    read_names,
    string_bytes,
    value_end,
    write_names,
)


@dataclass(frozen=True, slots=True)
class Instant:
    """A timestamp in nanoseconds since 1970, or one in microseconds that Python's datetime cannot hold."""

    count: int
    zoned: bool = False
    per_second: int = 10**9


VariantValue: TypeAlias = (
    "bool | int | float | Decimal | str | bytes | date | datetime | time | UUID | Instant"
    " | Sequence[VariantValue] | Mapping[str, VariantValue] | None"
)

_VERSION = 1
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - of timestamps without a zone
_FIRST_DAY = date(1970, 1, 1).toordinal()
_LAST_DAY = date.max.toordinal()
_MICROSECONDS = 10**6
_DIGITS = {Primitive.DECIMAL4: 9, Primitive.DECIMAL8: 18, Primitive.DECIMAL16: 38}
_INTEGERS = (Primitive.INT8, Primitive.INT16, Primitive.INT32, Primitive.INT64)
_ENOUGH_DIGITS = Context(prec=80)


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
    """Return the end of the names of fields: after a header, their count and the offset of each name."""
    if not blob or blob[0] & 0x0F != _VERSION:
        raise ValueError("it does not begin with version 1")
    width = (blob[0] >> 6) + 1
    count = int.from_bytes(blob[1 : 1 + width], "little")
    names = 1 + width * (count + 2)
    return names + int.from_bytes(blob[names - width : names], "little")


def decode_variant(metadata: bytes, value: bytes) -> VariantValue:
    r"""Return a variant as a Python value; moments that Python's datetime cannot hold are an ``Instant``.

    >>> decode_variant(bytes.fromhex("11010001" "61"), bytes.fromhex("02010000020c05"))
    {'a': 5}

    Raises:
        DamagedVariantError: the bytes are no variant.
    """
    check_variant(metadata, value)
    return _decoded(read_names(metadata), value, 0)


def _decoded(names: Sequence[str], data: bytes, start: int) -> VariantValue:
    """Return the value at ``start`` of a variant that was checked."""
    match data[start] & 0x03:
        case Basic.OBJECT:
            return {names[id_]: _decoded(names, data, place) for id_, place in object_items(data, start)}
        case Basic.ARRAY:
            return [_decoded(names, data, place) for place in array_items(data, start)]
        case Basic.SHORT_STRING:
            return data[start + 1 : value_end(data, start)].decode()
        case _:
            return _primitive(Primitive(data[start] >> 2), data[start + 1 : value_end(data, start)])


def _primitive(kind: Primitive, raw: bytes) -> VariantValue:  # noqa: PLR0911 - a row for each kind
    match kind:
        case Primitive.NULL:
            return None
        case Primitive.TRUE | Primitive.FALSE:
            return kind is Primitive.TRUE
        case Primitive.STRING:
            return raw[4:].decode()
        case Primitive.BINARY:
            return raw[4:]
        case Primitive.FLOAT:
            return float(struct.unpack("<f", raw)[0])
        case Primitive.DOUBLE:
            return float(struct.unpack("<d", raw)[0])
        case Primitive.DECIMAL4 | Primitive.DECIMAL8 | Primitive.DECIMAL16:
            return _decimal(raw)
        case Primitive.UUID:
            return UUID(bytes=raw)
        case _:
            return _counted(kind, int.from_bytes(raw, "little", signed=True))


def _decimal(raw: bytes) -> Decimal:
    if raw[0] > _DIGITS[Primitive.DECIMAL16]:
        raise DamagedVariantError(f"it has a decimal of scale {raw[0]}")
    unscaled = int.from_bytes(raw[1:], "little", signed=True)
    return Decimal(unscaled).scaleb(-raw[0], _ENOUGH_DIGITS)


def _counted(kind: Primitive, count: int) -> VariantValue:
    match kind:
        case Primitive.DATE:
            return _date(count)
        case Primitive.TIME:
            return _time(count)
        case Primitive.TIMESTAMP | Primitive.TIMESTAMPTZ:
            return _timestamp(count, zoned=kind is Primitive.TIMESTAMPTZ)
        case Primitive.TIMESTAMP_NS | Primitive.TIMESTAMPTZ_NS:
            return Instant(count, zoned=kind is Primitive.TIMESTAMPTZ_NS)
        case _:
            return count


_SECONDS_OF_DAY = 86_400


def _date(days: int) -> date | Instant:
    ordinal = _FIRST_DAY + days
    if 1 <= ordinal <= _LAST_DAY:
        return date.fromordinal(ordinal)
    return Instant(days * _SECONDS_OF_DAY, per_second=1)


def _time(microseconds: int) -> time:
    if not 0 <= microseconds < MICROSECONDS_OF_DAY:
        raise DamagedVariantError(f"it has a time of {microseconds} microseconds")
    return (_EPOCH + timedelta(microseconds=microseconds)).time()


def _timestamp(microseconds: int, *, zoned: bool) -> datetime | Instant:
    try:
        found = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return Instant(microseconds, zoned, _MICROSECONDS)
    return found.replace(tzinfo=UTC) if zoned else found


def encode_variant(value: VariantValue) -> tuple[bytes, bytes]:
    r"""Return metadata and value of a Python value, in the narrowest types.

    >>> [part.hex() for part in encode_variant({"a": 5})]
    ['1101000161', '02010000020c05']

    Raises:
        ValueError: a value that no variant holds, or too many levels.
    """
    names = set(_names(value, 0))
    metadata = write_names(names) if names else EMPTY_METADATA
    return metadata, _encoded(ids_of_names(metadata), value)


def _names(value: VariantValue, depth: int) -> Iterator[str]:
    if depth > DEEPEST:
        raise ValueError(f"it has more than {DEEPEST} levels")
    if isinstance(value, Mapping):
        for name, below in value.items():
            if not isinstance(name, str):
                raise ValueError(f"{name!r} is not a string, as names of fields are")  # noqa: TRY004
            yield name
            yield from _names(below, depth + 1)
    elif isinstance(value, list | tuple):
        for below in value:
            yield from _names(below, depth + 1)


def _encoded(ids: dict[str, int], value: VariantValue) -> bytes:
    match value:
        case Mapping():
            return object_bytes(ids, {name: _encoded(ids, below) for name, below in value.items()})
        case list() | tuple():
            return array_bytes([_encoded(ids, below) for below in value])
        case _:
            return _encoded_scalar(value)


def _encoded_scalar(value: Any) -> bytes:  # noqa: ANN401, PLR0911 - a row for each type
    match value:
        case None:
            return NULL
        case bool():
            return (Primitive.TRUE if value else Primitive.FALSE).header
        case int():
            return _encoded_integer(value)
        case float():
            return Primitive.DOUBLE.header + struct.pack("<d", value)
        case Decimal():
            return _encoded_decimal(value)
        case str():
            return string_bytes(value.encode())
        case bytes():
            return Primitive.BINARY.header + len(value).to_bytes(4, "little") + value
        case UUID():
            return Primitive.UUID.header + value.bytes
        case datetime() | date() | time() | Instant():
            return _encoded_time(value)
        case _:
            raise ValueError(f"{value!r} is of type {type(value).__name__}, which no variant holds")


def _encoded_integer(value: int) -> bytes:
    for kind in _INTEGERS:
        size = SIZES[kind]
        if -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1:
            return kind.header + value.to_bytes(size, "little", signed=True)
    return _encoded_unscaled(value, 0)


def _encoded_decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is not a number")  # noqa: TRY004
    unscaled = int("".join(map(str, digits)))
    unscaled *= 10 ** max(0, exponent) * (-1 if sign else 1)
    return _encoded_unscaled(unscaled, max(0, -exponent))


def _encoded_unscaled(unscaled: int, scale: int) -> bytes:
    for kind, digits in _DIGITS.items():
        if abs(unscaled) < 10**digits and scale <= digits:
            raw = unscaled.to_bytes(SIZES[kind] - 1, "little", signed=True)
            return kind.header + bytes([scale]) + raw
    raise ValueError(f"{Decimal(unscaled).scaleb(-scale, _ENOUGH_DIGITS)} has more than 38 digits")


def _encoded_time(value: datetime | date | time | Instant) -> bytes:
    match value:
        case Instant():
            return _encoded_instant(value)
        case datetime():
            kind = Primitive.TIMESTAMP if value.tzinfo is None else Primitive.TIMESTAMPTZ
            since = value - (_EPOCH if value.tzinfo is None else _EPOCH.replace(tzinfo=UTC))
            return _encoded_count(kind, since // timedelta(microseconds=1))
        case date():
            return _encoded_count(Primitive.DATE, value.toordinal() - _FIRST_DAY)
        case _:
            if value.tzinfo is not None:
                raise ValueError(f"{value} is a time with a zone, which no variant holds")
            since = datetime.combine(_EPOCH, value) - _EPOCH
            return _encoded_count(Primitive.TIME, since // timedelta(microseconds=1))


def _encoded_instant(value: Instant) -> bytes:
    match value.per_second:
        case 1:
            return _encoded_count(Primitive.DATE, value.count // _SECONDS_OF_DAY)
        case per_second if per_second == _MICROSECONDS:
            kind = Primitive.TIMESTAMPTZ if value.zoned else Primitive.TIMESTAMP
        case _:
            kind = Primitive.TIMESTAMPTZ_NS if value.zoned else Primitive.TIMESTAMP_NS
    return _encoded_count(kind, value.count)


def _encoded_count(kind: Primitive, count: int) -> bytes:
    try:
        return kind.header + count.to_bytes(SIZES[kind], "little", signed=True)
    except OverflowError:
        raise ValueError(f"{count} does not fit {kind.name}") from None
