"""Recompute only the months that a change touched.

``monthly_sales`` has the sum of each month of ``daily_sales``, which is partitioned by month. Tasks of this
provider that change ``daily_sales``, and have the asset ``sales`` in their ``outlets``, make an event for
each partition that they touched. On Airflow 3.3 and later each of these starts a run, whose partition key is
the month. Older versions have no events of partitions: there the table's event starts one run, and names all
months that were touched.

Needs two connections: ``ducklake_default`` (type ``ducklake``) and ``spark_default`` (type ``spark``, for
example with host ``local[2]``). Both tables have to exist; docs/recipes.md has their DDL.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException
from airflow.sdk import DAG, task

from airflow_provider_ducklake.assets.ducklake import create_asset
from airflow_provider_ducklake.hooks.compat import PARTITION_EVENTS
from airflow_provider_ducklake.operators.sql import DuckLakeSparkSQLOperator

sales = create_asset(table="main.daily_sales", by_partition=PARTITION_EVENTS)
schedule: Any = [sales]
if PARTITION_EVENTS:
    from airflow.sdk import IdentityMapper, PartitionedAssetTimetable

    schedule = PartitionedAssetTimetable(assets=sales, default_partition_mapper=IdentityMapper())

RECOMPUTE = """
{% set months = ti.xcom_pull(task_ids='months_touched') %}
INSERT OVERWRITE monthly_sales
    SELECT month, amount FROM monthly_sales
    WHERE {% for month in months %}month <> DATE '{{ month }}'{{ "" if loop.last else " AND " }}{% endfor %}
    {%- for month in months %}
    UNION ALL
    SELECT DATE '{{ month }}', sum(amount) FROM daily_sales
    WHERE day >= DATE '{{ month }}' AND day < add_months(DATE '{{ month }}', 1) HAVING count(*) > 0
    {%- endfor %}
"""


@task
def months_touched(dag_run: Any = None, triggering_asset_events: Any = None) -> list[str]:  # noqa: ANN401
    """Return the first day of each month to recompute."""
    if PARTITION_EVENTS:
        return [first_day(dag_run.partition_key)]
    touched = [event.extra["partitions"] for event in triggering_asset_events[sales]]
    if None in touched:
        raise AirflowFailException("Any month may have been touched: recompute all of monthly_sales.")
    if not any(touched):
        raise AirflowSkipException("No month was touched.")
    return sorted({first_day(key) for keys in touched for key in keys})


def first_day(key: str) -> str:
    """Return the first day of a month's partition key, such as ``month=2026-11``."""
    return f"{key.removeprefix('month=')}-01"


with DAG(
    "example_ducklake_changed_partitions",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    schedule=schedule,
    catchup=False,
    max_active_runs=1,  # two that overwrite the same table at once would conflict
    doc_md=__doc__,
    tags=["ducklake"],
):
    months_touched() >> DuckLakeSparkSQLOperator(task_id="recompute", sql=RECOMPUTE)
