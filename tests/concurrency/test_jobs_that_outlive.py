"""Jobs that outlive their task: tries that die at each step, that meet at one job, and that were changed.

The submitter is ours for tests, as jobs that this process does; real clusters are in ``tests/airflow``.
"""

import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import select

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.committing.commit import Committer
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.ledger.jobs import APPLICATIONS, JOBS, SubmittedJob
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo, CommitKey
from airflow_provider_ducklake.lake.planning.writing.write import RowChanges
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spark.job.request import JobRequest
from airflow_provider_ducklake.lake.writes.arguments import GivenRows, InsertChoice
from airflow_provider_ducklake.lake.writes.insert import Insert, stage
from airflow_provider_ducklake.lake.writes.job_life import (
    DetachedSubmitter,
    JobDeferred,
    JobLife,
    release_uncommitted,
)
from airflow_provider_ducklake.lake.writes.resume import finish_earlier
from airflow_provider_ducklake.lake.writes.row_changes import Delete, Merge, Update
from airflow_provider_ducklake.lake.writes.run import run
from airflow_provider_ducklake.lake.writes.sql import Sql
from airflow_provider_ducklake.lake.writes.staged import commit_staged
from airflow_provider_ducklake.lake.writes.verb import Attempt, Commit, Outcome, Results, Verb
from tests.concurrency.arrow_jobs import ArrowSubmitter, done
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

INFO = CommitInfo("test", "outlives")
DIED = 99


class TimedOutError(BaseException):
    """As Airflow's, which is no error either."""


class Clustered(ArrowSubmitter, DetachedSubmitter):
    """A cluster that does a job when somebody submits it; a try can die before, within and after.

    What it has done lies in a folder: it is seen by all processes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = "here"
        self.dies_at = ""
        self.waits = True
        self.stopped: list[str] = []
        self.fails = False
        self.meanwhile: Callable[[], None] | None = None
        self.life: JobLife | None = None

    def _reach(self, step: str) -> None:
        if step == self.dies_at:
            os._exit(DIED)

    @property
    def runs_of(self) -> dict[str, str]:
        """Job ids by their applications."""
        return {file.name: file.read_text() for file in sorted(self.folder.glob("application_*"))}

    def start(self, life: JobLife) -> None:
        self.life, request = life, life.request
        self._reach("noted")
        if self.dies_at == "half written":
            half_written(request)
        self._reach("half written")
        job_io.write_request(request, life.lake.opened.storage_options)
        application = f"application_{len(self.runs_of) + 1}"
        (self.folder / application).write_text(request.job_id)
        if self.fails:
            job_io.write_error(request, errors.SparkJobError("no such day"))
        else:
            write_outcome(request)
        self._reach("submitted")
        life.named(application)
        self._reach("named")

    def outcome(self, life: JobLife) -> Results:
        self.life, job = life, life.submitted
        assert job is not None
        assert self.runs_of[job.application or ""] == life.request.job_id
        if not self.waits:
            raise JobDeferred(job)
        self._reach("ended")
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        if not self.fails:
            life.ended()
        return Results.of(job_io.read_outcome(life.request, life.lake.opened.storage_options))

    def find(self, job_id: str) -> str | None:
        return next((name for name, one in self.runs_of.items() if one == job_id), None)

    def runs(self, application: str, job_id: str) -> bool:
        return self.runs_of.get(application) == job_id

    def stop(self, application: str) -> None:
        self.stopped.append(application)

    def tidy_up(self, request: JobRequest, storage_options: Mapping[str, Any]) -> None:
        job_io.delete_job_files(request, storage_options)


def half_written(request: JobRequest) -> None:
    """Leave what a try leaves that dies while it writes its request."""
    directory = Path(request.directory)
    directory.mkdir(parents=True)
    (directory / ".0123456789abcdef.tmp").write_text("{")


def write_outcome(request: JobRequest) -> None:
    found = done(request)
    if isinstance(found, RowChanges):
        job_io.write_row_changes(request, found)
    else:
        job_io.write_results(request, found)


def dies(work: Callable[[], object]) -> None:
    """Do work in a process that ends within it, as if it was killed."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == DIED


