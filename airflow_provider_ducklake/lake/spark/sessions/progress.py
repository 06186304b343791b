"""Log the progress of a long Spark action from its own thread."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.spark.sessions.kind import kind_of
from airflow_provider_ducklake.lake.spec.log_lines import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from airflow_provider_ducklake.lake.spark.sessions.protocol import RunningStage

log = logger(__name__)

SECONDS_BETWEEN_LINES = 20.0
_one_speaks = threading.Lock()  # of actions that run side by side


@contextmanager
def progress_lines(
    spark: SparkSession, seconds: float = SECONDS_BETWEEN_LINES, say: Callable[[str], None] = log.info
) -> Iterator[None]:
    """Say a line for each running stage every ``seconds`` while the block runs."""
    stopped = threading.Event()
    with kind_of(spark).watched() as stages:
        arguments = (stages, seconds, say, stopped)
        thread = threading.Thread(target=_report, args=arguments, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()


def _report(
    stages: Callable[[], Sequence[RunningStage]],
    seconds: float,
    say: Callable[[str], None],
    stopped: threading.Event,
) -> None:
    speaks = False
    elapsed = 0.0
    try:
        while not stopped.wait(seconds):
            elapsed += seconds
            speaks = speaks or _one_speaks.acquire(blocking=False)
            if speaks:
                for one in stages():
                    say(f"Stage {one.number}: {one.done} of {one.tasks} tasks done, after {elapsed:.0f} s")
    finally:
        if speaks:
            _one_speaks.release()
