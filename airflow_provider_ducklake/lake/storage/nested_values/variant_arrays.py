"""Arrow arrays of variants' bytes: scalars, objects and arrays encoded by Arrow, a whole column at a time.

NULL in such an array is a value that is missing. *Source:* Apache Parquet, "Variant Binary Encoding".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ...format.limits import cached
from ...format.types.variant_bytes import (
    SIZES,
    Basic,
    DamagedVariantError,
    Primitive,
    array_head,
    ids_of_names,
    number_at,
    object_head,
    read_names,
)
from ..arrow.reshape import in_turn, ordinals

Encoder: TypeAlias = Callable[[pa.Array], pa.Array]

_BINARY = pa.binary()
_EMPTY = pa.scalar(b"", _BINARY)
_SHORT = [bytes([length << 2 | Basic.SHORT_STRING]) for length in range(64)]


def encode_scalars(values: pa.Array) -> pa.Array:
    """Return each value as a variant."""
    type_ = values.type
    if isinstance(type_, pa.BaseExtensionType):
        if type_ == pa.uuid():
            return _fixed(Primitive.UUID, values.storage)
        return encode_scalars(values.storage)
    if pa.types.is_decimal(type_):
        return _decimals(values)
    encoder = _ENCODERS.get(type_) or _encoder_of_timestamps(type_)
    if encoder is None:
        raise pa.ArrowNotImplementedError(f"its values are shredded as {type_}, which variants do not have")
    return encoder(values)


def joined(*parts: pa.Array | pa.Scalar) -> pa.Array:
    """Return parts after each other; NULL where one is."""
    return pc.binary_join_element_wise(*parts, _EMPTY)


def _head(kind: Primitive) -> pa.Scalar:
    return pa.scalar(kind.header, _BINARY)


def _fixed(kind: Primitive, values: pa.Array) -> pa.Array:
    return joined(_head(kind), raw_bytes(values))


def raw_bytes(values: pa.Array) -> pa.Array:
    """Return the bytes of values of a fixed width, the lowest first."""
    width = values.type.bit_width // 8
    fixed = pa.Array.from_buffers(pa.binary(width), len(values), values.buffers(), offset=values.offset)
    return fixed.cast(_BINARY)


def _encoder_of(kind: Primitive) -> Encoder:
    return lambda values: _fixed(kind, values)


def _booleans(values: pa.Array) -> pa.Array:
    return pc.if_else(values, _head(Primitive.TRUE), _head(Primitive.FALSE))


def _texts(values: pa.Array) -> pa.Array:
    values = values.cast(_BINARY)
    lengths = pc.binary_length(values)
    shortest, longest = pc.min_max(lengths).as_py().values()
    if longest is None or longest < len(_SHORT):
        return _short_texts(values, lengths)
    if shortest >= len(_SHORT):
        return _long_bytes(Primitive.STRING, values)
    is_short = pc.less(lengths, len(_SHORT))
    short = _short_texts(values, pc.if_else(is_short, lengths, pa.scalar(0, lengths.type)))
    return pc.if_else(is_short, short, _long_bytes(Primitive.STRING, values))


def _short_texts(values: pa.Array, lengths: pa.Array) -> pa.Array:
    return joined(pa.array(_SHORT, _BINARY).take(lengths), values)


def _long_bytes(kind: Primitive, values: pa.Array) -> pa.Array:
    lengths = pc.binary_length(values).cast(pa.uint32())
    return joined(_head(kind), raw_bytes(lengths), values)


def _blobs(values: pa.Array) -> pa.Array:
    return _long_bytes(Primitive.BINARY, values.cast(_BINARY))


_DECIMALS = ((9, Primitive.DECIMAL4, 4), (18, Primitive.DECIMAL8, 8), (38, Primitive.DECIMAL16, 16))


def _decimals(values: pa.Array) -> pa.Array:
    scale = values.type.scale
    for digits, kind, width in _DECIMALS:
        if values.type.precision <= digits and scale >= 0:
            raw = raw_bytes(values.cast(pa.decimal128(values.type.precision, scale)))
            return joined(pa.scalar(kind.header + bytes([scale]), _BINARY), pc.binary_slice(raw, 0, width))
    raise pa.ArrowNotImplementedError(f"its values are shredded as {values.type}, which variants do not have")


_ENCODERS: Mapping[pa.DataType, Encoder] = {
    pa.bool_(): _booleans,
    pa.int8(): _encoder_of(Primitive.INT8),
    pa.int16(): _encoder_of(Primitive.INT16),
    pa.int32(): _encoder_of(Primitive.INT32),
    pa.int64(): _encoder_of(Primitive.INT64),
    pa.float32(): _encoder_of(Primitive.FLOAT),
    pa.float64(): _encoder_of(Primitive.DOUBLE),
    pa.date32(): _encoder_of(Primitive.DATE),
    pa.time64("us"): _encoder_of(Primitive.TIME),
    pa.timestamp("us"): _encoder_of(Primitive.TIMESTAMP),
    pa.timestamp("ns"): _encoder_of(Primitive.TIMESTAMP_NS),
    pa.string(): _texts,
    pa.large_string(): _texts,
    pa.string_view(): _texts,
    pa.binary(): _blobs,
    pa.large_binary(): _blobs,
    pa.binary_view(): _blobs,
}


def _encoder_of_timestamps(type_: pa.DataType) -> Encoder | None:
    if not pa.types.is_timestamp(type_) or type_.tz is None:
        return None
    kinds = {"us": Primitive.TIMESTAMPTZ, "ns": Primitive.TIMESTAMPTZ_NS}
    return _encoder_of(kinds[type_.unit]) if type_.unit in kinds else None


def encode_objects(metadata: pa.Array, is_object: pa.Array, fields: Mapping[str, pa.Array]) -> pa.Array:
    """Return objects of fields, which are variants and NULL where an object lacks one; NULL where none is."""
    names = sorted(fields)
    fields_of_values, values = _in_a_row([fields[name] for name in names])
    present = (fields[name].is_valid().cast(pa.int32()) for name in names)
    counts = pc.if_else(is_object, reduce(pc.add, present), pa.scalar(None, pa.int32()))

    def heads(widths: pa.Array) -> pa.Array:
        listed = _slices(
            raw_bytes(fields_of_values).cast(pa.large_binary()), starts_of(counts, of_bytes=_ID_BYTES)
        )
        keys = joined(raw_bytes(counts), raw_bytes(widths), listed, metadata).dictionary_encode()
        found = [None if key is None else _object_head(key, names) for key in keys.dictionary.to_pylist()]
        return pa.array(found, _BINARY).take(keys.indices)

    return _laid_out(counts, values, heads)


_ID_BYTES = 4


def _in_a_row(fields: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
    """Return the values that are there, row by row, with the number of the field that each is of."""
    rows = pa.concat_arrays([pc.indices_nonzero(field.is_valid()).cast(pa.int64()) for field in fields])
    counts = [len(field) - field.null_count for field in fields]
    numbers = _repeated(pa.array(range(len(fields)), pa.uint32()), pa.array(counts, pa.int64()))
    values = pa.concat_arrays([field.drop_null().cast(pa.large_binary()) for field in fields])
    if len(fields) == 1:
        return numbers, values
    order = pc.sort_indices(pc.add(pc.multiply(rows, len(fields)), numbers.cast(pa.int64())))
    return numbers.take(order), values.take(order)


def _object_head(key: bytes, names: Sequence[str]) -> bytes:
    """Write the part before the offsets; a key is a count, a width, the fields' numbers, the metadata."""
    end = _ID_BYTES + 1 + _ID_BYTES * int.from_bytes(key[:_ID_BYTES], "little")
    ids = ids_of_names(key[end:])
    places = range(_ID_BYTES + 1, end, _ID_BYTES)
    there = [names[int.from_bytes(key[at : at + _ID_BYTES], "little")] for at in places]
    if lost := [name for name in there if name not in ids]:
        raise DamagedVariantError(f"its metadata lacks the name {lost[0]!r} of a field")
    return object_head([ids[name] for name in there], key[_ID_BYTES])