class Task:
    """A task whose tries come after each other."""

    def __init__(self, verb: Verb, submitter: Clustered) -> None:
        self.verb, self.submitter, self.tries = verb, submitter, 0
        self.key = CommitKey((str(uuid.uuid4()),))
        self.run = "the first"

    def attempt(self) -> Attempt:
        return Attempt(self.key, f"{self.run} {self.tries}", is_first=self.tries == 1)

    def execute(self, lake: Lake, *, is_resumed: bool = False) -> Outcome:
        self.tries += not is_resumed
        commit = Commit(INFO, lake.writes.keyed_commit(self.key), attempt=self.attempt())
        return run(self.verb, lake, self.submitter, commit)


def die(task: Task, lake: Lake, catalog: CatalogDatabase) -> None:
    """Have a try die where the submitter says; the next one is not to."""
    lake.close()
    dies(lambda: task.execute(Lake.connect(catalog.sqlalchemy_url)))
    task.tries += 1
    task.submitter.dies_at = ""


@pytest.fixture
def rows(tmp_path: Path) -> str:
    pq.write_table(
        pa.table({"id": pa.array([1, 50], pa.int64()), "n": pa.array([10, 500], pa.int64())}),
        tmp_path / "rows.parquet",
    )
    return str(tmp_path / "rows.parquet")


def new_lake(catalog: CatalogDatabase) -> Lake:
    """Make a lake with a table of some files, a partitioned one, and one that others write to."""
    lake = Lake.create(catalog.sqlalchemy_url, catalog.data_path)
    with lake.transaction() as tx:
        for name in ("t", "o"):
            tx.create_table(name, {"id": "int64", "n": "int64"})
        tx.create_table("p", {"id": "int64", "n": "int64"}, partition_by=["id"])
    for start in (0, 20, 40):
        lake.append_arrow("t", numbered(*range(start, start + 20)))
    return lake


def numbered(*ids: int) -> pa.Table:
    numbers = pa.array(ids, pa.int64())
    return pa.table({"id": numbers, "n": numbers})


VERBS: dict[str, Callable[[str], Verb]] = {
    "insert": lambda rows: Insert("t", GivenRows(source=rows)),
    "insert and create": lambda rows: Insert("Ä b", GivenRows(source=rows), create_table=True),
    "insert into partitions": lambda rows: Insert("p", GivenRows(source=rows)),
    "overwrite": lambda rows: Insert(
        "t", GivenRows(source=rows), InsertChoice.of("overwrite", None, "strict", ())
    ),
    "overwrite where": lambda rows: Insert(
        "t", GivenRows(source=rows), InsertChoice.of("append", "id = 1 OR id = 50", "strict", ())
    ),
    "delete": lambda _: Delete("t", "id % 7 = 3"),
    "update": lambda _: Update("t", {"n": "n + 1000"}, "id BETWEEN 15 AND 25"),
    "merge": lambda rows: Merge(
        "t",
        ["id"],
        GivenRows(source=rows),
        when_matched=[{"update": {"n": "source.n"}}],
        when_not_matched=[{"insert": {"id": "source.id", "n": "source.n"}}],
    ),
    "query that creates": lambda _: Sql("CREATE TABLE c AS SELECT id, n FROM t WHERE id < 5"),
    "query": lambda _: Sql("INSERT INTO t SELECT id + 100, n FROM t WHERE id < 5"),
}
STEPS = ("noted", "half written", "submitted", "named", "ended")


