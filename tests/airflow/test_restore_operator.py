"""The operator on lakes of the reference client, which also judges what is restored."""

import json
from datetime import UTC, datetime

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.operators.restore import DuckLakeRestoreOperator
from tests.airflow.dags import sync_dag, xcom
from tests.reference.duckdb_lake import open_lake

SAID = (
    "SELECT author, commit_message, commit_extra_info FROM ducklake_snapshots('lake') WHERE snapshot_id = 5"
)
DAY = datetime(2026, 1, 1, tzinfo=UTC)


def query(catalog, sql):
    with open_lake(catalog, data_inlining_row_limit=0) as lake:
        return lake.sql(sql)


@pytest.fixture
def lake(sqlite_catalog, connect):
    """Snapshot 2 has all rows, 4 none of them."""
    connect(sqlite_catalog)
    query(sqlite_catalog, "CREATE TABLE t (i INT)")
    query(sqlite_catalog, "INSERT INTO t FROM range(10)")
    query(sqlite_catalog, "DELETE FROM t")
    query(sqlite_catalog, "CREATE TABLE born AS SELECT 1 AS i")
    return sqlite_catalog


@pytest.mark.usefixtures("airflow_db")
def test_a_plan_and_its_execution(lake):
    with DAG("restore", schedule=None, start_date=DAY, params={"at": 2}) as dag:
        plan = DuckLakeRestoreOperator(task_id="plan", table="t", at="{{ params.at }}", dry_run="True")
        execute = DuckLakeRestoreOperator(
            task_id="execute",
            table="main.t",
            at="{{ ti.xcom_pull(task_ids='plan')['as_of'] }}",
            message="bring it back",
        )
        again = DuckLakeRestoreOperator(task_id="again", table="t", at=2)
        plan >> execute >> again
    sync_dag(dag)
    run = dag.test()

    planned, done = xcom(run, "plan"), xcom(run, "execute")

    assert (planned["snapshot_id"], planned["as_of"], planned["dry_run"]) == (None, 2, True)
    assert planned["tables"] == done["tables"]
    assert (done["snapshot_id"], done["already_committed"], done["objects"]) == (5, False, [])
    assert {
        name: done["tables"][0][name] for name in ("name", "action", "files_copied", "rows_returned")
    } == {
        "name": "main.t",
        "action": "changed",
        "files_copied": 1,
        "rows_returned": 10,
    }
    assert xcom(run, "again")["snapshot_id"] is None
    assert query(lake, "SELECT count(*), sum(rowid) FROM t") == [(10, 45)]
    ((author, message, extra),) = query(lake, SAID)
    assert (author, message) == ("airflow", "bring it back")
    assert json.loads(extra)["restored"] == {"as_of": 2, "table_ids": [1]}
    assert json.loads(extra)["airflow"]["task_id"] == "execute"


@pytest.mark.usefixtures("airflow_db")
def test_all_that_was_made_since_goes(lake):
    with DAG("restore_all", schedule=None, start_date=DAY) as dag:
        DuckLakeRestoreOperator(task_id="restore", whole_lake="True", at=2)
    sync_dag(dag)

    done = xcom(dag.test(), "restore")

    fates = {one["name"]: one["action"] for one in done["tables"]}
    assert fates == {"main.t": "changed", "main.born": "dropped"}
    assert query(lake, "SELECT table_name FROM duckdb_tables() WHERE database_name = 'lake'") == [("t",)]


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"at": 2}, "give a table"),
        ({"at": 2, "table": ""}, "give a table"),
        ({"at": 2, "table": "t", "schema": "main"}, "give a table"),
        ({"at": "", "table": "t"}, "at is empty"),
        ({"at": 99, "table": "t"}, "99"),
        ({"at": 1, "table": "born"}, "born"),
        ({"at": 2, "table": "t", "dry_run": "perhaps"}, "perhaps"),
    ],
)
def test_what_no_retry_cures_fails_for_good(arguments, words):
    operator = DuckLakeRestoreOperator(task_id="restore", **{"dry_run": True, **arguments})

    with pytest.raises(AirflowFailException, match=words):
        operator.execute({})
