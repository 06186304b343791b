"""Rows as a file has them that shreds their variants; of which shape, its first rows say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.spec.types.ducklake_types import Kind
from airflow_provider_ducklake.lake.spec.types.variant_bytes import DamagedVariantError
from airflow_provider_ducklake.lake.storage.parquet.shredding import WHOLE, Shape, shape_of, shredded
from airflow_provider_ducklake.lake.storage.parquet.variant_cuts import VALUES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_ducklake.lake.spec.schema import TableSchema

_METADATA = pa.field("metadata", pa.binary(), nullable=False)
_DAMAGED = (DamagedVariantError, pa.ArrowInvalid)  # the latter where a string is not UTF-8


def shapes_of(rows: pa.Table, schema: TableSchema) -> dict[int, Shape]:
    """Return the shapes of the columns of variants that are worth shredding, by their places."""
    found = {
        place: _shape(rows.column(place))
        for place, column in enumerate(schema.columns)
        if column.type.facts.kind is Kind.VARIANT
    }
    return {place: shape for place, shape in found.items() if not shape.is_whole}


def _shape(variants: pa.ChunkedArray) -> Shape:
    try:
        return shape_of(*_parts(variants.combine_chunks()))
    except _DAMAGED:  # of rows that nobody looks at, as those of another's file
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
