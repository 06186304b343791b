"""The operators that add files and tables, in runs of a real Airflow, and the examples of their pages."""

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.table import Table
from pyiceberg.types import LongType, StringType

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.operators.add_files import DuckLakeAddFilesOperator
from airflow_provider_ducklake.operators.add_table import DuckLakeAddTableOperator
from tests.airflow.dags import dies_once, make_task, parse, succeeded, sync_dag, tried, xcom
from tests.interop.iceberg_source import append, data_paths, local, new_table, position_deletes, with_entries
from tests.interop.lakes import by_duckdb
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.usefixtures("airflow_db")
ROOT = Path(__file__).parents[2]


def code_of(page: str) -> list[str]:
    """Return the DAG file that a page shows, and its use of the library."""
    return re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def lake(sqlite_catalog: CatalogDatabase, connect: Callable[..., str]) -> CatalogDatabase:
    connect(sqlite_catalog)
    Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path).close()
    return sqlite_catalog


@pytest.fixture
def orders(lake: CatalogDatabase) -> CatalogDatabase:
    """The lake with the table orders."""
    with Lake.connect(lake.sqlalchemy_url) as opened, opened.transaction() as tx:
        tx.create_table("orders", {"id": "int64", "year": "int32"})
    return lake


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for year, ids in ((2024, [1, 2]), (2025, [3])):
        place = tmp_path / "shop" / f"year={year}"
        place.mkdir(parents=True)
        pq.write_table(pa.table({"id": ids}), place / "a.parquet")
    return tmp_path / "shop"


def test_a_retry_finds_the_files_that_the_try_before_added(orders: CatalogDatabase, folder: Path):
    task = make_task(
        dies_once(DuckLakeAddFilesOperator),
        task_id="add",
        table="orders",
        paths="{{ params.folder }}/*/*.parquet",
        params={"folder": str(folder)},
        hive_partitioning=True,
    )
    run = tried(task, "up_for_retry", "success")

    assert xcom(run, "add") == {
        "table": "main.orders",
        "snapshot_id": 2,
        "rows_added": 3,
        "files_added": None,
        "bytes_added": None,
        "already_committed": True,
    }
    assert by_duckdb(orders, "FROM orders ORDER BY id") == [(1, 2024), (2, 2024), (3, 2025)]
    assert len(list(folder.rglob("*.parquet"))) == 2


def test_a_file_that_does_not_fit_is_not_retried(orders: CatalogDatabase, folder: Path):
    task = make_task(
        DuckLakeAddFilesOperator, task_id="add", table="orders", paths=[f"{folder}/year=2024/a.parquet"]
    )
    tried(task, "failed")

    assert by_duckdb(orders, "FROM orders") == []


def test_the_examples_of_the_page_on_files_run(orders: CatalogDatabase, folder: Path, tmp_path: Path):
    dag_file, library = (code.replace("s3://shop/orders", str(folder)) for code in code_of("add_files.md"))
    (tmp_path / "dag.py").write_text(dag_file)

    run = succeeded(parse(tmp_path / "dag.py"))

    result = xcom(run, "add")
    assert (result["snapshot_id"], result["rows_added"], result["files_added"]) == (2, 3, 2)
    assert result["bytes_added"] == sum(path.stat().st_size for path in folder.rglob("*.parquet"))
    pq.write_table(pa.table({"ID": [9], "more": [1]}), folder / "late.parquet")
    with Lake.connect(orders.sqlalchemy_url) as opened:
        exec(compile(library, "add_files.md", "exec"), {"lake": opened})
    assert by_duckdb(orders, "FROM orders WHERE id > 2 ORDER BY id") == [(3, 2025), (9, None)]


# --- tables of other formats ---


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


def test_a_retry_finds_the_table_that_the_try_before_added(lake: CatalogDatabase, iceberg: Table):
    partition = next(iter(iceberg.scan().plan_files())).file.partition
    gone = position_deletes(iceberg, {data_paths(iceberg)[0]: [0]}, partition=partition)
    task = make_task(
        dies_once(DuckLakeAddTableOperator),
        task_id="add",
        table="orders",
        source="{{ params.source }}",
        format="iceberg",
        snapshot_id="{{ params.snapshot }}",
        create_table=True,
        params={
            "source": with_entries(iceberg, [gone]),
            "snapshot": str(iceberg.current_snapshot().snapshot_id),
        },
    )
    run = tried(task, "up_for_retry", "success")

    assert xcom(run, "add") == {
        "table": "main.orders",
        "snapshot_id": 1,
        "rows_added": None,
        "files_added": None,
        "bytes_added": None,
        "already_committed": True,
    }
    assert by_duckdb(lake, "FROM orders ORDER BY id") == [(1, "a"), (2, "a"), (3, "b")]


@pytest.mark.usefixtures("lake")
def test_a_table_that_is_not_there_yet_is_looked_for_again(tmp_path: Path):
    given = {"source": str(tmp_path / "none"), "format": "delta", "create_table": True}
    task = make_task(DuckLakeAddTableOperator, task_id="add", table="orders", **given)
    tried(task, "up_for_retry")


def test_the_examples_of_the_page_on_tables_run(
    lake: CatalogDatabase, iceberg: Table, delta: str, tmp_path: Path
):
    dag_file, library = code_of("add_table.md")
    places = {"s3://shop/iceberg/orders": str(local(iceberg.location())), "s3://shop/delta/clicks": delta}
    for there, here in places.items():
        dag_file, library = dag_file.replace(there, here), library.replace(there, here)
    (tmp_path / "dag.py").write_text(dag_file)

    run = succeeded(parse(tmp_path / "dag.py"))

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
