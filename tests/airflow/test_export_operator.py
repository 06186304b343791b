"""The operator in runs of a real Airflow: what its tries and its clears make of the file."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.operators.export_catalog import DuckLakeExportCatalogOperator
from tests.airflow.dags import FakeTaskInstance, clear, run_next_try, start_run, sync_dag, xcom
from tests.airflow.unlucky import WorkerDiedError
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.usefixtures("airflow_db")
NUMBERS = count()


class DiesOnce(DuckLakeExportCatalogOperator):
    """The operator on a worker that dies when its first try is done."""

    def execute(self, context: Any) -> dict[str, Any]:
        result = super().execute(context)
        if context["ti"].try_number == 1:
            raise WorkerDiedError
        return result


def commit(catalog: CatalogDatabase, sql: str = "INSERT INTO orders VALUES (1)") -> None:
    with open_lake(catalog) as reference:
        reference.sql(sql)


def rows(path: Path) -> list[tuple[Any, ...]]:
    kind = "sqlite:" if path.suffix == ".sqlite" else ""
    with open_lake(f"ducklake:{kind}{path}", read_only=True) as frozen:
        return frozen.sql("SELECT id FROM orders ORDER BY id")


@pytest.fixture
def lake(catalog: CatalogDatabase, connect: Callable[..., str]) -> CatalogDatabase:
    """A lake with the table orders (id INT), at snapshot 2 with one row."""
    connect(catalog)
    commit(catalog, "CREATE TABLE orders (id INT)")
    commit(catalog)
    return catalog


def make_task(
    path: Path,
    kind: type[DuckLakeExportCatalogOperator] = DuckLakeExportCatalogOperator,
    **arguments: Any,
) -> DuckLakeExportCatalogOperator:
    with DAG(f"export_{next(NUMBERS)}", start_date=datetime(2026, 1, 1, tzinfo=UTC), schedule=None) as dag:
        task = kind(task_id="export", path=str(path), retries=2, retry_delay=timedelta(0), **arguments)
    sync_dag(dag)
    return task


@pytest.mark.usefixtures("lake")
def test_a_task_exports_the_newest_snapshot(tmp_path, task_log):
    path = tmp_path / "out" / "x.ducklake"
    task = make_task(path, copy_files="{{ params.with_files }}", params={"with_files": True})
    run = start_run(task.dag)

    assert run_next_try(run, task) == "success"

    assert xcom(run, "export") == {
        "path": str(path),
        "format": "duckdb",
        "snapshot_id": 2,
        "data_path": f"{path}.files/",
        "attach": f"ATTACH 'ducklake:{path}' AS frozen (READ_ONLY)",
        "tables": 1,
        "data_files": 0,
        "delete_files": 0,
        "inlined_rows": 1,
        "files_copied": 0,
        "bytes_copied": 0,
        "already_committed": False,
    }
    assert f"Exported snapshot 2 to {path}: 1 tables" in task_log()
    assert rows(path) == [(1,)]


@pytest.mark.parametrize("suffix", ["ducklake", "sqlite"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_retry_finds_what_the_try_before_exported(lake, tmp_path, suffix, overwrite, task_log):
    path = tmp_path / f"x.{suffix}"
    task = make_task(path, DiesOnce, overwrite=overwrite)
    run = start_run(task.dag)
    assert run_next_try(run, task) == "up_for_retry"
    made = path.read_bytes()
    commit(lake)

    assert run_next_try(run, task) == "success"

    done = xcom(run, "export")
    assert (done["snapshot_id"], done["already_committed"]) == (2, True)
    assert path.read_bytes() == made
    assert "An earlier try has exported snapshot 2" in task_log()


def test_a_cleared_task_exports_again_and_replaces_its_own_file(lake, tmp_path):
    path = tmp_path / "x.ducklake"
    task = make_task(path)
    run = start_run(task.dag)
    assert run_next_try(run, task) == "success"
    commit(lake)

    clear(run, "export")
    assert run_next_try(run, task) == "success"

    assert (xcom(run, "export")["snapshot_id"], xcom(run, "export")["already_committed"]) == (3, False)
    assert rows(path) == [(1,), (1,)]


def test_the_file_of_another_is_replaced_only_if_that_is_asked_for(lake, tmp_path):
    path = tmp_path / "x.ducklake"
    with Lake.connect(lake.sqlalchemy_url) as opened:
        opened.export_catalog(str(path), 1)
    made = path.read_bytes()
    task = make_task(path)
    run = start_run(task.dag)
    assert run_next_try(run, task) == "failed"
    assert path.read_bytes() == made

    replacing = make_task(path, overwrite="True", at="{{ 2 }}")
    replaced = start_run(replacing.dag)
    assert run_next_try(replaced, replacing) == "success"
    assert rows(path) == [(1,)]


def test_a_tagged_snapshot_is_exported(lake, tmp_path):
    with Lake.connect(lake.sqlalchemy_url) as opened:
        opened.tag("q3-close")
    commit(lake)
    task = make_task(tmp_path / "x.sqlite", at="tag:q3-close")
    run = start_run(task.dag)

    assert run_next_try(run, task) == "success"

    assert (xcom(run, "export")["snapshot_id"], xcom(run, "export")["format"]) == (2, "sqlite")
    assert rows(tmp_path / "x.sqlite") == [(1,)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"path": "x.ducklake"}, "InvalidInputError: path='x.ducklake' is relative"),
        ({"at": 99}, "SnapshotNotFoundError"),
        ({"at": "tag:none"}, "TagNotFoundError"),
        ({"format": "parquet"}, "choose one of duckdb, sqlite"),
        ({"copy_files": "perhaps"}, "perhaps"),
        ({"files_path": "/elsewhere"}, "give copy_files=True"),
    ],
)
@pytest.mark.usefixtures("lake")
def test_what_no_retry_cures_fails_for_good(arguments, said, tmp_path):
    context: Any = {"ti": FakeTaskInstance("export")}
    given = {"path": f"{tmp_path}/x.ducklake", **arguments}
    with pytest.raises(AirflowFailException, match=said):
        DuckLakeExportCatalogOperator(task_id="export", retries=0, **given).execute(context)
    assert list(tmp_path.glob("x.*")) == []