def contents(catalog: CatalogDatabase) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of all tables, as the reference reads them."""
    with open_lake(catalog) as reference:
        tables = reference.sql("SELECT table_name FROM duckdb_tables() WHERE database_name = 'lake'")
        return {name: sorted(reference.sql(f'FROM "{name}"')) for (name,) in tables}


def check_nothing_left(lake: Lake) -> None:
    files = {str(file) for file in Path(lake.data_path).rglob("*") if file.is_file()}
    assert files == set(lake.reads.registered_files(files)), "files that no snapshot names"
    assert lake.verify() == []
    jobs = APPLICATIONS.of(lake.opened.catalog)
    with lake.opened.reading() as connection:
        assert connection.execute(select(jobs.c.job_id)).all() == []


@pytest.mark.kills
@pytest.mark.drawn(one_in=4)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", VERBS)
def test_a_later_try_commits_what_an_earlier_one_submitted_wherever_that_died(
    name, step, new_catalog, catalog_kind, rows, tmp_path
):
    catalog, twin = new_catalog(catalog_kind), new_catalog(catalog_kind)
    with new_lake(twin) as other:
        run(VERBS[name](rows), other, ArrowSubmitter(), Commit(INFO))
        other.append_arrow("o", numbered(7))
    submitter = Clustered(tmp_path)
    task = Task(VERBS[name](rows), submitter)

    with new_lake(catalog) as lake:
        submitter.dies_at = step
        die(task, lake, catalog)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        lake.append_arrow("o", numbered(7))  # the newest snapshot is another one by now
        submitter.dies_at = ""
        outcome = task.execute(lake)

        assert outcome.committed is not None
        assert len(submitter.runs_of) == 1, "the job was submitted again"
        assert submitter.stopped == []
        assert contents(catalog) == contents(twin)
        check_nothing_left(lake)


@pytest.mark.every_catalog
def test_two_tries_that_meet_at_one_job_commit_once_and_keep_its_files(catalog, rows, tmp_path):
    """A worker that was given up for dead is alive: both have the results."""
    submitter = Clustered(tmp_path)
    with new_lake(catalog) as lake, Lake.connect(catalog.sqlalchemy_url) as other:
        task = Task(Insert("t", GivenRows(source=rows)), submitter)
        late: list[Outcome] = []
        submitter.meanwhile = lambda: late.append(task.execute(other))

        first = task.execute(lake)

        assert len(submitter.runs_of) == 1
        assert first.committed is not None
        assert late[0].committed is not None
        assert first.committed.id == late[0].committed.id
        assert first.summary["already_committed"] is True
        assert lake.row_count("t") == 62
        check_nothing_left(lake)
        assert contents(catalog)["t"].count((50, 500)) == 1


def test_a_try_that_fails_leaves_what_another_has_committed(catalog, rows, tmp_path):
    submitter = Clustered(tmp_path)
    with new_lake(catalog) as lake, Lake.connect(catalog.sqlalchemy_url) as other:
        task = Task(Insert("t", GivenRows(source=rows)), submitter)

        def commit_and_fail() -> None:
            task.execute(other)
            raise TimedOutError

        submitter.meanwhile = commit_and_fail
        with pytest.raises(TimedOutError):
            task.execute(lake)

        assert lake.row_count("t") == 62
        check_nothing_left(lake)


def test_a_try_that_fails_leaves_what_another_has_staged(catalog, rows, tmp_path):
    submitter, verb = Clustered(tmp_path), Insert("t", GivenRows(source=rows))
    with new_lake(catalog) as lake, Lake.connect(catalog.sqlalchemy_url) as other:
        task, staged = Task(verb, submitter), list[dict[str, Any]]()

        def stage_and_fail() -> None:
            staged.append(stage(verb, other, submitter, task.attempt()))
            raise TimedOutError

        submitter.meanwhile = stage_and_fail
        with pytest.raises(TimedOutError):
            stage(verb, lake, submitter, task.attempt())

        commit_staged(lake, staged[0], Commit(INFO))
        assert lake.row_count("t") == 62
        check_nothing_left(lake)


@pytest.mark.every_catalog
def test_a_try_that_was_given_up_ends_no_job_that_a_later_one_waits_for(catalog, rows, tmp_path):
    """Airflow ends a worker that it took for dead: its application is another try's by then."""
    first, second = Clustered(tmp_path), Clustered(tmp_path)
    second.waits = False
    with new_lake(catalog) as lake, Lake.connect(catalog.sqlalchemy_url) as other:
        task = Task(Insert("t", GivenRows(source=rows)), first)
        held = []

        def is_given_up() -> None:
            assert first.life is not None
            held.append(first.life.is_ours())
            task.submitter = second
            with pytest.raises(JobDeferred):
                task.execute(other)
            held.append(first.life.is_ours())
            first.life.named("application_1")  # spark-submit goes on to print what this worker reads
            raise TimedOutError

        first.meanwhile = is_given_up
        with pytest.raises(TimedOutError):
            task.execute(lake)
        assert held == [True, False]
        assert second.life is not None
        assert second.life.is_ours()

        second.waits = True
        outcome = task.execute(other, is_resumed=True)

        assert outcome.summary["rows_added"] == 2
        assert (len(first.runs_of), first.stopped, second.stopped) == (1, [], [])
        assert lake.row_count("t") == 62
        check_nothing_left(lake)


