"""Writes staged by several tasks, and their one commit: in runs of a real Airflow, read by DuckDB."""

import re
import tempfile
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.sdk import DAG, task
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.operators.commit import DuckLakeCommitOperator, DuckLakeDiscardStagedOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from tests.airflow.dags import (
    UnluckyCommits,
    clear,
    context_of,
    loses_the_answer,
    mapped_xcoms,
    new_dag,
    parse,
    run_next_try,
    start_run,
    state_of,
    succeeded,
    sync_dag,
    xcom,
)
from tests.airflow.spark_submit import LEAVES_PROCESS, duckdb, files_below, head
from tests.interop import jobs
from tests.reference.catalogs import CatalogDatabase

pytestmark = [LEAVES_PROCESS, pytest.mark.usefixtures("airflow_db", "spark_conn")]
NUMBERS = count()
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "example_dags" / "example_ducklake_staged_writes.py"
PAGE = ROOT / "docs" / "staged_writes.md"


@pytest.fixture
def lake(sqlite_catalog: CatalogDatabase, connect: Callable[..., str]) -> CatalogDatabase:
    """A lake with the tables orders and lines, both (id INT)."""
    connect(sqlite_catalog)
    duckdb(sqlite_catalog, "CREATE TABLE orders (id INT); CREATE TABLE lines (id INT)")
    return sqlite_catalog


@pytest.fixture
def rows(tmp_path: Path) -> Callable[..., str]:
    """Write a Parquet file of some ids and return its path."""

    def write(*ids: int, name: str = "rows") -> str:
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({"id": pa.array(ids, pa.int32())}), path)
        return str(path)

    return write


def ids(catalog: CatalogDatabase, table: str = "orders") -> list[int]:
    return [row for (row,) in duckdb(catalog, f"SELECT id FROM {table} ORDER BY id")]


def stage_by_job(source: str, table: str = "main.orders", **arguments: Any) -> dict[str, Any]:
    operator = DuckLakeSparkInsertOperator(
        task_id="stage", table=table, source=source, stage_only=True, **arguments
    )
    return operator.execute(context_of("stage"))


def stage(catalog: CatalogDatabase, table: str, *ids: int, creates: bool = False) -> dict[str, Any]:
    """Do the same without a job, in no time."""
    with Lake.connect(catalog.sqlalchemy_url) as opened:
        rows = pa.table({"id": pa.array(ids, pa.int32())})
        staged = jobs.stage(opened, f"main.{table}", rows, creates=creates)
    return {"staged": f"{staged.directory}stage.json", "table": f"main.{table}"}


def commit(*staged: Any, try_number: int = 1, generation: int = 1, **arguments: Any) -> dict[str, Any]:
    arguments.setdefault("task_id", "commit")
    operator = DuckLakeCommitOperator(staged=list(staged), retries=0, **arguments)
    with new_dag("dag") as dag:
        dag.add_task(operator)
    return operator.execute(context_of(operator.task_id, try_number, generation))


def discard(*staged: Any) -> list[str]:
    operator = DuckLakeDiscardStagedOperator(task_id="discard", staged=list(staged))
    return operator.execute(context_of("discard"))["discarded"]


# --- without a run ---


def test_a_staged_write_is_invisible_until_its_commit(lake, rows, submit, tmp_path):
    before = head(lake)
    submit.meanwhile(
        "from airflow_provider_ducklake.lake.catalog.lake import Lake\n"
        f"opened = Lake.connect({lake.sqlalchemy_url!r})\n"
        f"open({str(tmp_path / 'seen')!r}, 'w').write(' '.join(opened.jobs.protected_prefixes()))"
    )

    staged = stage_by_job(rows(1, 2, 3))

    (data_file,) = Path(lake.data_path).rglob("*.parquet")
    assert staged == {
        "staged": f"{data_file.parent}/stage.json",
        "table": "main.orders",
        "rows_staged": 3,
        "files_staged": 1,
        "bytes_staged": data_file.stat().st_size,
    }
    assert (tmp_path / "seen").read_text() == f"{data_file.parent}/"  # before the job wrote its result
    assert (ids(lake), head(lake)) == ([], before)

    committed = commit(staged)

    assert committed == {
        "tables": ["main.orders"],
        "snapshot_id": before + 1,
        "rows_added": 3,
        "files_added": 1,
        "bytes_added": data_file.stat().st_size,
        "rows_removed": 0,
        "already_committed": False,
    }
    assert ids(lake) == [1, 2, 3]
    assert files_below(lake) == [data_file]


