"""Variants taken apart by Arrow: fields and elements of a whole column at a time; see ``variant_cuts``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.spec.limits import cached
from airflow_provider_ducklake.lake.spec.types.variant_bytes import (
    SIZES,
    Basic,
    DamagedVariantError,
    Primitive,
    number_at,
    read_names,
)
from airflow_provider_ducklake.lake.storage.parquet.reshape import ordinals
from airflow_provider_ducklake.lake.storage.parquet.variant_arrays import joined, rows_of_items, starts_of
from airflow_provider_ducklake.lake.storage.parquet.variant_cuts import (
    COUNT_BYTES,
    VALUES,
    always,
    between,
    bits,
    first_bytes,
    length_after,
    numbers_at,
)

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
        start = numbers_at(values, at, width)
        following = numbers_at(values, pc.add(at, width), width)  # the next one begins there, or before
        end = pc.if_else(pc.greater(following, start), pc.add(fields_at, following), pc.binary_length(values))
        return between(values, pc.add(fields_at, start), end)


def objects_of(metadata: pa.Array, values: pa.Array) -> Objects:
    """Return what there is to know of values that are all objects.

    Raises:
        DamagedVariantError: they are cut off, or ``metadata`` lack a name.
    """
    offsets_at, _, width, fields_at = _layout_of_objects(values)
    heads = between(values, always(0, values), offsets_at)
    keys = joined(heads.cast(pa.binary()), metadata.cast(pa.binary())).dictionary_encode()
    names = tuple(_names(key) for key in keys.dictionary.to_pylist())
    return Objects(values, names, keys.indices, offsets_at, width, fields_at)


_Layout: TypeAlias = tuple[pa.Array, pa.Array, pa.Array, pa.Array]  # int64 each


def _layout_of_objects(values: pa.Array) -> _Layout:
    """Return where the offsets of objects begin, their count and width, and where the fields begin."""
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
    """Return how many elements each of the arrays has (int64), and the elements of all, in a row.

    Raises:
        DamagedVariantError: they are cut off.
    """
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
    """Return values without what follows them, as binaries.

    Raises:
        DamagedVariantError: they are cut off.
    """
    kinds = kinds_of(values)
    result = pa.nulls(len(values), pa.binary())
    for kind in pc.unique(kinds.drop_null()).to_pylist():
        is_so = pc.fill_null(pc.equal(kinds, kind), False)  # noqa: FBT003 - a value
        there = values.filter(is_so)
        ended = between(there, always(0, there), _ends(kind, there)).cast(pa.binary())
        result = ended if len(there) == len(values) else pc.replace_with_mask(result, is_so, ended)
    return result


def _ends(kind: int, values: pa.Array) -> pa.Array:
    """Return how many bytes each of the values has, which are all of one kind."""
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
