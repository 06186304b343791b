"""Files that keep coming become rows: Spark streams them, and each micro-batch is one snapshot.

Needs two connections: ``ducklake_default`` (type ``ducklake``) and ``spark_default`` (type ``spark``, for
example with host ``local[2]``). Each run adds two files of clicks, and appends what it has not seen before to
the table ``clicks`` in the schema ``main``.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG, task

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.operators.ddl import DuckLakeDDLOperator
from airflow_provider_ducklake.operators.stream import DuckLakeSparkStreamOperator

# What would be a module of yours.
CLICKS = """
def clicks(spark, sources):
    reader = spark.readStream.schema("page STRING, clicked TIMESTAMP_NTZ").option("maxFilesPerTrigger", 1)
    return reader.json({folder!r})
"""


@task
def add_files() -> dict[str, str]:
    """Add files; return where things are."""
    hook = DuckLakeHook()
    folder = Path(hook.lake().data_path, "_clicks")
    hook.close()
    (folder / "new").mkdir(parents=True, exist_ok=True)
    (folder / "example_clicks.py").write_text(CLICKS.format(folder=str(folder / "new")))
    for page in ("home", "prices"):
        click = {"page": page, "clicked": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")}
        (folder / "new" / f"{time.time_ns()}.json").write_text(json.dumps(click) + "\n")
    return {"module": str(folder / "example_clicks.py"), "checkpoint": str(folder / "checkpoint")}


with DAG(
    "example_ducklake_stream",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    schedule=None,
    max_active_runs=1,
    tags=["ducklake"],
):
    create = DuckLakeDDLOperator(
        task_id="create",
        sql="CREATE TABLE IF NOT EXISTS clicks (page VARCHAR, clicked TIMESTAMP)",
        create_lake=True,
    )
    stream = DuckLakeSparkStreamOperator(
        task_id="stream",
        table="clicks",
        transform="example_clicks:clicks",
        py_files="{{ ti.xcom_pull(task_ids='add_files')['module'] }}",
        checkpoint="{{ ti.xcom_pull(task_ids='add_files')['checkpoint'] }}",
    )

    create >> add_files() >> stream
