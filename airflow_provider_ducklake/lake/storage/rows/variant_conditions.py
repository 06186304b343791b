"""Conditions on what lies at a path in variants, looked at by Arrow, one type of values after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.planning.reading.predicates import (
    ONLY,
    PathNullTest,
    as_of_column,
    shown_path,
)
from airflow_provider_ducklake.lake.spec.schema import Column, TableSchema
from airflow_provider_ducklake.lake.spec.types.variant_bytes import DamagedVariantError, Primitive
from airflow_provider_ducklake.lake.storage.parquet.arrow_types import ducklake_type
from airflow_provider_ducklake.lake.storage.parquet.variant_columns import typed_at
from airflow_provider_ducklake.lake.storage.parquet.variant_cuts import VALUES
from airflow_provider_ducklake.lake.storage.parquet.variant_parts import ARRAY, OBJECT, kinds_of, objects_of
from airflow_provider_ducklake.lake.storage.parquet.variant_scalars import scalars_of
from airflow_provider_ducklake.lake.storage.parquet.variants import read_variants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeAlias

    from airflow_provider_ducklake.lake.planning.reading.predicates import (
        PathComparison,
        PathCondition,
        Predicate,
    )

    Mask: TypeAlias = Callable[[pa.Table, Predicate, TableSchema], pa.Array | pa.ChunkedArray]

_ROWS_AT_ONCE = 1 << 16


def met_at(condition: PathCondition, variants: pa.Array | pa.ChunkedArray, mask: Mask) -> pa.ChunkedArray:
    """Return for which variants a condition is true; ``mask`` is how filters on columns are looked at.

    Raises:
        InvalidInputError: something at the path does not compare with the condition's value.
        pa.ArrowInvalid: a variant is damaged.
    """
    chunks = variants.chunks if isinstance(variants, pa.ChunkedArray) else [variants]
    try:
        found = [_met(condition, part, mask) for chunk in chunks for part in _parts(chunk)]
    except DamagedVariantError as error:
        raise pa.ArrowInvalid(f"a variant is damaged: {error}") from None
    return pa.chunked_array(found, pa.bool_())


def _parts(chunk: pa.StructArray) -> Iterator[pa.StructArray]:
    for start in range(0, len(chunk), _ROWS_AT_ONCE):
        yield chunk.slice(start, _ROWS_AT_ONCE)


def _met(condition: PathCondition, variants: pa.StructArray, mask: Mask) -> pa.Array:
    if variants.type.get_field_index("typed_value") >= 0:
        typed = typed_at(variants, condition.path)
        if typed is not None:
            return _met_by(condition, typed, mask)
        variants = read_variants(variants)
    values = values_at(variants, condition.path)
    if isinstance(condition, PathNullTest):
        return values.is_valid() if condition.negated else values.is_null()
    return _compared(condition, values, mask)


def _met_by(condition: PathCondition, typed: pa.Array, mask: Mask) -> pa.Array:
    """Return which values of one type meet a condition; NULL is nothing."""
    if isinstance(condition, PathNullTest):
        return typed.is_valid() if condition.negated else typed.is_null()
    if typed.null_count == len(typed):  # of whichever type they would be
        return pa.repeat(pa.scalar(False), len(typed))  # noqa: FBT003 - a value
    return _compared_values(condition, typed, mask)


def values_at(variants: pa.StructArray, path: Sequence[str]) -> pa.Array:
    """Return what lies at a path in each variant, as large binaries; NULL: nothing, or what is null.

    Raises:
        DamagedVariantError: a variant is damaged.
    """
    parts = dict(zip([field.name for field in variants.type], variants.flatten(), strict=True))
    metadata, values = parts["metadata"], parts["value"].cast(VALUES)
    for name in path:
        is_object = pc.fill_null(pc.equal(kinds_of(values), OBJECT), False)  # noqa: FBT003 - a value
        found = objects_of(metadata.filter(is_object), values.filter(is_object)).field(name)
        values = pc.replace_with_mask(pa.nulls(len(values), VALUES), is_object, found)
    is_null = pc.equal(kinds_of(values), int(Primitive.NULL))
    return pc.if_else(pc.fill_null(is_null, True), pa.scalar(None, VALUES), values)  # noqa: FBT003


def _compared(condition: PathComparison, values: pa.Array, mask: Mask) -> pa.Array:
    kinds = kinds_of(values)
    met = pa.repeat(pa.scalar(False), len(values))  # noqa: FBT003 - a value
    for kind in pc.unique(kinds.drop_null()).to_pylist():
        if kind in (OBJECT, ARRAY):
            shown = "an object" if kind == OBJECT else "an array"
            raise InvalidInputError(
                f"{shown_path(condition.path)} is {shown} in some rows, which compares with no value of a "
                "filter."
            )
        is_so = pc.fill_null(pc.equal(kinds, kind), False)  # noqa: FBT003
        met = pc.replace_with_mask(met, is_so, _compared_scalars(condition, kind, values.filter(is_so), mask))
    return met


def _compared_scalars(condition: PathComparison, kind: int, values: pa.Array, mask: Mask) -> pa.Array:
    met = pa.repeat(pa.scalar(False), len(values))  # noqa: FBT003 - a value
    for is_so, scalars in scalars_of(kind, values):
        found = _compared_values(condition, scalars, mask)
        met = found if is_so is None else pc.replace_with_mask(met, is_so, found)
    return met


def _compared_values(condition: PathComparison, scalars: pa.Array, mask: Mask) -> pa.Array:
    column = Column(ONLY, "value", ducklake_type(scalars.type, "value"))
    predicate = as_of_column(condition, column.type)
    found = mask(pa.table({column.name: scalars}), predicate, TableSchema((column,)))
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
