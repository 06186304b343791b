"""One writer of benchmarks/commit.py: append one row again and again, and say how long each took.

Imports the standard library only, so that it runs beside any client.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def run(append: Callable[[], Any], seconds: float) -> None:
    """Warm up, wait for the start (a line of input), append until the time is over, print the times.

    A writer that has one append left when the time is over finishes it: its time counts.
    """
    times: list[float] = []
    errors: list[str] = []
    _warm_up(append)
    print("ready", flush=True)
    sys.stdin.readline()
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        begin = time.perf_counter()
        try:
            append()
        except Exception as error:  # noqa: BLE001 - counted
            errors.append(f"{type(error).__name__}: {error}"[:200])
        else:
            times.append(time.perf_counter() - begin)
    elapsed = time.perf_counter() - started
    print(json.dumps({"times": times, "elapsed": elapsed, "errors": errors}))


def _warm_up(append: Callable[[], Any]) -> None:
    """Append twice; the others do so at the same time, and the database may give up on one of them."""
    done = 0
    for _ in range(5):
        try:
            append()
        except Exception as error:  # noqa: BLE001 - whatever it was, the next time may do
            print(f"warm-up: {error}"[:200], file=sys.stderr)
            time.sleep(0.1)
        else:
            done += 1
        if done == 2:
            return
