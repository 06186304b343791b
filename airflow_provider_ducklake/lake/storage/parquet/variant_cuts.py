"""The bytes of variants, cut by Arrow for a whole column at a time.

Nothing is decoded. Each of an array of values, which is a large binary, begins with a variant; whatever
follows that belongs to others. NULL is a value that is not there.
*Source:* Apache Parquet, "Variant Binary Encoding".
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.spec.types.variant_bytes import DamagedVariantError
from airflow_provider_ducklake.lake.storage.parquet.reshape import in_turn
from airflow_provider_ducklake.lake.storage.parquet.variant_arrays import cut, ends_of, joined

VALUES = pa.large_binary()
COUNT_BYTES = 4  # of a length, or of a large count
_UNSIGNED = {1: pa.uint8(), 2: pa.uint16(), 4: pa.uint32()}


def first_bytes(values: pa.Array) -> pa.Array:
    """Return the first byte of each value, uint8.

    Raises:
        DamagedVariantError: one is empty.
    """
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
