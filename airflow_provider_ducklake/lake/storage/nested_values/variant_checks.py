"""Check by Arrow, a column at a time, that values to be written are variants."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ...format.types.variant_bytes import (
    DEEPEST,
    MICROSECONDS_OF_DAY,
    MOST_DIGITS,
    SIZES,
    Basic,
    DamagedVariantError,
    Primitive,
    read_names,
)
from . import variant_arrays as arrays

_MOST_NAMES = 200  # each costs a pass over all objects
_FEW_LOOKS, _BYTES_OF_A_LOOK = 256, 4096  # Python looks at as many bytes in the time of one of Arrow's looks
_DECIMALS = {
    Primitive.DECIMAL4: pa.int32(),
    Primitive.DECIMAL8: pa.int64(),
    Primitive.DECIMAL16: pa.decimal128(38, 0),
}
_KNOWN = frozenset({*map(int, Primitive), arrays.OBJECT, arrays.ARRAY}) - {int(Primitive.FALSE)}


def are_sound(metadata: pa.Array, values: pa.Array) -> bool:
    """Return True if all of the values (none is NULL) are variants and nothing follows them.

    On False ``check_variant`` finds the wrong ones.
    """
    try:
        for one in pc.unique(metadata).to_pylist():
            read_names(one)
        is_whole = pc.equal(pc.binary_length(arrays.whole(values)), pc.binary_length(values).cast(pa.int32()))
        count = pc.sum(pc.binary_length(values)).as_py() or 0
        _look_at(metadata, values, DEEPEST, _Left(count, _FEW_LOOKS + count // _BYTES_OF_A_LOOK))
    except (ValueError, pa.ArrowInvalid):
        return False
    return bool(pc.all(is_whole, min_count=0).as_py())


@dataclass(slots=True)
class _Left:
    """Limits: the bytes left (each value has one, unless they overlap), and the passes left."""

    bytes: int
    looks: int

    def take(self, values: int) -> None:
        self.bytes -= values
        self.looks -= 1
        if self.bytes < 0:
            raise DamagedVariantError("its values lie in each other")
        if self.looks < 0:
            raise DamagedVariantError("its values lie at so many places that Python is faster")


def _look_at(metadata: pa.Array, values: pa.Array, levels: int, left: _Left) -> None:
    """Look at every value within values."""
    left.take(len(values))
    if not levels:
        raise DamagedVariantError("it has too many levels")
    values = arrays.whole(values).cast(arrays.VALUES)  # so that nothing in them lies behind their own end
    kinds = arrays.kinds_of(values)
    for kind in pc.unique(kinds).to_pylist():
        is_so = pc.equal(kinds, kind)
        names, found = metadata.filter(is_so), values.filter(is_so)
        if kind == arrays.OBJECT:
            objects = arrays.objects_of(names, found)
            known = {name for layout in objects.names for name in layout}
            if len(known) > _MOST_NAMES or any(len(set(one)) < len(one) for one in objects.names):
                raise DamagedVariantError("its objects have too many names, or one twice")
            for name in known:
                field = objects.field(name)
                there = field.is_valid()
                _look_at(names.filter(there), field.drop_null(), levels - 1, left)
        elif kind == arrays.ARRAY:
            counts, elements = arrays.elements_of(found)
            _look_at(names.take(arrays.rows_of_items(counts)), elements, levels - 1, left)
        elif kind in _KNOWN:
            _check_scalars(Primitive(kind), found)
        else:
            raise DamagedVariantError(f"it has a value of type {kind}, which is not known")


def _check_scalars(kind: Primitive, values: pa.Array) -> None:
    """Look at the values of a type that has limits; those of the others are only of a certain length."""
    if kind is Primitive.STRING:
        _check_texts(values)
    elif kind is Primitive.TIME:
        limits = pc.min_max(arrays.reread(arrays.bytes_at(values, 1, SIZES[kind]), pa.int64())).as_py()
        if limits["min"] < 0 or limits["max"] >= MICROSECONDS_OF_DAY:
            raise DamagedVariantError("it has a time that is none of a day")
    elif kind in _DECIMALS:
        if pc.max(arrays.reread(arrays.bytes_at(values, 1, 1), pa.uint8())).as_py() > MOST_DIGITS:
            raise DamagedVariantError("it has a decimal of too large a scale")
        limits = pc.min_max(
            arrays.reread(arrays.bytes_at(values, 2, SIZES[kind] - 1), _DECIMALS[kind])
        ).as_py()
        if any(abs(int(one)) >= 10**MOST_DIGITS for one in limits.values()):
            raise DamagedVariantError("it has a decimal of more than 38 digits")


def _check_texts(values: pa.Array) -> None:
    header = arrays.first_bytes(values)
    is_short = pc.equal(arrays.bits(header, 0, 3), int(Basic.SHORT_STRING))
    lengths = arrays.bits(header, 2, 63).cast(pa.int64()).filter(is_short)
    short, long = values.filter(is_short), values.filter(pc.invert(is_short))
    for texts, start, length in (
        (short, 1, lengths),
        (long, 1 + arrays.COUNT_BYTES, arrays.length_after(long)),
    ):
        begin = arrays.always(start, texts)
        arrays.between(texts, begin, pc.add(begin, length)).cast(pa.binary()).cast(
            pa.string()
        )  # which is UTF-8