def test_a_table_is_read_as_it_would_be_through_the_hook(lake):
    duckdb(lake, "INSERT INTO orders VALUES (7)")
    staged = [stage(lake, "orders", 1, 2), stage(lake, "fresh", 5, creates=True)["staged"]]
    hook = DuckLakeHook()

    assert sorted(hook.read_arrow("orders", staged=staged)["id"].to_pylist()) == [1, 2, 7]
    assert hook.read_arrow("fresh", staged=staged)["id"].to_pylist() == [5]
    assert hook.read_arrow("orders")["id"].to_pylist() == [7]
    commit(staged)
    with pytest.raises(errors.InvalidInputError, match=r"was committed at .*, in snapshot 4"):
        hook.read_arrow("orders", staged=staged)
    hook.close()


def test_a_job_that_dies_leaves_nothing_staged(lake, rows, submit):
    submit.meanwhile("raise SystemExit(137)")

    with pytest.raises(errors.SparkJobError):
        stage_by_job(rows(1))

    assert files_below(lake) == []
    with Lake.connect(lake.sqlalchemy_url) as opened:
        assert opened.jobs.protected_prefixes() == frozenset()


def test_what_cannot_be_committed_fails_for_good_and_changes_nothing(lake, new_catalog):
    staged = stage(lake, "orders", 1)
    uri = staged["staged"]
    other = new_catalog("sqlite")
    duckdb(other, "CREATE TABLE orders (id INT)")
    foreign = stage(other, "orders", 1)
    no_job = uri.replace(uri.split("ducklake-")[1][:8], "00000000")
    for given, message in (
        ([], "There is nothing to commit"),
        ([staged, None], "None is not a staged write.* skipped or failed"),
        ([{"table": "main.orders", "snapshot_id": 3}], "is not a staged write.*stage_only=True"),
        ([7], "7 is not a staged write"),
        (["/etc/passwd"], "'/etc/passwd' is not a staged write"),
        ([uri, staged], "given twice"),
        ([staged, foreign], "not a staged write of this lake, whose files are below"),
        ([no_job], "not a staged write of this lake"),
        ([uri.replace("/orders/", "/lines/")], "not a staged write of this lake"),
    ):
        with pytest.raises(AirflowFailException, match=f"(?s)InvalidInputError: .*{message}"):
            commit(*given)

    with pytest.raises(errors.InvalidInputError, match="on_clear is 'overwrite'"):
        DuckLakeCommitOperator(task_id="commit", staged=[staged], on_clear="overwrite")
    assert (ids(lake), head(lake)) == ([], 2)
    assert commit([[staged]])["rows_added"] == 1  # as a mapped task's list
    assert len(files_below(other)) == 4


@pytest.mark.parametrize(
    "missing", ["*.parquet", "end of *.parquet", "part-00000.json", "_DONE", "stage.json"]
)
def test_a_staged_write_that_lost_a_file_is_not_committed(lake, missing):
    staged, whole = stage(lake, "orders", 1), stage(lake, "lines", 2)
    (path,) = Path(staged["staged"]).parent.glob(missing.removeprefix("end of "))
    if missing.startswith("end of "):
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.unlink()

    with pytest.raises((errors.StorageError, errors.SparkJobError), match=path.name):
        commit(whole, staged)

    assert (ids(lake), ids(lake, "lines"), head(lake)) == ([], [], 2)
    assert discard(staged) == [staged["staged"]]
    assert not Path(staged["staged"]).parent.exists()
    assert commit(whole)["rows_added"] == 1


def test_duckdbs_removal_of_orphans_takes_what_is_staged_and_the_commit_says_so(lake):
    staged = stage(lake, "orders", 1)
    before = len(files_below(lake))
    duckdb(lake, "CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)")

    assert len(files_below(lake)) < before
    with pytest.raises(
        (AirflowFailException, errors.StorageError), match=r"is incomplete: .* is missing or truncated"
    ):
        commit(staged)

    assert (ids(lake), head(lake)) == ([], 2)


