"""Send numbers to Airflow's metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def emit_gauges(values: Mapping[str, float], tags: Mapping[str, str]) -> None:
    """Set the gauges ``ducklake.<name>``; a backend without tags gets no more than the last of each name."""
    stats = _stats()
    for name, value in values.items():
        stats.gauge(f"ducklake.{name}", value, tags=dict(tags))


def _stats() -> Any:  # noqa: ANN401 - a class that Airflow has moved
    try:
        from airflow.sdk.observability.stats import Stats  # noqa: PLC0415 - since Airflow 3.2
    except ImportError:
        from airflow.stats import Stats  # noqa: PLC0415
    return Stats
