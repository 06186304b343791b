"""Say how far a long Spark action is, from a thread of its own."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark import SparkContext

log = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 20.0


@contextmanager
def progress_lines(context: SparkContext, seconds: float = SECONDS_BETWEEN_LINES) -> Iterator[None]:
    """Log a line for each running stage every ``seconds`` while the block runs."""
    stopped = threading.Event()
    thread = threading.Thread(target=_report, args=(context, seconds, stopped), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _report(context: SparkContext, seconds: float, stopped: threading.Event) -> None:
    tracker = context.statusTracker()
    elapsed = 0.0
    while not stopped.wait(seconds):
        elapsed += seconds
        for stage_id in tracker.getActiveStageIds():
            stage = tracker.getStageInfo(stage_id)
            if stage is not None:
                log.info(
                    "Stage %d: %d of %d tasks done, %d running, after %.0f s",
                    stage_id,
                    stage.numCompletedTasks,
                    stage.numTasks,
                    stage.numActiveTasks,
                    elapsed,
                )
