"""What tests of jobs that outlive their task share: a task's tries, a job that waits, what is left."""

import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from sqlalchemy import create_engine, text
from sqlalchemy.exc import ProgrammingError

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from airflow_provider_ducklake.operators.spark import DuckLakeSparkOperator
from tests.airflow.dags import FakeTaskInstance
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

ROWS = 20_000
SMALL = {"driver_memory": "512m", "executor_memory": "512m", "status_poll_interval": 1}
SLOW = """
import os
import time

def rows(spark, sources):
    while os.path.exists({gate!r}):
        time.sleep(0.2)
    return spark.range({rows}).selectExpr("cast(id as int) AS id", "concat('n', id % 7) AS name")
"""
SECONDS = 120
PLANNED = "SELECT count(*) FROM airflow_ducklake_application"
TAKEN_OVER = "SELECT count(*) FROM airflow_ducklake_application WHERE attended_by <> try_id"
SUBMITTED = "SELECT count(*) FROM airflow_ducklake_application WHERE application IS NOT NULL"


def execute(
    tries: int = 1,
    cls: type[DuckLakeSparkOperator] = DuckLakeSparkInsertOperator,
    event: dict[str, Any] | None = None,
    ti_id: Any = None,
    **arguments: Any,
) -> dict[str, Any]:
    ti = FakeTaskInstance("insert")
    ti.try_number, ti.max_tries = tries, 9
    ti.id = ti_id or ti.id
    operator = cls(task_id="insert", table="t", retries=9, **SMALL, **arguments)
    context: Any = {"ti": ti, "logical_date": None}
    return operator.execute(context) if event is None else operator.execute_complete(context, event)


def started(**arguments: Any) -> Any:
    """Execute a first try in a worker of its own."""
    worker = multiprocessing.get_context("fork").Process(target=execute, kwargs=arguments)
    worker.start()
    return worker


def wait_until(condition: Callable[[], object], what: str) -> None:
    last = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < last, f"not in {SECONDS} s: {what}"
        time.sleep(0.05)


def count(catalog: CatalogDatabase, query: str) -> int:
    """Ask the catalog; 0 where the table is not there yet."""
    engine = create_engine(catalog.sqlalchemy_url)
    try:
        with engine.connect() as connection:
            return connection.execute(text(query)).scalar_one()
    except ProgrammingError:
        return 0
    finally:
        engine.dispose()


def deferred(**arguments: Any) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as raised:
        execute(deferrable=True, **arguments)
    return raised.value


async def event_of(trigger: Any) -> dict[str, Any]:
    return (await anext(trigger.run())).payload


def slow_rows(folder: Path, gate: Path) -> dict[str, Any]:
    """Return the arguments of an insert that waits as long as ``gate`` is there."""
    gate.touch()
    module = folder / "slow_rows.py"
    module.write_text(SLOW.format(gate=str(gate), rows=ROWS))
    return {"transform": "slow_rows:rows", "py_files": str(module)}


def check_once(lake: Lake, catalog: CatalogDatabase) -> None:
    """Check that the rows were committed once, and that nothing else is left of the job."""
    with open_lake(catalog) as reference:
        assert reference.sql("SELECT count(*), sum(id) FROM t") == [(ROWS, sum(range(ROWS)))]
        assert len(reference.sql("FROM ducklake_snapshots('lake')")) == 3
    left = {str(file) for file in Path(lake.data_path).rglob("*") if file.is_file()}
    assert left == set(lake.reads.registered_files(left)), "files that no snapshot names"
    assert count(catalog, PLANNED) == 0
    assert lake.verify() == []


def check_nothing(lake: Lake, catalog: CatalogDatabase) -> None:
    """Check that a job that was stopped left nothing."""
    assert [file for file in Path(lake.data_path).rglob("*") if file.is_file()] == []
    assert count(catalog, PLANNED) == 0
