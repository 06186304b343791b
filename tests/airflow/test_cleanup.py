"""The operators that delete files, on lakes of the reference client."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.lake.errors import FilesNotDeletedError
from airflow_provider_ducklake.operators.cleanup import (
    DuckLakeCleanupOldFilesOperator,
    DuckLakeDeleteOrphanedFilesOperator,
)
from tests.airflow.dags import sync_dag, xcom
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


@pytest.mark.parametrize("operator", [DuckLakeCleanupOldFilesOperator, DuckLakeDeleteOrphanedFilesOperator])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"older_than": "23 hours"}, "younger than min_retention=1 day"),
        ({"older_than": "2 days", "min_retention": "3 days"}, "younger than min_retention=3 days"),
        ({"older_than": datetime(2126, 1, 1, tzinfo=UTC)}, "is in the future"),
        ({"older_than": "soon"}, "'soon' is not a valid interval"),
        ({"older_than": 5}, "older_than is 5"),
        ({"min_retention": "none"}, "'none' is not a valid interval"),
        ({"dry_run": "perhaps"}, "dry_run is 'perhaps'"),
    ],
)
def test_input_that_makes_no_sense_fails_the_task_for_good(orders, operator, arguments, said):
    with pytest.raises(AirflowFailException, match=r"^InvalidInputError: ") as raised:
        operator(task_id="clean", **arguments).execute({})

    assert said in str(raised.value)
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
    with DAG("clean", start_date=datetime(2024, 1, 1, tzinfo=UTC), schedule=None) as dag:
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

    ended = sync_dag(dag).test()

    assert ended.state == "success"
    assert (xcom(ended, "old")["files_deleted"], xcom(ended, "orphaned")["files_deleted"]) == (1, 1)
    assert len(list(orders.iterdir())) == 1
