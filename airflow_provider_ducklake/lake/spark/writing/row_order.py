"""Distribute rows to tasks and order them: by partition, sort keys, or clustered by columns.

To cluster, rows get a number by which those that are near each other in several columns lie near each other:
the Z-order curve. Each column's values are ranked into 64 ranges of about as many rows, by a
sample; the bits of the ranks, highest first and taken in turns, are the number. So columns count alike,
whatever their type and spread. *Source:* NULLs lie where a key says, as in the reference's files (probed on
1.5.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ...errors import InvalidInputError
from ...format.names.identifiers import fold
from ..types.frames import number_of
from ..types.names import free_prefix, quoted
from ..types.spark_types import carrier_type
from .partitions import gathered, rebalanced

if TYPE_CHECKING:
    from ...format.schema import TableSchema
    from ...format.sorting import SortField
    from ...planning.writing.write import WritePlan


def placed(df: DataFrame, keys: Sequence[str], plan: WritePlan) -> DataFrame:
    """Return ``df`` with rows that belong together in one task; a group too large for a file is split.

    ``keys`` name the partition keys, its last columns. Clustered rows get a column to be ordered by besides.
    """
    size = plan.settings.target_file_size_bytes
    if plan.row_order.zorder_by:
        return gathered(clustered(df, plan), [*keys, _zorder(plan)], size)
    if keys or plan.settings.gathers_rows:
        return rebalanced(df, keys, size)
    return df


def clustered(df: DataFrame, plan: WritePlan) -> DataFrame:
    """Return ``df`` with the column that ``ordered`` goes by where rows are to be clustered."""
    if not plan.row_order.zorder_by:
        return df
    return df.withColumn(_zorder(plan), zorder_key(df, plan.row_order.zorder_by, plan.target))


def _zorder(plan: WritePlan) -> str:
    return f"{free_prefix(plan.target.names)}zorder"


def ordered(df: DataFrame, leading: Sequence[str], plan: WritePlan) -> DataFrame:
    """Return ``df`` with the rows of each task sorted, by ``leading`` first.

    ``placed`` or ``clustered`` made it.
    """
    order = [f.col(quoted(name)).asc_nulls_first() for name in leading]
    if plan.row_order.zorder_by:
        return df.sortWithinPartitions(*order, f.col(_zorder(plan))).drop(_zorder(plan))
    order += _sort_columns(plan.row_order.sort_by, plan.target)
    return df.sortWithinPartitions(*order) if order else df


def _sort_columns(keys: Sequence[SortField], schema: TableSchema) -> list[SparkColumn]:
    names = {fold(name): name for name in schema.names}
    return [
        _SORTED[key.direction, key.null_order](f.col(quoted(names[fold(key.column_name or "")])))
        for key in keys
    ]


_SORTED = {
    ("ASC", "NULLS_LAST"): SparkColumn.asc_nulls_last,
    ("ASC", "NULLS_FIRST"): SparkColumn.asc_nulls_first,
    ("DESC", "NULLS_LAST"): SparkColumn.desc_nulls_last,
    ("DESC", "NULLS_FIRST"): SparkColumn.desc_nulls_first,
}


MOST_COLUMNS = 8
_BITS = 6
_SAMPLE = 20_000  # rows


def zorder_key(df: DataFrame, names: Sequence[str], schema: TableSchema) -> SparkColumn:
    """Return the number, a bigint, for the columns of that name; their order does not matter much.

    One job reads a sample of the rows.
    """
    columns = [schema.find(name) for name in names]
    if len(columns) > MOST_COLUMNS:
        raise InvalidInputError(f"zorder_by takes at most {MOST_COLUMNS} columns, not {len(columns)}.")
    if nested := next((column for column in columns if column.children), None):
        raise InvalidInputError(
            f"zorder_by: column {nested.name} has type {nested.type}, which has no order. Leave it out."
        )
    # comes to Python as it is: its times end in 9999
    values = [number_of(f.col(quoted(column.name)), carrier_type(column)) for column in columns]
    ranks = [
        _rank(value, bounds) for value, bounds in zip(values, _bounds_of_sample(df, values), strict=True)
    ]
    return _interleaved(ranks)


def _bounds_of_sample(df: DataFrame, values: Sequence[SparkColumn]) -> list[list[Any]]:
    """Return for each column the ascending values at which a new range begins.

    The smallest hashes of all rows are a sample that does not depend on the order of rows.
    """
    names = [f"v{number}" for number in range(len(values))]
    chosen = df.select(*(value.alias(name) for value, name in zip(values, names, strict=True)))
    sample = chosen.orderBy(f.xxhash64(*names)).limit(_SAMPLE)
    ranges = 2**_BITS
    ranked = sample.agg(*(f.sort_array(f.collect_list(name)).alias(name) for name in names)).first()
    assert ranked is not None
    return [
        list(dict.fromkeys(found[len(found) * number // ranges] for number in range(1, ranges) if found))
        for found in ranked
    ]


def _rank(value: SparkColumn, bounds: Sequence[Any]) -> SparkColumn:
    """Count the bounds that are not above a value, by bisection; NULL ranks lowest."""
    if not bounds:
        return f.lit(0).cast("bigint")
    return f.when(value.isNull(), f.lit(0).cast("bigint")).otherwise(_search(value, bounds, 0, len(bounds)))


def _search(value: SparkColumn, bounds: Sequence[Any], low: int, high: int) -> SparkColumn:
    if low == high:
        return f.lit(low).cast("bigint")
    middle = (low + high) // 2
    above = _search(value, bounds, middle + 1, high)
    return f.when(value >= f.lit(bounds[middle]), above).otherwise(_search(value, bounds, low, middle))


def _interleaved(ranks: Sequence[SparkColumn]) -> SparkColumn:
    bits = chain.from_iterable(
        (f.getbit(rank, f.lit(bit)).cast("bigint") for rank in ranks) for bit in reversed(range(_BITS))
    )
    number = f.lit(0).cast("bigint")
    for bit in bits:
        number = f.shiftleft(number, 1).bitwiseOR(bit)
    return number
