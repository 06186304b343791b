"""Log the progress of a long Spark action from its own thread."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark import SparkContext

log = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 20.0
_one_speaks = threading.Lock()  # of actions that run side by side


@contextmanager
def progress_lines(
    context: SparkContext, seconds: float = SECONDS_BETWEEN_LINES, say: Callable[[str], None] = log.info
) -> Iterator[None]:
    """Say a line for each running stage every ``seconds`` while the block runs."""
    stopped = threading.Event()
    arguments = (context, seconds, say, stopped)
    thread = threading.Thread(target=_report, args=arguments, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _report(
    context: SparkContext, seconds: float, say: Callable[[str], None], stopped: threading.Event
) -> None:
    speaks = False
    elapsed = 0.0
    try:
        while not stopped.wait(seconds):
            elapsed += seconds
            speaks = speaks or _one_speaks.acquire(blocking=False)
            if speaks:
                _say_stages(context, elapsed, say)
    finally:
        if speaks:
            _one_speaks.release()


def _say_stages(context: SparkContext, elapsed: float, say: Callable[[str], None]) -> None:
    tracker = context.statusTracker()
    for stage_id in tracker.getActiveStageIds():
        stage = tracker.getStageInfo(stage_id)
        if stage is not None:
            say(
                f"Stage {stage_id}: {stage.numCompletedTasks} of {stage.numTasks} tasks done, "
                f"{stage.numActiveTasks} running, after {elapsed:.0f} s"
            )