def test_a_conflict_leaves_everything_staged(lake):
    staged = [stage(lake, "orders", 1), stage(lake, "lines", 2)]
    before = files_below(lake)
    duckdb(lake, "ALTER TABLE orders ADD COLUMN late INT")

    with pytest.raises(
        errors.TransactionConflictError, match="insert into it, and in the meantime snapshot 3"
    ):
        commit(staged)

    assert (ids(lake), ids(lake, "lines"), files_below(lake)) == ([], [], before)
    assert commit(staged[1], try_number=2)["tables"] == ["main.lines"]
    assert discard(*staged) == [staged[0]["staged"]]
    assert len(files_below(lake)) == 1
    assert ids(lake, "lines") == [2]


def test_what_was_committed_is_never_discarded(lake):
    staged = [stage(lake, "orders", 1), stage(lake, "lines", 2)]
    left = [Path(one["staged"]) for one in staged]
    commit(staged[0])
    left[0].write_text("{}")  # as if the clean-up after the commit had failed

    assert discard(None, [staged[0], None], staged[1:]) == [staged[1]["staged"]]
    assert discard(staged) == []

    assert ids(lake) == [1]
    assert not left[0].exists()
    assert not left[1].parent.exists()
    with pytest.raises(AirflowFailException, match="was discarded"):
        commit(staged[1])
    with pytest.raises(AirflowFailException, match="not a staged write of this lake"):
        discard(staged[0]["staged"].replace("/orders/", "/lines/"))


class CommitsThen(UnluckyCommits, DuckLakeCommitOperator):
    """The operator whose worker loses the answer of its commit."""

    events: ClassVar[list[Any]] = []


def test_a_retry_finds_the_commit_and_removes_what_was_left(lake):
    staged = [stage(lake, "orders", 1, 2), stage(lake, "lines", 3)]
    unlucky = CommitsThen(task_id="commit", staged=staged, message="both")
    unlucky.events.append(loses_the_answer)
    with pytest.raises(errors.CommitStateUnknownError):
        unlucky.execute(context_of("commit"))
    assert len(files_below(lake)) > 2

    assert commit(staged, try_number=2) == {
        "tables": ["main.lines", "main.orders"],
        "snapshot_id": 3,
        "rows_added": 3,
        "files_added": None,
        "bytes_added": None,
        "rows_removed": None,
        "already_committed": True,
    }
    assert (ids(lake), ids(lake, "lines"), head(lake)) == ([1, 2], [3], 3)
    assert len(files_below(lake)) == 2
    ((message,),) = duckdb(
        lake, "SELECT commit_message FROM ducklake_snapshots('lake') WHERE snapshot_id = 3"
    )
    assert message == "both"


def test_a_cleared_commit_replaces_its_rows_by_what_was_staged_anew(lake):
    duckdb(lake, "INSERT INTO orders VALUES (1000)")
    staged = [stage(lake, "orders", 1), stage(lake, "lines", 2)]
    commit(staged)

    for on_clear in ("replace", "append"):
        with pytest.raises(AirflowFailException, match=r"in snapshot 4\. To do it again, also clear"):
            commit(staged, try_number=2, generation=2, on_clear=on_clear)
    skipped = commit(staged, try_number=2, generation=2, on_clear="skip")
    assert (skipped["snapshot_id"], skipped["already_committed"]) == (4, True)
    anew = [stage(lake, "orders", 3), stage(lake, "lines", 4)]
    replaced = commit(anew, try_number=3, generation=2)

    assert (replaced["snapshot_id"], replaced["rows_added"]) == (5, 2)
    assert (ids(lake), ids(lake, "lines")) == ([3, 1000], [4])


def test_nothing_staged_makes_no_snapshot(lake):
    result = commit(stage(lake, "orders"))

    assert (result["snapshot_id"], result["rows_added"], result["files_added"]) == (None, 0, 0)
    assert (head(lake), files_below(lake)) == (2, [])


@pytest.mark.parametrize("class_", [DuckLakeCommitOperator, DuckLakeDiscardStagedOperator])
def test_each_argument_is_explained_in_the_docstring_and_on_the_page(class_):
    explained = re.findall(r":param (\w+):", class_.__doc__)

    assert set(explained) == set(class_.template_fields)
    assert all(f"`{name}" in PAGE.read_text() for name in explained)


def test_the_example_of_the_page_parses(tmp_path):
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "dag.py").write_text(code)

    dag = parse(tmp_path / "dag.py")

    assert dag.get_task("commit").upstream_task_ids == {"orders", "lines", "audit"}
    assert dag.get_task("discard").is_teardown


# --- in runs of Airflow ---


