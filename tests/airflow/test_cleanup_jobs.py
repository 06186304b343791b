"""A clean-up of orphaned files while a job runs; a stand-in takes the place of Spark."""

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import FilesReleasedError
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from tests.airflow.spark_submit import stand_in
from tests.airflow.test_insert_operator import CONTEXT
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),  # SparkSubmitHook's pipe
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
    pytest.mark.usefixtures("collected"),
]


class CleanedUp(DuckLakeSparkInsertOperator):
    """Deletes orphans, as another task would, between its job and its commit."""

    url: str
    stage_ttl: timedelta

    def submitter(self, context: Any) -> Any:
        return _CleaningUp(super().submitter(context), self)


class _CleaningUp:
    """A submitter behind whose jobs orphans are deleted."""

    def __init__(self, submitter: Any, task: CleanedUp) -> None:
        self._submitter, self._task = submitter, task

    def __getattr__(self, name: str) -> Any:
        return getattr(self._submitter, name)

    def run(self, *arguments: Any) -> Any:
        results = self._submitter.run(*arguments)
        time.sleep(0.02)  # the file system's clock goes on
        with Lake.connect(self._task.url) as lake:
            lake.delete_orphaned_files(older_than=timedelta(0), stage_ttl=self._task.stage_ttl)
        return results


@pytest.fixture
def task(
    sqlite_catalog: CatalogDatabase,
    connect: Callable[..., str],
    set_connection: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> CleanedUp:
    connect(sqlite_catalog)
    set_connection("spark_default", conn_type="spark", host="local[2]")
    stand_in(tmp_path / "bin", monkeypatch)
    with open_lake(sqlite_catalog) as lake:
        lake.sql("CREATE TABLE orders (id INT)")
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int32())}), path)
    task = CleanedUp(task_id="insert", table="main.orders", source=str(path))
    task.url = sqlite_catalog.sqlalchemy_url
    return task


def stored_rows(task: CleanedUp) -> list[int]:
    with Lake.connect(task.url) as lake:
        return sorted(lake.read_arrow("orders")["id"].to_pylist())


def test_files_of_a_running_job_are_no_orphans(task):
    task.stage_ttl = timedelta(days=7)

    assert task.execute(CONTEXT)["rows_added"] == 2

    assert stored_rows(task) == [1, 2]


def test_a_job_whose_files_were_given_up_is_not_committed(task):
    task.stage_ttl = timedelta(0)

    with pytest.raises(FilesReleasedError, match="released by a clean-up of orphaned files"):
        task.execute(CONTEXT)

    assert stored_rows(task) == []
