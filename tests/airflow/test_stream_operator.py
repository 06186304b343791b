"""The rows of a stream are in the table once, whatever happens to the task; judged by DuckDB.

Spark mostly runs in this process, which saves its start for each try.
"""

import gc
import inspect
import json
import multiprocessing
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import CommitStateUnknownError, SparkJobError
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo, CommitKey
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spark.job.errors import typed
from airflow_provider_ducklake.lake.spark.job.request import JobRequest
from airflow_provider_ducklake.lake.writes.stream import commit_batches
from airflow_provider_ducklake.lake.writes.verb import Results
from airflow_provider_ducklake.operators.add_files import DuckLakeAddFilesOperator
from airflow_provider_ducklake.operators.stream import DuckLakeSparkStreamOperator
from tests.airflow import streams
from tests.airflow.dags import context_of, loses_the_answer, parse
from tests.airflow.spark_submit import LEAVES_PROCESS, ROOT, recorded
from tests.interop.lakes import alone, by_duckdb
from tests.reference import ducklakepy_lake
from tests.reference.catalogs import CatalogDatabase, file_catalog
from tests.spark.conftest import spark  # noqa: F401 - a fixture

pytestmark = [pytest.mark.drawn(one_in=2), LEAVES_PROCESS]


class WorkerKilledError(BaseException):
    """No code of the task runs after it."""


class InProcess(DuckLakeSparkStreamOperator):
    """Comes without `spark-submit`; the worker may die when the job is done."""

    dies = False

    def submitter(self, context: Any) -> Any:
        return Here(super().submitter(context), dies=self.dies)


class Here:
    """Runs jobs in this process."""

    def __init__(self, submitter: Any, *, dies: bool) -> None:
        self._submitter, self._dies = submitter, dies

    def __getattr__(self, name: str) -> Any:
        return getattr(self._submitter, name)

    def run(self, request: JobRequest, storage_options: dict[str, Any]) -> Results:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - the fixture has started it

        from airflow_provider_ducklake.lake.spark.jobs.stream import run_stream  # noqa: PLC0415

        request = job_io.read_request(job_io.write_request(request, storage_options))
        try:
            job_io.write_results(request, run_stream(SparkSession.active(), request))
        except Exception as error:
            raise typed(error) from error
        if self._dies:
            raise WorkerKilledError
        return Results.of(job_io.read_outcome(request, storage_options))


class Stream:
    """A folder of JSON files, a table `events (id INT, kind VARCHAR)` and what is between them."""

    def __init__(self, catalog: CatalogDatabase, folder: Path) -> None:
        self.catalog = catalog
        self.folder = folder / "events"
        self.checkpoint = folder / "checkpoint"
        self.folder.mkdir()
        self._count = 0
        self.sql("CREATE TABLE events (id INT, kind VARCHAR)")

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        return by_duckdb(self.catalog, statement, data_inlining_row_limit=0)

    def add(self, *files: list[tuple[int, str]]) -> None:
        """Add files, each of which becomes a batch, in order."""
        for rows in files:
            self._count += 1
            path = self.folder / f"{self._count:03d}.json"
            path.write_text("".join(json.dumps({"id": key, "kind": kind}) + "\n" for key, kind in rows))
            os.utime(path, (self._count, self._count))

    def run(self, transform: str = "events", class_: type = InProcess, **arguments: Any) -> dict[str, Any]:
        fields = {"task_id": "stream", "retries": 9, "table": "events", "checkpoint": str(self.checkpoint)}
        dies = arguments.pop("dies", False)
        operator = class_(**fields | {"transform": f"{streams.__name__}:{transform}"} | arguments)
        operator.dies = dies
        return operator.execute(context_of(operator.task_id, 2, generation=10))

    @property
    def ids(self) -> list[int]:
        return [key for (key,) in self.sql("SELECT id FROM events ORDER BY id")]

    @property
    def snapshots(self) -> int:
        return self.sql("SELECT count(*) FROM ducklake_snapshots('lake') WHERE author = 'airflow'")[0][0]

    @property
    def records(self) -> list[str]:
        return sorted(path.name for path in self.checkpoint.glob("ducklake/*/*.*"))

    def lake(self) -> Any:
        return closing(Lake.connect(self.catalog.sqlalchemy_url))

    def waiting(self) -> frozenset[str]:
        with self.lake() as lake:
            return lake.jobs.protected_prefixes(timedelta(days=1))

    def spark_forgets(self, batch_id: int) -> None:
        """Have Spark run a batch again."""
        for name in (f"{batch_id}", f".{batch_id}.crc"):
            (self.checkpoint / "commits" / name).unlink()


