"""The operator in runs of a real Airflow: what its tries and its clears make of a tag."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.operators.expire_snapshots import DuckLakeExpireSnapshotsOperator
from airflow_provider_ducklake.operators.restore import DuckLakeRestoreOperator
from airflow_provider_ducklake.operators.tag import DuckLakeTagOperator
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor
from tests.airflow.dags import FakeTaskInstance, clear, delete_run, run_next_try, start_run, sync_dag, xcom
from tests.airflow.unlucky import WorkerDiedError
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.usefixtures("airflow_db")
NUMBERS = count()


class DiesOnce(DuckLakeTagOperator):
    """The operator on a worker that dies when its first try is done."""

    def execute(self, context: Any) -> dict[str, Any]:
        result = super().execute(context)
        if context["ti"].try_number == 1:
            raise WorkerDiedError
        return result


def commit(catalog: CatalogDatabase, sql: str = "INSERT INTO orders VALUES (1)") -> None:
    with open_lake(catalog) as reference:
        reference.sql(sql)


def tags(catalog: CatalogDatabase) -> dict[str, int]:
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        return {one.name: one.snapshot_id for one in lake.tags()}


@pytest.fixture
def lake(catalog: CatalogDatabase, connect: Callable[..., str]) -> CatalogDatabase:
    """A lake with the table orders (id INT), at snapshot 1."""
    connect(catalog)
    commit(catalog, "CREATE TABLE orders (id INT)")
    return catalog


def make_task(
    kind: type[DuckLakeTagOperator] = DuckLakeTagOperator, name: str = "q3-close", **arguments: Any
) -> DuckLakeTagOperator:
    with DAG(f"tag_{next(NUMBERS)}", start_date=datetime(2026, 1, 1, tzinfo=UTC), schedule=None) as dag:
        task = kind(task_id="tag", name=name, retries=2, retry_delay=timedelta(0), **arguments)
    sync_dag(dag)
    return task


def test_a_task_tags_the_newest_snapshot(lake, task_log):
    task = make_task(name="{{ params.name }}", params={"name": "q3-close"}, message="audited")
    run = start_run(task.dag)

    assert run_next_try(run, task) == "success"

    assert xcom(run, "tag") == {
        "tag": "q3-close",
        "action": "tag",
        "snapshot_id": 1,
        "moved_from": None,
        "already_committed": False,
    }
    assert "Tag 'q3-close' names snapshot 1" in task_log()
    with Lake.connect(lake.sqlalchemy_url) as opened:
        (tag,) = opened.tags()
    assert (tag.name, tag.snapshot_id, tag.author, tag.message) == ("q3-close", 1, "airflow", "audited")


@pytest.mark.parametrize("replace", [False, True])
def test_a_retry_never_moves_the_tag_of_an_earlier_try(lake, replace):
    task = make_task(DiesOnce, replace=replace)
    run = start_run(task.dag)
    assert run_next_try(run, task) == "up_for_retry"
    commit(lake)

    assert run_next_try(run, task) == "success"

    done = xcom(run, "tag")
    assert (done["snapshot_id"], done["already_committed"]) == (1, True)
    assert tags(lake) == {"q3-close": 1}


def test_a_retry_leaves_what_somebody_else_made_of_the_tag_meanwhile(lake):
    task = make_task(DiesOnce, replace=True)
    run = start_run(task.dag)
    assert run_next_try(run, task) == "up_for_retry"
    commit(lake)
    commit(lake)
    with Lake.connect(lake.sqlalchemy_url) as opened:
        opened.tag("q3-close", 2, replace=True)

    assert run_next_try(run, task) == "success"

    assert xcom(run, "tag")["snapshot_id"] == 1
    assert tags(lake) == {"q3-close": 2}


def test_a_cleared_task_moves_its_own_tag_and_so_does_one_of_a_run_made_again(lake):
    task = make_task()
    run = start_run(task.dag)
    assert run_next_try(run, task) == "success"
    commit(lake)

    clear(run, "tag")
    assert run_next_try(run, task) == "success"
    assert (xcom(run, "tag")["snapshot_id"], xcom(run, "tag")["moved_from"]) == (2, 1)

    commit(lake)
    delete_run(run)
    again = start_run(task.dag, run_id=run.run_id)
    assert run_next_try(again, task) == "success"
    assert xcom(again, "tag")["moved_from"] == 2
    assert tags(lake) == {"q3-close": 3}


def test_the_tag_of_another_is_moved_only_if_that_is_asked_for(lake, task_log):
    with Lake.connect(lake.sqlalchemy_url) as opened:
        opened.tag("q3-close", 0)
    task = make_task()
    run = start_run(task.dag)
    assert run_next_try(run, task) == "failed"
    assert tags(lake) == {"q3-close": 0}

    moving = make_task(replace="{{ params.move }}", params={"move": True})
    moved = start_run(moving.dag)
    assert run_next_try(moved, moving) == "success"
    assert xcom(moved, "tag")["moved_from"] == 0
    assert "Tag 'q3-close' names snapshot 1, moved from 0" in task_log()


def test_a_tag_is_removed_once(lake):
    with Lake.connect(lake.sqlalchemy_url) as opened:
        opened.tag("q3-close", 1)
    task = make_task(DiesOnce, action="{{ 'untag' }}")
    run = start_run(task.dag)
    assert run_next_try(run, task) == "up_for_retry"
    with Lake.connect(lake.sqlalchemy_url) as opened:  # meanwhile somebody tags again
        opened.tag("q3-close", 0)

    assert run_next_try(run, task) == "success"

    assert (xcom(run, "tag")["snapshot_id"], xcom(run, "tag")["already_committed"]) == (1, True)
    assert tags(lake) == {"q3-close": 0}


def test_snapshots_are_named_by_tags_in_other_tasks(lake):
    commit(lake, "INSERT INTO orders VALUES (1), (2)")
    with Lake.connect(lake.sqlalchemy_url) as opened:
        opened.tag("two-rows")
    commit(lake, "DELETE FROM orders")
    named = make_task(name="copy", at=" {{ 'tag:two-rows' }} ")
    run = start_run(named.dag)
    assert run_next_try(run, named) == "success"
    assert tags(lake) == {"two-rows": 2, "copy": 2}

    sensor = DuckLakeSnapshotSensor(
        task_id="wait", table="main.orders", since="tag:two-rows", changes=["delete"]
    )
    found = sensor.poke({}).xcom_value
    assert (found["from_snapshot"], found["to_snapshot"]) == (2, 3)
    context: Any = {"ti": FakeTaskInstance("restore"), "outlet_events": {}}
    restored = DuckLakeRestoreOperator(
        task_id="restore", table="orders", at="tag:two-rows", asset_events=False
    ).execute(context)
    assert restored["as_of"] == 2


def test_an_expiry_says_how_many_snapshots_tags_keep(lake, task_log):
    commit(lake)
    with Lake.connect(lake.sqlalchemy_url) as opened:
        opened.tag("q3-close", 1)

    for dry_run in (True, False):
        result = DuckLakeExpireSnapshotsOperator(task_id="expire", keep_last=1, dry_run=dry_run).execute({})
        assert (result["snapshot_ids"], result["kept_by_tags"]) == ([0], 1)
        assert "; 1 snapshot kept by tags" in task_log()
    with pytest.raises(AirflowFailException, match="SnapshotTaggedError: snapshots names tagged ones"):
        DuckLakeExpireSnapshotsOperator(task_id="expire", snapshots=[1]).execute({})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": ""}, "InvalidNameError: '' cannot name a tag: it is empty"),
        ({"name": "a", "at": 99}, "SnapshotNotFoundError"),
        ({"name": "a", "at": "tag:none"}, "TagNotFoundError"),
        ({"name": "a", "at": "tag:"}, "InvalidNameError"),
        ({"name": "a", "at": "yesterday"}, "yesterday"),
        ({"name": "a", "replace": "perhaps"}, "perhaps"),
        ({"name": "a", "action": "untag"}, "TagNotFoundError"),
    ],
)
@pytest.mark.usefixtures("lake")
def test_what_no_retry_cures_fails_for_good(arguments, said):
    context: Any = {"ti": FakeTaskInstance("tag")}
    with pytest.raises(AirflowFailException, match=said):
        DuckLakeTagOperator(task_id="tag", retries=0, **arguments).execute(context)


def test_another_word_is_refused_where_the_dag_is_read():
    with pytest.raises(InvalidInputError, match="choose one of tag, untag"):
        DuckLakeTagOperator(task_id="tag", name="a", action="move")
