"""Load many days at the same time: each mapped task overwrites the rows of its own day.

Needs two connections: ``ducklake_default`` (type ``ducklake``) and ``spark_default`` (type ``spark``, for
example with host ``local[2]``). Each run loads the days that its params name into ``main.meter_readings``;
rows that these days had are replaced, those of other days stay.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, task

from airflow_provider_ducklake.operators.ddl import DuckLakeDDLOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator

# What a real DAG reads from the files of the day.
READINGS = "SELECT DATE '{day}' AS day, id AS meter, dayofyear(DATE '{day}') + id AS kwh FROM range(24)"


@task
def days_to_load(params: Any = None) -> list[dict[str, str]]:  # noqa: ANN401 - Airflow's
    """Return the arguments of each day's task."""
    first = date.fromisoformat(params["first_day"])
    days = [first + timedelta(days=number) for number in range(params["days"])]
    return [{"sql": READINGS.format(day=day), "overwrite_where": f"day = DATE '{day}'"} for day in days]


with DAG(
    "example_ducklake_backfill",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    schedule=None,
    params={"first_day": "2026-01-01", "days": 4},
    tags=["ducklake"],
):
    create_table = DuckLakeDDLOperator(
        task_id="create_table",
        sql=[
            "CREATE TABLE IF NOT EXISTS meter_readings (day DATE, meter BIGINT, kwh BIGINT)",
            "ALTER TABLE meter_readings SET PARTITIONED BY (day)",
        ],
        create_lake=True,
    )
    load = DuckLakeSparkInsertOperator.partial(
        task_id="load",
        table="meter_readings",
        max_active_tis_per_dagrun=8,
        retries=3,
    ).expand_kwargs(days_to_load())

    create_table >> load
