"""In which tasks rows are written and in which order: by partition, sort keys, or clustered by columns.

Sort keys that are more than a column are SQL of another engine: they end the keys that count here, and the
log says so. *Source:* NULLs lie where a key says, as in the reference's files (probed on 1.5.5).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from airflow_provider_ducklake.spark.types.identifiers import free_prefix, quoted
from airflow_provider_ducklake.spark.writing.partitions import gathered, rebalanced
from airflow_provider_ducklake.spark.writing.zorder import zorder_key
from airflow_provider_ducklake.spec.names.identifiers import fold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_ducklake.planning.writing.write import WritePlan
    from airflow_provider_ducklake.spec.schema import TableSchema
    from airflow_provider_ducklake.spec.sorting import SortField

log = logging.getLogger(__name__)


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
    order += _sort_columns(plan.row_order.sort_by, plan.target, plan.table)
    return df.sortWithinPartitions(*order) if order else df


def _sort_columns(keys: Sequence[SortField], schema: TableSchema, table: str) -> list[SparkColumn]:
    found = []
    names = {fold(name): name for name in schema.names}
    for key in keys:
        name = names.get(fold(key.column_name or ""))
        if name is None:
            log.warning(
                "%s is sorted by %s, which Spark cannot compute: rows are sorted by the keys before it only",
                table,
                key.expression,
            )
            break
        found.append(_SORTED[key.direction, key.null_order](f.col(quoted(name))))
    return found


_SORTED = {
    ("ASC", "NULLS_LAST"): SparkColumn.asc_nulls_last,
    ("ASC", "NULLS_FIRST"): SparkColumn.asc_nulls_first,
    ("DESC", "NULLS_LAST"): SparkColumn.desc_nulls_last,
    ("DESC", "NULLS_FIRST"): SparkColumn.desc_nulls_first,
}
