"""Arrow arrays of variants' bytes: scalars, objects and arrays encoded by Arrow, a whole column at a time.

NULL in such an array is a value that is missing. *Source:* Apache Parquet, "Variant Binary Encoding".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.spec.types.variant_bytes import (
    Basic,
    DamagedVariantError,
    Primitive,
    array_head,
    ids_of_names,
    object_head,
)

Encoder: TypeAlias = Callable[[pa.Array], pa.Array]

_BINARY = pa.binary()
_EMPTY = pa.scalar(b"", _BINARY)
_SHORT = [bytes([length << 2 | Basic.SHORT_STRING]) for length in range(64)]


def encode_scalars(values: pa.Array) -> pa.Array:
    """Return each value as a variant.

    Raises:
        pa.ArrowNotImplementedError: variants have no values of their type.
    """
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


def _of(kind: Primitive) -> Encoder:
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
    pa.int8(): _of(Primitive.INT8),
    pa.int16(): _of(Primitive.INT16),
    pa.int32(): _of(Primitive.INT32),
    pa.int64(): _of(Primitive.INT64),
    pa.float32(): _of(Primitive.FLOAT),
    pa.float64(): _of(Primitive.DOUBLE),
    pa.date32(): _of(Primitive.DATE),
    pa.time64("us"): _of(Primitive.TIME),
    pa.timestamp("us"): _of(Primitive.TIMESTAMP),
    pa.timestamp("ns"): _of(Primitive.TIMESTAMP_NS),
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
    return _of(kinds[type_.unit]) if type_.unit in kinds else None


def encode_objects(metadata: pa.Array, is_object: pa.Array, fields: Mapping[str, pa.Array]) -> pa.Array:
    """Return objects of fields, which are variants and NULL where an object lacks one; NULL where none is.

    Raises:
        DamagedVariantError: ``metadata`` lack the name of a field.
    """
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
    """Return what is before the offsets; a key is a count, a width, the fields' numbers, the metadata."""
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
    """Return where each run of ``counts`` begins, and where the last one ends."""
    ends = pc.cumulative_sum(pc.fill_null(counts, 0).cast(pa.int64()))
    starts = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    return starts if of_bytes == 1 else pc.multiply(starts, of_bytes)


def ends_of(values: pa.Array) -> pa.Array:
    """Return where each of large binaries begins in their bytes, and where the last one ends."""
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