@pytest.fixture
def stream(
    sqlite_catalog: CatalogDatabase,
    connect: Callable[..., str],
    set_connection: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spark: Any,  # noqa: ARG001, F811 - it runs
) -> Iterator[Stream]:
    connect(sqlite_catalog)
    set_connection("spark_default", conn_type="spark", host="local[2]")
    found = Stream(sqlite_catalog, tmp_path)
    monkeypatch.setenv("STREAM_FOLDER", str(found.folder))
    yield found
    gc.collect()


def test_each_batch_becomes_a_snapshot_and_the_next_run_goes_on(stream):
    stream.add([(1, "a"), (2, "b")], [(3, "a")], [(4, "c")])

    first = stream.run()

    assert {key: first[key] for key in ("table", "batches", "rows_added", "files_added")} == {
        "table": "main.events",
        "batches": 3,
        "rows_added": 4,
        "files_added": 3,
    }
    assert (stream.ids, stream.snapshots) == ([1, 2, 3, 4], 3)
    assert first["snapshot_id"] == stream.sql("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")[0][0]
    assert stream.run()["snapshot_id"] is None
    stream.add([(5, "a")], [])
    assert (stream.run()["rows_added"], stream.ids, stream.snapshots) == (1, [1, 2, 3, 4, 5], 4)
    assert stream.records == ["3.done"]  # that of the newest batch with rows
    assert stream.waiting() == frozenset()
    ((extra,),) = stream.sql(
        "SELECT commit_extra_info FROM ducklake_snapshots('lake') ORDER BY snapshot_id DESC LIMIT 1"
    )
    assert json.loads(extra)["stream"]["batch_id"] == 3
    assert json.loads(extra)["airflow"]["task_id"] == "stream"


def test_a_stream_goes_to_a_table_of_nested_schemas(stream, tmp_path, connect):
    catalog = file_catalog("sqlite", tmp_path / "nested")
    table = "sales.europe.events"
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version="1.1") as lake:
        with lake.transaction() as tx:
            tx.create_schema("sales")
            tx.create_schema("sales.europe")
            tx.create_table(table, {"id": "int32", "kind": "varchar"})
        connect(catalog)
        stream.add([(1, "a"), (2, "b")], [(3, "a")])
        summary = stream.run(table=table)

        assert (summary["table"], summary["batches"], summary["rows_added"]) == (table, 2, 3)
        assert sorted(lake.read_arrow(table)["id"].to_pylist()) == [1, 2, 3]
        assert lake.verify() == []
    with ducklakepy_lake.open_lake(catalog) as theirs:
        assert theirs.count(("sales", "europe", "events")) == 3


def test_what_a_killed_worker_had_staged_is_committed_by_the_next_try(stream):
    stream.add([(1, "a")], [(2, "b")])
    with pytest.raises(WorkerKilledError):
        stream.run(dies=True)
    assert (stream.ids, stream.records, len(stream.waiting())) == ([], ["0.json", "1.json"], 1)

    stream.add([(3, "c")])
    result = stream.run()

    assert (result["batches"], stream.ids, stream.snapshots) == (3, [1, 2, 3], 3)
    assert (stream.records, len(stream.waiting())) == (["2.done"], 1)  # that driver may run on


@pytest.mark.parametrize("landed", [1, 2])
def test_a_worker_may_die_after_each_commit(stream, landed):
    stream.add([(1, "a")], [(2, "b")])
    with pytest.raises(WorkerKilledError):
        stream.run(dies=True)
    with stream.lake() as lake:
        table = lake.table_snapshot("main.events")
        commits = commit_batches(lake, table, f"{stream.checkpoint}/", CommitInfo("airflow", "x"))
        assert len(list(islice(commits, landed))) == landed
        commits.close()
    assert (len(stream.ids), stream.records) == (landed, ["0.json", "1.json"])

    result = stream.run()

    assert (result["batches"], len(result["snapshot_ids"])) == (2 - landed, 2)  # an event for each
    assert (stream.ids, stream.snapshots, stream.records) == ([1, 2], 2, ["1.done"])


def test_a_commit_whose_answer_is_lost_is_found(stream):
    stream.add([(1, "a")], [(2, "b")])
    with pytest.raises(WorkerKilledError):
        stream.run(dies=True)
    with stream.lake() as lake:
        table = lake.table_snapshot("main.events")
        lake.writes.keyed_commit(CommitKey(("another",)))  # makes the table of keys
        commits = commit_batches(lake, table, f"{stream.checkpoint}/", CommitInfo("airflow", "x"))
        with loses_the_answer(lake), pytest.raises(CommitStateUnknownError):
            next(commits)

    stream.run()

    assert (stream.ids, stream.snapshots) == ([1, 2], 2)


