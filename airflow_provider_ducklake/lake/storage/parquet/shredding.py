"""How a file shreds variants: parts that are of one type in all rows lie in columns of their own.

A file has one shape, which its first rows decide. Of later values the parts that do not fit it stay together.
*Source:* Apache Parquet, "Variant Shredding"; the types are those that DuckDB and Spark read so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.spec.names.identifiers import fold, is_storable
from airflow_provider_ducklake.lake.spec.types.variant_bytes import Primitive, without_fields
from airflow_provider_ducklake.lake.storage.parquet.reshape import ordinals
from airflow_provider_ducklake.lake.storage.parquet.variant_arrays import (
    encode_objects,
    rows_of_items,
    starts_of,
)
from airflow_provider_ducklake.lake.storage.parquet.variant_cuts import VALUES
from airflow_provider_ducklake.lake.storage.parquet.variant_parts import (
    ARRAY,
    OBJECT,
    Objects,
    elements_of,
    kinds_of,
    objects_of,
    whole,
)
from airflow_provider_ducklake.lake.storage.parquet.variant_scalars import scalars_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MOST_LEAVES = 64
_DEEPEST = 8
_MOST_PLACES = 512  # that are looked at, of which each takes milliseconds
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_PRECISIONS = (9, 18, 38)
_OTHERS = frozenset(
    {
        pa.bool_(), pa.float32(), pa.float64(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"),
        pa.string(), pa.binary(),
    }
)  # fmt: skip
_SCALARS = frozenset(Primitive) - {Primitive.NULL, Primitive.FALSE}
_VALUE = pa.field("value", pa.binary())


@dataclass(frozen=True, slots=True)
class Shape:
    """How the values at a place are shredded: as a scalar, by fields, as lists, or not at all."""

    scalar: pa.DataType | None = None
    fields: tuple[tuple[str, Shape], ...] = ()
    element: Shape | None = None

    @property
    def is_whole(self) -> bool:
        """Whether values stay in one piece."""
        return self.scalar is None and not self.fields and self.element is None

    @property
    def leaves(self) -> int:
        """How many columns there are for parts of the values."""
        below = [shape for _, shape in self.fields] + ([self.element] if self.element else [])
        return sum(max(1, one.leaves) for one in below) if below else 1

    @property
    def typed(self) -> pa.DataType:
        """The type of ``typed_value``."""
        if self.scalar is not None:
            return self.scalar
        if self.element is not None:
            return pa.list_(pa.field("element", self.element.group, nullable=False))
        return pa.struct([pa.field(name, shape.group, nullable=False) for name, shape in self.fields])

    @property
    def group(self) -> pa.StructType:
        """The type of what holds a value."""
        return pa.struct([_VALUE] if self.is_whole else [_VALUE, pa.field("typed_value", self.typed)])


WHOLE = Shape()


@dataclass(slots=True)
class _Places:
    """How many more places in the values are looked at; beyond them values stay in one piece."""

    left: int = _MOST_PLACES

    def take(self) -> bool:
        self.left -= 1
        return self.left >= 0


def shape_of(metadata: pa.Array, values: pa.Array, depth: int = 0, places: _Places | None = None) -> Shape:
    """Return the shape in which all of the values fit, or ``WHOLE`` where there is none worth while.

    Raises:
        DamagedVariantError: they are damaged.
    """
    places = places or _Places()
    if depth > _DEEPEST or not places.take():
        return WHOLE
    kinds = kinds_of(values)
    found = set(pc.unique(kinds).to_pylist()) - {None, int(Primitive.NULL)}
    if not found:
        return WHOLE
    if found <= _SCALARS:
        parts = (one for kind in sorted(found) for _, one in scalars_of(kind, _of_kind(values, kinds, kind)))
        return Shape(scalar=common_type({one.type for one in parts}))
    if len(found) > 1:
        return WHOLE
    is_so = pc.fill_null(pc.equal(kinds, *found), False)  # noqa: FBT003 - a value
    metadata, values = metadata.filter(is_so), values.filter(is_so)
    made = (
        _shape_of_objects(metadata, values, depth, places)
        if OBJECT in found
        else _shape_of_arrays(metadata, values, depth, places)
    )
    return made if made.leaves <= _MOST_LEAVES else WHOLE


def _shape_of_objects(metadata: pa.Array, values: pa.Array, depth: int, places: _Places) -> Shape:
    objects = objects_of(metadata, values)
    names = sorted({name for layout in objects.names for name in layout})
    if len(names) > _MOST_LEAVES or not _can_name_columns(names):
        return WHOLE
    fields: list[tuple[str, Shape]] = []
    leaves = 0
    for name in names:
        shape = shape_of(metadata, objects.field(name), depth + 1, places)
        fields.append((name, shape))
        leaves += max(1, shape.leaves)
        if leaves > _MOST_LEAVES:
            return WHOLE
    return Shape(fields=tuple(fields))


def _can_name_columns(names: Sequence[str]) -> bool:
    """Whether names of fields can be those of columns: DuckDB takes ``a`` and ``A`` there for one name.

    It reads the second as ``A_1`` (observed on 1.5.5).
    """
    return len(set(map(fold, names))) == len(names) and all(name and is_storable(name) for name in names)


def _shape_of_arrays(metadata: pa.Array, values: pa.Array, depth: int, places: _Places) -> Shape:
    counts, elements = elements_of(values)
    element = shape_of(_of_elements(metadata, counts), elements, depth + 1, places)
    return WHOLE if element.is_whole else Shape(element=element)


def common_type(types: Iterable[pa.DataType]) -> pa.DataType | None:
    """Return the type that holds values of all of the types; None: there is none in which they are shredded.

    Integers and decimals are numbers of one kind, as they are for Parquet.
    """
    found = set(types)
    if len(found) == 1 and (found <= _OTHERS or found <= _DIGITS.keys()):
        return found.pop()
    if found <= _DIGITS.keys():
        return max(found, key=_DIGITS.__getitem__)
    if not all(one in _DIGITS or pa.types.is_decimal(one) for one in found):
        return None
    scale = max(0 if one in _DIGITS else one.scale for one in found)
    digits = scale + max(_DIGITS[one] if one in _DIGITS else one.precision - one.scale for one in found)
    precision = next((one for one in _PRECISIONS if digits <= one), None)
    return None if precision is None else pa.decimal128(precision, scale)


def _of_kind(values: pa.Array, kinds: pa.Array, kind: int) -> pa.Array:
    return values.filter(pc.equal(kinds, kind))


def _of_elements(metadata: pa.Array, counts: pa.Array) -> pa.Array:
    """Return the metadata of each array once for each of its elements."""
    return metadata.take(rows_of_items(counts))


def shredded(metadata: pa.Array, values: pa.Array, shape: Shape) -> pa.StructArray:
    """Return a group of a shape for each of the values, which are large binaries.

    Raises:
        DamagedVariantError: they are damaged.
    """
    if shape.is_whole:
        return pa.StructArray.from_arrays([whole(values)], fields=list(shape.group))
    kinds = kinds_of(values)
    others = pa.scalar(None, VALUES)
    if shape.scalar is not None:
        is_typed, typed = _scalars(values, kinds, shape.scalar)
    elif shape.element is not None:
        is_typed, typed = _lists(metadata, values, kinds, shape)
    else:
        is_typed, typed, others = _objects(metadata, values, kinds, shape)
    rest = pc.if_else(is_typed, others, values)
    return pa.StructArray.from_arrays([whole(rest), typed], fields=list(shape.group))


def _scalars(values: pa.Array, kinds: pa.Array, type_: pa.DataType) -> tuple[pa.Array, pa.Array]:
    typed = pa.nulls(len(values), type_)
    is_typed = pa.repeat(pa.scalar(False), len(values))  # noqa: FBT003 - a value
    numbers = ordinals(len(values)).cast(pa.uint64())
    for kind in sorted(set(pc.unique(kinds.drop_null()).to_pylist()) & _SCALARS):
        places = pc.indices_nonzero(pc.equal(kinds, kind))
        for mask, scalars in scalars_of(kind, values.take(places)):
            if common_type({scalars.type, type_}) != type_:
                continue
            there = pc.is_in(numbers, value_set=places if mask is None else places.filter(mask))
            typed = pc.replace_with_mask(typed, there, scalars.cast(type_))
            is_typed = pc.or_(is_typed, there)
    return is_typed, typed


def _objects(
    metadata: pa.Array, values: pa.Array, kinds: pa.Array, shape: Shape
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return which values are objects, their fields in a shape, and objects of the other fields.

    No object may stay in one piece: readers take a file for damaged that has one beside ``typed_value``.
    """
    is_object = _is(kinds, OBJECT)
    names = metadata.filter(is_object)
    objects = objects_of(names, values.filter(is_object))
    groups = [shredded(names, objects.field(name), below) for name, below in shape.fields]
    typed = pa.StructArray.from_arrays(groups, fields=list(shape.typed))
    others = _others(names, objects, frozenset(name for name, _ in shape.fields))
    return is_object, _spread(typed, is_object), _spread(others, is_object)