@pytest.mark.parametrize("change", ["another task", "cleared", "deleted and created again", "the table"])
def test_a_job_that_is_not_what_the_try_would_do_is_stopped_and_removed(change, catalog, rows, tmp_path):
    submitter = Clustered(tmp_path)
    submitter.dies_at = "named"
    with new_lake(catalog) as lake:
        task = Task(Insert("t", GivenRows(source=rows)), submitter)
        die(task, lake, catalog)
        match change:
            case "another task":
                task.verb = Insert("o", GivenRows(source=rows))
            case "cleared":
                task.key = CommitKey(task.key.names, task.key.generation + 1)
            case "deleted and created again":
                task.tries = 0
                task.run = "the second"
            case _:
                lake.set_option("parquet_compression", "snappy", table="t")

        task.execute(lake)

        assert (len(submitter.runs_of), submitter.stopped) == (2, ["application_1"])
        table = "o" if change == "another task" else "t"
        assert contents(catalog)[table].count((50, 500)) == 1
        check_nothing_left(lake)


def test_a_base_that_has_expired_is_planned_anew(catalog, rows, tmp_path):
    submitter = Clustered(tmp_path)
    submitter.dies_at = "named"
    with new_lake(catalog) as lake:
        task = Task(Insert("t", GivenRows(source=rows)), submitter)
        die(task, lake, catalog)
        lake.append_arrow("o", numbered(7))
        lake.expire_snapshots(keep_last=1)

        task.execute(lake)

        assert (len(submitter.runs_of), submitter.stopped) == (2, ["application_1"])
        assert contents(catalog)["t"].count((50, 500)) == 1
        check_nothing_left(lake)


def left_to_the_triggerer(lake, rows, tmp_path) -> tuple[Task, Clustered, SubmittedJob]:
    """Return an insert whose job goes on, without a worker, until it is executed once more."""
    submitter = Clustered(tmp_path)
    submitter.waits = False
    task = Task(Insert("t", GivenRows(source=rows)), submitter)
    with pytest.raises(JobDeferred) as deferred:
        task.execute(lake)
    submitter.waits = True
    return task, submitter, deferred.value.job


@pytest.mark.every_catalog
def test_a_job_that_goes_on_is_taken_by_the_same_try(catalog, rows, tmp_path):
    with new_lake(catalog) as lake:
        task, submitter, job = left_to_the_triggerer(lake, rows, tmp_path)
        assert job.application == "application_1"

        task.execute(lake, is_resumed=True)

        assert len(submitter.runs_of) == 1
        assert contents(catalog)["t"].count((50, 500)) == 1
        check_nothing_left(lake)


