"""A process that commits to lakes, and dies or loses its connection at a chosen point.

    python -m tests.concurrency.faulty_writer

It reads one `Job` a line, as JSON, and answers with one `Report`; after a cut connection it waits for a line
and answers with a second one, of doing it again with the same lake. Each job runs in a fork of this process,
which has imported everything and opened nothing: starting Python for each would take a second.
"""

import gc
import json
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pandas as pd  # noqa: F401 - imported late otherwise, as the others so marked
import psycopg
import pyarrow as pa
import pyarrow.dataset
import pymysql
import sqlalchemy.dialects.mysql.pymysql
import sqlalchemy.dialects.postgresql.psycopg
import sqlalchemy.dialects.sqlite.pysqlite  # noqa: F401
from sqlalchemy import event

from airflow_provider_ducklake.lake.catalog.drafting.transaction import LakeTransaction
from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.reference import mariadb

Fault = Literal["none", "killed", "cut", "killed at any time"]
Attempt = Callable[[Lake, str], "Outcome"]  # what a task does in each of its tries
Rows = dict[str, list[tuple[Any, ...]]]  # of tables, each in order


@dataclass(frozen=True)
class Job:
    """One commit under a key; `point` and `seconds` say when its fault is to happen."""

    url: str
    scenario: str
    fault: Fault = "none"
    point: int = -1
    seconds: float | None = None


@dataclass
class Outcome:
    """How a commit ended for who made it."""

    snapshot: int | None = None
    is_earlier: bool = False
    error: str = ""


@dataclass
class Report:
    """What became of a job: no `outcome` if it was killed; `points` where it could have failed."""

    outcome: Outcome | None = None
    points: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @classmethod
    def of(cls, line: str) -> "Report":
        values = json.loads(line)
        return cls(values["outcome"] and Outcome(**values["outcome"]), values["points"], values["seconds"])


# --- what is committed ---


def rows(*numbers: int) -> pa.Table:
    return pa.table({"i": pa.array(numbers, pa.int32()), "s": [f"s{one % 3}" for one in numbers]})


