"""Five mistakes of a user, after the DAGs of the quick start have run: tests look at their pages."""

from datetime import UTC, datetime

from airflow.sdk import dag

from airflow_provider_ducklake.operators.ddl import DuckLakeDDLOperator
from airflow_provider_ducklake.operators.delete import DuckLakeSparkDeleteOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from airflow_provider_ducklake.operators.update import DuckLakeSparkUpdateOperator

START = datetime(2026, 1, 1, tzinfo=UTC)


@dag(schedule=None, start_date=START, default_args={"asset_events": False})
def mistakes() -> None:
    DuckLakeSparkDeleteOperator(task_id="no_such_table", table="sales.order", where="day < DATE '2026-01-01'")
    DuckLakeSparkInsertOperator(
        task_id="no_such_file", table="sales.orders", source="/no/such/orders.parquet"
    )
    DuckLakeSparkInsertOperator(
        task_id="wrong_columns", table="sales.orders", sql="SELECT 1 AS id, 2.5 AS prize FROM range(3)"
    )
    DuckLakeSparkUpdateOperator(
        task_id="no_such_column", table="sales.orders", set={"prize": "0"}, where="id = 1"
    )
    DuckLakeDDLOperator(task_id="not_ddl", sql="ALTER TABLE sales.orders ADD COLUMN discount MONEY")


mistakes()
