"""Work on several files at once, because most time is spent waiting for a store or in Arrow's code."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from threading import Thread
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_THREADS = 8


def in_threads(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Apply ``work`` to each item in threads, in their order; after an error no further item is begun."""
    given = list(items)
    if len(given) <= 1:
        return [work(item) for item in given]
    threads = ThreadPoolExecutor(min(_THREADS, len(given)))
    try:
        return list(threads.map(work, given))
    finally:
        threads.shutdown(cancel_futures=True)


def in_threads_ahead(work: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result]:
    """Yield what ``in_threads`` returns, when it is wanted: no more than a few items are worked on ahead."""
    given = iter(items)
    threads = ThreadPoolExecutor(_THREADS)
    try:
        waiting = deque(threads.submit(work, item) for item in islice(given, _THREADS))
        while waiting:
            result = waiting.popleft().result()
            waiting.extend(threads.submit(work, item) for item in islice(given, 1))
            yield result
    finally:
        threads.shutdown(cancel_futures=True)


def within(seconds: float, work: Callable[[], Result]) -> Result:
    """Run ``work`` in a thread and return its result; a late thread goes on alone.

    Use it for what a driver asks of a server, where the driver has a limit for each read, or none.
    """
    done: Future[Result] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the waiting thread gets it
            done.set_exception(error)

    Thread(target=run, name="ducklake_within", daemon=True).start()
    return done.result(seconds)


def made_ahead(items: Generator[Item], count: int = 2) -> Generator[Item]:
    """Yield the items; a thread makes up to ``count`` more while the caller works on one."""
    with closing(items), ThreadPoolExecutor(1) as thread:
        waiting = deque(thread.submit(_next, items) for _ in range(count))
        try:
            while found := waiting.popleft().result():
                waiting.append(thread.submit(_next, items))
                yield found[0]
        finally:
            thread.shutdown(cancel_futures=True)


def _next(items: Generator[Item]) -> tuple[Item] | None:
    """Return the next item, in a tuple; None: there is none."""
    for item in items:
        return (item,)
    return None
