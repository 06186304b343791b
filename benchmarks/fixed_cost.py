"""Measure what a task costs however few its rows are: an insert of 1,000 rows, and where the time goes.

Three ways, in turns: a bare SparkSubmitOperator that writes 1,000 rows, our insert by spark-submit, our
insert on a Spark Connect server that runs. Airflow's own start is not counted. Run it on an idle machine.
Targets: ours beyond the bare one ≤ 1 s, an insert on the warm server ≤ 1.5 s, its share of a cold one ≤ 1/5.

With ``--dag`` the example DAG of ten inserts runs by ``dag.test()``, the start and the end of its server
counted, and again with its inserts by spark-submit. Target: the first takes ≤ 1/5 of the second.

    python benchmarks/fixed_cost.py              # 5 rounds
    python benchmarks/fixed_cost.py --rounds 3
    python benchmarks/fixed_cost.py --dag --rounds 2
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="airflow-"))
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
os.environ["PYSPARK_PYTHON"] = sys.executable

if TYPE_CHECKING:
    from collections.abc import Callable

TARGETS = {"beyond": 1.0, "warm": 1.5, "share": 0.2, "dag": 0.2}
EXAMPLE = ROOT / "example_dags" / "example_ducklake_spark_connect.py"
BARE = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.read.csv({source!r}, header=True, inferSchema=True).write.mode("append").parquet({target!r})
spark.stop()
"""
# Lines that end a part of a task, and what that part is called.
PARTS = (
    ("Spark-Submit cmd", "plan"),
    ("INFO Reading what to do", "spark-submit starts Python"),
    ("INFO SparkContext: Running Spark", "JVM and session begin"),
    ("INFO Wrote 1000 rows", "session and write"),
    ("Committed snapshot", "end of Spark, commit"),
)


