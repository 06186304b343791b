"""Variants in Arrow: the two binaries of Parquet's encoding in a struct, for users and for Spark."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.spec.types.variant_bytes import NULL
from airflow_provider_ducklake.lake.storage.parquet.shredding import values_of_shredded

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
    """Whether an Arrow type is a struct of the two binaries, in any order."""
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
