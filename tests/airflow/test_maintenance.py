"""The task group of maintenance in real runs: what it does, skips, and goes on after."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from airflow.models.dagrun import DagRun
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.operators.maintenance import (
    DuckLakeMaintenanceExpireOperator,
    ducklake_maintenance,
)
from tests.airflow.conftest import SetConnection
from tests.airflow.dags import mapped_xcoms, parse, state_of, sync_dag, xcom
from tests.interop.lakes import by_duckdb
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

DAG_FILE = """
from datetime import UTC, datetime
from airflow.sdk import DAG, Param
from airflow_provider_ducklake.operators.maintenance import ducklake_maintenance

with DAG(
    "maintain",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    schedule=None,
    params={"dry_run": Param(default=False, type="boolean")},
):
    ducklake_maintenance(
        "lake",
        arguments={
            "expire": {"keep_last": 1},
            "clean_up": {"older_than": "0 seconds", "min_retention": "0 seconds"},
            "orphans": {"older_than": "0 seconds", "min_retention": "0 seconds"},
            "rewrite": {"delete_threshold": "{{ 0.5 }}"},
        },
        spark={"conf": {"spark.sql.shuffle.partitions": "2"}},
        min_files=3,
        dry_run="{{ params.dry_run }}",
    )
"""
MAPPED = ("lake.flush", "lake.merge", "lake.rewrite")

pytestmark = pytest.mark.usefixtures("airflow_db")


@pytest.fixture
def lake(
    sqlite_catalog: CatalogDatabase, connect: Callable[..., str], set_connection: SetConnection
) -> CatalogDatabase:
    """A lake in which each step has something to do, and a file that is gone."""
    connect(sqlite_catalog)
    set_connection("spark_default", conn_type="spark", host="local[2]")
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        for table in ("small", "broken", "deleted", "fine", "left"):
            reference.sql(f'CREATE TABLE "{table}" (i BIGINT, s VARCHAR)')
        for number in range(3):
            for table in ("small", "broken", "left"):
                reference.sql(f'INSERT INTO "{table}" SELECT i, {number} FROM range(50) r(i)')
        for table in ("deleted", "fine"):
            reference.sql(f'INSERT INTO "{table}" SELECT i, i FROM range(100) r(i)')
            count = 60 if table == "deleted" else 40
            reference.sql(f'DELETE FROM "{table}" WHERE i < {count}')
        reference.sql("CALL lake.set_option('auto_compact', false, table_name => 'left')")
    by_duckdb(sqlite_catalog, "INSERT INTO small VALUES (1000, 'inlined')", data_inlining_row_limit=10)
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as found:
        Path(found.files("broken")[1].data_file).unlink()
    (Path(sqlite_catalog.data_path) / "main" / "orphan.parquet").write_bytes(b"PAR1")
    return sqlite_catalog


@pytest.fixture
def run_maintenance(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., DagRun]:
    def run(dag_file: str = DAG_FILE, **conf: bool) -> DagRun:
        path = tmp_path / "maintain.py"
        path.write_text(dag_file)
        return sync_dag(request.getfixturevalue("on_server")(parse(path))).test(run_conf=conf or None)

    return run


def rows(catalog: CatalogDatabase, table: str) -> list[tuple[int, str]]:
    return by_duckdb(catalog, f'SELECT rowid, * FROM "{table}" ORDER BY ALL')


def file_counts(catalog: CatalogDatabase) -> dict[str, int]:
    with Lake.connect(catalog.sqlalchemy_url) as found:
        return {one.name.removeprefix("main."): one.file_count for one in found.table_health().tables}


def test_each_step_does_what_is_to_do_and_a_bad_table_does_not_keep_the_others(lake, run_maintenance, capfd):
    names = ("small", "deleted", "fine", "left")
    before = {name: rows(lake, name) for name in names}

    run = run_maintenance()

    log = "".join(capfd.readouterr())
    assert {name: rows(lake, name) for name in names} == before
    assert file_counts(lake) == {"small": 1, "broken": 3, "deleted": 1, "fine": 1, "left": 3}
    assert xcom(run, "lake.plan_flush") == ["main.small"]
    assert xcom(run, "lake.plan_merge") == ["main.broken", "main.small"]
    assert xcom(run, "lake.plan_rewrite") == ["main.deleted"]
    assert [one["files_removed"] for one in mapped_xcoms(run, "lake.merge")] == [4]
    assert xcom(run, "lake.expire")["snapshot_ids"]
    assert xcom(run, "lake.clean_up")["files_deleted"] == 4  # those that were merged
    assert xcom(run, "lake.orphans")["files_deleted"] == 1
    assert not (Path(lake.data_path) / "main" / "orphan.parquet").exists()
    assert run.state == "failed"
    assert "Failed: merge of main.broken. See their logs; the others were processed." in log
    assert xcom(run, "lake.before")["tables"][0]["name"] == "main.broken"
    with Lake.connect(lake.sqlalchemy_url) as found:
        codes = {one.code for one in found.verify()}
    assert codes == {"file-missing"}


def test_a_dry_run_does_nothing_and_where_nothing_is_to_do_steps_are_skipped(lake, run_maintenance):
    count = by_duckdb(lake, "SELECT count(*) FROM ducklake_snapshots('lake')")
    run = run_maintenance(dry_run=True)

    assert run.state == "success"
    assert [state_of(run, task_id) for task_id in MAPPED] == ["skipped"] * 3
    assert by_duckdb(lake, "SELECT count(*) FROM ducklake_snapshots('lake')") == count
    assert (Path(lake.data_path) / "main" / "orphan.parquet").exists()
    assert xcom(run, "lake.report")["tables"] == xcom(run, "lake.before")["tables"]


def test_a_table_that_is_missing_fails_by_itself_beside_numbers_out_of_bounds(lake, run_maintenance, capfd):
    named = """
        tables=["missing", "no.name.at.all", "small"],
        steps=["flush", "merge"],
        fail_above={"file_count": 0},
        spark="""
    some = re.sub(r"arguments=.*?spark=", named.strip(), DAG_FILE, flags=re.DOTALL)

    run = run_maintenance(some)

    log = "".join(capfd.readouterr())
    assert [one["name"] for one in xcom(run, "lake.before")["tables"]] == ["main.small"]
    assert (
        xcom(run, "lake.plan_flush")
        == xcom(run, "lake.plan_merge")
        == ["missing", "no.name.at.all", "main.small"]
    )
    assert file_counts(lake)["small"] == 1
    assert "Table missing" in log.replace("main.", "")
    assert "Out of bounds: main.small has a file_count of 1, more than 0. Failed: " in log
    assert "merge of missing" in log.rpartition("Failed: ")[2]
    assert run.state == "failed"


def test_a_group_that_cannot_begin_touches_nothing(run_maintenance, set_connection):
    set_connection(
        "ducklake_default", conn_type="ducklake", extra={"catalog": "sqlite", "database": "/no/lake"}
    )

    run = run_maintenance()

    states = {ti.task_id: ti.state for ti in run.get_task_instances()}
    assert run.state == "failed"
    assert [states.pop(f"lake.{name}") for name in ("before", "report")] == ["failed"] * 2
    assert set(states.values()) <= {"skipped", "upstream_failed"}, states


@pytest.mark.usefixtures("lake")
def test_a_lake_that_does_not_say_what_to_expire_keeps_everything():
    expire = DuckLakeMaintenanceExpireOperator(task_id="expire")

    with pytest.raises(AirflowSkipException, match="set the lake's option expire_older_than"):
        expire.execute({})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"steps": ["vacuum"]}, "steps is 'vacuum'; choose one of flush, expire"),
        ({"arguments": {"vacuum": {}}}, "arguments is 'vacuum'"),
        ({"steps": ["merge"], "arguments": {"expire": {}}}, "that step is left out"),
    ],
)
def test_steps_that_are_none_are_refused_where_the_dag_is_parsed(given, words):
    with DAG("refused", schedule=None), pytest.raises(InvalidInputError, match=words):
        ducklake_maintenance(**given)


def test_bounds_in_default_args_are_those_of_the_report():
    with DAG("d", schedule=None, default_args={"fail_above": {"file_count": 0}}) as dag:
        ducklake_maintenance("lake")

    assert dag.get_task("lake.before").fail_above is None
    assert dag.get_task("lake.report").fail_above == {"file_count": 0}


@pytest.mark.usefixtures("lake")
def test_the_look_before_goes_by_the_thresholds_of_default_args():
    defaults = {"delete_threshold": 0.5, "max_file_size": 100, "min_rows": 1, "sort": False, "table": "x"}
    with DAG("d", schedule=None, default_args=defaults) as dag:
        ducklake_maintenance("lake", arguments={"rewrite": {"sort": True}}, min_files=2)
    with DAG("e", schedule=None) as plain:
        ducklake_maintenance("lake", min_files=2)

    found = {
        (step, one.dag_id): one.get_task(f"lake.plan_{step}").execute({})
        for one in (dag, plain)
        for step in ("merge", "rewrite")
    }

    assert dag.get_task("lake.plan_rewrite").arguments == {"delete_threshold": 0.5, "sort": True}
    assert dag.get_task("lake.plan_flush").arguments == {"min_rows": 1}
    assert dag.get_task("lake.plan_merge").arguments == {"max_file_size": 100, "sort": False}
    assert (found["rewrite", "d"], found["rewrite", "e"]) == (["main.deleted"], [])
    assert (found["merge", "d"], found["merge", "e"]) == ([], ["main.broken", "main.small"])


def test_only_the_steps_that_are_chosen_come_in_their_order():
    with DAG("chosen", schedule=None) as dag:
        group = ducklake_maintenance(steps=["merge", "expire"], tables=["sales.orders"])

    assert [task.task_id.removeprefix("ducklake_maintenance.") for task in dag.topological_sort()] == [
        "before",
        "expire",
        "plan_merge",
        "merge",
        "report",
    ]
    assert group.group_id == "ducklake_maintenance"
