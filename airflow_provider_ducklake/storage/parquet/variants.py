"""Variants in Arrow: the two binaries of Parquet's encoding in a struct, for users and for Spark."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.spec.types.variant_bytes import NULL
from airflow_provider_ducklake.storage.parquet.shredded_variants import values_of_shredded

VARIANT = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
_MARKED = pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"})
VARIANT_OF_SPARK = pa.struct([pa.field("value", pa.binary(), nullable=False), _MARKED])


def read_variants(array: pa.StructArray) -> pa.StructArray:
    """Return the variants of a file, shredded or not, as ``VARIANT``.

    A variant that is null, not in an object or an array, is NULL: the reference makes no difference, and
    writes the former.

    Raises:
        pa.ArrowInvalid: they are damaged.
        pa.ArrowNotImplementedError: values are shredded as a type that variants do not have.
    """
    values = values_of_shredded(array)
    is_null = pc.fill_null(pc.equal(values, pa.scalar(NULL)), fill_value=True)
    metadata = array.field("metadata").cast(pa.binary())
    if pc.any(pc.and_(metadata.is_null(), pc.invert(is_null))).as_py():
        raise pa.ArrowInvalid("a variant has no metadata")
    mask = is_null if pc.any(is_null).as_py() else None
    return pa.StructArray.from_arrays([metadata, values], fields=list(VARIANT), mask=mask)


def variant_parts(array: pa.StructArray, target: pa.StructType) -> pa.StructArray:
    """Return variants with metadata and value where ``target`` has them."""
    fields = list(target)
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays([array.field(field.name) for field in fields], fields=fields, mask=mask)