def make_dag(paths: list[str]) -> DAG:
    """Stage orders by mapped tasks and lines by another, commit them, discard what is left."""
    with new_dag(f"staged_{next(NUMBERS)}") as dag:
        orders = DuckLakeSparkInsertOperator.partial(
            task_id="orders", table="main.fresh", create_table=True, stage_only=True
        ).expand(source=paths[1:])
        lines = DuckLakeSparkInsertOperator(
            task_id="lines",
            table="main.lines",
            source=paths[0],
            stage_only=True,
            retries=1,
            retry_delay=timedelta(0),
        )
        staged = [orders.output, lines.output]

        @task
        def audit(staged: Any) -> int:
            seen = DuckLakeHook().read_arrow("main.fresh", staged=staged)["id"].to_pylist()
            if -1 in seen:
                raise AirflowFailException("an order without a number")
            return sum(seen)

        commit = DuckLakeCommitOperator(task_id="commit", staged=staged)
        discard = DuckLakeDiscardStagedOperator(task_id="discard", staged=staged)
        audit(staged) >> commit >> discard.as_teardown(setups=[orders, lines])
    return sync_dag(dag)


@pytest.mark.usefixtures("submit")
def test_tasks_mapped_or_not_stage_audit_and_commit(lake, rows):
    run = make_dag([rows(1, name="a"), rows(2, name="b"), rows(3, name="c")]).test()

    assert run.state == "success"
    assert xcom(run, "audit") == 5
    committed = xcom(run, "commit")
    assert (committed["tables"], committed["rows_added"]) == (["main.fresh", "main.lines"], 3)
    assert (ids(lake, "fresh"), ids(lake, "lines"), head(lake)) == ([2, 3], [1], committed["snapshot_id"])
    assert xcom(run, "discard") == {"discarded": []}
    assert len(files_below(lake)) == 3


@pytest.mark.usefixtures("submit")
@pytest.mark.parametrize("what_fails", ["audit", "lines"])
def test_the_teardown_removes_what_is_not_committed(lake, rows, what_fails):
    lines = rows(1, name="a") if what_fails == "audit" else "/nowhere.parquet"
    run = make_dag([lines, rows(-1, name="b")]).test()

    assert [state_of(run, task_id) for task_id in (what_fails, "commit", "discard")] == [
        "failed",
        "upstream_failed",
        "success",
    ]
    assert run.state == "failed"
    staged = [*mapped_xcoms(run, "orders"), xcom(run, "lines")]
    assert set(xcom(run, "discard")["discarded"]) == {one["staged"] for one in staged if one}
    assert (head(lake), files_below(lake)) == (2, [])


def test_a_staging_task_that_fails_stages_anew_and_its_clear_replaces_its_rows(lake, rows, submit, tmp_path):
    """Clearing the commit clears what it was set up by, as Airflow does for setups."""
    died = tmp_path / "died"
    with new_dag(f"staged_{next(NUMBERS)}") as dag:
        orders = DuckLakeSparkInsertOperator(
            task_id="orders", table="main.orders", source=rows(1), stage_only=True, retries=1
        )
        commit = DuckLakeCommitOperator(task_id="commit", staged=[orders.output], retries=0)
    sync_dag(dag)
    submit.meanwhile(
        f"import pathlib; path = pathlib.Path({str(died)!r})\n"
        "if not path.exists(): path.touch(); raise SystemExit(1)"
    )
    run = start_run(dag)

    assert run_next_try(run, orders) == "up_for_retry"
    assert files_below(lake) == []
    assert run_next_try(run, orders) == "success"
    assert run_next_try(run, commit) == "success"
    assert ids(lake) == [1]
    rows(2)
    for task_ in (orders, commit):
        clear(run, task_.task_id)
        assert run_next_try(run, task_) == "success"

    assert (ids(lake), head(lake)) == ([2], 4)
    assert xcom(run, "commit")["already_committed"] is False


def test_the_example_commits_what_two_real_jobs_staged(
    sqlite_catalog, connect, on_server, tmp_path, monkeypatch
):
    connect(sqlite_catalog, data_path=sqlite_catalog.data_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    run = succeeded(on_server(parse(EXAMPLE)))

    committed = xcom(run, "commit")
    assert (committed["tables"], committed["rows_added"]) == (["main.orders", "main.order_lines"], 7)
    assert xcom(run, "audit") == {"orders": 3, "lines": 4}
    assert duckdb(sqlite_catalog, "SELECT sum(pieces) FROM order_lines") == [(513,)]
