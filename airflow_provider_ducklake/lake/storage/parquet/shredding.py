"""How a file shreds variants: parts that are of one type in all rows lie in separate columns.

A file has one shape, which its first rows decide. Of later values the parts that do not fit it stay together.
*Source:* Apache Parquet, "Variant Shredding"; the types are those that DuckDB and Spark read so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.spec.names.identifiers import fold, is_storable
from airflow_provider_ducklake.lake.spec.types.ducklake_types import ScalarKind
from airflow_provider_ducklake.lake.spec.types.variant_bytes import (
    NULL,
    DamagedVariantError,
    Primitive,
    merged_objects,
    without_fields,
)
from airflow_provider_ducklake.lake.storage.parquet.reshape import is_list, ordinals
from airflow_provider_ducklake.lake.storage.parquet.variant_arrays import (
    ARRAY,
    OBJECT,
    VALUES,
    Objects,
    elements_of,
    encode_arrays,
    encode_objects,
    encode_scalars,
    kinds_of,
    objects_of,
    rows_of_items,
    starts_of,
    whole,
)
from airflow_provider_ducklake.lake.storage.parquet.variant_scalars import scalars_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from airflow_provider_ducklake.lake.spec.schema import TableSchema


_MOST_LEAVES = 64
_DEEPEST = 8
_MOST_PLACES = 512  # that are examined; each takes milliseconds
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
        """Return True if values stay in one piece."""
        return self.scalar is None and not self.fields and self.element is None

    @property
    def leaves(self) -> int:
        """The number of columns for parts of the values."""
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
    """The limit of places in the values to examine; beyond it values stay in one piece."""

    left: int = _MOST_PLACES

    def take(self) -> bool:
        self.left -= 1
        return self.left >= 0


def shape_of(metadata: pa.Array, values: pa.Array, depth: int = 0, places: _Places | None = None) -> Shape:
    """Return the shape in which all of the values fit, or ``WHOLE`` where there is none worth while."""
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
    """Return True if fields' names can be columns' names: DuckDB takes ``a`` and ``A`` for one there.

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
    """Return a group of a shape for each of the values, which are large binaries."""
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
    """Split values: which are objects, their fields in a shape, and objects of the other fields.

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
    """Return objects of the fields outside the shape; NULL if there are none."""
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
    """Spread values over the rows that have one; the others are NULL."""
    if len(there) == len(is_there):
        return there
    places = pc.subtract(pc.cumulative_sum(is_there.cast(pa.int64())), 1)
    return there.take(pc.if_else(is_there, places, pa.scalar(None, pa.int64())))


# Rows as a file has them that shreds their variants; its first rows decide the shape.


_METADATA = pa.field("metadata", pa.binary(), nullable=False)
_DAMAGED = (DamagedVariantError, pa.ArrowInvalid)  # the latter where a string is not UTF-8


def shapes_of(rows: pa.Table, schema: TableSchema) -> dict[int, Shape]:
    """Return the shapes of the columns of variants that are worth shredding, by their places."""
    found = {
        place: _shape(rows.column(place))
        for place, column in enumerate(schema.columns)
        if column.type.facts.kind is ScalarKind.VARIANT
    }
    return {place: shape for place, shape in found.items() if not shape.is_whole}


def _shape(variants: pa.ChunkedArray) -> Shape:
    try:
        return shape_of(*_parts(variants.combine_chunks()))
    except _DAMAGED:  # of rows that are not checked, as those of an added file
        return WHOLE


def _parts(variants: pa.StructArray) -> tuple[pa.Array, pa.Array]:
    """Return metadata and values; NULL where there is no variant."""
    values = pc.if_else(variants.is_valid(), variants.field("value").cast(VALUES), pa.scalar(None, VALUES))
    return variants.field("metadata"), values


def shredded_schema(schema: pa.Schema, shapes: Mapping[int, Shape]) -> pa.Schema:
    """Return a file's schema with columns shredded in their shapes."""
    for place, shape in shapes.items():
        schema = schema.set(place, schema.field(place).with_type(pa.struct([_METADATA, *shape.group])))
    return schema