def _others(metadata: pa.Array, objects: Objects, known: frozenset[str]) -> pa.Array:
    """Return objects of the fields that have none of the known names; NULL where there are none."""
    others = pa.nulls(len(metadata), VALUES)
    has_others = pc.invert(objects.has_only(known))
    if not pc.any(has_others).as_py():
        return others
    metadata, objects = (
        metadata.filter(has_others),
        objects_of(metadata.filter(has_others), objects.values.filter(has_others)),
    )
    names = {name for layout in objects.names for name in layout} - known
    found = (
        encode_objects(
            metadata,
            pa.repeat(pa.scalar(True), len(metadata)),  # noqa: FBT003 - a value
            {name: whole(objects.field(name)) for name in names},
        )
        if len(names) <= _MOST_LEAVES
        else _without_fields(metadata, objects.values, known)
    )
    return pc.replace_with_mask(others, has_others, found.cast(VALUES))


def _without_fields(metadata: pa.Array, objects: pa.Array, known: frozenset[str]) -> pa.Array:
    """Return objects without some fields, one by one: each name costs Arrow a look at all of them."""
    pairs = zip(metadata.to_pylist(), objects.to_pylist(), strict=True)
    return pa.array([without_fields(one, value, known) for one, value in pairs], pa.binary())


def _lists(metadata: pa.Array, values: pa.Array, kinds: pa.Array, shape: Shape) -> tuple[pa.Array, pa.Array]:
    assert shape.element is not None
    is_typed = _is(kinds, ARRAY)
    counts, elements = elements_of(values.filter(is_typed))
    groups = shredded(_of_elements(metadata.filter(is_typed), counts), elements, shape.element)
    lists = pa.ListArray.from_arrays(starts_of(counts).cast(pa.int32()), groups, type=shape.typed)
    return is_typed, _spread(lists, is_typed)


def _is(kinds: pa.Array, kind: int) -> pa.Array:
    return pc.fill_null(pc.equal(kinds, kind), False)  # noqa: FBT003 - a value


def _spread(there: pa.Array, is_there: pa.Array) -> pa.Array:
    """Return what there is where it is, and NULL elsewhere."""
    if len(there) == len(is_there):
        return there
    places = pc.subtract(pc.cumulative_sum(is_there.cast(pa.int64())), 1)
    return there.take(pc.if_else(is_there, places, pa.scalar(None, pa.int64())))
