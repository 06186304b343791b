"""The operators that tag, export, restore and expire snapshots; the reference client judges what is left."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.operators.expire_snapshots import DuckLakeExpireSnapshotsOperator
from airflow_provider_ducklake.operators.export_catalog import DuckLakeExportCatalogOperator
from airflow_provider_ducklake.operators.restore import DuckLakeRestoreOperator
from airflow_provider_ducklake.operators.tag import DuckLakeTagOperator
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor
from tests.airflow.dags import (
    FakeTaskInstance,
    clear,
    delete_run,
    dies_once,
    make_task,
    new_dag,
    run_next_try,
    start_run,
    succeeded,
    sync_dag,
    tried,
    xcom,
)
from tests.airflow.spark_submit import duckdb
from tests.interop.lakes import by_duckdb
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.usefixtures("airflow_db")


def commit(catalog: CatalogDatabase, sql: str = "INSERT INTO orders VALUES (1)") -> None:
    by_duckdb(catalog, sql)


def tags(catalog: CatalogDatabase) -> dict[str, int]:
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        return {one.name: one.snapshot_id for one in lake.tags()}


@pytest.fixture
def lake(catalog: CatalogDatabase, connect: Callable[..., str]) -> CatalogDatabase:
    """A lake with the table orders (id INT), at snapshot 1."""
    connect(catalog)
    commit(catalog, "CREATE TABLE orders (id INT)")
    return catalog


def tagging(kind: type = DuckLakeTagOperator, **arguments: Any) -> Any:
    return make_task(kind, **{"task_id": "tag", "name": "q3-close", **arguments})


def test_a_task_tags_the_newest_snapshot(lake, task_log):
    task = tagging(name="{{ params.name }}", params={"name": "q3-close"}, message="audited")
    run = tried(task, "success")

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
    task = tagging(dies_once(DuckLakeTagOperator), replace=replace)
    run = tried(task, "up_for_retry")
    commit(lake)

    assert run_next_try(run, task) == "success"

    done = xcom(run, "tag")
    assert (done["snapshot_id"], done["already_committed"]) == (1, True)
    assert tags(lake) == {"q3-close": 1}


def test_a_retry_leaves_what_somebody_else_made_of_the_tag_meanwhile(lake):
    task = tagging(dies_once(DuckLakeTagOperator), replace=True)
    run = tried(task, "up_for_retry")
    commit(lake)
    commit(lake)
    with Lake.connect(lake.sqlalchemy_url) as opened:
        opened.tag("q3-close", 2, replace=True)

    assert run_next_try(run, task) == "success"

    assert xcom(run, "tag")["snapshot_id"] == 1
    assert tags(lake) == {"q3-close": 2}


def test_a_cleared_task_moves_its_own_tag_and_so_does_one_of_a_run_made_again(lake):
    task = tagging()
    run = tried(task, "success")
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
    task = tagging()
    tried(task, "failed")
    assert tags(lake) == {"q3-close": 0}

    moving = tagging(replace="{{ params.move }}", params={"move": True})
    moved = tried(moving, "success")
    assert xcom(moved, "tag")["moved_from"] == 0
    assert "Tag 'q3-close' names snapshot 1, moved from 0" in task_log()


def test_a_tag_is_removed_once(lake):
    with Lake.connect(lake.sqlalchemy_url) as opened:
        opened.tag("q3-close", 1)
    task = tagging(dies_once(DuckLakeTagOperator), action="{{ 'untag' }}")
    run = tried(task, "up_for_retry")
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
    named = tagging(name="copy", at=" {{ 'tag:two-rows' }} ")
    tried(named, "success")
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


def test_another_word_is_refused_where_the_dag_is_read():
    with pytest.raises(InvalidInputError, match="choose one of tag, untag"):
        DuckLakeTagOperator(task_id="tag", name="a", action="move")


# --- frozen lakes: what tries and clears make of the file ---


def rows(path: Path) -> list[tuple[Any, ...]]:
    kind = "sqlite:" if path.suffix == ".sqlite" else ""
    return by_duckdb(f"ducklake:{kind}{path}", "SELECT id FROM orders ORDER BY id", read_only=True)


@pytest.fixture
def lake_with_a_row(catalog: CatalogDatabase, connect: Callable[..., str]) -> CatalogDatabase:
    """A lake with the table orders (id INT), at snapshot 2 with one row."""
    connect(catalog)
    commit(catalog, "CREATE TABLE orders (id INT)")
    commit(catalog)
    return catalog


def exporting(path: Path, kind: type = DuckLakeExportCatalogOperator, **arguments: Any) -> Any:
    return make_task(kind, task_id="export", path=str(path), **arguments)


@pytest.mark.usefixtures("lake_with_a_row")
def test_a_task_exports_the_newest_snapshot(tmp_path, task_log):
    path = tmp_path / "out" / "x.ducklake"
    task = exporting(path, copy_files="{{ params.with_files }}", params={"with_files": True})
    run = tried(task, "success")

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
def test_a_retry_finds_what_the_try_before_exported(lake_with_a_row, tmp_path, suffix, overwrite, task_log):
    path = tmp_path / f"x.{suffix}"
    task = exporting(path, dies_once(DuckLakeExportCatalogOperator), overwrite=overwrite)
    run = tried(task, "up_for_retry")
    made = path.read_bytes()
    commit(lake_with_a_row)

    assert run_next_try(run, task) == "success"

    done = xcom(run, "export")
    assert (done["snapshot_id"], done["already_committed"]) == (2, True)
    assert path.read_bytes() == made
    assert "An earlier try has exported snapshot 2" in task_log()


def test_a_cleared_task_exports_again_and_replaces_its_own_file(lake_with_a_row, tmp_path):
    path = tmp_path / "x.ducklake"
    task = exporting(path)
    run = tried(task, "success")
    commit(lake_with_a_row)

    clear(run, "export")
    assert run_next_try(run, task) == "success"

    assert (xcom(run, "export")["snapshot_id"], xcom(run, "export")["already_committed"]) == (3, False)
    assert rows(path) == [(1,), (1,)]


def test_the_file_of_another_is_replaced_only_if_that_is_asked_for(lake_with_a_row, tmp_path):
    path = tmp_path / "x.ducklake"
    with Lake.connect(lake_with_a_row.sqlalchemy_url) as opened:
        opened.export_catalog(str(path), 1)
    made = path.read_bytes()
    task = exporting(path)
    tried(task, "failed")
    assert path.read_bytes() == made

    replacing = exporting(path, overwrite="True", at="{{ 2 }}")
    tried(replacing, "success")
    assert rows(path) == [(1,)]


def test_a_tagged_snapshot_is_exported(lake_with_a_row, tmp_path):
    with Lake.connect(lake_with_a_row.sqlalchemy_url) as opened:
        opened.tag("q3-close")
    commit(lake_with_a_row)
    task = exporting(tmp_path / "x.sqlite", at="tag:q3-close")
    run = tried(task, "success")

    assert (xcom(run, "export")["snapshot_id"], xcom(run, "export")["format"]) == (2, "sqlite")
    assert rows(tmp_path / "x.sqlite") == [(1,)]


# --- restored tables ---

SAID = (
    "SELECT author, commit_message, commit_extra_info FROM ducklake_snapshots('lake') WHERE snapshot_id = 5"
)


@pytest.fixture
def emptied(sqlite_catalog, connect):
    """Snapshot 2 has all rows, 4 none of them."""
    connect(sqlite_catalog)
    duckdb(sqlite_catalog, "CREATE TABLE t (i INT)")
    duckdb(sqlite_catalog, "INSERT INTO t FROM range(10)")
    duckdb(sqlite_catalog, "DELETE FROM t")
    duckdb(sqlite_catalog, "CREATE TABLE born AS SELECT 1 AS i")
    return sqlite_catalog


def test_a_plan_and_its_execution(emptied):
    with new_dag("restore", params={"at": 2}) as dag:
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
    } == {"name": "main.t", "action": "changed", "files_copied": 1, "rows_returned": 10}
    assert xcom(run, "again")["snapshot_id"] is None
    assert duckdb(emptied, "SELECT count(*), sum(rowid) FROM t") == [(10, 45)]
    ((author, message, extra),) = duckdb(emptied, SAID)
    assert (author, message) == ("airflow", "bring it back")
    assert json.loads(extra)["restored"] == {"as_of": 2, "table_ids": [1]}
    assert json.loads(extra)["airflow"]["task_id"] == "execute"


def test_all_that_was_made_since_goes(emptied):
    with new_dag("restore_all") as dag:
        DuckLakeRestoreOperator(task_id="restore", whole_lake="True", at=2)
    sync_dag(dag)

    done = xcom(dag.test(), "restore")

    fates = {one["name"]: one["action"] for one in done["tables"]}
    assert fates == {"main.t": "changed", "main.born": "dropped"}
    assert duckdb(emptied, "SELECT table_name FROM duckdb_tables() WHERE database_name = 'lake'") == [("t",)]


# --- snapshots that expire ---


def snapshot_ids(catalog: CatalogDatabase) -> list[int]:
    return [
        row[0] for row in duckdb(catalog, "SELECT snapshot_id FROM ducklake_snapshots('lake') ORDER BY 1")
    ]


def scheduled_files(catalog: CatalogDatabase) -> int:
    dry_run = "CALL ducklake_cleanup_old_files('lake', cleanup_all => true, dry_run => true)"
    return len(duckdb(catalog, dry_run))


def history(catalog: CatalogDatabase) -> None:
    """Snapshots 0 to 6; the file of 2 is dead since 4, whose file lives on; table x was dropped in 6."""
    duckdb(
        catalog,
        "CREATE TABLE orders (id INT);"
        "INSERT INTO orders VALUES (1), (2);"
        "DELETE FROM orders;"
        "INSERT INTO orders VALUES (3);"
        "CREATE TABLE x AS SELECT 1 AS a;"
        "DROP TABLE x",
    )


@pytest.fixture
def history_of_seven(catalog: CatalogDatabase, connect: Callable[..., str]) -> CatalogDatabase:
    connect(catalog)
    history(catalog)
    return catalog


@pytest.fixture
def sqlite_history(sqlite_catalog: CatalogDatabase, connect: Callable[..., str]) -> CatalogDatabase:
    connect(sqlite_catalog)
    history(sqlite_catalog)
    return sqlite_catalog


def expire(**arguments: Any) -> dict[str, Any]:
    result = DuckLakeExpireSnapshotsOperator(task_id="expire", **arguments).execute({})
    assert json.loads(json.dumps(result)) == result
    return result


def test_keeping_the_newest_expires_all_the_others(history_of_seven):
    result = expire(keep_last=2)

    assert result["snapshot_ids"] == [0, 1, 2, 3, 4]
    assert (result["data_files_scheduled"], result["dry_run"]) == (1, False)
    assert result["bytes_scheduled"] > 0
    assert snapshot_ids(history_of_seven) == [5, 6]
    assert (
        scheduled_files(history_of_seven) == result["data_files_scheduled"] + result["delete_files_scheduled"]
    )
    assert duckdb(history_of_seven, "FROM orders") == [(3,)]


def test_chosen_versions_expire(history_of_seven):
    assert expire(snapshots=[1, 3])["snapshot_ids"] == [1, 3]
    assert snapshot_ids(history_of_seven) == [0, 2, 4, 5, 6]


def test_versions_that_are_gone_already_are_no_error(sqlite_history):
    """The retry of a task that was killed after its commit; and a plan that found nothing."""
    expire(snapshots=[1, 3])

    assert expire(snapshots=[1, 3])["snapshot_ids"] == []
    assert expire(snapshots="[]")["snapshot_ids"] == []
    assert len(snapshot_ids(sqlite_history)) == 5


def test_a_dry_run_says_the_same_and_changes_nothing(history_of_seven):
    planned = expire(keep_last=1, dry_run=True)

    assert snapshot_ids(history_of_seven) == [0, 1, 2, 3, 4, 5, 6]
    assert scheduled_files(history_of_seven) == 0
    assert expire(keep_last=1) == {**planned, "dry_run": False}


@pytest.mark.parametrize(
    "age", [timedelta(0), "0 days", lambda: datetime.now(UTC), lambda: datetime.now(UTC).isoformat()]
)
def test_an_age_may_be_an_interval_or_a_time(sqlite_history, age):
    result = expire(older_than=age() if callable(age) else age, min_retention="0 days")

    assert result["snapshot_ids"] == [0, 1, 2, 3, 4, 5]
    assert snapshot_ids(sqlite_history) == [6]


def test_nothing_is_that_old_yet(sqlite_history):
    result = expire(older_than="7 days")

    assert result == {
        "snapshot_ids": [],
        "data_files_scheduled": 0,
        "delete_files_scheduled": 0,
        "tables_removed": 0,
        "bytes_scheduled": 0,
        "kept_by_tags": 0,
        "dry_run": False,
    }
    assert len(snapshot_ids(sqlite_history)) == 7


def test_an_age_spares_the_newest_that_are_to_be_kept(sqlite_history):
    assert expire(older_than=timedelta(0), keep_last=4, min_retention=timedelta(0))["snapshot_ids"] == [
        0,
        1,
        2,
    ]
    assert snapshot_ids(sqlite_history) == [3, 4, 5, 6]


def test_what_is_younger_than_the_floor_stays(sqlite_history):
    assert expire(keep_last=1, min_retention="1 hour")["snapshot_ids"] == []
    assert expire(older_than="24 hours")["snapshot_ids"] == []
    assert len(snapshot_ids(sqlite_history)) == 7


def test_the_lakes_option_counts_where_no_argument_does(sqlite_history):
    duckdb(sqlite_history, "CALL lake.set_option('expire_older_than', '3 days')")
    assert expire()["snapshot_ids"] == []

    duckdb(sqlite_history, "CALL lake.set_option('expire_older_than', '00:00:00')")
    with pytest.raises(AirflowFailException, match="younger than min_retention"):
        expire()
    assert expire(snapshots=[2])["snapshot_ids"] == [2]
    assert expire(min_retention="0 days")["snapshot_ids"] == [0, 1, 3, 4, 5]


def test_pinned_releases_stay(sqlite_history):
    for author, message in (
        ("release-bot", "v1"),
        ("etl", "pinned: audit"),
        ("etl", "nightly"),
        (None, None),
    ):
        with open_lake(sqlite_history) as history_of_seven:
            said = ", ".join("NULL" if one is None else f"'{one}'" for one in (author, message))
            history_of_seven.sql("BEGIN")
            history_of_seven.sql("INSERT INTO orders VALUES (4)")
            history_of_seven.sql(f"CALL lake.set_commit_message({said})")
            history_of_seven.sql("COMMIT")

    result = expire(keep_last=1, keep="[3]", keep_author="release-*", keep_message="pinned:*")

    assert result["snapshot_ids"] == [0, 1, 2, 4, 5, 6, 9]
    assert snapshot_ids(sqlite_history) == [3, 7, 8, 10]


def test_a_database_without_a_lake_fails_the_task_for_good(sqlite_catalog, connect):
    connect(sqlite_catalog)

    with pytest.raises(AirflowFailException, match=r"^NotADuckLakeError: "):
        expire(keep_last=1)


def test_arguments_may_be_templates(sqlite_history):
    with new_dag("expire") as dag:
        plan = DuckLakeExpireSnapshotsOperator(
            task_id="plan",
            older_than="{{ params.age }}",
            keep_last="{{ params.keep }}",
            min_retention="{{ params.age }}",
            dry_run="{{ params.dry }}",
            params={"age": "0 days", "keep": 3, "dry": True},
        )
        execute = DuckLakeExpireSnapshotsOperator(
            task_id="execute",
            snapshots="{{ ti.xcom_pull(task_ids='plan')['snapshot_ids'] }}",
            dry_run="{{ params.dry }}",
            params={"dry": False},
        )
        plan >> execute

    run = succeeded(dag)

    assert xcom(run, "plan")["dry_run"] is True
    assert xcom(run, "execute")["snapshot_ids"] == xcom(run, "plan")["snapshot_ids"] == [0, 1, 2, 3]
    assert snapshot_ids(sqlite_history) == [4, 5, 6]
