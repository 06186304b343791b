"""Workers that are killed, and those that take over."""

import multiprocessing
import random
import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from airflow_provider_ducklake.operators.spark import DuckLakeSparkOperator

TRIES = 5


def execute(
    operator: type[DuckLakeSparkOperator], arguments: dict[str, Any], number: int, tries: int
) -> None:
    """Execute a try of a task's n-th run, as a worker does."""
    ti = SimpleNamespace(
        dag_id="killed",
        run_id=f"run {number}",
        task_id=arguments["task_id"],
        map_index=-1,
        try_number=tries,
        max_tries=99,
        id=uuid4(),
    )
    ti.log_url = "http://localhost:8080/dags/killed"
    operator(**arguments, retries=99).execute({"ti": ti, "logical_date": None})  # type: ignore[typeddict-item]


def run_until_done(work: Callable[[int], None], choose: random.Random, latest: float) -> int:
    """Run a task's tries, each in a worker of its own, most of the first killed; return how many.

    They are killed within the first ``latest`` seconds; a whole task may take about as long.
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