def encode_arrays(counts: pa.Array, elements: pa.Array) -> pa.Array:
    """Return arrays of ``counts`` elements each, which are variants in a row; NULL where a count is."""

    def heads(widths: pa.Array) -> pa.Array:
        keys = pc.add(pc.multiply(counts.cast(pa.int64()), 8), widths.cast(pa.int64())).dictionary_encode()
        found = [
            None if key is None else array_head(key >> 3, key & 7) for key in keys.dictionary.to_pylist()
        ]
        return pa.array(found, _BINARY).take(keys.indices)

    return _laid_out(counts, elements.cast(pa.large_binary()), heads)


def _laid_out(counts: pa.Array, values: pa.Array, heads: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Return ``counts`` values each with what is before them: a head, their offsets, where they end."""
    places = starts_of(counts)
    ends = ends_of(values)
    starts = ends.take(places)
    begun = starts.slice(0, len(counts))
    totals = pc.subtract(starts.slice(1), begun)
    widths = _width_of(totals)
    within = pc.subtract(ends.slice(0, len(values)), _repeated(begun, counts))
    offsets = _in_width(within, _repeated(widths, counts)).cast(pa.large_binary())
    runs = _slices(offsets, ends_of(offsets).take(places))
    return joined(heads(widths), runs, _in_width(totals, widths), _slices(values, starts))


def starts_of(counts: pa.Array, of_bytes: int = 1) -> pa.Array:
    """Return the start of each run of ``counts``, and the end of the last one."""
    ends = pc.cumulative_sum(pc.fill_null(counts, 0).cast(pa.int64()))
    starts = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    return starts if of_bytes == 1 else pc.multiply(starts, of_bytes)


def ends_of(values: pa.Array) -> pa.Array:
    """Return the start of each large binary in their bytes, and the end of the last one."""
    offsets = values.buffers()[1] or pa.py_buffer(bytes(8))
    return pa.Array.from_buffers(pa.int64(), len(values) + 1, [None, offsets], offset=values.offset)


def _slices(values: pa.Array, starts: pa.Array) -> pa.Array:
    """Return the bytes of large binaries cut at other places."""
    return cut(values, starts).cast(_BINARY)


def cut(values: pa.Array, starts: pa.Array) -> pa.Array:
    """Return the bytes of large binaries cut at other places, as large binaries."""
    data = values.buffers()[2] or pa.py_buffer(b"")
    return pa.Array.from_buffers(
        pa.large_binary(), len(starts) - 1, [None, starts.buffers()[1], data], offset=starts.offset
    )


def _repeated(values: pa.Array, counts: pa.Array) -> pa.Array:
    """Return each value as often as its count says."""
    return values.take(rows_of_items(counts))


def rows_of_items(counts: pa.Array) -> pa.Array:
    """Return the number of its row for each of the ``counts`` items that rows have, in a row."""
    starts = starts_of(counts)
    return pc.list_parent_indices(pa.LargeListArray.from_arrays(starts, pa.nulls(starts[-1].as_py())))


def _width_of(totals: pa.Array) -> pa.Array:
    """Return in how many bytes the offsets of so many bytes are written."""
    wide = pc.if_else(pc.less(totals, 1 << 16), pa.scalar(2, pa.int8()), pa.scalar(4, pa.int8()))
    return pc.if_else(pc.less(totals, 1 << 8), pa.scalar(1, pa.int8()), wide)


_UNSIGNED = {1: pa.uint8(), 2: pa.uint16(), 4: pa.uint32()}


def _in_width(numbers: pa.Array, widths: pa.Array) -> pa.Array:
    """Return the bytes of each number, as many as ``widths`` says."""
    found = sorted(pc.unique(widths).to_pylist())
    if not found:
        return pa.array([], _BINARY)
    written = {width: raw_bytes(numbers.cast(_UNSIGNED[width], safe=False)) for width in found}
    result = written.pop(found[0])
    for width, other in written.items():
        result = pc.if_else(pc.equal(widths, pa.scalar(width, pa.int8())), other, result)
    return result


# The bytes of variants, cut by Arrow for a whole column at a time.
#
# Nothing is decoded. Each of an array of values, which is a large binary, begins with a variant; whatever
# follows that belongs to others. NULL is a value that is not there.
# *Source:* Apache Parquet, "Variant Binary Encoding".


VALUES = pa.large_binary()
COUNT_BYTES = 4  # of a length, or of a large count


def first_bytes(values: pa.Array) -> pa.Array:
    """Return the first byte of each value, uint8."""
    return number_at_start(values, 1)


def number_at_start(values: pa.Array, width: int) -> pa.Array:
    """Return the unsigned integer that the first bytes of each value are."""
    if pc.any(pc.less(pc.binary_length(values), width)).as_py():
        raise DamagedVariantError("its bytes are cut off")
    bytes_ = pc.binary_slice(values, 0, width)
    if width not in _UNSIGNED:
        width += 1
        bytes_ = joined(bytes_.cast(pa.binary()), pa.scalar(b"\0", pa.binary()))
    fixed = bytes_.cast(pa.binary(width))
    return pa.Array.from_buffers(_UNSIGNED[width], len(fixed), fixed.buffers(), offset=fixed.offset)


def numbers_at(values: pa.Array, starts: pa.Array, widths: pa.Array) -> pa.Array:
    """Return the unsigned integers of ``widths`` bytes at ``starts``, int64; there are no NULLs."""
    there = from_start(values, starts)
    found = sorted(pc.unique(widths).to_pylist())
    if len(found) <= 1:
        return number_at_start(there, found[0] if found else 1).cast(pa.int64())
    result = pa.nulls(len(values), pa.int64())
    for width in found:
        is_so = pc.equal(widths, width)
        numbers = number_at_start(there.filter(is_so), width).cast(pa.int64())
        result = pc.replace_with_mask(result, is_so, numbers)
    return result


def from_start(values: pa.Array, starts: pa.Array) -> pa.Array:
    """Return values without their first ``starts`` bytes (int64); there are no NULLs."""
    return between(values, starts, pc.binary_length(values))


def between(values: pa.Array, starts: pa.Array, ends: pa.Array) -> pa.Array:
    """Return the bytes of values from ``starts`` up to ``ends`` (int64); there are no NULLs."""
    lengths = pc.binary_length(values)
    in_order = pc.and_(pc.less_equal(starts, ends), pc.less_equal(ends, lengths))
    if not pc.all(in_order, min_count=0).as_py():
        raise DamagedVariantError("its bytes are cut off")
    begun = ends_of(values)
    rows = begun.slice(0, len(values))
    numbers = in_turn([pc.add(rows, starts), pc.add(rows, ends)])
    places = pa.Array.from_buffers(pa.int64(), 2 * len(values), [None, numbers])
    parts = cut(values, pa.concat_arrays([places, begun.slice(len(values))]))
    return pc.list_element(pa.FixedSizeListArray.from_arrays(parts, 2), 0)


def bits(header: pa.Array, shift: int, mask: int) -> pa.Array:
    return pc.bit_wise_and(pc.shift_right(header, pa.scalar(shift, pa.uint8())), pa.scalar(mask, pa.uint8()))


def always(number: int, values: pa.Array) -> pa.Array:
    return pa.repeat(pa.scalar(number, pa.int64()), len(values))


def bytes_at(values: pa.Array, start: int, size: int) -> pa.Array:
    if pc.any(pc.less(pc.binary_length(values), start + size)).as_py():
        raise DamagedVariantError("its bytes are cut off")
    return pc.binary_slice(values, start, start + size).cast(pa.binary()).cast(pa.binary(size))


def reread(fixed: pa.Array, type_: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(type_, len(fixed), fixed.buffers(), offset=fixed.offset)


def length_after(values: pa.Array) -> pa.Array:
    """Return the length that follows the first byte."""
    return reread(bytes_at(values, 1, COUNT_BYTES), pa.uint32()).cast(pa.int64())


# Variants taken apart by Arrow: fields and elements of a whole column at a time; see ``variant_cuts``.


OBJECT, ARRAY = 64, 65  # kinds of values, beside the numbers of ``Primitive``


def kinds_of(values: pa.Array) -> pa.Array:
    """Return the ``Primitive`` of each value, ``OBJECT`` or ``ARRAY``, int64; NULL where there is none.

    A string is a ``STRING`` however short, and a truth value ``TRUE``.
    """
    header = first_bytes(values)
    basic = bits(header, 0, 3)
    kinds = bits(header, 2, 63).cast(pa.int64())
    kinds = pc.if_else(pc.equal(kinds, int(Primitive.FALSE)), int(Primitive.TRUE), kinds)
    for which, kind in (
        (Basic.SHORT_STRING, int(Primitive.STRING)),
        (Basic.OBJECT, OBJECT),
        (Basic.ARRAY, ARRAY),
    ):
        kinds = pc.if_else(pc.equal(basic, int(which)), kind, kinds)
    return kinds


def _numbered(condition: pa.Array, yes: int, no: int) -> pa.Array:
    return pc.if_else(condition, pa.scalar(yes, pa.int64()), pa.scalar(no, pa.int64()))


def _width(header: pa.Array, shift: int) -> pa.Array:
    """Return in how many bytes numbers are written, by the two bits that say so."""
    return pc.add(bits(header, shift, 3).cast(pa.int64()), 1)


@dataclass(frozen=True, slots=True)
class Objects:
    """Objects and what their first bytes say; ``names`` are those of each layout that one of them has."""

    values: pa.Array
    names: tuple[tuple[str, ...], ...]
    layout: pa.Array  # of each object
    offsets_at: pa.Array
    offset_width: pa.Array
    fields_at: pa.Array

    def field(self, name: str) -> pa.Array:
        """Return the value of a field of each object; NULL where an object lacks it."""
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
        start = numbers_at(values, at, width)
        following = numbers_at(values, pc.add(at, width), width)  # the next one begins there, or before
        end = pc.if_else(pc.greater(following, start), pc.add(fields_at, following), pc.binary_length(values))
        return between(values, pc.add(fields_at, start), end)


def objects_of(metadata: pa.Array, values: pa.Array) -> Objects:
    """Parse the layout of values that are all objects."""
    offsets_at, _, width, fields_at = _layout_of_objects(values)
    heads = between(values, always(0, values), offsets_at)
    keys = joined(heads.cast(pa.binary()), metadata.cast(pa.binary())).dictionary_encode()
    names = tuple(_names(key) for key in keys.dictionary.to_pylist())
    return Objects(values, names, keys.indices, offsets_at, width, fields_at)


_Layout: TypeAlias = tuple[pa.Array, pa.Array, pa.Array, pa.Array]  # int64 each


def _layout_of_objects(values: pa.Array) -> _Layout:
    """Return the start of the offsets of objects, their count and width, and the start of the fields."""
    header = first_bytes(values)
    count_bytes = _numbered(pc.equal(bits(header, 6, 1), 1), COUNT_BYTES, 1)
    counts = numbers_at(values, always(1, values), count_bytes)
    width = _width(header, 2)
    offsets_at = pc.add(pc.add(count_bytes, 1), pc.multiply(counts, _width(header, 4)))
    return offsets_at, counts, width, pc.add(offsets_at, pc.multiply(pc.add(counts, 1), width))


def _layout_of_arrays(values: pa.Array) -> _Layout:
    header = first_bytes(values)
    count_bytes = _numbered(pc.equal(bits(header, 4, 1), 1), COUNT_BYTES, 1)
    counts = numbers_at(values, always(1, values), count_bytes)
    width = _width(header, 2)
    offsets_at = pc.add(count_bytes, 1)
    return offsets_at, counts, width, pc.add(offsets_at, pc.multiply(pc.add(counts, 1), width))


@cached
def _names(key: bytes) -> tuple[str, ...]:
    """Return the names of an object's fields; a key is what is before its offsets, then its metadata."""
    count_bytes = COUNT_BYTES if key[0] >> 6 & 1 else 1
    width = (key[0] >> 4 & 3) + 1
    start = 1 + count_bytes
    end = start + number_at(key, 1, count_bytes) * width
    names = read_names(key[end:])
    ids = [number_at(key, at, width) for at in range(start, end, width)]
    if any(id_ >= len(names) for id_ in ids):
        raise DamagedVariantError("an object has a field whose name its metadata lacks")
    return tuple(names[id_] for id_ in ids)


def elements_of(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the number of elements of each array (int64), and the elements of all, in a row."""
    offsets_at, counts, width, elements_at = _layout_of_arrays(values)
    if pc.any(pc.greater(elements_at, pc.binary_length(values))).as_py():  # or there were billions of them
        raise DamagedVariantError("its bytes are cut off")
    parents = rows_of_items(counts)
    places = pc.subtract(ordinals(len(parents)), starts_of(counts).take(parents))
    values, width = values.take(parents), width.take(parents)
    at = pc.add(offsets_at.take(parents), pc.multiply(places, width))
    elements_at = elements_at.take(parents)
    start, end = numbers_at(values, at, width), numbers_at(values, pc.add(at, width), width)
    return counts, between(values, pc.add(elements_at, start), pc.add(elements_at, end))


def whole(values: pa.Array) -> pa.Array:
    """Return values without what follows them, as binaries."""
    kinds = kinds_of(values)
    result = pa.nulls(len(values), pa.binary())
    for kind in pc.unique(kinds.drop_null()).to_pylist():
        is_so = pc.fill_null(pc.equal(kinds, kind), False)  # noqa: FBT003 - a value
        there = values.filter(is_so)
        ended = between(there, always(0, there), _ends(kind, there)).cast(pa.binary())
        result = ended if len(there) == len(values) else pc.replace_with_mask(result, is_so, ended)
    return result


def _ends(kind: int, values: pa.Array) -> pa.Array:
    """Return the number of bytes of each value; all values are of one kind."""
    if kind in (OBJECT, ARRAY):
        layout = _layout_of_objects(values) if kind == OBJECT else _layout_of_arrays(values)
        offsets_at, counts, width, begin = layout
        return pc.add(begin, numbers_at(values, pc.add(offsets_at, pc.multiply(counts, width)), width))
    if kind == Primitive.BINARY:
        return pc.add(length_after(values), 1 + COUNT_BYTES)
    if kind != Primitive.STRING:
        return always(1 + SIZES[Primitive(kind)], values)
    header = first_bytes(values)
    is_short = pc.equal(bits(header, 0, 3), int(Basic.SHORT_STRING))
    ends = pc.add(bits(header, 2, 63).cast(pa.int64()), 1)
    if pc.all(is_short).as_py():
        return ends
    is_long = pc.invert(is_short)
    return pc.replace_with_mask(ends, is_long, pc.add(length_after(values.filter(is_long)), 1 + COUNT_BYTES))
