"""Retried and cleared tasks have their rows in the table once; a stand-in mostly takes the place of Spark."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.snapshots import CommitKey
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from tests.airflow.dags import (
    UnluckyCommits,
    clear,
    context_of,
    delete_run,
    dies_after_commit,
    dies_before_commit,
    loses_the_answer,
    make_task,
    mapped_xcoms,
    new_dag,
    run_next_try,
    start_run,
    sync_dag,
    tried,
    xcom,
)
from tests.airflow.spark_submit import LEAVES_PROCESS, duckdb, files_below, head, recorded, stand_in
from tests.reference.catalogs import CatalogDatabase

pytestmark = [LEAVES_PROCESS, pytest.mark.usefixtures("airflow_db", "collected", "forgotten")]


class Unlucky(UnluckyCommits, DuckLakeSparkInsertOperator):
    events: ClassVar[list[Callable[[Lake], Any]]] = []


@pytest.fixture
def forgotten() -> Iterator[None]:
    yield
    Unlucky.events.clear()


@pytest.fixture
def lake(
    sqlite_catalog: CatalogDatabase, connect: Callable[..., str], set_connection: Callable[..., str]
) -> CatalogDatabase:
    """A lake with the table orders (id INT), which holds a row of somebody else."""
    connect(sqlite_catalog)
    set_connection("spark_default", conn_type="spark", host="local[2]")
    duckdb(sqlite_catalog, "CREATE TABLE orders (id INT); INSERT INTO orders VALUES (1000)")
    return sqlite_catalog


def ids(catalog: CatalogDatabase) -> list[int]:
    """Return what was inserted, without the row of somebody else."""
    return [row for (row,) in duckdb(catalog, "SELECT id FROM orders WHERE id <> 1000 ORDER BY id")]


def source(folder: Path, *values: int) -> str:
    """Write what the task is to insert; the same file with other rows each time."""
    path = folder / "rows.parquet"
    pq.write_table(pa.table({"id": pa.array(values, pa.int32())}), path)
    return str(path)


def inserting(path: str, **arguments: Any) -> Unlucky:
    return make_task(Unlucky, "retries", task_id="insert", table="main.orders", source=path, **arguments)


# --- under Airflow ---


def test_a_task_through_retries_and_clears_has_its_rows_in_the_table_once(lake, submit, tmp_path):
    task = inserting(source(tmp_path, 1, 2))
    run = start_run(task.dag)
    assert head(lake) == 2

    Unlucky.events += [dies_before_commit, loses_the_answer]
    assert run_next_try(run, task) == "up_for_retry"
    assert ids(lake) == []
    assert run_next_try(run, task) == "up_for_retry"  # what became of its commit is unknown
    assert run_next_try(run, task) == "success"
    assert (ids(lake), head(lake), len(submit.calls)) == ([1, 2], 3, 2)
    assert xcom(run, "insert") == {
        "table": "main.orders",
        "snapshot_id": 3,
        "rows_added": 2,
        "rows_removed": None,
        "files_added": None,
        "bytes_added": None,
        "columns_added": None,
        "columns_widened": None,
        "already_committed": True,
    }

    clear(run, "insert")
    source(tmp_path, 3, 4, 5)
    Unlucky.events += [dies_after_commit]
    assert run_next_try(run, task) == "up_for_retry"
    assert (ids(lake), head(lake)) == ([3, 4, 5], 4)  # in one snapshot with the new ones
    assert run_next_try(run, task) == "success"
    assert (xcom(run, "insert")["snapshot_id"], head(lake), len(submit.calls)) == (4, 4, 3)

    clear(run, "insert")
    source(tmp_path, 6)
    assert run_next_try(run, task) == "success"
    assert (ids(lake), head(lake)) == ([6], 5)
    assert xcom(run, "insert")["already_committed"] is False

    delete_run(run)
    source(tmp_path, 7)
    again = start_run(task.dag, run_id=run.run_id)
    Unlucky.events += [dies_after_commit]
    assert run_next_try(again, task) == "up_for_retry"
    assert run_next_try(again, task) == "success"
    assert (ids(lake), head(lake), len(submit.calls)) == ([7], 6, 5)
    assert duckdb(lake, "SELECT count(*) FROM orders WHERE id = 1000") == [(1,)]


@pytest.mark.usefixtures("submit")
def test_a_cleared_task_may_append_or_skip(lake, tmp_path):
    task = inserting(source(tmp_path, 1), on_clear="{{ params.then }}", params={"then": "append"})
    run = tried(task, "success")
    clear(run, "insert")
    source(tmp_path, 2)
    assert run_next_try(run, task) == "success"
    assert ids(lake) == [1, 2]
    landed = xcom(run, "insert")["snapshot_id"]

    task = inserting(source(tmp_path, 3), on_clear="skip")
    clear(run, "insert")
    assert run_next_try(run, task) == "success"

    assert (ids(lake), head(lake)) == ([1, 2], landed)
    assert (xcom(run, "insert")["snapshot_id"], xcom(run, "insert")["already_committed"]) == (landed, True)


@pytest.mark.usefixtures("submit")
def test_each_mapped_task_has_commits_of_its_own(lake, tmp_path):
    (tmp_path / "other").mkdir()
    paths = [source(tmp_path, 1), source(tmp_path / "other", 2)]
    with new_dag("mapped") as dag:
        DuckLakeSparkInsertOperator.partial(task_id="insert", table="main.orders", retries=1).expand(
            source=paths
        )
    run = sync_dag(dag).test()
    assert run.state == "success"
    assert ids(lake) == [1, 2]
    (first, _) = [one["snapshot_id"] for one in mapped_xcoms(run, "insert")]  # in whatever order they ran

    clear(run, "insert", map_index=1)
    source(tmp_path / "other", 3)
    assert run_next_try(run, dag.get_task("insert"), map_index=1) == "success"

    assert ids(lake) == [1, 3]
    assert [one["snapshot_id"] for one in mapped_xcoms(run, "insert")] == [first, 5]


def task_of_two(folder: Path, dies: list[bool]) -> Any:
    """Return a task that executes two operators; it fails behind the second where ``dies`` says so next."""
    with new_dag("nested") as dag:

        @dag.task(retries=2, retry_delay=timedelta(0))
        def load(**context: Any) -> None:
            for table in ("orders", "lines"):
                path = str(folder / "rows.parquet")
                DuckLakeSparkInsertOperator(
                    task_id=f"load_{table}", table=f"main.{table}", source=path
                ).execute(context)
            if dies and dies.pop():
                raise RuntimeError("behind both commits")

        load()
    return sync_dag(dag).get_task("load")


def test_each_operator_that_one_task_executes_has_a_commit_of_its_own(lake, submit, tmp_path):
    duckdb(lake, "CREATE TABLE lines (id INT)")
    dies = [True]
    task = task_of_two(tmp_path, dies)
    run = start_run(task.dag)
    source(tmp_path, 1, 2)
    assert run_next_try(run, task) == "up_for_retry"
    assert run_next_try(run, task) == "success"
    assert (ids(lake), duckdb(lake, "FROM lines"), len(submit.calls)) == ([1, 2], [(1,), (2,)], 2)

    clear(run, "load")
    source(tmp_path, 3)
    dies.append(True)
    assert run_next_try(run, task) == "up_for_retry"
    assert run_next_try(run, task) == "success"
    assert (ids(lake), duckdb(lake, "FROM lines"), len(submit.calls)) == ([3], [(3,)], 4)

    delete_run(run)
    again = start_run(task.dag, run_id=run.run_id)
    source(tmp_path, 4)
    assert run_next_try(again, task) == "success"
    assert (ids(lake), duckdb(lake, "FROM lines")) == ([4], [(4,)])


class ForEachTable(DuckLakeSparkInsertOperator):
    def execute(self, context: Any) -> None:  # type: ignore[override]
        for self.table in ("main.orders", "main.lines"):
            super().execute(context)


@pytest.mark.usefixtures("submit")
def test_one_operator_that_a_task_executes_twice_is_refused_before_the_second_time(lake, tmp_path):
    duckdb(lake, "CREATE TABLE lines (id INT)")
    with new_dag("looping") as dag:
        task = ForEachTable(task_id="load", table="main.orders", source=source(tmp_path, 1), retries=2)
    run = start_run(sync_dag(dag))

    assert run_next_try(run, task) == "failed"

    assert (ids(lake), duckdb(lake, "FROM lines")) == ([1], [])


@pytest.mark.submits
def test_real_spark_replaces_what_a_cleared_task_had_inserted(lake, tmp_path, monkeypatch):
    task = inserting(source(tmp_path, 1, 2))
    run = start_run(task.dag)
    with monkeypatch.context() as patched:
        stand_in(tmp_path / "bin", patched)
        assert run_next_try(run, task) == "success"
    spark = recorded(tmp_path / "spark", monkeypatch)
    monkeypatch.chdir(tmp_path)

    clear(run, "insert")
    source(tmp_path, 3, 4, 5)
    assert run_next_try(run, task) == "success"

    assert (ids(lake), head(lake), len(spark.calls)) == ([3, 4, 5], 4, 1)


# --- without a run ---


def execute(path: str, try_number: int, generation: int = 1, **arguments: Any) -> dict[str, Any]:
    operator = Unlucky(task_id="insert", table="main.orders", source=path, retries=0, **arguments)
    return operator.execute(context_of("insert", try_number, generation))


def another_worker(*arguments: Any) -> Callable[[Lake], Any]:
    """Have another try of the task run as a whole while this one is about to commit."""

    @contextmanager
    def around(_lake: Lake) -> Iterator[None]:
        execute(*arguments)
        yield

    return around


def test_a_commit_that_another_worker_made_meanwhile_counts_and_the_files_go(lake, submit, tmp_path):
    path = source(tmp_path, 1, 2)
    Unlucky.events += [another_worker(path, 1)]

    result = execute(path, 1)

    assert (result["snapshot_id"], result["rows_added"], result["already_committed"]) == (3, 2, True)
    assert (ids(lake), head(lake), len(submit.calls)) == ([1, 2], 3, 2)
    assert len(files_below(lake)) == 2  # somebody else's, and the one that landed


@pytest.mark.usefixtures("submit")
def test_a_worker_of_a_task_that_was_cleared_and_done_again_commits_nothing(lake, tmp_path):
    path = source(tmp_path, 1, 2)
    Unlucky.events += [another_worker(path, 2, 2)]

    with pytest.raises(AirflowFailException, match="ZombieCommitError: The task was cleared"):
        execute(path, 1)
    with pytest.raises(AirflowFailException, match="ZombieCommitError"):
        execute(path, 2, 1)

    assert (ids(lake), head(lake)) == ([1, 2], 3)
    assert len(files_below(lake)) == 2


@pytest.mark.usefixtures("submit")
def test_a_cleared_task_without_rows_takes_the_old_ones_out(lake, tmp_path, task_log):
    execute(source(tmp_path, 1, 2), 1)

    result = execute(source(tmp_path), 2, 2)

    assert (result["snapshot_id"], result["rows_added"], result["files_added"]) == (4, 0, 0)
    assert ids(lake) == []
    assert "This task was cleared after its commit: its 2 rows of snapshot 3 are replaced." in task_log()
    assert execute(source(tmp_path, 3), 3, 2)["already_committed"]


@pytest.mark.usefixtures("submit")
def test_rows_that_came_into_one_file_with_others_are_replaced_there(lake, tmp_path):
    path = source(tmp_path, 1, 2)
    execute(path, 1)
    duckdb(lake, "CALL ducklake_merge_adjacent_files('lake')")

    source(tmp_path, 3)
    assert execute(path, 2, 2)["rows_added"] == 1

    assert duckdb(lake, "SELECT id FROM orders ORDER BY id") == [(3,), (1000,)]


def test_rows_rewritten_while_the_job_runs_are_replaced_where_they_went(lake, submit, tmp_path):
    execute(source(tmp_path, 1, 2), 1)
    submit.meanwhile(
        "from tests.reference.duckdb_lake import open_lake\n"
        f"with open_lake({lake.attach_string!r}, {lake.data_path!r}, data_inlining_row_limit=0) as lake:\n"
        "    lake.sql('UPDATE orders SET id = 50 WHERE id = 2')"
    )

    assert execute(source(tmp_path, 3), 2, 2)["snapshot_id"] == 5

    assert ids(lake) == [3]


@pytest.mark.usefixtures("submit")
def test_a_table_that_is_created_is_created_once(lake, tmp_path):
    operator = {"task_id": "insert", "table": "main.fresh", "create_table": True, "retries": 0}
    results = [
        DuckLakeSparkInsertOperator(source=source(tmp_path, value), **operator).execute(
            context_of("insert", try_number, generation)
        )
        for value, try_number, generation in ((1, 1, 1), (2, 2, 1), (3, 3, 3))
    ]

    assert [one["already_committed"] for one in results] == [False, True, False]
    assert duckdb(lake, "SELECT id FROM fresh") == [(3,)]


@pytest.mark.usefixtures("submit")
def test_two_airflows_on_one_lake_are_told_apart_by_their_connections(lake, connect, tmp_path):
    connect(lake, commit_namespace="one")
    execute(source(tmp_path, 1), 2)

    ((extra,),) = duckdb(
        lake, "SELECT commit_extra_info FROM ducklake_snapshots('lake') WHERE snapshot_id = 3"
    )
    assert json.loads(extra)["airflow"]["namespace"] == "one"
    with Lake.connect(lake.sqlalchemy_url) as opened:
        keys = [CommitKey((name, "dag", "run", "insert", -1, 0)) for name in ("one", "two")]
        assert [bool(opened.writes.keyed_commit(key).seen.done) for key in keys] == [True, False]


@pytest.mark.usefixtures("lake", "submit")
def test_a_word_that_a_template_gives_is_checked_before_anything_happens(tmp_path):
    operator = DuckLakeSparkInsertOperator(
        task_id="insert", table="main.orders", source=source(tmp_path, 1), on_clear="{{ params.then }}"
    )
    operator.on_clear = "overwrite"

    with pytest.raises(AirflowFailException, match="on_clear is 'overwrite'; choose one of replace, append"):
        operator.execute(context_of("insert"))


# --- tasks that overwrite ---


@pytest.mark.usefixtures("submit")
def test_a_task_that_overwrites_and_is_cleared_just_overwrites_again(lake, tmp_path):
    task = inserting(source(tmp_path, 1, 2, 1000), mode="overwrite")
    run = start_run(task.dag)
    Unlucky.events += [loses_the_answer]
    assert run_next_try(run, task) == "up_for_retry"
    assert run_next_try(run, task) == "success"
    assert (ids(lake), head(lake)) == ([1, 2], 3)

    duckdb(
        lake, "INSERT INTO orders VALUES (7); CALL ducklake_merge_adjacent_files('lake')"
    )  # rows share a file
    clear(run, "insert")
    source(tmp_path, 3)
    assert run_next_try(run, task) == "success"
    assert ids(lake) == [3]
