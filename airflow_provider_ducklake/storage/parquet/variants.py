"""Variants in Arrow: the two binaries of Parquet's encoding in a struct, for users and for Spark."""

from __future__ import annotations

import pyarrow as pa

VARIANT = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
_MARKED = pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"})
VARIANT_OF_SPARK = pa.struct([pa.field("value", pa.binary(), nullable=False), _MARKED])


def variant_parts(array: pa.StructArray, target: pa.StructType) -> pa.StructArray:
    """Return variants with metadata and value where ``target`` has them.

    Raises:
        pa.ArrowNotImplementedError: the values are shredded: parts of them lie in columns of other types.
    """
    if {field.name for field in array.type} != {"metadata", "value"}:
        raise pa.ArrowNotImplementedError("its values are shredded")
    fields = list(target)
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays([array.field(field.name) for field in fields], fields=fields, mask=mask)