def shredded_rows(rows: pa.Table, schema: pa.Schema, shapes: Mapping[int, Shape]) -> pa.Table:
    """Return rows in a schema of ``shredded_schema``."""
    if not shapes:
        return rows
    columns = [
        _shredded(column, shapes[place]) if place in shapes else column
        for place, column in enumerate(rows.columns)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _shredded(variants: pa.ChunkedArray, shape: Shape) -> pa.StructArray:
    whole = variants.combine_chunks()
    metadata, values = _parts(whole)
    try:
        groups = shredded(metadata, values, shape).flatten()
    except _DAMAGED:
        groups = [values.cast(pa.binary()), pa.nulls(len(values), shape.typed)]
    mask = whole.is_null() if whole.null_count else None
    return pa.StructArray.from_arrays([metadata, *groups], fields=[_METADATA, *shape.group], mask=mask)


# Variants that a file shreds: put together from the columns in which their parts lie.
#
# A group has a ``value``, a ``typed_value``, or both, where an object has fields besides the shredded ones.
# Groups of fields and elements are optional in files of DuckDB 1.5, and required by the standard: a group
# that is NULL is one without parts. *Source:* Apache Parquet, "Variant Shredding".


_ROWS_AT_ONCE = 1 << 16
_BINARY = pa.binary()
_NULL = pa.scalar(b"\x00", _BINARY)


def values_of_shredded(array: pa.StructArray) -> pa.Array:
    """Return the values of variants; NULL where a variant is missing, as where its group is NULL."""
    metadata = _child(array, "metadata")
    if metadata is None:
        raise pa.ArrowInvalid("its variants have no metadata")
    try:
        parts = [_assembled(metadata.slice(at, _ROWS_AT_ONCE), part) for at, part in _slices(array)]
    except DamagedVariantError as error:
        raise pa.ArrowInvalid(str(error)) from None
    return pa.concat_arrays(parts) if len(parts) != 1 else parts[0]


def _slices(array: pa.StructArray) -> Iterator[tuple[int, pa.StructArray]]:
    for at in range(0, max(1, len(array)), _ROWS_AT_ONCE):
        yield at, array.slice(at, _ROWS_AT_ONCE)


def _child(group: pa.StructArray, name: str) -> pa.Array | None:
    """Return a field of a group, NULL where the group is."""
    place = group.type.get_field_index(name)
    if place < 0:
        if name in [field.name for field in group.type]:
            raise pa.ArrowInvalid(f"a group of its variants has two fields {name}")
        return None
    return group.flatten()[place] if group.null_count else group.field(place)


def _assembled(metadata: pa.Array, group: pa.StructArray) -> pa.Array:
    """Return the variants of a group, which is that of a row, a field or an element."""
    if not pa.types.is_struct(group.type):
        raise pa.ArrowInvalid(f"a part of its variants is {group.type} instead of a group")
    if unknown := {field.name for field in group.type} - {"metadata", "value", "typed_value"}:
        raise pa.ArrowInvalid(f"a group of its variants has a field {min(unknown)}")
    value, typed = _child(group, "value"), _child(group, "typed_value")
    if value is not None:
        value = value.cast(_BINARY)
    if typed is None:
        return pa.nulls(len(group), _BINARY) if value is None else value
    if value is None:
        value = pa.nulls(len(group), _BINARY)
    if pa.types.is_struct(typed.type):
        return _with_rest(metadata, value, _objects_of(metadata, typed), frozenset(_names(typed.type)))
    whole = _arrays(metadata, typed) if is_list(typed.type) else encode_scalars(typed)
    if pc.any(pc.and_(value.is_valid(), whole.is_valid())).as_py():
        raise DamagedVariantError("a value is shredded, and there in one piece, too")
    return pc.coalesce(whole, value)


def _names(type_: pa.StructType) -> list[str]:
    names = [field.name for field in type_]
    if len(set(names)) != len(names):
        raise pa.ArrowInvalid("its objects are shredded into two fields of one name")
    return names


def _objects_of(metadata: pa.Array, typed: pa.StructArray) -> pa.Array:
    fields = {name: _assembled(metadata, _required(typed, name)) for name in _names(typed.type)}
    return encode_objects(metadata, typed.is_valid(), fields)


def _required(typed: pa.StructArray, name: str) -> pa.Array:
    child = _child(typed, name)
    assert child is not None
    return child


def _with_rest(metadata: pa.Array, rest: pa.Array, objects: pa.Array, shredded: frozenset[str]) -> pa.Array:
    """Return objects with their fields that are not shredded, or values that are no objects."""
    whole = pc.coalesce(objects, rest)
    partly = pc.indices_nonzero(pc.and_(objects.is_valid(), rest.is_valid()))
    if not len(partly):
        return whole
    columns = (one.take(partly).to_pylist() for one in (metadata, objects, rest))
    merged = [merged_objects(names, one, other, shredded) for names, one, other in zip(*columns, strict=True)]
    mask = pc.and_(objects.is_valid(), rest.is_valid())
    return pc.replace_with_mask(whole, mask, pa.array(merged, _BINARY))


def _arrays(metadata: pa.Array, typed: pa.Array) -> pa.Array:
    counts = pc.list_value_length(typed)
    elements = _assembled(metadata.take(pc.list_parent_indices(typed)), typed.flatten())
    return encode_arrays(counts, pc.coalesce(elements, _NULL))


# Variants in Arrow: the two binaries of Parquet's encoding in a struct, for users and for Spark.


VARIANT = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
# As in files; there a group is required to have both.
STORED_VARIANT = pa.struct(
    [pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
)
_MARKED = pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"})
VARIANT_OF_SPARK = pa.struct([pa.field("value", pa.binary(), nullable=False), _MARKED])


def read_variants(array: pa.StructArray) -> pa.StructArray:
    """Return the variants of a file, shredded or not, as ``VARIANT``.

    A variant that is null, not in an object or an array, is NULL: the reference makes no difference, and
    writes the former.
    """
    values = values_of_shredded(array)
    is_null = pc.fill_null(pc.equal(values, pa.scalar(NULL)), fill_value=True)
    metadata = array.field("metadata").cast(pa.binary())
    if pc.any(pc.and_(metadata.is_null(), pc.invert(is_null))).as_py():
        raise pa.ArrowInvalid("a variant has no metadata")
    mask = is_null if pc.any(is_null).as_py() else None
    return pa.StructArray.from_arrays([metadata, values], fields=list(VARIANT), mask=mask)


def is_variant(type_: pa.DataType) -> bool:
    """Return True if an Arrow type is a struct of the two binaries, in any order."""
    if isinstance(type_, pa.BaseExtensionType):
        return is_variant(type_.storage_type)
    if not pa.types.is_struct(type_) or sorted(field.name for field in type_) != ["metadata", "value"]:
        return False
    return all(any(is_bytes(field.type) for is_bytes in _BYTES) for field in type_)


_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)


def variant_parts(array: pa.StructArray, target: pa.StructType) -> pa.StructArray:
    """Return variants with metadata and value where ``target`` has them; one without both is NULL."""
    fields = list(target)
    mask = array.is_null()
    parts = {name: array.field(name).cast(pa.binary()) for name in ("metadata", "value")}
    for part in parts.values():
        mask = pc.or_(mask, part.is_null())
    if pc.any(mask).as_py():
        parts = {name: pc.fill_null(part, b"") for name, part in parts.items()}
    return pa.StructArray.from_arrays([parts[field.name] for field in fields], fields=fields, mask=mask)
