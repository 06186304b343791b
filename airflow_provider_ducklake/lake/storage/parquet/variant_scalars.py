"""Scalars that are variants, as Arrow's values of their own types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.spec.types.variant_bytes import (
    MOST_DIGITS,
    SIZES,
    Basic,
    DamagedVariantError,
    Primitive,
)
from airflow_provider_ducklake.lake.storage.parquet.variant_cuts import (
    COUNT_BYTES,
    always,
    between,
    bits,
    bytes_at,
    first_bytes,
    length_after,
    reread,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIXED = {
    Primitive.INT8: pa.int8(),
    Primitive.INT16: pa.int16(),
    Primitive.INT32: pa.int32(),
    Primitive.INT64: pa.int64(),
    Primitive.FLOAT: pa.float32(),
    Primitive.DOUBLE: pa.float64(),
    Primitive.DATE: pa.date32(),
    Primitive.TIME: pa.time64("us"),
    Primitive.TIMESTAMP: pa.timestamp("us"),
    Primitive.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    Primitive.TIMESTAMP_NS: pa.timestamp("ns"),
    Primitive.TIMESTAMPTZ_NS: pa.timestamp("ns", "UTC"),
}
_DECIMALS = {
    Primitive.DECIMAL4: (9, pa.int32()),
    Primitive.DECIMAL8: (18, pa.int64()),
    Primitive.DECIMAL16: (38, pa.decimal128(38, 0)),
}


def scalars_of(kind: int, values: pa.Array) -> Iterator[tuple[pa.Array | None, pa.Array]]:
    """Yield the Arrow values of variants that are all of one kind; of decimals, those of each scale.

    With each array comes the mask of the values that it has; None: it has all.

    Raises:
        DamagedVariantError: they are cut off.
        pa.ArrowInvalid: a string is not UTF-8.
    """
    match Primitive(kind):
        case Primitive.TRUE:
            yield None, pc.equal(first_bytes(values), Primitive.TRUE << 2)
        case Primitive.STRING:
            yield None, texts_of(values)
        case Primitive.BINARY:
            yield None, _sized(values)
        case Primitive.UUID:
            yield None, pa.ExtensionArray.from_storage(pa.uuid(), bytes_at(values, 1, 16))
        case primitive if primitive in _DECIMALS:
            yield from _decimals(primitive, values)
        case primitive:
            yield None, reread(bytes_at(values, 1, SIZES[primitive]), _FIXED[primitive])


def _sized(values: pa.Array) -> pa.Array:
    """Return the bytes after a length of four."""
    start = always(1 + COUNT_BYTES, values)
    return between(values, start, pc.add(start, length_after(values))).cast(pa.binary())


def texts_of(values: pa.Array) -> pa.Array:
    header = first_bytes(values)
    is_short = pc.equal(bits(header, 0, 3), int(Basic.SHORT_STRING))
    if not pc.any(is_short).as_py():
        return _sized(values).cast(pa.string())
    length = bits(header, 2, 63).cast(pa.int64())
    if pc.all(is_short).as_py():
        start = always(1, values)
        return between(values, start, pc.add(start, length)).cast(pa.binary()).cast(pa.string())
    is_long = pc.invert(is_short)
    texts = pc.replace_with_mask(
        pa.nulls(len(values), pa.string()), is_short, texts_of(values.filter(is_short))
    )
    return pc.replace_with_mask(texts, is_long, texts_of(values.filter(is_long)))


def _decimals(kind: Primitive, values: pa.Array) -> Iterator[tuple[pa.Array | None, pa.Array]]:
    most, stored = _DECIMALS[kind]
    scales = reread(bytes_at(values, 1, 1), pa.uint8())
    for scale in sorted(pc.unique(scales).to_pylist()):
        if scale > MOST_DIGITS:
            raise DamagedVariantError(f"it has a decimal of scale {scale}")
        is_so = pc.equal(scales, pa.scalar(scale, pa.uint8()))
        unscaled = reread(bytes_at(values.filter(is_so), 2, SIZES[kind] - 1), stored)
        wide = unscaled.cast(pa.decimal128(38, 0)) if stored != pa.decimal128(38, 0) else unscaled
        digits = most
        if _exceeds(wide, digits):  # the bytes hold a digit more than there may be, which others read
            digits += 1
        if digits > MOST_DIGITS:
            raise DamagedVariantError("it has a decimal of more than 38 digits")
        yield is_so, reread(wide, pa.decimal128(max(digits, scale), scale))


def _exceeds(unscaled: pa.Array, digits: int) -> bool:
    limits = pc.min_max(unscaled).as_py()
    return any(abs(int(one)) >= 10**digits for one in limits.values() if one is not None)