def test_a_batch_that_spark_runs_again_is_passed_over(stream):
    stream.add([(1, "a")], [(2, "b")])
    stream.run()
    stream.spark_forgets(1)

    assert stream.run()["batches"] == 0

    stream.add([(3, "c")])
    with pytest.raises(WorkerKilledError):
        stream.run(dies=True)
    stream.spark_forgets(2)
    stream.add([(4, "d")])
    assert stream.run()["batches"] == 2
    assert (stream.ids, stream.snapshots) == ([1, 2, 3, 4], 4)


def test_a_checkpoint_that_was_set_back_is_refused(stream):
    stream.add([(1, "a")], [(2, "b")])
    stream.run()
    for log in ("commits", "offsets"):
        shutil.rmtree(stream.checkpoint / log)

    with pytest.raises(AirflowFailException, match="was reset: Spark runs batch 0, but batch 1"):
        stream.run()
    assert stream.ids == [1, 2]


def test_a_new_checkpoint_begins_with_the_first_row(stream):
    stream.add([(1, "a")])
    stream.run()
    shutil.rmtree(stream.checkpoint)

    assert stream.run()["rows_added"] == 1
    assert stream.ids == [1, 1]


def test_batches_before_one_that_fails_are_committed(stream):
    stream.add([(1, "a")], [(2, "b"), (3, "poison")], [(4, "c")])

    with pytest.raises(SparkJobError, match="a poisoned row"):
        stream.run("with_poison")

    assert stream.ids == [1]
    result = stream.run()  # the function was mended
    assert (result["batches"], len(result["snapshot_ids"])) == (2, 3)
    assert (stream.ids, stream.snapshots) == ([1, 2, 3, 4], 3)


def test_a_table_altered_before_the_commit_takes_the_batch_by_its_files(stream):
    stream.add([(1, "a")], [(3, "poison")])

    class Altering(Here):
        def run(self, *arguments: Any) -> Results:
            try:
                return super().run(*arguments)
            finally:
                stream.sql("ALTER TABLE events ADD COLUMN note VARCHAR DEFAULT 'none'")

    class Altered(InProcess):
        def submitter(self, context: Any) -> Any:
            return Altering(super().submitter(context), dies=False)

    with pytest.raises(SparkJobError, match="a poisoned row"):  # which is the first error
        stream.run("with_poison", Altered)
    with pytest.raises(
        AirflowFailException, match="Batch 0 was written before the columns or partition keys"
    ):
        stream.run("with_poison")
    assert (stream.ids, stream.records, len(stream.waiting())) == ([], ["0.json"], 1)

    (record,) = stream.checkpoint.glob("ducklake/*/0.json")
    paths = [file["path"] for file in json.loads(record.read_text())["data_files"]]
    DuckLakeAddFilesOperator(
        task_id="add", table="main.events", paths=paths, allow_missing=True, retries=0
    ).execute(context_of("add"))
    record.unlink()
    assert stream.run("with_note")["batches"] == 1
    assert stream.sql("SELECT id, note FROM events ORDER BY id") == [(1, "none"), (3, "new")]


def test_columns_that_do_not_fit_are_refused_before_the_first_batch(stream):
    stream.add([(1, "a")])

    with pytest.raises(AirflowFailException, match="column sort is not in the table"):
        stream.run("other_columns")

    assert not (stream.checkpoint / "offsets").exists()
    assert stream.run()["rows_added"] == 1


@pytest.mark.parametrize(
    ("transform", "message"),
    [("not_a_stream", "is not streaming"), ("totals", "cannot be appended to a table")],
)
def test_what_cannot_be_appended_is_refused(stream, transform, message):
    with pytest.raises(AirflowFailException, match=message):
        stream.run(transform)


def test_a_checkpoint_belongs_to_one_task_and_one_table(stream):
    stream.add([(1, "a")])
    stream.run()
    stream.sql("CREATE TABLE others (id INT, kind VARCHAR)")

    with pytest.raises(AirflowFailException, match=r"belongs to the table main\.events"):
        stream.run(table="others")
    with pytest.raises(AirflowFailException, match=r"belongs to the task dag\.stream, not to dag\.other"):
        stream.run(task_id="other")
    with pytest.raises(AirflowFailException, match="is relative"):
        stream.run(checkpoint="checkpoints/events")
    stream.sql("DROP TABLE events; CREATE TABLE events (id INT, kind VARCHAR)")
    with pytest.raises(AirflowFailException, match=r"also a table that was created again"):
        stream.run()


