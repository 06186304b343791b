"""A table that evolves and is emptied by a mistake, and the nightly maintenance of its lake."""

from datetime import UTC, datetime

from airflow.sdk import dag

from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from airflow_provider_ducklake.operators.maintenance import ducklake_maintenance

FILLED = "SELECT CAST(id AS INT) AS id, CAST(id AS INT) AS points FROM range(50)"
EVOLVED = "SELECT CAST(id AS INT) AS id, id * 10000000000 AS points, 'web' AS channel FROM range(50, 60)"
TABLE = {"table": "sales.visits", "asset_events": False}


@dag(schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC))
def night() -> None:
    fill = DuckLakeSparkInsertOperator(task_id="fill", sql=FILLED, create_table=True, **TABLE)
    evolve = DuckLakeSparkInsertOperator(
        task_id="evolve", sql=EVOLVED, schema_evolution="add_and_widen", **TABLE
    )
    empty = DuckLakeSparkInsertOperator(
        task_id="empty", sql=f"{EVOLVED} WHERE id < 0", mode="overwrite", **TABLE
    )
    fill >> evolve >> empty >> ducklake_maintenance(arguments={"expire": {"keep_last": 2}})


night()
