"""The operator in runs of a real Airflow; the reference client looks at what is left."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.errors import NotADuckLakeError
from airflow_provider_ducklake.operators.ddl import DuckLakeDDLOperator
from tests.airflow.dags import (
    clear,
    delete_run,
    dies_once,
    make_task,
    new_dag,
    rendered_fields,
    run_next_try,
    start_run,
    sync_dag,
    tried,
    xcom,
)
from tests.airflow.spark_submit import head
from tests.interop.lakes import by_duckdb
from tests.reference.catalogs import CatalogDatabase

pytestmark = pytest.mark.usefixtures("airflow_db")


def new_lake(catalog: CatalogDatabase, connect: Callable[..., str]) -> CatalogDatabase:
    """Make a lake with the table orders (id INT), at snapshot 1."""
    connect(catalog)
    by_duckdb(catalog, "CREATE TABLE orders (id INT)")
    return catalog


@pytest.fixture
def lake(catalog: CatalogDatabase, connect: Callable[..., str]) -> CatalogDatabase:
    return new_lake(catalog, connect)


@pytest.fixture
def sqlite_lake(sqlite_catalog: CatalogDatabase, connect: Callable[..., str]) -> CatalogDatabase:
    return new_lake(sqlite_catalog, connect)


def changing(sql: Any, kind: type = DuckLakeDDLOperator, **arguments: Any) -> Any:
    return make_task(kind, task_id="change", sql=sql, **arguments)


SEVERAL = """
CREATE SCHEMA sales;
CREATE TABLE sales.orders (id BIGINT NOT NULL, day DATE, "order" VARCHAR DEFAULT 'x;y')
    PARTITIONED BY (year(day)) SORTED BY ("order");
