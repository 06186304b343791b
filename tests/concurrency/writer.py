"""Processes that append to tables again and again, all at once: ours, and the reference's.

    python -m tests.concurrency.writer

It reads a list of `Task`s as JSON, forks a process for each, lets all go when all are ready, and prints a
list of `Done`s. If one fails, it does.
"""

import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing.synchronize import Barrier
from typing import Literal

import duckdb
import pandas as pd  # noqa: F401 - imported late otherwise, as the others so marked
import pyarrow as pa
import pyarrow.dataset
import sqlalchemy.dialects.mysql.pymysql
import sqlalchemy.dialects.postgresql.psycopg
import sqlalchemy.dialects.sqlite.pysqlite  # noqa: F401

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.storage.parquet import writer  # noqa: F401
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

SPACE = 1_000_000  # between the numbers of two writers
PATIENCE = 300  # seconds until the last is ready


@dataclass(frozen=True)
class Task:
    """Append number `n` goes to table `t<(number + n) % tables>`, one column `i` of BIGINT."""

    who: Literal["ours", "reference"]
    target: str  # catalog URL, or what ATTACH takes
    number: int
    appends: int
    rows: int  # in each append
    tables: int = 1

    def numbers(self) -> Iterator[tuple[str, range]]:
        """Yield the table and the values of each append; no other writer has them."""
        for number in range(self.appends):
            start = self.number * SPACE + number * self.rows
            yield f"t{(self.number + number) % self.tables}", range(start, start + self.rows)


@dataclass(frozen=True)
class Done:
    """The attempts of each append, and on the machine's clock when it began and when the last had ended."""

    attempts: list[int]
    times: list[float]

    @property
    def longest(self) -> float:
        return max(end - start for start, end in zip(self.times, self.times[1:], strict=False))


def append_as_ours(task: Task, ready: Barrier) -> Done:
    with Lake.connect(task.target) as lake:

        def append(table: str, values: range) -> int:
            with lake.transaction() as tx:
                tx.append_arrow(table, pa.table({"i": pa.array(values, pa.int64())}))
            return tx.committed.attempts

        return _each(task, append, ready)


def append_as_reference(task: Task, ready: Barrier) -> Done:
    options = {"busy_timeout": 20_000} if ":sqlite:" in task.target else {}
    with open_lake(task.target, **options) as lake:
        lake.sql("SET ducklake_max_retry_count = 100")

        def append(table: str, values: range) -> int:
            return _until_it_lands(lake, f"INSERT INTO {table} FROM range({values.start}, {values.stop})")

        return _each(task, append, ready)


def _each(task: Task, append: Callable[[str, range], int], ready: Barrier) -> Done:
    ready.wait(PATIENCE)
    attempts, times = [], [time.monotonic()]
    for table, values in task.numbers():
        attempts.append(append(table, values))
        times.append(time.monotonic())
    return Done(attempts, times)


def _until_it_lands(lake: DuckLakeConnection, statement: str) -> int:
    """Repeat what failed for a lock that SQLite gave to somebody else: the reference takes that for final."""
    for attempt in range(1, 200):
        try:
            lake.sql(statement)
        except duckdb.Error as error:
            if "locked" not in str(error):
                raise
            time.sleep(0.01)
        else:
            return attempt
    raise AssertionError(statement)


_barrier: list[Barrier] = []  # of this process's race


def _run(task: Task) -> Done:
    act = append_as_ours if task.who == "ours" else append_as_reference
    return act(task, *_barrier)


def race(tasks: list[Task]) -> list[Done]:
    fork = multiprocessing.get_context("fork")
    barrier = fork.Barrier(len(tasks))
    with ProcessPoolExecutor(len(tasks), fork, _barrier.append, (barrier,)) as processes:
        return list(processes.map(_run, tasks))


if __name__ == "__main__":
    done = race([Task(**one) for one in json.load(sys.stdin)])
    print(json.dumps([asdict(one) for one in done]))  # noqa: T201 - read by the test