class Clock:
    """Stands in for the output that Airflow's log is printed to, and notes when lines were written."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, float]] = []

    def write(self, text: str) -> int:
        for words, _ in PARTS:
            if words in text:
                self.seen.append((words, time.perf_counter()))
        return len(text)

    def flush(self) -> None:
        """Do nothing."""

    def isatty(self) -> bool:
        return False

    def parts(self, started: float, ended: float) -> dict[str, float]:
        """Return the seconds of each part."""
        found, last = {}, started
        for words, name in PARTS:
            at = next((at for seen, at in self.seen if seen == words), None)
            if at is not None:
                found[name] = at - last
                last = at
        return {**found, "the rest": ended - last}


CLOCK = Clock()


def context(number: int) -> Any:  # noqa: ANN401 - Airflow's
    ti = SimpleNamespace(
        dag_id="bench", run_id=f"run {number}", task_id="t", map_index=-1, try_number=1, max_tries=0
    )
    ti.id, ti.log_url = uuid4(), "http://localhost:8080/dags/bench"
    return {"ti": ti, "logical_date": None}


def timed(work: Callable[[], object]) -> tuple[float, dict[str, float]]:
    CLOCK.seen.clear()
    started = time.perf_counter()
    work()
    ended = time.perf_counter()
    return ended - started, CLOCK.parts(started, ended)


def set_connections(folder: Path, port: int) -> None:
    lake = {"catalog_type": "sqlite", "data_path": f"{folder}/data/"}
    connections = {
        "ducklake_default": {"conn_type": "ducklake", "schema": f"{folder}/lake.sqlite", "extra": lake},
        "spark_default": {"conn_type": "spark", "host": "local[2]"},
        "connect": {"conn_type": "spark_connect", "host": "sc://127.0.0.1", "port": port},
    }
    for name, fields in connections.items():
        os.environ[f"AIRFLOW_CONN_{name.upper()}"] = json.dumps(fields)


def measure(folder: Path, port: int, rounds: int) -> dict[str, list[tuple[float, dict[str, float]]]]:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
    from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator

    set_connections(folder, port)
    source = folder / "rows.csv"
    source.write_text("id,n\n" + "".join(f"{number},{number / 2}\n" for number in range(1000)))
    bare = folder / "bare.py"
    bare.write_text(BARE.format(source=str(source), target=str(folder / "bare")))
    hook = DuckLakeHook()
    lake = hook.get_or_create_lake()
    lake.set_option("data_inlining_row_limit", 0)
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int32", "n": "float64"})
    hook.close()

    def by_bare(number: int) -> None:
        SparkSubmitOperator(task_id="t", application=str(bare)).execute(context(number))

    def by_submit(number: int) -> None:
        DuckLakeSparkInsertOperator(task_id="t", table="t", source=str(source)).execute(context(number))

    def by_connect(number: int) -> None:
        DuckLakeSparkInsertOperator(
            task_id="t", table="t", source=str(source), spark_connect_conn_id="connect"
        ).execute(context(number))

    ways = {"bare": by_bare, "spark-submit": by_submit, "connect": by_connect}
    found: dict[str, list[tuple[float, dict[str, float]]]] = {name: [] for name in ways}
    number = 0
    for turn in range(rounds + 1):
        for name, way in ways.items():
            number += 1
            taken = timed(lambda way=way, number=number: way(number))
            if turn:  # the first only warms up
                found[name].append(taken)
    return found


def report(found: dict[str, list[tuple[float, dict[str, float]]]]) -> dict[str, float]:
    middle = {name: statistics.median(taken for taken, _ in times) for name, times in found.items()}
    for name, times in found.items():
        rounds = "/".join(f"{taken:.2f}" for taken, _ in times)
        print(f"{name}: {middle[name]:.2f} s ({rounds})")
        for part in times[0][1]:
            seconds = statistics.median(parts.get(part, 0.0) for _, parts in times)
            print(f"    {seconds:6.2f} s  {part}")
    figures = {
        "beyond": middle["spark-submit"] - middle["bare"],
        "warm": middle["connect"],
        "share": middle["connect"] / middle["spark-submit"],
    }
    for name, value in figures.items():
        print(f"{name}: {value:.2f} (target {TARGETS[name]:.2f})")
    return figures


def measure_tasks(folder: Path, rounds: int) -> dict[str, float]:
    from tests.reference.connect_server import connect_server

    with connect_server(folder / "server") as server, redirect_stdout(CLOCK):  # type: ignore[type-var]
        found = measure(folder, server.port, rounds)
    return report(found)


def measure_dag(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of runs of the example DAG, by way."""
    from airflow.utils import db

    from tests.airflow.dags import parse, sync_dag
    from tests.reference.processes import free_port

    db.initdb()
    found: dict[str, list[float]] = {"connect": [], "spark-submit": []}
    for turn in range(rounds):
        for way, times in found.items():
            place = folder / f"{way}-{turn}"
            place.mkdir()
            set_connections(place, free_port())
            os.environ["AIRFLOW_CONN_SPARK_CONNECT_DEFAULT"] = os.environ["AIRFLOW_CONN_CONNECT"]
            dag = parse(EXAMPLE)
            if way == "spark-submit":
                for task in dag.tasks:
                    if task.task_id.startswith("insert"):
                        task.spark_connect_conn_id = None
            sync_dag(dag)
            started = time.perf_counter()
            run = dag.test(mark_success_pattern=None if way == "connect" else "st.*_server")
            times.append(time.perf_counter() - started)
            if str(run.state) != "success":
                message = f"The DAG's run by {way} is {run.state}."
                raise RuntimeError(message)
    return found


def report_dag(found: dict[str, list[float]]) -> dict[str, float]:
    middle = {way: statistics.median(times) for way, times in found.items()}
    for way, times in found.items():
        print(f"ten inserts by {way}: {middle[way]:.1f} s ({'/'.join(f'{one:.1f}' for one in times)})")
    figures = {"dag": middle["connect"] / middle["spark-submit"]}
    print(f"dag: {figures['dag']:.2f} (target {TARGETS['dag']:.2f})")
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dag", action="store_true", help="run the example DAG of ten inserts instead")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.dag:
            with redirect_stdout(io.StringIO()):
                times = measure_dag(folder, arguments.rounds)
            figures = report_dag(times)
        else:
            figures = measure_tasks(folder, arguments.rounds)
    missed = [name for name, value in figures.items() if value > TARGETS[name]]
    return 1 if arguments.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
