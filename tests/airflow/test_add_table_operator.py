"""The operator in runs of a real Airflow, and the examples of its page."""

import gc
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk import DAG
from deltalake import DeltaTable, write_deltalake
from pyiceberg.table import Table
from pyiceberg.types import LongType, StringType

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.operators.add_table import DuckLakeAddTableOperator
from tests.airflow.dags import parse, run_next_try, start_run, sync_dag, xcom
from tests.airflow.unlucky import WorkerDiedError
from tests.interop.iceberg_source import append, data_paths, local, new_table, position_deletes, with_entries
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.usefixtures("airflow_db")
NUMBERS = count()
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "add_table.md").read_text()


class DiesOnce(DuckLakeAddTableOperator):
    """The operator on a worker that dies when its first try is done."""

    def execute(self, context: Any) -> dict[str, Any]:
        result = super().execute(context)
        if context["ti"].try_number == 1:
            raise WorkerDiedError
        return result


@pytest.fixture
def lake(sqlite_catalog: CatalogDatabase, connect: Callable[..., str]) -> CatalogDatabase:
    connect(sqlite_catalog)
    Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path).close()
    return sqlite_catalog


@pytest.fixture
def iceberg(tmp_path: Path) -> Table:
    table = new_table(tmp_path / "shop", {"id!": LongType(), "name": StringType()}, ["name"])
    append(table, id=[1, 2, 3], name=["a", "a", "b"])
    return table


@pytest.fixture
def delta(tmp_path: Path) -> str:
    folder = str(tmp_path / "shop" / "clicks")
    write_deltalake(folder, pa.table({"id": [1, 2, 3], "day": ["x", "x", "y"]}), partition_by=["day"])
    DeltaTable(folder).delete("id = 1")
    return folder


def make_task(kind: type[DuckLakeAddTableOperator], **arguments: Any) -> DuckLakeAddTableOperator:
    with DAG(f"add_{next(NUMBERS)}", start_date=datetime(2026, 1, 1, tzinfo=UTC), schedule=None) as dag:
        task = kind(task_id="add", table="orders", retries=2, retry_delay=timedelta(0), **arguments)
    sync_dag(dag)
    return task


def test_a_retry_finds_the_snapshot_of_the_try_that_died(lake: CatalogDatabase, iceberg: Table):
    gone = position_deletes(iceberg, {data_paths(iceberg)[0]: [0]}, partition=iceberg_partition(iceberg))
    task = make_task(
        DiesOnce,
        source="{{ params.source }}",
        format="iceberg",
        snapshot_id="{{ params.snapshot }}",
        create_table=True,
        params={
            "source": with_entries(iceberg, [gone]),
            "snapshot": str(iceberg.current_snapshot().snapshot_id),
        },
    )
    run = start_run(task.dag)

    assert run_next_try(run, task) == "up_for_retry"
    assert run_next_try(run, task) == "success"

    assert xcom(run, "add") == {
        "table": "main.orders",
        "snapshot_id": 1,
        "rows_added": None,
        "files_added": None,
        "bytes_added": None,
        "already_committed": True,
    }
    with open_lake(lake) as duck:
        assert duck.sql("FROM orders ORDER BY id") == [(1, "a"), (2, "a"), (3, "b")]


def iceberg_partition(table: Table) -> Any:
    return next(iter(table.scan().plan_files())).file.partition


@pytest.mark.parametrize(
    "arguments",
    [
        {"source": "/nowhere/orders", "format": "hudi"},
        {"source": "orders", "format": "delta"},
        {"source": "/nowhere", "format": "delta", "version": "newest"},
        {"source": "/nowhere", "format": "iceberg", "catalog": {"uri": 5}},
        {"source": "/nowhere", "format": "delta", "allowed_paths": [5]},
    ],
)
def test_bad_arguments_are_not_retried(lake: CatalogDatabase, arguments: dict[str, Any]):
    task = make_task(DuckLakeAddTableOperator, create_table=True, **arguments)
    run = start_run(task.dag)

    assert run_next_try(run, task) == "failed"

    with open_lake(lake) as duck:
        assert duck.sql("SELECT count(*) FROM ducklake_snapshots('lake')") == [(1,)]


@pytest.mark.usefixtures("lake")
def test_a_table_that_is_not_there_yet_is_looked_for_again(tmp_path: Path):
    task = make_task(
        DuckLakeAddTableOperator, source=str(tmp_path / "none"), format="delta", create_table=True
    )
    run = start_run(task.dag)

    assert run_next_try(run, task) == "up_for_retry"


def test_the_examples_of_the_page_run(lake: CatalogDatabase, iceberg: Table, delta: str, tmp_path: Path):
    dag_file, library = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    places = {"s3://shop/iceberg/orders": str(local(iceberg.location())), "s3://shop/delta/clicks": delta}
    for there, here in places.items():
        dag_file, library = dag_file.replace(there, here), library.replace(there, here)
    (tmp_path / "dag.py").write_text(dag_file)

    run = sync_dag(parse(tmp_path / "dag.py")).test()

    assert run.state == "success"
    result = xcom(run, "add_orders")
    assert (result["rows_added"], result["files_added"], result["already_committed"]) == (3, 2, False)
    assert xcom(run, "add_clicks")["rows_added"] == 2
    with open_lake(lake) as duck:
        assert duck.sql("FROM orders ORDER BY id") == [(1, "a"), (2, "a"), (3, "b")]
        assert duck.sql("FROM clicks ORDER BY id") == [(2, "x"), (3, "y")]
    library = library.replace("version=12", "version=1")
    with Lake.create(f"sqlite:///{tmp_path}/other.sqlite", f"{tmp_path}/other/") as other:
        exec(compile(library, "add_table.md", "exec"), {"lake": other})
        assert (other.row_count("orders"), other.row_count("clicks")) == (3, 2)


@pytest.mark.usefixtures("lake")
def test_the_example_dag_moves_a_table(iceberg: Table):
    example = sync_dag(parse(ROOT / "example_dags" / "example_ducklake_add_table.py"))

    run = example.test(run_conf={"metadata": iceberg.metadata_location})

    assert run.state == "success"
    assert xcom(run, "compare") == 3
    gc.collect()