def tuples(*numbers: int, more: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    return [(one, f"s{one % 3}", *more) for one in numbers]


COLUMNS = {"i": "int32", "s": "varchar"}
FEW, MANY = range(50, 53), range(60, 80)  # 3 rows go to the catalog where it can hold them, 20 to a file


def make_base(lake: Lake) -> None:
    """Fill the lake that every scenario starts from; its `t` has deleted rows, and rows in the catalog."""
    with lake.transaction() as tx:
        for table in ("t", "u", "gone"):
            tx.create_table(table, COLUMNS)
    for numbers in (range(20), range(20, 40), range(40, 43)):
        lake.append_arrow("t", rows(*numbers))
    with lake.transaction() as tx:
        tx.delete_at("t", {_file_ids(lake)[0]: [19]})
        tx.append_arrow("u", rows(*range(20)))
        tx.append_arrow("gone", rows(*range(20)))


T = [one for one in range(43) if one != 19]
BASE: Rows = {"t": tuples(*T), "u": tuples(*range(20)), "gone": tuples(*range(20))}


def append(_lake: Lake, tx: LakeTransaction) -> None:
    tx.append_arrow("t", rows(*MANY))


def create_and_fill(_lake: Lake, tx: LakeTransaction) -> None:
    tx.create_schema("s")
    for table, numbers in (("s.many", MANY), ("s.few", FEW)):
        tx.create_table(table, COLUMNS, ["s"])
        tx.append_arrow(table, rows(*numbers))


def alter(_lake: Lake, tx: LakeTransaction) -> None:
    tx.add_column("t", "k", "int64", 7)
    tx.set_column_type("t", "i", "int64")
    tx.rename_column("t", "s", "name")
    tx.set_default("t", "name", "none")
    tx.set_partitioned_by("t", ["name"])
    tx.comment_on_column("t", "k", "seven")
    tx.append_arrow("t", pa.table({"i": list(FEW), "name": ["x"] * 3, "k": [8] * 3}))


def delete(lake: Lake, tx: LakeTransaction) -> None:
    """Delete 12 rows of a file that lost one, 2 of another, and one that lies in the catalog if it can."""
    first, second, *third = _file_ids(lake)
    positions = {first: range(12), second: [3, 4], **{one: [1] for one in third}}
    tx.delete_at("t", positions, row_ids=[] if third else [41])


def several_tables(lake: Lake, tx: LakeTransaction) -> None:
    append(lake, tx)
    create_and_fill(lake, tx)
    tx.add_column("u", "k", "int32", 7)
    tx.append_arrow("u", rows(*FEW).append_column("k", pa.array([7] * 3, pa.int32())))
    tx.drop_table("gone")
    tx.create_view("v", "SELECT 1 AS one")


def _file_ids(lake: Lake) -> list[int]:
    return [file.id for file in lake.table_snapshot("t", with_files=True).files or ()]


_NEW = {"s.many": tuples(*MANY), "s.few": tuples(*FEW)}
_DELETED = {*range(12), 23, 24, 41}
SCENARIOS: dict[Callable[[Lake, LakeTransaction], None], Rows] = {
    append: {**BASE, "t": tuples(*T, *MANY)},
    create_and_fill: {**BASE, **_NEW},
    alter: {**BASE, "t": [*tuples(*T, more=(7,)), *((one, "x", 8) for one in FEW)]},
    delete: {**BASE, "t": tuples(*(one for one in T if one not in _DELETED))},
    several_tables: {"t": tuples(*T, *MANY), "u": tuples(*range(20), *FEW, more=(7,)), "v": [(1,)], **_NEW},
}
_BY_NAME = {scenario.__name__: scenario for scenario in SCENARIOS}


def attempt(lake: Lake, scenario: str) -> Outcome:
    """Do what a task does in each of its tries."""
    try:
        with lake.transaction("me", scenario, commit_key=scenario) as tx:
            if tx.committed is None:
                _BY_NAME[scenario](lake, tx)
    except Exception as error:  # noqa: BLE001 - the test judges it
        return Outcome(error=f"{type(error).__name__}: {error}")
    return Outcome(tx.committed.id, tx.committed.is_earlier)


def until_connected(attempt: Attempt, lake: Lake, scenario: str) -> Outcome:
    """Try again, once more if the lost connection is noticed only now: one used just before is not tested."""
    again = attempt(lake, scenario)
    return attempt(lake, scenario) if again.error.startswith("CatalogUnavailableError") else again


# --- where it fails ---


class Points:
    """The moments of a commit at which it may fail, by SQLAlchemy's events; calls `act` at one of them."""

    def __init__(self, act: Callable[[Any], None], number: int) -> None:
        self.names: list[str] = []
        self._act = act
        self._number = number

    def reach(self, name: str, driver: Any, first: Callable[[], None] = lambda: None) -> None:
        self.names.append(name)
        if len(self.names) - 1 == self._number:
            first()
            self._act(driver)

    @contextmanager
    def watching(self, lake: Lake) -> Iterator[None]:
        engine = lake.opened.catalog.dialect.engine
        listeners = {
            "begin": self._begin,
            "commit": self._commit,
            "before_cursor_execute": self._before,
            "after_cursor_execute": self._after,
        }
        for name, listener in listeners.items():
            event.listen(engine, name, listener)
        commit = engine.dialect.do_commit
        engine.dialect.do_commit = lambda driver: self._committed(commit, driver)
        try:
            yield
        finally:
            engine.dialect.do_commit = commit
            for name, listener in listeners.items():
                event.remove(engine, name, listener)

    def _begin(self, connection: Any) -> None:
        self.reach("begin", _driver(connection))

    def _before(self, connection: Any, _cursor: object, statement: str, *_more: object) -> None:
        driver = _driver(connection)
        self.reach(f"before {_shown(statement)}", driver)
        if statement.endswith("COMMIT"):  # all of it in one text
            self.reach("in COMMIT", driver, first=lambda: driver.execute(statement))

    def _after(self, connection: Any, _cursor: object, statement: str, *_more: object) -> None:
        self.reach(f"after {_shown(statement)}", _driver(connection))

    def _commit(self, connection: Any) -> None:
        driver = _driver(connection)
        self.reach("before COMMIT", driver)
        self.reach("in COMMIT", driver, first=driver.commit)  # it lands, and the answer is lost

    def _committed(self, commit: Callable[[Any], None], connection: Any) -> None:
        commit(connection)
        self.reach("after COMMIT", connection.driver_connection)


def _driver(connection: Any) -> Any:
    return connection.connection.driver_connection


def _shown(statement: str) -> str:
    return " ".join(statement.split())[:60]


def die(_driver: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def cut(driver: Any) -> None:
    """End the server's side of a connection, as a crash or an administrator does."""
    if isinstance(driver, pymysql.Connection):
        with mariadb.admin(driver.port) as admin:
            admin.execute(f"KILL CONNECTION {driver.thread_id()}")
        return
    with psycopg.connect(driver.info.dsn, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(%s, 5000)", [driver.info.backend_pid])


def nothing(_driver: object) -> None:
    pass


_ACTS = {"none": nothing, "killed": die, "cut": cut, "killed at any time": nothing}


def run(job: Job, attempt: Attempt) -> None:
    """Make an attempt; after a cut connection one more with the same lake, as programs that go on do."""
    started = time.monotonic()
    with Lake.connect(job.url, to_migrate=True) as lake:
        points = Points(_ACTS[job.fault], job.point)
        with points.watching(lake):
            outcome = attempt(lake, job.scenario)
        if job.fault != "killed at any time":  # its report could come in halves
            answer(Report(outcome, points.names, time.monotonic() - started))
        if job.fault == "cut":
            sys.stdin.readline()
            answer(Report(until_connected(attempt, lake, job.scenario)))


def answer(report: Report) -> None:
    print(json.dumps(asdict(report)), flush=True)  # noqa: T201 - read by the test


def run_in_fork(job: Job, attempt: Attempt) -> None:
    """Run a job in a fork, kill it after the job's seconds if it names some, and answer for the dead."""
    child = os.fork()
    if child == 0:
        run(job, attempt)
        os._exit(0)
    if job.seconds is not None:
        _wait_for_end(child, job.seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert not os.WIFSIGNALED(status) or os.WTERMSIG(status) == signal.SIGKILL, status
    if os.WIFSIGNALED(status) or job.seconds is not None:
        answer(Report())


def _wait_for_end(child: int, seconds: float) -> None:
    handle = os.pidfd_open(child)
    select.select([handle], [], [], seconds)
    os.close(handle)


def warm_up() -> None:
    """Have SQLAlchemy and ours prepare what they do once in a process; no thread may start before a fork."""
    with TemporaryDirectory() as folder, Lake.create(f"sqlite:///{folder}/lake", f"{folder}/data/") as lake:
        with lake.transaction() as tx:
            tx.create_table("t", COLUMNS)
        with lake.transaction(commit_key="k") as tx:
            tx.add_column("t", "k", "int32")


def serve(attempt: Attempt) -> None:
    """Answer the jobs on standard input."""
    warm_up()
    gc.freeze()
    logging.disable()  # of lost connections, which are meant
    for line in sys.stdin:
        run_in_fork(Job(**json.loads(line)), attempt)


if __name__ == "__main__":
    serve(attempt)
