"""What follows the load of README's DAG, and five mistakes of a user: tests look at their pages."""

from datetime import UTC, datetime

from airflow.sdk import dag

from airflow_provider_ducklake.assets.ducklake import create_asset
from airflow_provider_ducklake.operators.ddl import DuckLakeDDLOperator
from airflow_provider_ducklake.operators.delete import DuckLakeSparkDeleteOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from airflow_provider_ducklake.operators.sql import DuckLakeSparkSQLOperator
from airflow_provider_ducklake.operators.update import DuckLakeSparkUpdateOperator

START = datetime(2026, 1, 1, tzinfo=UTC)
DAYS = """
CREATE OR REPLACE TABLE sales.days AS
    SELECT day, count(*) AS orders, sum(price) AS amount
    FROM sales.orders GROUP BY day
"""
orders, days = create_asset(table="sales.orders"), create_asset(table="sales.days")


@dag(schedule=[orders], start_date=START, catchup=False)
def daily_sales() -> None:
    DuckLakeSparkSQLOperator(task_id="sum_days", sql=DAYS, inlets=[orders], outlets=[days])


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


daily_sales()
mistakes()
