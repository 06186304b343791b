"""JSON of a column's statistics."""

from __future__ import annotations

from typing import Any

from airflow_provider_ducklake.spark.job.kinds import flag, integer, optional, text
from airflow_provider_ducklake.spec.ids import ColumnId
from airflow_provider_ducklake.spec.stats import ColumnStats


def encode_stats(stats: ColumnStats) -> list[Any]:
    """Return the statistics of a column in one file."""
    return [getattr(stats, name) for name in ColumnStats.__dataclass_fields__]


def decode_stats(item: list[Any]) -> ColumnStats:
    """Return the statistics; the inverse of ``encode_stats``."""
    column_id, values, nulls, least, greatest, contains_nan, size, only_nan, extra_stats = item
    return ColumnStats(
        ColumnId(integer(column_id)),
        optional(integer, values),
        optional(integer, nulls),
        optional(text, least),
        optional(text, greatest),
        optional(flag, contains_nan),
        optional(integer, size),
        flag(only_nan),
        optional(text, extra_stats),
    )
