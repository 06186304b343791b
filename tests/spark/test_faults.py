"""Tasks that die in the middle of writing: the retry's rows count once, the dead attempt's not at all."""

import os
import signal
import time
from pathlib import Path

import duckdb
import pytest

from airflow_provider_ducklake.lake.errors import SparkJobError
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.planning.writing.write import ParquetSettings
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spark.job.request import source_of
from tests.spark.submission import log_of, make_request, start, task_ends

pytestmark = pytest.mark.kills

ROWS_PER_TASK = 60_000
SMALL_GROUPS = ParquetSettings(row_group_rows=10_000, target_file_size_bytes=60_000)

# Tasks fail as FAULTS says in their first attempt, after the writer behind them has taken most of their rows.
FAULTY_ROWS = """
import os
import signal
import time
from pathlib import Path

from pyspark import TaskContext

MARKER = Path("{marker}")
DIRECTORY = Path("{directory}")
FAULTS = {faults}  # partition → function


def children(pid):
    return [int(child) for child in Path(f"/proc/{{pid}}/task/{{pid}}/children").read_text().split()]


def parent(pid):
    return int(Path(f"/proc/{{pid}}/stat").read_text().rsplit(")", 1)[1].split()[1])


def executor():
    os.kill(parent(os.getppid()), signal.SIGKILL)
    time.sleep(3)


def worker():
    for pid in children(os.getppid()):
        if pid != os.getpid():
            os.kill(pid, signal.SIGKILL)
    time.sleep(3)


def driver():
    MARKER.touch()
    time.sleep(60)


def wait_for_a_file():
    # the writer behind us takes what it was given
    deadline = time.monotonic() + 60
    while not any(DIRECTORY.rglob("*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)


ACTIONS = {{"executor": executor, "worker": worker, "driver": driver}}


def rows(spark, sources):
    def faulty(batches):
        context = TaskContext.get()
        fault = FAULTS.get(context.partitionId()) if context.attemptNumber() == 0 else None
        seen = 0
        for batch in batches:
            yield batch
            seen += batch.num_rows
            if fault is not None and seen >= 50_000:
                wait_for_a_file()
                ACTIONS[fault]()

    made = spark.range(0, 2 * {count}, 1, 2).selectExpr("id", "sha2(cast(id as string), 256) as text")
    return made.mapInArrow(faulty, made.schema)
"""


@pytest.fixture
def run(tmp_path, new_plan):
    """Start a job whose rows come from a task that fails as asked; return its request and process."""

    def start_job(faults: dict[int, str], master: str):
        module = tmp_path / "faulty_rows.py"
        plan = new_plan(new_columns({"id": "int64", "text": "varchar"}), (), SMALL_GROUPS)
        module.write_text(
            FAULTY_ROWS.format(
                faults=faults, count=ROWS_PER_TASK, marker=tmp_path / "marker", directory=plan.directory
            )
        )
        request = make_request(plan, source_of(transform="faulty_rows:rows"))
        conf = {
            "spark.executor.memory": "512m",
            "spark.task.maxFailures": "4",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
        }
        return request, start(request, tmp_path, py_files=(module,), master=master, conf=conf)

    return start_job


def files_on_disk(request) -> set[str]:
    return {str(path) for path in Path(request.directory).rglob("*.parquet")}


FAULTS = {0: "worker", 1: "executor"}
REASONS = {"executor": "ExecutorLostFailure", "worker": "Python worker exited unexpectedly"}


def test_retried_tasks_count_once(run, tmp_path):
    request, process = run(FAULTS, "local-cluster[2,1,512]")

    assert process.wait(120) == 0, log_of(tmp_path)[-5000:]

    (result,) = job_io.read_results(request)
    paths = [file.path for file in result.data_files]
    assert result.rows_written == 2 * ROWS_PER_TASK
    assert duckdb.sql(
        f"SELECT count(*), count(DISTINCT id), sum(id) FROM read_parquet({paths})"
    ).fetchall() == [(2 * ROWS_PER_TASK, 2 * ROWS_PER_TASK, sum(range(2 * ROWS_PER_TASK)))]
    tasks = task_ends(tmp_path)
    for partition, fault in FAULTS.items():
        ends = {task.attempt: task for task in tasks if task.partition == partition}
        assert REASONS[fault] in ends[0].reason
        assert ends[max(ends)].succeeded
        assert max(ends) > 0
    assert files_on_disk(request) > set(paths), (
        "the dead attempt had finished no file: the test proves little"
    )


def test_a_dead_driver_leaves_no_result(run, tmp_path):
    request, process = run({1: "driver"}, "local[2]")
    deadline = time.monotonic() + 120
    while not ((tmp_path / "marker").exists() and any(Path(request.directory).rglob("*.parquet"))):
        assert process.poll() is None, log_of(tmp_path)[-5000:]
        assert time.monotonic() < deadline
        time.sleep(0.1)

    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)

    with pytest.raises(SparkJobError, match="_DONE does not exist"):
        job_io.read_results(request)
    job_io.delete_job_directories(request)
    assert not Path(request.directory).exists()
