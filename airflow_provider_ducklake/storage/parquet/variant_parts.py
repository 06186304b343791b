"""Variants taken apart by Arrow: the fields, elements and scalars of a whole column at a time.

Values are cut out of their bytes, not decoded. Each of an array of values, which is a large binary, begins
with a variant; whatever follows that belongs to others. NULL is a value that is not there.
*Source:* Apache Parquet, "Variant Binary Encoding".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.spec.types.variant_bytes import (
    DEEPEST,
    SIZES,
    Basic,
    DamagedVariantError,
    Primitive,
    number_at,
    read_names,
)
from airflow_provider_ducklake.storage.parquet.reshape import ordinals
from airflow_provider_ducklake.storage.parquet.variant_arrays import cut, ends_of, joined, starts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUES = pa.large_binary()
OBJECT, ARRAY = 64, 65  # kinds of values, beside the numbers of ``Primitive``
_OBJECT_IS_LARGE, _ARRAY_IS_LARGE = 0x40, 0x10  # bits of a first byte
_UNSIGNED = {1: pa.uint8(), 2: pa.uint16(), 4: pa.uint32()}
_COUNT_BYTES = 4


def first_bytes(values: pa.Array) -> pa.Array:
    """Return the first byte of each value, uint8.

    Raises:
        DamagedVariantError: one is empty.
    """
    return _number_at_start(values, 1)


def _number_at_start(values: pa.Array, width: int) -> pa.Array:
    """Return the unsigned integer that the first bytes of each value are."""
    if pc.any(pc.less(pc.binary_length(values), width)).as_py():
        raise DamagedVariantError("its bytes are cut off")
    bytes_ = pc.binary_slice(values, 0, width)
    if width not in _UNSIGNED:
        width += 1
        bytes_ = joined(bytes_.cast(pa.binary()), pa.scalar(b"\0", pa.binary()))
    fixed = bytes_.cast(pa.binary(width))
    return pa.Array.from_buffers(_UNSIGNED[width], len(fixed), fixed.buffers(), offset=fixed.offset)


def _numbers(values: pa.Array, starts: pa.Array, widths: pa.Array) -> pa.Array:
    """Return the unsigned integers of ``widths`` bytes at ``starts``, int64; there are no NULLs."""
    there = from_start(values, starts)
    found = sorted(pc.unique(widths).to_pylist())
    if len(found) <= 1:
        return _number_at_start(there, found[0] if found else 1).cast(pa.int64())
    result = pa.nulls(len(values), pa.int64())
    for width in found:
        is_so = pc.equal(widths, width)
        numbers = _number_at_start(there.filter(is_so), width).cast(pa.int64())
        result = pc.replace_with_mask(result, is_so, numbers)
    return result


def from_start(values: pa.Array, starts: pa.Array) -> pa.Array:
    """Return values without their first ``starts`` bytes (int64); there are no NULLs.

    Raises:
        DamagedVariantError: one has no more than that.
    """
    return between(values, starts, pc.binary_length(values))


def between(values: pa.Array, starts: pa.Array, ends: pa.Array) -> pa.Array:
    """Return the bytes of values from ``starts`` up to ``ends`` (int64); there are no NULLs.

    Raises:
        DamagedVariantError: one has not as many.
    """
    lengths = pc.binary_length(values)
    in_order = pc.and_(pc.less_equal(starts, ends), pc.less_equal(ends, lengths))
    if not pc.all(in_order, min_count=0).as_py():
        raise DamagedVariantError("its bytes are cut off")
    begun = ends_of(values)
    rows = begun.slice(0, len(values))
    places = [pc.add(rows, starts), pc.add(rows, ends)]
    parts = cut(values, pa.concat_arrays([_in_turn(places), begun.slice(len(values))]))
    return pc.list_element(pa.FixedSizeListArray.from_arrays(parts, 2), 0)


def _in_turn(arrays: list[pa.Array]) -> pa.Array:
    """Return the integers (int64) of arrays of one length row by row."""
    count, length = len(arrays), len(arrays[0])
    made = memoryview(bytearray(8 * count * length)).cast("q")
    for place, array in enumerate(arrays):
        whole = pa.concat_arrays([array]) if array.offset else array
        made[place::count] = memoryview(whole.buffers()[1]).cast("q")[: len(array)]
    return pa.Array.from_buffers(pa.int64(), count * length, [None, pa.py_buffer(made)])


def _numbered(condition: pa.Array, yes: int, no: int) -> pa.Array:
    return pc.if_else(condition, pa.scalar(yes, pa.int64()), pa.scalar(no, pa.int64()))


def _bits(header: pa.Array, shift: int, mask: int) -> pa.Array:
    return pc.bit_wise_and(pc.shift_right(header, pa.scalar(shift, pa.uint8())), pa.scalar(mask, pa.uint8()))


def _width(header: pa.Array, shift: int) -> pa.Array:
    """Return in how many bytes numbers are written, by the two bits that say so."""
    return pc.add(_bits(header, shift, 3).cast(pa.int64()), 1)


@dataclass(frozen=True, slots=True)
class Objects:
    """Objects and what their first bytes say; ``names`` are those of each layout that one of them has."""

    values: pa.Array
    names: tuple[tuple[str, ...], ...]
    layout: pa.Array  # of each object
    offsets_at: pa.Array
    offset_width: pa.Array
    fields_at: pa.Array

    def has_only(self, known: frozenset[str]) -> pa.Array:
        """Return of which objects all fields have one of these names."""
        return pa.array([known.issuperset(names) for names in self.names], pa.bool_()).take(self.layout)

    def field(self, name: str) -> pa.Array:
        """Return the value of a field of each object; NULL where an object lacks it.

        Raises:
            DamagedVariantError: it lies outside the object.
        """
        places = [names.index(name) if name in names else None for names in self.names]
        place = pa.array(places, pa.int64()).take(self.layout)
        is_there = place.is_valid()
        found = self._at(place.drop_null(), is_there)
        if len(found) == len(self.values):
            return found
        return pc.replace_with_mask(pa.nulls(len(self.values), VALUES), is_there, found)

    def _at(self, place: pa.Array, is_there: pa.Array) -> pa.Array:
        values, offsets_at, width, fields_at = (
            one.filter(is_there) for one in (self.values, self.offsets_at, self.offset_width, self.fields_at)
        )
        at = pc.add(offsets_at, pc.multiply(place, width))
        start = _numbers(values, at, width)
        following = _numbers(values, pc.add(at, width), width)  # the next one begins there, or before
        end = pc.if_else(pc.greater(following, start), pc.add(fields_at, following), pc.binary_length(values))
        return between(values, pc.add(fields_at, start), end)


def objects_of(metadata: pa.Array, values: pa.Array) -> Objects:
    """Return what there is to know of values that are all objects.

    Raises:
        DamagedVariantError: they are cut off, or ``metadata`` lack a name.
    """
    offsets_at, _, width, fields_at = _layout_of_objects(values)
    heads = between(values, _always(0, values), offsets_at)
    keys = joined(heads.cast(pa.binary()), metadata.cast(pa.binary())).dictionary_encode()
    names = tuple(_names(key) for key in keys.dictionary.to_pylist())
    return Objects(values, names, keys.indices, offsets_at, width, fields_at)


_Layout: TypeAlias = tuple[pa.Array, pa.Array, pa.Array, pa.Array]  # int64 each


def _layout_of_objects(values: pa.Array) -> _Layout:
    """Return where the offsets of objects begin, their count and width, and where the fields begin."""
    header = first_bytes(values)
    count_bytes = _numbered(pc.equal(_bits(header, 6, 1), 1), _COUNT_BYTES, 1)
    counts = _numbers(values, _always(1, values), count_bytes)
    width = _width(header, 2)
    offsets_at = pc.add(pc.add(count_bytes, 1), pc.multiply(counts, _width(header, 4)))
    return offsets_at, counts, width, pc.add(offsets_at, pc.multiply(pc.add(counts, 1), width))


def _layout_of_arrays(values: pa.Array) -> _Layout:
    header = first_bytes(values)
    count_bytes = _numbered(pc.equal(_bits(header, 4, 1), 1), _COUNT_BYTES, 1)
    counts = _numbers(values, _always(1, values), count_bytes)
    width = _width(header, 2)
    offsets_at = pc.add(count_bytes, 1)
    return offsets_at, counts, width, pc.add(offsets_at, pc.multiply(pc.add(counts, 1), width))


def _always(number: int, values: pa.Array) -> pa.Array:
    return pa.repeat(pa.scalar(number, pa.int64()), len(values))


@lru_cache(maxsize=1024)
def _names(key: bytes) -> tuple[str, ...]:
    """Return the names of an object's fields; a key is what is before its offsets, then its metadata."""
    count_bytes = _COUNT_BYTES if key[0] >> 6 & 1 else 1
    width = (key[0] >> 4 & 3) + 1
    start = 1 + count_bytes
    end = start + number_at(key, 1, count_bytes) * width
    names = read_names(key[end:])
    ids = [number_at(key, at, width) for at in range(start, end, width)]
    if any(id_ >= len(names) for id_ in ids):
        raise DamagedVariantError("an object has a field whose name its metadata lacks")
    return tuple(names[id_] for id_ in ids)


