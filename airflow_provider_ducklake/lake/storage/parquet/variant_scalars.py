"""Scalars that are variants, as Arrow's values of their own types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.spec.types.variant_bytes import (
    DEEPEST,
    MICROSECONDS_OF_DAY,
    MOST_DIGITS,
    SIZES,
    Basic,
    DamagedVariantError,
    Primitive,
    read_names,
)
from airflow_provider_ducklake.lake.storage.parquet.variant_arrays import (
    ARRAY,
    COUNT_BYTES,
    OBJECT,
    VALUES,
    always,
    between,
    bits,
    bytes_at,
    elements_of,
    first_bytes,
    kinds_of,
    length_after,
    objects_of,
    reread,
    rows_of_items,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence


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


# Whether values that are to be written are variants, looked at by Arrow a column at a time.


_MOST_NAMES = 200  # each costs a pass over all objects
_FEW_LOOKS, _BYTES_OF_A_LOOK = 256, 4096  # Python looks at as many bytes in the time of one of Arrow's looks
_WITH_LIMITS = frozenset(
    map(int, (Primitive.STRING, Primitive.TIME, Primitive.DECIMAL4, Primitive.DECIMAL8, Primitive.DECIMAL16))
)
_KNOWN = frozenset({*map(int, Primitive), OBJECT, ARRAY}) - {int(Primitive.FALSE)}


def are_sound(metadata: pa.Array, values: pa.Array) -> bool:
    """Return True if all of the values (none is NULL) are variants and nothing follows them.

    On False ``check_variant`` finds the wrong ones.
    """
    try:
        for one in pc.unique(metadata).to_pylist():
            read_names(one)
        is_whole = pc.equal(pc.binary_length(whole(values)), pc.binary_length(values).cast(pa.int32()))
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
    values = whole(values).cast(VALUES)  # so that nothing in them lies behind their own end
    kinds = kinds_of(values)
    for kind in pc.unique(kinds).to_pylist():
        is_so = pc.equal(kinds, kind)
        names, found = metadata.filter(is_so), values.filter(is_so)
        if kind == OBJECT:
            objects = objects_of(names, found)
            known = {name for layout in objects.names for name in layout}
            if len(known) > _MOST_NAMES or any(len(set(one)) < len(one) for one in objects.names):
                raise DamagedVariantError("its objects have too many names, or one twice")
            for name in known:
                field = objects.field(name)
                there = field.is_valid()
                _look_at(names.filter(there), field.drop_null(), levels - 1, left)
        elif kind == ARRAY:
            counts, elements = elements_of(found)
            _look_at(names.take(rows_of_items(counts)), elements, levels - 1, left)
        elif kind in _WITH_LIMITS:
            _check_scalars(kind, found)
        elif kind not in _KNOWN:
            raise DamagedVariantError(f"it has a value of type {kind}, which is not known")


def _check_scalars(kind: int, values: pa.Array) -> None:
    """Look at values of a type that has limits."""
    for _, scalars in scalars_of(kind, values):  # which are those of strings and decimals
        if kind == Primitive.TIME:
            limits = pc.min_max(scalars.cast(pa.int64())).as_py()
            if limits["min"] < 0 or limits["max"] >= MICROSECONDS_OF_DAY:
                raise DamagedVariantError("it has a time that is none of a day")


# What lies at a path in a shredded variant: the Parquet columns to read, and the values in them.


def parts_at(field: pa.Field, paths: Collection[Sequence[str]]) -> list[str]:
    """Return the parts of a file's column to read, as pyarrow names them: all of it, without ``paths``.

    Variants that are put together of these parts have at the paths what they have there, and nothing else
    for sure.
    """
    if not paths or "." in field.name or any("." in name for path in paths for name in path):
        return [field.name]
    found = [part for path in paths for part in _parts(field.type, path, field.name)]
    return list(dict.fromkeys([f"{field.name}.metadata", *found]))


def _parts(group: pa.DataType, path: Sequence[str], prefix: str) -> Iterator[str]:
    if not pa.types.is_struct(group):
        yield prefix
        return
    fields = {field.name: field.type for field in group}
    if not path:
        yield from (f"{prefix}.{name}" for name in fields)
        return
    if "value" in fields:
        yield f"{prefix}.value"
    typed = fields.get("typed_value")
    if typed is not None and pa.types.is_struct(typed) and typed.get_field_index(path[0]) >= 0:
        below = typed.field(path[0]).type
        yield from _parts(below, path[1:], f"{prefix}.typed_value.{path[0]}")


def typed_at(group: pa.StructArray, path: Sequence[str]) -> pa.Array | None:
    """Return the values at a path of variants as a file shreds them, of the type that they have there.

    None: they have none in common, or lie in one piece with others.
    """
    values: pa.Array = group
    for place in range(len(path) + 1):
        typed = _typed_value(values)
        if typed is None or place == len(path):
            return None if typed is None or typed.type.num_fields else typed
        place_of_field = typed.type.get_field_index(path[place]) if pa.types.is_struct(typed.type) else -1
        if place_of_field < 0:
            return None
        values = typed.flatten()[place_of_field]
    return None


def _typed_value(group: pa.Array) -> pa.Array | None:
    """Return the shredded values of a group; None where some lie in one piece."""
    if not pa.types.is_struct(group.type):
        return None
    fields = dict(zip([field.name for field in group.type], group.flatten(), strict=True))
    rest = fields.get("value")
    if rest is not None and rest.null_count < len(rest):
        return None
    return fields.get("typed_value")
