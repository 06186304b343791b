"""JSON of a column's statistics."""

from __future__ import annotations

from typing import Any

from airflow_provider_ducklake.spec.stats import ColumnStats


def encode_stats(stats: ColumnStats) -> list[Any]:
    """Return the statistics of a column in one file."""
    return [getattr(stats, name) for name in ColumnStats.__dataclass_fields__]


def decode_stats(item: list[Any]) -> ColumnStats:
    """Return the statistics; the inverse of ``encode_stats``."""
    return ColumnStats(*item)
