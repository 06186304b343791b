"""The operator in runs of a real Airflow, and the examples of its page."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.sdk import DAG

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.operators.add_files import DuckLakeAddFilesOperator
from tests.airflow.dags import parse, run_next_try, start_run, sync_dag, xcom
from tests.airflow.unlucky import WorkerDiedError
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.usefixtures("airflow_db")
NUMBERS = count()
PAGE = (Path(__file__).parents[2] / "docs" / "add_files.md").read_text()


class DiesOnce(DuckLakeAddFilesOperator):
    """The operator on a worker that dies when its first try is done."""

    def execute(self, context: Any) -> dict[str, Any]:
        result = super().execute(context)
        if context["ti"].try_number == 1:
            raise WorkerDiedError
        return result


@pytest.fixture
def lake(sqlite_catalog: CatalogDatabase, connect: Callable[..., str]) -> CatalogDatabase:
    connect(sqlite_catalog)
    with (
        Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake,
        lake.transaction() as tx,
    ):
        tx.create_table("orders", {"id": "int64", "year": "int32"})
    return sqlite_catalog


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for year, ids in ((2024, [1, 2]), (2025, [3])):
        place = tmp_path / "shop" / f"year={year}"
        place.mkdir(parents=True)
        pq.write_table(pa.table({"id": ids}), place / "a.parquet")
    return tmp_path / "shop"


def make_task(kind: type[DuckLakeAddFilesOperator], **arguments: Any) -> DuckLakeAddFilesOperator:
    with DAG(f"add_{next(NUMBERS)}", start_date=datetime(2026, 1, 1, tzinfo=UTC), schedule=None) as dag:
        task = kind(task_id="add", table="orders", retries=2, retry_delay=timedelta(0), **arguments)
    sync_dag(dag)
    return task


def test_a_retry_finds_the_snapshot_of_the_try_that_died(lake: CatalogDatabase, folder: Path):
    task = make_task(
        DiesOnce,
        paths="{{ params.folder }}/*/*.parquet",
        params={"folder": str(folder)},
        hive_partitioning=True,
    )
    run = start_run(task.dag)

    assert run_next_try(run, task) == "up_for_retry"
    assert run_next_try(run, task) == "success"

    assert xcom(run, "add") == {
        "table": "main.orders",
        "snapshot_id": 2,
        "rows_added": 3,
        "files_added": None,
        "bytes_added": None,
        "already_committed": True,
    }
    with open_lake(lake) as duck:
        assert duck.sql("FROM orders ORDER BY id") == [(1, 2024), (2, 2024), (3, 2025)]
    assert len(list(folder.rglob("*.parquet"))) == 2


def test_a_file_that_does_not_fit_is_not_retried(lake: CatalogDatabase, folder: Path):
    task = make_task(DuckLakeAddFilesOperator, paths=[f"{folder}/year=2024/a.parquet"])
    run = start_run(task.dag)

    assert run_next_try(run, task) == "failed"

    with open_lake(lake) as duck:
        assert duck.sql("FROM orders") == []


def test_the_example_of_the_page_runs(lake: CatalogDatabase, folder: Path, tmp_path: Path):
    dag_file, library = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "dag.py").write_text(dag_file.replace("s3://shop/orders", str(folder)))

    run = sync_dag(parse(tmp_path / "dag.py")).test()

    assert run.state == "success"
    result = xcom(run, "add")
    assert (result["snapshot_id"], result["rows_added"], result["files_added"]) == (2, 3, 2)
    assert result["bytes_added"] == sum(path.stat().st_size for path in folder.rglob("*.parquet"))
    pq.write_table(pa.table({"ID": [9], "more": [1]}), folder / "late.parquet")
    with Lake.connect(lake.sqlalchemy_url) as opened:
        exec(
            compile(library.replace("s3://shop/orders", str(folder)), "add_files.md", "exec"),
            {"lake": opened},
        )
    with open_lake(lake) as duck:
        assert duck.sql("FROM orders WHERE id > 2 ORDER BY id") == [(3, 2025), (9, None)]
