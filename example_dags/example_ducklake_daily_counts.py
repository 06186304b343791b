"""A table of daily counts that each run brings up to date from what has changed since the last one.

Needs two connections: ``ducklake_default`` (type ``ducklake``) and ``spark_default`` (type ``spark``, for
example with host ``local[2]``). Each run adds a few trips to ``main.trips``, corrects one and counts on.
"""

from __future__ import annotations

from datetime import UTC, date, datetime

import pyarrow as pa
from airflow.sdk import DAG, task

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.operators.ddl import DuckLakeDDLOperator
from airflow_provider_ducklake.operators.sql import DuckLakeSparkSQLOperator

# What is there already, and what the changes add to it or take away.
COUNT_ON = """
CREATE TEMPORARY VIEW counted AS
    SELECT day, trips, passengers FROM daily
    UNION ALL
    SELECT day, sign, sign * passengers FROM (
        SELECT *, CASE WHEN change_type IN ('insert', 'update_postimage') THEN 1 ELSE -1 END AS sign
        FROM trips
    );

INSERT OVERWRITE daily
    SELECT day, sum(trips), sum(passengers) FROM counted GROUP BY day HAVING sum(trips) > 0;
"""


@task
def new_trips(day: str | None = None) -> None:
    """Add the trips of a day, as some other system would."""
    hook = DuckLakeHook()
    when = date.fromisoformat(day) if day else datetime.now(UTC).date()
    rows = {"day": [when] * 3, "passengers": pa.array([2, 1, 4], pa.int64())}
    hook.append_arrow("trips", pa.table(rows))
    hook.close()


with DAG(
    "example_ducklake_daily_counts",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    schedule=None,
    tags=["ducklake"],
):
    tables = DuckLakeDDLOperator(
        task_id="tables",
        sql=[
            "CREATE TABLE IF NOT EXISTS trips (day DATE, passengers BIGINT)",
            "CREATE TABLE IF NOT EXISTS daily (day DATE, trips BIGINT, passengers BIGINT)",
        ],
        create_lake=True,
    )
    count = DuckLakeSparkSQLOperator(task_id="count", sql=COUNT_ON, incremental=True)

    tables >> new_trips("{{ ds }}") >> count
