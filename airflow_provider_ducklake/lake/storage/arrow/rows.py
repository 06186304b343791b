"""Split an Arrow table into the partitions of its lake table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc

from ...format.names.identifiers import fold
from ...format.partitioning import PartitionField, partition_value
from .arrow_types import arrow_type, cast_leaf, physical_values

if TYPE_CHECKING:
    from ...format.schema import TableSchema
    from ...format.sorting import SortField
    from ...format.types.ducklake_types import DuckLakeType
    from ...format.types.values import Physical


def split_by_partition(
    rows: pa.Table, schema: TableSchema, fields: Sequence[PartitionField]
) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
    """Yield the values and the rows of each partition, in order of first appearance; rows keep their order.

    Values are computed once for each distinct source value, not for each row.
    """
    if not fields:
        yield (), rows
        return
    keys = [_key_texts(rows, schema, field) for field in fields]
    names = [f"k{number}" for number in range(len(keys))]
    groups = pa.table([*keys, pa.array(range(rows.num_rows), pa.int64())], names=[*names, "row"])
    found = groups.group_by(names, use_threads=False).aggregate([("row", "list")]).to_pylist()
    for group in sorted(found, key=lambda group: group["row_list"][0]):  # Arrow's own order is undefined
        yield tuple(group[name] for name in names), rows.take(group["row_list"])


def partition_of_rows(
    rows: pa.Table, schema: TableSchema, fields: Sequence[PartitionField]
) -> list[tuple[str | None, ...]]:
    """Return the partition values of each row."""
    return list(zip(*(_key_texts(rows, schema, field).to_pylist() for field in fields), strict=True))


def _key_texts(rows: pa.Table, schema: TableSchema, field: PartitionField) -> pa.Array:
    column = schema.by_id(field.column_id)
    values = rows.column(column.name).combine_chunks()
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    encoded = pc.dictionary_encode(values)
    texts = [
        partition_value(field.transform, column.type, physical(value, column.type))
        for value in encoded.dictionary
    ]
    return pc.take(pa.array(texts, pa.string()), encoded.indices)


def values_of_row(
    row: pa.RecordBatch | pa.Table, schema: TableSchema, fields: Sequence[PartitionField]
) -> tuple[str | None, ...]:
    """Return the partition values of the first row; its columns are the table's, in order."""
    return tuple(_value(row, schema, field) for field in fields)


def _value(row: pa.RecordBatch | pa.Table, schema: TableSchema, field: PartitionField) -> str | None:
    column = schema.by_id(field.column_id)
    value = row.column(schema.columns.index(column))[0]
    return partition_value(field.transform, column.type, physical(value, column.type))


def physical(scalar: pa.Scalar, type_: DuckLakeType) -> Physical | None:
    """Return the physical form (see ``format.types.values``) of an Arrow scalar; null is None."""
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.ExtensionScalar):
        scalar = scalar.value
    (value,) = physical_values(cast_leaf(pa.array([scalar]), arrow_type(type_)), type_)
    return cast("Physical", value)


# Rows in the order of a table's sort keys, as DuckDB sorts them: NaN is the greatest number.


def sorted_rows(rows: pa.Table, keys: Sequence[SortField]) -> pa.Table:
    """Return the rows sorted by the keys, which are columns with an order; equal ones keep theirs."""
    columns: dict[str, pa.ChunkedArray] = {}
    order: list[tuple[str, str]] = []
    for key in keys:
        name = next(one for one in rows.column_names if fold(one) == fold(key.column_name or ""))
        for values, direction in _sort_columns(rows[name], key):
            order.append((str(len(columns)), direction))
            columns[str(len(columns))] = values
    return rows.take(pc.sort_indices(pa.table(columns), order)) if order else rows  # which is stable


def _sort_columns(values: pa.ChunkedArray, key: SortField) -> Iterator[tuple[pa.ChunkedArray, str]]:
    """Yield what to sort by, in turn: whether it is NULL, whether it is NaN, and the value."""
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.cast(values.type.storage_type)
    direction = "descending" if key.direction == "DESC" else "ascending"
    nulls = "descending" if key.null_order == "NULLS_FIRST" else "ascending"
    yield pc.is_null(values), nulls
    if pa.types.is_floating(values.type):
        yield pc.fill_null(pc.is_nan(values), False), direction  # noqa: FBT003 - the filling
    yield values, direction