COMMENT ON TABLE sales.orders IS 'from the shop';
ALTER TABLE orders ADD COLUMN note VARCHAR; -- the old one
CREATE VIEW sales.mine AS SELECT id FROM sales.orders
"""


def test_all_statements_land_in_one_snapshot(lake):
    task = changing(SEVERAL, message="{{ params.why }}", params={"why": "opening"})
    run = tried(task, "success")

    assert xcom(run, "change") == {"snapshot_id": 2, "statements": 5, "already_committed": False}
    assert head(lake) == 2
    described = by_duckdb(lake, "SELECT column_name, column_type FROM (DESCRIBE sales.orders)")
    assert described == [("id", "BIGINT"), ("day", "DATE"), ("order", "VARCHAR")]
    assert by_duckdb(lake, "SELECT id, note FROM orders") == by_duckdb(lake, "FROM sales.mine") == []
    ((author, message, extra),) = by_duckdb(
        lake,
        "SELECT author, commit_message, commit_extra_info FROM ducklake_snapshots('lake')"
        " WHERE snapshot_id = 2",
    )
    assert (author, message) == ("airflow", "opening")
    assert json.loads(extra)["airflow"].items() >= {"dag_id": task.dag_id, "task_id": "change"}.items()


def test_statements_come_from_files_too_and_are_templates(sqlite_lake, tmp_path):
    (tmp_path / "tables.sql").write_text(
        "{# for each shop #}{% for shop in params.shops %}CREATE TABLE {{ shop }} (id INT);{% endfor %}"
    )
    given = {"params": {"shops": ["one", "two"], "old": "orders"}}
    with new_dag("ddl_of_files", template_searchpath=str(tmp_path)) as dag:
        task = DuckLakeDDLOperator(
            task_id="change", sql=["tables.sql", "DROP TABLE {{ params.old }}"], **given
        )
    sync_dag(dag)
    run = tried(task, "success")

    tables = by_duckdb(sqlite_lake, "SELECT table_name FROM duckdb_tables() ORDER BY 1")
    assert tables == [("one",), ("two",)]
    rendered = rendered_fields(run, "change")["sql"]
    assert rendered == ["CREATE TABLE one (id INT);CREATE TABLE two (id INT);", "DROP TABLE orders"]


@pytest.mark.parametrize(
    ("third", "said"),
    [
        ("CREATE TABLE orders (a INT)", "AlreadyExistsError: Statement 3 (CREATE TABLE orders (a INT)): A"),
        (
            "ALTER TABLE new DROP COLUMN b",
            "ColumnNotFoundError: Statement 3 (ALTER TABLE new DROP COLUMN b): Column 'b' is not in",
        ),
        (
            "ALTER TABLE new ALTER a TYPE SMALLINT",
            "InvalidTypeError: Statement 3 (ALTER TABLE new ALTER a TYPE SMALLINT): Cannot change",
        ),
        (
            "ALTER TABLE new ADD PRIMARY KEY (a)",
            "InvalidStatementError: Statement 3, line 3, column 21, at 'PRIMARY': DuckLake has no primary",
        ),
        ("SELECT 1", "InvalidStatementError: Statement 3, line 3, column 1, at 'SELECT': this operator"),
    ],
)
def test_one_wrong_statement_of_four_leaves_nothing_and_is_not_retried(lake, third, said):
    task = changing(f"CREATE SCHEMA s;\nCREATE TABLE new (a INT);\n{third};\nCREATE TABLE s.t (a INT)")
    run = tried(task, "failed")

    assert head(lake) == 1
    assert by_duckdb(lake, "SELECT table_name FROM duckdb_tables()") == [("orders",)]
    with pytest.raises(AirflowFailException) as raised:
        task.execute({"ti": run.get_task_instance("change"), "logical_date": None})
    assert str(raised.value).startswith(said)


def test_a_retry_finds_the_snapshot_of_the_try_that_died(lake, task_log):
    task = changing("CREATE TABLE new (a INT); DROP TABLE orders", dies_once(DuckLakeDDLOperator))
    run = tried(task, "up_for_retry")
    assert head(lake) == 2
    assert run_next_try(run, task) == "success"

    assert xcom(run, "change") == {"snapshot_id": 2, "statements": 2, "already_committed": True}
    assert head(lake) == 2
    assert "has already committed snapshot 2, at" in task_log()


def test_a_cleared_task_runs_again_and_so_does_one_of_a_run_made_anew(sqlite_lake):
    task = changing("CREATE OR REPLACE TABLE new (a INT)", dies_once(DuckLakeDDLOperator))
    run = tried(task, "up_for_retry", "success")

    clear(run, "change")
    assert run_next_try(run, task) == "success"
    assert xcom(run, "change")["snapshot_id"] == head(sqlite_lake) == 3

    delete_run(run)
    again = start_run(task.dag, run_id=run.run_id)
    assert run_next_try(again, task) == "up_for_retry"
    assert run_next_try(again, task) == "success"
    assert xcom(again, "change") == {"snapshot_id": 4, "statements": 1, "already_committed": True}
    assert head(sqlite_lake) == 4


def test_nothing_to_change_makes_no_snapshot(sqlite_lake):
    task = changing("CREATE TABLE IF NOT EXISTS orders (id INT); DROP VIEW IF EXISTS v")
    run = tried(task, "success")

    assert xcom(run, "change") == {"snapshot_id": None, "statements": 2, "already_committed": False}
    assert head(sqlite_lake) == 1


@pytest.mark.parametrize("sql", ["", " -- nothing ; \n", [], ["", ";"], 7, ["DROP TABLE t", None]])
def test_a_task_without_statements_fails_for_good_and_needs_no_lake(sql):
    with pytest.raises(AirflowFailException, match=r"^InvalidInputError: sql "):
        DuckLakeDDLOperator(task_id="change", sql=sql).execute({})


@pytest.mark.every_catalog(mariadb="daily", duckdb="daily")
@pytest.mark.drawn(one_in=1)
def test_a_lake_is_created_where_there_is_none(catalog, connect, task_log):
    connect(catalog, data_path=catalog.data_path)
    task = changing("CREATE SCHEMA IF NOT EXISTS sales", create_lake=True)

    assert [run_next_try(start_run(task.dag), task) for _ in range(2)] == ["success", "success"]

    assert by_duckdb(catalog, "SELECT count(*) FROM duckdb_schemas() WHERE schema_name = 'sales'") == [(1,)]
    assert task_log().count("Created the lake of connection") == 1


def test_creating_a_lake_needs_no_statement(sqlite_catalog, connect):
    connect(sqlite_catalog, data_path=sqlite_catalog.data_path)
    task = changing(None, create_lake="{{ params.create }}", params={"create": "True"})
    run = tried(task, "success")

    assert xcom(run, "change") == {"snapshot_id": None, "statements": 0, "already_committed": False}
    assert head(sqlite_catalog) == 0


def test_without_create_lake_a_missing_one_is_named_with_what_creates_it(sqlite_catalog, connect):
    connect(sqlite_catalog, data_path=sqlite_catalog.data_path)
    task = changing("CREATE SCHEMA sales")
    tried(task, "failed")

    with pytest.raises(NotADuckLakeError, match=r"no such file.*DuckLakeDDLOperator\(create_lake=True\)"):
        DuckLakeHook().lake()


def test_a_task_without_statements_that_creates_nothing_is_refused():
    with pytest.raises(ValueError, match="Give sql, or create_lake=True, or both"):
        DuckLakeDDLOperator(task_id="nothing")