def elements_of(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return how many elements each of the arrays has (int64), and the elements of all, in a row.

    Raises:
        DamagedVariantError: they are cut off.
    """
    offsets_at, counts, width, elements_at = _layout_of_arrays(values)
    parents = pc.list_parent_indices(_listed(counts))
    places = pc.subtract(ordinals(len(parents)), starts_of(counts).take(parents))
    values, width = values.take(parents), width.take(parents)
    at = pc.add(offsets_at.take(parents), pc.multiply(places, width))
    elements_at = elements_at.take(parents)
    start, end = _numbers(values, at, width), _numbers(values, pc.add(at, width), width)
    return counts, between(values, pc.add(elements_at, start), pc.add(elements_at, end))


def whole(values: pa.Array) -> pa.Array:
    """Return values without what follows them, as binaries.

    Raises:
        DamagedVariantError: they are cut off.
    """
    kinds = kinds_of(values)
    result = pa.nulls(len(values), pa.binary())
    for kind in pc.unique(kinds.drop_null()).to_pylist():
        is_so = pc.fill_null(pc.equal(kinds, kind), False)  # noqa: FBT003 - a value
        there = values.filter(is_so)
        ended = between(there, _always(0, there), _ends(kind, there)).cast(pa.binary())
        result = ended if len(there) == len(values) else pc.replace_with_mask(result, is_so, ended)
    return result


def _ends(kind: int, values: pa.Array) -> pa.Array:
    """Return how many bytes each of the values has, which are all of one kind."""
    if kind in (OBJECT, ARRAY):
        layout = _layout_of_objects(values) if kind == OBJECT else _layout_of_arrays(values)
        offsets_at, counts, width, begin = layout
        return pc.add(begin, _numbers(values, pc.add(offsets_at, pc.multiply(counts, width)), width))
    if kind == Primitive.BINARY:
        return pc.add(_length(values), 1 + _COUNT_BYTES)
    if kind != Primitive.STRING:
        return _always(1 + SIZES[Primitive(kind)], values)
    header = first_bytes(values)
    is_short = pc.equal(_bits(header, 0, 3), int(Basic.SHORT_STRING))
    ends = pc.add(_bits(header, 2, 63).cast(pa.int64()), 1)
    if pc.all(is_short).as_py():
        return ends
    is_long = pc.invert(is_short)
    return pc.replace_with_mask(ends, is_long, pc.add(_length(values.filter(is_long)), 1 + _COUNT_BYTES))


def _length(values: pa.Array) -> pa.Array:
    """Return the length that follows the first byte."""
    return _reread(_bytes_of(values, 1, _COUNT_BYTES), pa.uint32()).cast(pa.int64())


_MOST_NAMES = 200  # of which each costs a look at all objects
_KNOWN = frozenset({*map(int, Primitive), OBJECT, ARRAY}) - {int(Primitive.FALSE)}


def are_sound(metadata: pa.Array, values: pa.Array) -> bool:
    """Whether all of the values, of which none is NULL, are variants and nothing follows them.

    False says nothing of any of them: ``check_variant`` does.
    """
    try:
        for one in pc.unique(metadata).to_pylist():
            read_names(one)
        is_whole = pc.equal(pc.binary_length(whole(values)), pc.binary_length(values).cast(pa.int32()))
        _look_at(metadata, values, DEEPEST, _Bytes(pc.sum(pc.binary_length(values)).as_py() or 0))
    except (ValueError, pa.ArrowInvalid):
        return False
    return bool(pc.all(is_whole, min_count=0).as_py())


@dataclass(slots=True)
class _Bytes:
    """How many bytes there are; each value has one at least, unless values lie in each other."""

    left: int

    def take(self, values: int) -> None:
        self.left -= values
        if self.left < 0:
            raise DamagedVariantError("its values lie in each other")


def _look_at(metadata: pa.Array, values: pa.Array, levels: int, bytes_: _Bytes) -> None:
    """Look at every value within values."""
    bytes_.take(len(values))
    if not levels:
        raise DamagedVariantError("it has too many levels")
    whole(values)
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
                _look_at(names.filter(there), field.drop_null(), levels - 1, bytes_)
        elif kind == ARRAY:
            counts, elements = elements_of(found)
            _look_at(names.take(pc.list_parent_indices(_listed(counts))), elements, levels - 1, bytes_)
        elif kind == Primitive.STRING:
            _texts(found)
        elif kind not in _KNOWN:
            raise DamagedVariantError(f"it has a value of type {kind}, which is not known")


def _listed(counts: pa.Array) -> pa.Array:
    starts = starts_of(counts)
    return pa.LargeListArray.from_arrays(starts, pa.nulls(starts[-1].as_py()))


def kinds_of(values: pa.Array) -> pa.Array:
    """Return the ``Primitive`` of each value, ``OBJECT`` or ``ARRAY``, int64; NULL where there is none.

    A string is a ``STRING`` however short, and a truth value ``TRUE``.
    """
    header = first_bytes(values)
    basic = _bits(header, 0, 3)
    kinds = _bits(header, 2, 63).cast(pa.int64())
    kinds = pc.if_else(pc.equal(kinds, int(Primitive.FALSE)), int(Primitive.TRUE), kinds)
    for which, kind in (
        (Basic.SHORT_STRING, int(Primitive.STRING)),
        (Basic.OBJECT, OBJECT),
        (Basic.ARRAY, ARRAY),
    ):
        kinds = pc.if_else(pc.equal(basic, int(which)), kind, kinds)
    return kinds


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
_MOST_DIGITS = 38
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
            yield None, _texts(values)
        case Primitive.BINARY:
            yield None, _sized(values)
        case Primitive.UUID:
            yield None, pa.ExtensionArray.from_storage(pa.uuid(), _bytes_of(values, 1, 16))
        case primitive if primitive in _DECIMALS:
            yield from _decimals(primitive, values)
        case primitive:
            yield None, _reread(_bytes_of(values, 1, SIZES[primitive]), _FIXED[primitive])


def _bytes_of(values: pa.Array, start: int, size: int) -> pa.Array:
    if pc.any(pc.less(pc.binary_length(values), start + size)).as_py():
        raise DamagedVariantError("its bytes are cut off")
    return pc.binary_slice(values, start, start + size).cast(pa.binary()).cast(pa.binary(size))


def _reread(fixed: pa.Array, type_: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(type_, len(fixed), fixed.buffers(), offset=fixed.offset)


def _sized(values: pa.Array) -> pa.Array:
    """Return the bytes after a length of four."""
    start = _always(1 + _COUNT_BYTES, values)
    return between(values, start, pc.add(start, _length(values))).cast(pa.binary())


def _texts(values: pa.Array) -> pa.Array:
    header = first_bytes(values)
    is_short = pc.equal(_bits(header, 0, 3), int(Basic.SHORT_STRING))
    if not pc.any(is_short).as_py():
        return _sized(values).cast(pa.string())
    length = _bits(header, 2, 63).cast(pa.int64())
    if pc.all(is_short).as_py():
        start = _always(1, values)
        return between(values, start, pc.add(start, length)).cast(pa.binary()).cast(pa.string())
    is_long = pc.invert(is_short)
    texts = pc.replace_with_mask(
        pa.nulls(len(values), pa.string()), is_short, _texts(values.filter(is_short))
    )
    return pc.replace_with_mask(texts, is_long, _texts(values.filter(is_long)))


def _decimals(kind: Primitive, values: pa.Array) -> Iterator[tuple[pa.Array | None, pa.Array]]:
    digits, stored = _DECIMALS[kind]
    scales = _reread(_bytes_of(values, 1, 1), pa.uint8())
    for scale in sorted(pc.unique(scales).to_pylist()):
        if scale > _MOST_DIGITS:
            raise DamagedVariantError(f"it has a decimal of scale {scale}")
        is_so = pc.equal(scales, pa.scalar(scale, pa.uint8()))
        unscaled = _reread(_bytes_of(values.filter(is_so), 2, SIZES[kind] - 1), stored)
        wide = unscaled.cast(pa.decimal128(38, 0)) if stored != pa.decimal128(38, 0) else unscaled
        yield is_so, _reread(wide, pa.decimal128(max(digits, scale), scale))