def test_a_manager_that_does_not_answer_keeps_job_and_files(catalog, rows, tmp_path):
    submitter = Clustered(tmp_path)
    with new_lake(catalog) as lake:
        task = Task(Insert("t", GivenRows(source=rows)), submitter)

        def is_silent() -> None:
            raise errors.ClusterUnavailableError("the manager", "http://rm:8088", "ReadTimeout")

        submitter.meanwhile = is_silent
        with pytest.raises(
            errors.ClusterUnavailableError, match="Cannot reach the manager at http://rm:8088"
        ):
            task.execute(lake)

        task.execute(lake)

        assert len(submitter.runs_of) == 1
        check_nothing_left(lake)


def test_a_failed_job_is_not_found_again(catalog, rows, tmp_path):
    submitter = Clustered(tmp_path)
    submitter.fails = True
    with new_lake(catalog) as lake:
        task = Task(Insert("t", GivenRows(source=rows)), submitter)
        with pytest.raises(errors.SparkJobError, match="no such day"):
            task.execute(lake)
        check_nothing_left(lake)
        submitter.fails = False

        task.execute(lake)

        assert len(submitter.runs_of) == 2
        check_nothing_left(lake)


def test_a_staged_write_is_found_again_and_then_left_alone(catalog, rows, tmp_path):
    submitter = Clustered(tmp_path)
    submitter.dies_at = "named"
    with new_lake(catalog) as lake:
        task = Task(Insert("t", GivenRows(source=rows)), submitter)
        task.tries = 1
        lake.close()
        dies(lambda: stage(task.verb, Lake.connect(catalog.sqlalchemy_url), submitter, task.attempt()))
        submitter.dies_at = ""
        task.tries = 2
        staged = stage(task.verb, lake, submitter, task.attempt())

        task.key, task.tries = CommitKey(task.key.names, task.key.generation + 1), 3  # cleared
        again = stage(task.verb, lake, submitter, task.attempt())

        assert len(submitter.runs_of) == 2
        assert submitter.stopped == []
        assert staged["staged"] != again["staged"]
        for one in (staged, again):
            commit_staged(lake, one["staged"], Commit(INFO))
        assert contents(catalog)["t"].count((50, 500)) == 2


def test_delete_files_of_a_commit_stay_when_its_job_is_forgotten_and_its_task_cleared(catalog, tmp_path):
    submitter = Clustered(tmp_path)
    with new_lake(catalog) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        task = Task(Delete("t", "id % 2 = 0"), submitter)
        task.execute(lake)
        (job,) = submitter.runs_of.values()
        with lake.opened.catalog.dialect.writing() as connection:
            connection.execute(JOBS.of(lake.opened.catalog).delete())  # as a clean-up does after a month
            connection.commit()

        assert not release_uncommitted(lake, job)
        assert lake.row_count("t") == 30


def test_a_store_or_catalog_that_fails_at_the_second_plan_stops_no_job(catalog, rows, tmp_path):
    submitter = Clustered(tmp_path)
    submitter.dies_at = "named"
    with new_lake(catalog) as lake:
        task = Task(Failing("t", GivenRows(source=rows)), submitter)
        die(task, lake, catalog)
        (tmp_path / "fails").touch()
        Failing.flag = tmp_path / "fails"
        with pytest.raises(errors.CatalogUnavailableError):
            task.execute(lake)
        (tmp_path / "fails").unlink()

        task.execute(lake)

        assert (len(submitter.runs_of), submitter.stopped) == (1, [])
        check_nothing_left(lake)


class DownOnce(Committer):
    """Fails to commit the first time."""

    error: errors.DuckLakeError | None = None

    def commit_change_sets(self, *arguments: Any, **named: Any) -> Any:
        if (error := self.error) is not None:
            self.error = None
            raise error
        return super().commit_change_sets(*arguments, **named)