def test_a_stream_goes_on_into_a_table_that_a_restore_created_when_it_is_told_so(stream):
    stream.sql("CREATE SCHEMA s; CREATE TABLE s.events (id INT, kind VARCHAR)")
    stream.add([(1, "a")], [(2, "b")])
    stream.run(table="s.events")
    with Lake.connect(stream.catalog.sqlalchemy_url) as lake:
        then = lake.current_snapshot().id
        alone(lake).drop_schema("s", cascade=True)
        lake.restore(schema="s", at=int(then))

    with pytest.raises(AirflowFailException, match=rf"If a restore .* remove {stream.checkpoint}/ducklake/"):
        stream.run(table="s.events")

    shutil.rmtree(stream.checkpoint / "ducklake")
    stream.add([(3, "c")])
    assert stream.run(table="s.events")["rows_added"] == 1
    assert stream.sql("SELECT id FROM s.events ORDER BY id") == [(1,), (2,), (3,)]


def test_a_staged_file_that_is_gone_stops_the_stream(stream):
    stream.add([(1, "a")], [(2, "b")])
    with pytest.raises(WorkerKilledError):
        stream.run(dies=True)
    (folder,) = stream.waiting()
    (file,) = Path(folder, "1").rglob("*.parquet")
    file.unlink()

    with pytest.raises(Exception, match=rf"Batch 1 of the stream is incomplete: {file}"):
        stream.run()

    assert stream.ids == [1]


def test_what_a_query_remembers_goes_on_through_a_batch_that_is_passed_over(stream):
    stream.add([(1, "a"), (2, "b"), (3, "a")], [(4, "b"), (5, "c")])
    stream.run("first_of_each_kind")
    stream.spark_forgets(1)
    stream.add([(6, "c"), (7, "d")])

    assert stream.run("first_of_each_kind")["rows_added"] == 1

    assert stream.sql("SELECT kind, count(*) FROM events GROUP BY kind ORDER BY kind") == [
        (kind, 1) for kind in "abcd"
    ]


def test_rows_are_brought_together_as_those_of_other_inserts(stream):
    stream.sql("CALL lake.set_option('per_thread_output', false)")
    stream.add([(number, f"kind {number}") for number in range(20)])
    assert stream.run("first_of_each_kind")["files_added"] == 1

    stream.sql("ALTER TABLE events SET PARTITIONED BY (kind)")
    stream.add([(20, "x"), (21, "y"), (22, "z")])
    assert stream.run("first_of_each_kind")["files_added"] == 3
    assert stream.sql("SELECT id FROM events WHERE kind = 'y'") == [(21,)]


def test_a_stream_is_joined_with_other_sources(stream, tmp_path):
    stream.add([(1, "a"), (2, "b")])
    (tmp_path / "kinds.csv").write_text("kind\nb\n")

    stream.run("known_kinds", sources={"kinds": str(tmp_path / "kinds.csv")})

    assert stream.ids == [2]


def test_the_guide_shows_a_dag_file_and_explains_each_argument(tmp_path):
    page = (ROOT / "docs" / "streaming.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "example.py").write_text(code)

    assert [task.task_type for task in parse(tmp_path / "example.py").tasks] == [
        "DuckLakeSparkStreamOperator"
    ]
    own = set(inspect.unwrap(DuckLakeSparkStreamOperator.__init__).__annotations__) - {"kwargs", "return"}
    assert own == set(re.findall(r":param (\w+):", DuckLakeSparkStreamOperator.__doc__))
    assert own <= set(re.findall(r"^\| `(\w+)`", page, re.MULTILINE))


def work(stream: Stream, tries: int) -> None:
    """Execute the task, as a worker does."""
    fields = {"task_id": "stream", "retries": 9, "table": "events", "checkpoint": str(stream.checkpoint)}
    operator = DuckLakeSparkStreamOperator(**fields, transform="streams:slow", py_files=streams.__file__)
    operator.execute(context_of("stream", tries, generation=10))


@pytest.mark.kills
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_worker_killed_in_the_middle_of_a_batch_leaves_a_job_that_harms_nobody(
    stream, tmp_path, monkeypatch
):
    recorded(tmp_path / "bin", monkeypatch)
    mark = tmp_path / "mark"
    monkeypatch.setenv("STREAM_MARK", str(mark))
    monkeypatch.chdir(tmp_path)
    stream.add([(1, "a")], [(2, "slow")], [(3, "c")])
    context = multiprocessing.get_context("fork")
    worker = context.Process(target=work, args=(stream, 1))
    worker.start()
    while not mark.exists():
        assert worker.is_alive()
        time.sleep(0.05)
    worker.kill()  # its Spark driver goes on
    worker.join()
    assert (worker.exitcode, stream.ids) == (-signal.SIGKILL, [])

    stream.add([(4, "d")])
    for tries in range(2, 6):
        worker = context.Process(target=work, args=(stream, tries))
        worker.start()
        worker.join()
        if worker.exitcode == 0:
            break

    assert (worker.exitcode, stream.ids) == (0, [1, 2, 3, 4])
