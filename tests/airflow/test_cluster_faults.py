"""On a cluster that loses processes and files, and runs tasks twice, each job has its effect once."""

import multiprocessing
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ducklake import operators
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.operators.spark import DuckLakeSparkOperator
from tests.airflow.spark_submit import recorded
from tests.airflow.test_killed_workers import execute
from tests.interop.lakes import by_duckdb
from tests.reference.catalogs import CatalogDatabase
from tests.reference.standalone_cluster import Cluster

RUNS = {"ci": 2, "full": 100}
ROWS = 20_000
TRIES = 4
LATEST = 4.0  # seconds from the first executor on
CONF = {"spark.executor.memory": "700m", "spark.sql.shuffle.partitions": "4", "spark.task.maxFailures": "8"}
# Every task looks slow; the slower ones of a stage are run twice.
TWICE = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.0001",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "1ms",
}
ON_DEMAND = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
}
Rows = dict[int, float]


def kill(processes: Callable[[], list[int]], how_many: int, _cluster: Cluster) -> int:
    """Kill processes; return how many were there."""
    chosen = processes()[:how_many]
    for one in chosen:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    return len(chosen)


def lose_shuffle_files(cluster: Cluster) -> int:
    files = cluster.shuffle_files()
    for file in files:
        file.unlink(missing_ok=True)
    return len(files)


@dataclass(frozen=True)
class Fault:
    """What happens to a try at some moment, and how its job is set up."""

    name: str
    happens: Callable[[Cluster], int] = lambda _: 1
    conf: tuple[tuple[str, str], ...] = ()


FAULTS = (
    Fault("an executor is killed", lambda cluster: kill(cluster.executors, 1, cluster)),
    Fault("both executors are killed", lambda cluster: kill(cluster.executors, 2, cluster)),
    Fault("the driver is killed", lambda cluster: kill(cluster.drivers, 1, cluster)),
    Fault("shuffle files are lost", lose_shuffle_files),
    Fault("tasks run twice", conf=tuple(TWICE.items())),
    Fault(
        "tasks run twice, an executor is killed",
        lambda cluster: kill(cluster.executors, 1, cluster),
        tuple(TWICE.items()),
    ),
    Fault(
        "executors on demand, one is killed",
        lambda cluster: kill(cluster.executors, 1, cluster),
        tuple(ON_DEMAND.items()),
    ),
)


@dataclass(frozen=True)
class Verb:
    """A task, and what it makes of the rows."""

    operator: type[DuckLakeSparkOperator]
    arguments: dict[str, Any]
    effect: Callable[[Rows], Rows]


def draw_verb(choose: random.Random, folder: Path, first: int) -> Verb:
    """Draw what to do; ``first`` is an id above all that there are."""
    part = choose.randrange(7)
    match choose.choice(("insert", "delete", "update", "merge", "compact")):
        case "insert":
            # The sum has a shuffle.
            query = (
                "INSERT INTO t SELECT id, sum(part) AS n FROM "
                f"(SELECT {first} + id % 3000 AS id, 1.0D AS part FROM range(0, 12000, 1, 4)) GROUP BY id"
            )
            return Verb(
                operators.DuckLakeSparkSQLOperator,
                {"sql": query},
                lambda rows: rows | {first + number: 4.0 for number in range(3000)},
            )
        case "delete":
            return Verb(
                operators.DuckLakeSparkDeleteOperator,
                {"table": "t", "where": f"id % 7 = {part}"},
                lambda rows: {id_: n for id_, n in rows.items() if id_ % 7 != part},
            )
        case "update":
            return Verb(
                operators.DuckLakeSparkUpdateOperator,
                {"table": "t", "where": f"id % 7 = {part}", "set": {"n": "n + 1"}},
                lambda rows: {id_: n + (id_ % 7 == part) for id_, n in rows.items()},
            )
        case "merge":
            source = folder / f"source{first}.csv"
            ids = range(first - 2000, first + 500)
            source.write_text("id,n\n" + "".join(f"{number},9\n" for number in ids))
            return Verb(
                operators.DuckLakeSparkMergeOperator,
                {
                    "table": "t",
                    "on": ["id"],
                    "source": {"path": str(source), "options": {"schema": "id BIGINT, n DOUBLE"}},
                    "update_all": True,
                    "insert_all": True,
                },
                lambda rows: rows | dict.fromkeys(ids, 9.0),
            )
    return Verb(operators.DuckLakeSparkMergeAdjacentFilesOperator, {"table": "t"}, dict)


@pytest.mark.cluster
@pytest.mark.timeout(7200)
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_each_job_has_its_effect_once(
    sqlite_catalog: CatalogDatabase,
    cluster,
    connect,
    set_connection,
    tmp_path,
    monkeypatch,
    size,
    seed,
    capsys,
):
    connect(sqlite_catalog)
    set_connection("spark_default", conn_type="spark", host=cluster.url)
    recorded(tmp_path / "bin", monkeypatch)
    choose, started = random.Random(f"{seed} cluster"), time.monotonic()
    rows: Rows = {number: float(number % 10) for number in range(ROWS)}
    counts: Counter[str] = Counter()
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"id": "int64", "n": "float64"})
            tx.set_option("t", "data_inlining_row_limit", 0)
        for part in range(4):
            mine = sorted(rows.items())[part::4]
            lake.append_arrow("t", pa.table({"id": [id_ for id_, _ in mine], "n": [n for _, n in mine]}))
        for number in range(RUNS[size]):
            fault, verb = choose.choice(FAULTS), draw_verb(choose, tmp_path, max(rows, default=0) + 1)
            counts += run_until_done(cluster, fault, verb, number, choose)

            rows = verb.effect(rows)
            table = lake.read_arrow("t")
            assert len(table) == len(rows), (number, fault.name, verb)
            assert dict(zip(table["id"].to_pylist(), table["n"].to_pylist(), strict=True)) == rows
            assert lake.verify() == [], (number, fault.name, verb)
            clear_work(cluster)
    assert dict(by_duckdb(sqlite_catalog, "FROM t")) == rows
    with capsys.disabled():
        print(  # noqa: T201 - what was drawn
            f"\nseed {seed}: {RUNS[size]} runs in {time.monotonic() - started:.0f} s: "
            + ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        )


def run_until_done(
    cluster: Cluster, fault: Fault, verb: Verb, number: int, choose: random.Random
) -> Counter[str]:
    """Run tries of a task until one succeeds, the first of them with the fault; count what happened."""
    counts: Counter[str] = Counter()
    context = multiprocessing.get_context("fork")
    arguments = {"task_id": f"run{number}", "conf": CONF | dict(fault.conf), **verb.arguments}
    for tries in range(1, TRIES + 1):
        worker = context.Process(target=partial(execute, verb.operator, arguments, number, tries))
        worker.start()
        if tries == 1:
            wait_for_executors(cluster, worker)
            worker.join(choose.uniform(0, LATEST))
            if worker.is_alive():
                counts[f"x {fault.name}"] += bool(fault.happens(cluster))
        worker.join()
        if worker.exitcode == 0:
            counts["tries again"] += tries - 1
            return counts
    raise AssertionError(f"run {number} failed {TRIES} times: {fault.name}, {verb}")


def wait_for_executors(cluster: Cluster, worker: Any) -> None:
    while worker.is_alive() and not cluster.executors():
        time.sleep(0.05)


def clear_work(cluster: Cluster) -> None:
    """Remove what finished applications left: their jars and logs."""
    for one in cluster.workers:
        for application in (one / "work").glob("app-*"):
            shutil.rmtree(application, ignore_errors=True)