@pytest.mark.parametrize(
    "error",
    [
        errors.CatalogUnavailableError("sqlite", "down"),
        errors.LockTimeoutError("sqlite", 5, "another"),
        errors.StorageError("s3://lake/x.parquet cannot be read"),
    ],
    ids=type,
)
def test_an_outage_at_the_commit_costs_no_job(catalog, rows, tmp_path, error):
    submitter = Clustered(tmp_path)
    with new_lake(catalog) as lake:
        lake.committer = DownOnce(lake.opened)
        lake.committer.error = error
        task = Task(Insert("t", GivenRows(source=rows)), submitter)
        with pytest.raises(type(error)):
            task.execute(lake)

        task.execute(lake)

        assert (len(submitter.runs_of), submitter.stopped) == (1, [])
        assert lake.row_count("t") == 62
        check_nothing_left(lake)


@pytest.mark.parametrize("failures", [1, 2])
def test_a_store_that_is_down_once_costs_no_job_whose_results_it_has(catalog, rows, tmp_path, failures):
    """The second failure is taken for lost files: they are given up, and the third try has its own job."""
    submitter = Clustered(tmp_path)
    with new_lake(catalog) as lake:
        task = Task(Insert("t", GivenRows(source=rows)), submitter)

        def hide() -> None:
            assert submitter.life is not None
            done = Path(submitter.life.request.directory) / "_DONE"
            done.rename(tmp_path / "done")
            done.mkdir()

        for number in range(failures):
            submitter.meanwhile = hide if number == 0 else None
            with pytest.raises(errors.StorageError):
                task.execute(lake)
        if failures == 1:
            assert submitter.life is not None
            done = Path(submitter.life.request.directory) / "_DONE"
            done.rmdir()
            (tmp_path / "done").rename(done)

        task.execute(lake)

        assert len(submitter.runs_of) == failures
        assert lake.row_count("t") == 62


def test_a_store_that_is_down_ends_no_job_that_is_waited_for(catalog, rows, tmp_path):
    """Streams and compactions wait for jobs of earlier tries before they begin one."""
    with new_lake(catalog) as lake:
        task, submitter, job = left_to_the_triggerer(lake, rows, tmp_path)
        request = Path(job_io.request_uri(job.directory))
        request.rename(tmp_path / "request")
        request.mkdir()
        with pytest.raises(errors.StorageError):
            finish_earlier(lake, submitter, task.attempt())
        assert lake.jobs.submitted(job.job_id) is not None
        request.rmdir()
        (tmp_path / "request").rename(request)

        finished = finish_earlier(lake, submitter, task.attempt())

        assert ([one.job_id for one in finished.requests], submitter.stopped) == ([job.job_id], [])
        check_nothing_left(lake)


def test_a_deferred_try_whose_request_is_gone_fails(catalog, rows, tmp_path):
    with new_lake(catalog) as lake:
        task, submitter, job = left_to_the_triggerer(lake, rows, tmp_path)
        Path(job_io.request_uri(job.directory)).unlink()

        finished = finish_earlier(lake, submitter, task.attempt())

        assert (finished.is_own, finished.requests) == (True, ())
        assert isinstance(finished.error, errors.SparkJobError)
        assert submitter.stopped == ["application_1"]
        check_nothing_left(lake)


class Failing(Insert):
    """An insert whose plan meets a catalog that is down as long as a file is there."""

    flag = Path("/nowhere.flag")

    def plan(self, lake: Lake, commit: Commit, resolve: Any) -> Any:
        if self.flag.exists():
            raise errors.CatalogUnavailableError("sqlite", "down")
        return Insert.plan(self, lake, commit, resolve)


def test_a_job_of_another_cluster_is_left_alone(catalog, rows, tmp_path):
    submitter = Clustered(tmp_path)
    submitter.dies_at = "named"
    with new_lake(catalog) as lake:
        task = Task(Insert("t", GivenRows(source=rows)), submitter)
        die(task, lake, catalog)
        submitter.cluster = "elsewhere"

        task.execute(lake)

        assert (len(submitter.runs_of), submitter.stopped) == (2, [])
        check_nothing_left(lake)
