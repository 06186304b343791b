"""Files are merged by real Spark jobs, whose workers may be killed at any moment."""

import random
from functools import partial
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
from tests.airflow.killed_workers import execute, run_until_done
from tests.airflow.spark_submit import recorded
from tests.concurrency.arrow_jobs import ArrowSubmitter
from tests.reference.duckdb_lake import open_lake

SIZES = {"ci": 1, "full": 10}  # tasks that are run
LATEST_KILL = 10.0  # seconds; a whole task takes about as long
FILES = 8

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.fixture
def catalog(sqlite_catalog, connect, set_connection, tmp_path, monkeypatch):
    """Make a lake with a table, and the connections of the operators; Spark is the real one."""
    connect(sqlite_catalog)
    set_connection("spark_default", conn_type="spark", host="local[2]")
    recorded(tmp_path / "bin", monkeypatch)
    with open_lake(sqlite_catalog) as lake:
        lake.sql("CREATE TABLE t (id BIGINT, s VARCHAR)")
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
    for number in range(SIZES[size]):
        add_files(catalog, FILES * number)
        before = rows_at_every_snapshot(catalog)
        arguments = {"task_id": "merge_files", "table": "t", "commit_every": choose.choice([1, 2, None])}
        arguments |= choose.choice([{}, {"zorder_by": ["id", "s"]}])
        limits = {"max_file_size": "1MB", "target_file_size": choose.choice(["2500B", "4KB", "1MB"])}
        run = partial(execute, DuckLakeSparkMergeAdjacentFilesOperator, {**arguments, **limits}, number)
        killed += run_until_done(run, choose, LATEST_KILL)

        after = rows_at_every_snapshot(catalog)
        assert {one: after[one] for one in before} == before
        assert after[max(after)] == before[max(before)]
        with Lake.connect(catalog.sqlalchemy_url) as lake:
            files = lake.files("t")
            assert len(files) < FILES * (number + 1)
            assert all(Path(file.data_file).exists() for file in files)
            assert lake.jobs.protected_prefixes() == frozenset()
    add_files(catalog, FILES * SIZES[size])
    run(1)  # of a run that was deleted and is made again
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.snapshots()[-1].author == "airflow"
    with capsys.disabled():
        print(f"\nseed {seed}: {SIZES[size]} tasks, {killed} workers killed")  # noqa: T201 - what was drawn


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
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE u AS FROM t; INSERT INTO u FROM t")
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
