"""Work on several files at once: what takes time is waiting for a store, or Arrow's own code."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Item = TypeVar("Item")
Result = TypeVar("Result")

_THREADS = 8


def in_threads(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return what ``work`` makes of each item, in their order; after an error no further item is begun."""
    given = list(items)
    if len(given) <= 1:
        return [work(item) for item in given]
    threads = ThreadPoolExecutor(min(_THREADS, len(given)))
    try:
        return list(threads.map(work, given))
    finally:
        threads.shutdown(cancel_futures=True)
