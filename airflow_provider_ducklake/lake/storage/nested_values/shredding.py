"""Variants that a file shreds: put together from the columns in which their parts lie.

A group has a ``value``, a ``typed_value``, or both, where an object has fields besides the shredded ones.
Groups of fields and elements are optional in files of DuckDB 1.5, and required by the standard: a group
that is NULL is one without parts. Our own files have variants in one piece.
*Source:* Apache Parquet, "Variant Shredding".
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from ..arrow.reshape import is_list

_ROWS_AT_ONCE = 1 << 16
_BINARY = pa.binary()
_NULL = pa.scalar(b"\x00", _BINARY)


def values_of_shredded(array: pa.StructArray) -> pa.Array:
    """Return the values of variants; NULL where a variant is missing, as where its group is NULL."""
    from ...format.types.variant_bytes import DamagedVariantError

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
    from ...format.types.variant_bytes import DamagedVariantError
    from .variant_arrays import encode_scalars

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
    from .variant_arrays import encode_objects

    fields = {name: _assembled(metadata, _required(typed, name)) for name in _names(typed.type)}
    return encode_objects(metadata, typed.is_valid(), fields)


def _required(typed: pa.StructArray, name: str) -> pa.Array:
    child = _child(typed, name)
    assert child is not None
    return child


def _with_rest(metadata: pa.Array, rest: pa.Array, objects: pa.Array, shredded: frozenset[str]) -> pa.Array:
    """Return objects with their fields that are not shredded, or values that are no objects."""
    from ...format.types.variant_bytes import merged_objects

    whole = pc.coalesce(objects, rest)
    partly = pc.indices_nonzero(pc.and_(objects.is_valid(), rest.is_valid()))
    if not len(partly):
        return whole
    columns = (one.take(partly).to_pylist() for one in (metadata, objects, rest))
    merged = [merged_objects(names, one, other, shredded) for names, one, other in zip(*columns, strict=True)]
    mask = pc.and_(objects.is_valid(), rest.is_valid())
    return pc.replace_with_mask(whole, mask, pa.array(merged, _BINARY))


def _arrays(metadata: pa.Array, typed: pa.Array) -> pa.Array:
    from .variant_arrays import encode_arrays

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
    from ...format.types.variant_bytes import NULL

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
