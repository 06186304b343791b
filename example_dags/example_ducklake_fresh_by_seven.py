"""The table is fresh by 07:00 UTC, or somebody hears since when it is not.

The DAG loads the sales of the day at 05:00 and has a deadline two hours later (``DeadlineAlert``, Airflow 3.1
and later). If it is missed, the triggerer calls ``report_freshness``, which logs since when the table is
unchanged and what the run is doing. To send that to people, write a coroutine of your own that calls it and
sends what it returns; it has to be in a module that the triggerer can import, so not in a DAG file.

Needs two connections: ``ducklake_default`` (type ``ducklake``) and ``spark_default`` (type ``spark``, for
example with host ``local[2]``). Creates the lake if there is none.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG
from airflow.sdk.definitions.deadline import AsyncCallback, DeadlineAlert, DeadlineReference  # type: ignore[attr-defined]  # where all versions have them

from airflow_provider_ducklake.operators.ddl import DuckLakeDDLOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator

TABLE = "fresh_sales"

by_seven = DeadlineAlert(
    reference=DeadlineReference.DAGRUN_LOGICAL_DATE,  # 05:00, whenever the run really starts
    interval=timedelta(hours=2),
    callback=AsyncCallback("airflow_provider_ducklake.triggers.snapshot.report_freshness", {"table": TABLE}),
)

with DAG(
    "example_ducklake_fresh_by_seven",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    schedule="0 5 * * *",
    catchup=False,
    deadline=by_seven,
    doc_md=__doc__,
    tags=["ducklake"],
):
    create_table = DuckLakeDDLOperator(
        task_id="create_table",
        sql=f"CREATE TABLE IF NOT EXISTS {TABLE} (day DATE, shop BIGINT, amount DOUBLE)",
        create_lake=True,
    )
    load = DuckLakeSparkInsertOperator(
        task_id="load",
        table=TABLE,
        sql="SELECT DATE '{{ ds }}' AS day, id AS shop, CAST(10.5 * id AS DOUBLE) AS amount FROM range(1, 5)",
        overwrite_where="day = DATE '{{ ds }}'",
    )
    create_table >> load
