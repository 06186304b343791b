"""Make large files of small ones, night by night.

Needs two connections: ``ducklake_default`` (type ``ducklake``) and ``spark_default`` (type ``spark``, for
example with host ``local[2]``). Each run adds three small files to the table ``readings`` in the schema
``main``, as loads during a day would, and makes one of them all.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG, task

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.operators.compact import DuckLakeSparkMergeAdjacentFilesOperator
from airflow_provider_ducklake.operators.ddl import DuckLakeDDLOperator

ROWS = 1_000  # of a load: more than are kept in the catalog


@task
def load() -> None:
    """Append rows three times."""
    import pyarrow as pa  # noqa: PLC0415 - not needed to parse the DAG

    hook = DuckLakeHook()
    for _ in range(3):
        readings = pa.table({"sensor": pa.array(range(ROWS), pa.int64()), "value": [0.5] * ROWS})
        hook.append_arrow("readings", readings)
    hook.close()


with DAG(
    dag_id="example_ducklake_compaction",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    doc_md=__doc__,
    tags=["example", "ducklake"],
) as dag:
    create_table = DuckLakeDDLOperator(
        task_id="create_table",
        sql="CREATE TABLE IF NOT EXISTS readings (sensor BIGINT, value DOUBLE)",
        create_lake=True,
    )
    merge = DuckLakeSparkMergeAdjacentFilesOperator(
        task_id="merge_readings", table="main.readings", max_file_size="128MB"
    )
    create_table >> load() >> merge
