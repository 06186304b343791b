"""Inserts that create their table and its schema, at once with others who do the same."""

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import NotFoundError, SparkJobError
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo, CommitKey, TableSnapshot
from airflow_provider_ducklake.lake.writes.arguments import GivenRows
from airflow_provider_ducklake.lake.writes.insert import Insert
from airflow_provider_ducklake.lake.writes.run import run
from airflow_provider_ducklake.lake.writes.verb import Commit, Summary
from tests.concurrency.arrow_jobs import ArrowSubmitter
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

TASKS = 4


class Meanwhile(ArrowSubmitter):
    """Runs jobs in this process; ``act`` runs while a job does."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act

    def run(self, *arguments: Any) -> Any:
        self.act()
        return super().run(*arguments)


@pytest.fixture
def rows(tmp_path) -> str:
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int64())}), tmp_path / "rows.parquet")
    return str(tmp_path / "rows.parquet")


def create(url: str, table: str, rows: str, act: Callable[[], object] = lambda: None) -> Summary:
    with Lake.connect(url) as lake:
        keyed = lake.writes.keyed_commit(CommitKey((str(uuid.uuid4()),)))
        verb = Insert(table, GivenRows(source=rows), create_table=True)
        return run(verb, lake, Meanwhile(act), Commit(CommitInfo("me"), keyed)).summary


@pytest.fixture(params=["sqlite", "postgres"])
def catalog(new_catalog, request) -> CatalogDatabase:
    made = new_catalog(request.param)
    with open_lake(made):
        return made


def test_tasks_that_create_tables_of_one_new_schema_at_once_all_commit(catalog, rows):
    url, together = catalog.sqlalchemy_url, Barrier(TASKS)
    create(url, "t", rows)  # the first commit with a key makes the table of keys

    with ThreadPoolExecutor(TASKS) as tasks:
        made = [tasks.submit(create, url, f"shop.t{n}", rows, together.wait) for n in range(TASKS)]
        snapshots = sorted(one.result()["snapshot_id"] for one in made)

    assert snapshots == list(range(2, 2 + TASKS))
    with open_lake(catalog) as reference:
        for n in range(TASKS):
            assert reference.sql(f"SELECT count(*) FROM shop.t{n}") == [(2,)]


def test_tasks_that_create_one_table_of_a_new_schema_at_once_all_add_their_rows(catalog, rows):
    url, together = catalog.sqlalchemy_url, Barrier(TASKS)
    create(url, "t", rows)

    with ThreadPoolExecutor(TASKS) as tasks:
        for one in [tasks.submit(create, url, "shop.t", rows, together.wait) for _ in range(TASKS)]:
            one.result()

    with open_lake(catalog) as reference:
        assert reference.sql("SELECT count(*) FROM shop.t") == [(2 * TASKS,)]


def test_a_schema_that_duckdb_creates_meanwhile_gets_the_table(catalog, rows):
    def meanwhile() -> None:
        with open_lake(catalog) as reference:
            reference.sql("CREATE SCHEMA Shop")

    assert create(catalog.sqlalchemy_url, "shop.t", rows, meanwhile)["table"] == "shop.t"

    with open_lake(catalog) as reference:
        assert reference.sql("SELECT count(*) FROM shop.t") == [(2,)]


def test_a_job_that_fails_leaves_no_schema(catalog, rows):
    def fail() -> None:
        raise SparkJobError("no executors")

    with pytest.raises(SparkJobError, match="no executors"):
        create(catalog.sqlalchemy_url, "shop.t", rows, fail)

    with open_lake(catalog) as reference:
        assert reference.sql("SELECT count(*) FROM duckdb_schemas() WHERE schema_name = 'shop'") == [(0,)]


class Looking(Lake):
    """A lake whose reader goes on slowly when a table is missing: others ``act`` the n-th time."""

    number = 1

    @staticmethod
    def act() -> None:
        raise AssertionError

    def table_snapshot(self, *arguments: Any, **named: Any) -> TableSnapshot:
        try:
            return Lake.table_snapshot(self, *arguments, **named)
        except NotFoundError:
            Looking.number -= 1
            if not Looking.number:
                Looking.act()
            raise


@pytest.mark.parametrize("looks", [1, 2], ids=["first plan", "plan after a conflict"])
def test_a_table_that_another_creates_between_two_looks_is_no_second_one(looks, catalog, rows, monkeypatch):
    url, name = catalog.sqlalchemy_url, {1: "t", 2: "shop.t"}[looks]

    def meanwhile() -> None:
        if looks == 2:
            with open_lake(catalog) as reference:
                reference.sql("CREATE SCHEMA shop")

    monkeypatch.setattr(Looking, "number", looks)
    monkeypatch.setattr(Looking, "act", staticmethod(lambda: create(url, name, rows)))
    with Lake.connect(url) as lake:
        slow = Looking(lake.opened, lake.committer)
        verb = Insert(name, GivenRows(source=rows), create_table=True)
        run(verb, slow, Meanwhile(meanwhile), Commit(CommitInfo("me")))
        assert Looking.number <= 0
        assert [str(one.qualified) for one in lake.reads.table_rows()] == ["main.t" if looks == 1 else name]
        assert lake.verify() == []

    with open_lake(catalog) as reference:
        assert reference.sql(f"SELECT count(*) FROM {name}") == [(4,)]
