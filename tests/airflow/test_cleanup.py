"""The operators that delete files, on lakes of the reference client."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import FilesNotDeletedError, FilesReleasedError
from airflow_provider_ducklake.operators.cleanup import (
    DuckLakeCleanupOldFilesOperator,
    DuckLakeDeleteOrphanedFilesOperator,
)
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from tests.airflow.dags import context_of, new_dag, succeeded, xcom
from tests.airflow.spark_submit import LEAVES_PROCESS, stand_in
from tests.interop.lakes import by_duckdb
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

HISTORY = (
    "CREATE TABLE orders (id INT)",
    "INSERT INTO orders VALUES (1), (2)",
    "DELETE FROM orders",
    "INSERT INTO orders VALUES (3)",
    "CALL ducklake_expire_snapshots('lake', versions => [0, 1, 2, 3])",
)


@pytest.fixture
def orders(sqlite_catalog: CatalogDatabase, connect: Callable[..., str]) -> Path:
    """The directory of a table with one file in use, one that waits for its deletion, and an orphan."""
    connect(sqlite_catalog)
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as lake:
        for statement in HISTORY:
            lake.sql(statement)
    folder = Path(sqlite_catalog.data_path) / "main" / "orders"
    (folder / "orphan.parquet").write_bytes(b"PAR1")
    time.sleep(0.02)  # the file system's clock goes on
    assert len(list(folder.iterdir())) == 3
    return folder


def run(operator: type, **arguments: Any) -> dict[str, Any]:
    result = operator(task_id="clean", **{"min_retention": "0 days", **arguments}).execute({})
    assert json.loads(json.dumps(result)) == result
    return result


def test_scheduled_files_go(orders):
    planned = run(DuckLakeCleanupOldFilesOperator, older_than="0 days", dry_run=True)
    assert planned == {
        "files_deleted": 1,
        "files_missing": 0,
        "files_used": 0,
        "dry_run": True,
        "paths": planned["paths"],
    }
    assert Path(planned["paths"][0]).exists()

    done = run(DuckLakeCleanupOldFilesOperator, older_than="0 days")

    assert done == {"files_deleted": 1, "files_missing": 0, "files_used": 0, "dry_run": False}
    assert not Path(planned["paths"][0]).exists()
    assert len(list(orders.iterdir())) == 2


def test_orphans_go(orders):
    planned = run(DuckLakeDeleteOrphanedFilesOperator, older_than="0 days", dry_run="True")
    assert planned["paths"] == [str(orders / "orphan.parquet")]
    assert planned["refused"] is None

    done = run(DuckLakeDeleteOrphanedFilesOperator, older_than=datetime.now(UTC))

    assert done == {
        "files_deleted": 1,
        "bytes_deleted": 4,
        "young": 0,
        "protected": 0,
        "uploads": 0,
        "dry_run": False,
    }
    assert not (orders / "orphan.parquet").exists()


@pytest.mark.parametrize("operator", [DuckLakeCleanupOldFilesOperator, DuckLakeDeleteOrphanedFilesOperator])
def test_nothing_is_two_days_old_yet(orders, operator):
    assert operator(task_id="clean").execute({})["files_deleted"] == 0
    assert len(list(orders.iterdir())) == 3


@pytest.mark.usefixtures("orders")
def test_a_file_that_resists_fails_the_task_at_the_end_and_is_named():
    (path,) = run(DuckLakeCleanupOldFilesOperator, older_than="0 days", dry_run=True)["paths"]
    Path(path).unlink()
    Path(path).mkdir()  # which no unlink takes, whoever runs it

    with pytest.raises(FilesNotDeletedError, match="0 files were deleted, 1 could not be") as raised:
        run(DuckLakeCleanupOldFilesOperator, older_than="0 days")

    assert raised.value.failures[0].startswith(f"{path}: ")


def test_a_shared_data_path_fails_the_task_for_good(orders):
    (orders.parent / "of_another").mkdir()
    name = "ducklake-0198c0de-0000-7000-8000-000000000000.parquet"
    (orders.parent / "of_another" / name).write_bytes(b"PAR1")
    time.sleep(0.02)

    planned = run(DuckLakeDeleteOrphanedFilesOperator, older_than="0 days", dry_run=True)
    with pytest.raises(AirflowFailException, match=r"SharedDataPathError: .*of_another"):
        run(DuckLakeDeleteOrphanedFilesOperator, older_than="0 days")
    assert "of_another" in planned["refused"]

    assert (
        run(DuckLakeDeleteOrphanedFilesOperator, older_than="0 days", sole_owner="true")["files_deleted"] == 2
    )


@pytest.mark.usefixtures("airflow_db")
def test_arguments_may_be_templates(orders):
    with new_dag("clean") as dag:
        given = {
            "older_than": "{{ params.age }}",
            "min_retention": "{{ params.age }}",
            "dry_run": "{{ params.dry }}",
            "params": {"age": "0 days", "dry": False},
        }
        old = DuckLakeCleanupOldFilesOperator(task_id="old", **given)
        orphaned = DuckLakeDeleteOrphanedFilesOperator(
            task_id="orphaned", stage_ttl="{{ params.age }}", **given
        )
        old >> orphaned

    ended = succeeded(dag)

    assert (xcom(ended, "old")["files_deleted"], xcom(ended, "orphaned")["files_deleted"]) == (1, 1)
    assert len(list(orders.iterdir())) == 1


# --- while a job runs; a stand-in takes the place of Spark ---


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
    by_duckdb(sqlite_catalog, "CREATE TABLE orders (id INT)")
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int32())}), path)
    task = CleanedUp(task_id="insert", table="main.orders", source=str(path))
    task.url = sqlite_catalog.sqlalchemy_url
    return task


def stored_rows(task: CleanedUp) -> list[int]:
    with Lake.connect(task.url) as lake:
        return sorted(lake.read_arrow("orders")["id"].to_pylist())


@LEAVES_PROCESS
@pytest.mark.usefixtures("collected")
def test_files_of_a_running_job_are_no_orphans(task):
    task.stage_ttl = timedelta(days=7)

    assert task.execute(context_of("insert"))["rows_added"] == 2

    assert stored_rows(task) == [1, 2]


@LEAVES_PROCESS
@pytest.mark.usefixtures("collected")
def test_a_job_whose_files_were_given_up_is_not_committed(task):
    task.stage_ttl = timedelta(0)

    with pytest.raises(FilesReleasedError, match="released by a clean-up of orphaned files"):
        task.execute(context_of("insert"))

    assert stored_rows(task) == []
