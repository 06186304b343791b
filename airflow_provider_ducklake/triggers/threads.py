"""Threads for questions that may never be answered, so that these hang for nobody else.

The threads of ``asyncio.to_thread`` are few, and all triggers of a process share them. These are a question's
own, and do not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import contextvars
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


def in_own_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
    """Return what will be the result of a call in a thread, which goes on if nobody waits any more."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    call = partial(contextvars.copy_context().run, function, *args, **kwargs)
    Thread(target=_run, args=(call, future, loop), name="ducklake_question", daemon=True).start()
    return future


def _run(call: Callable[[], T], future: asyncio.Future[T], loop: asyncio.AbstractEventLoop) -> None:
    try:
        settle = partial(_settle, future, call())
    except BaseException as error:  # noqa: BLE001 - whoever waits gets it
        settle = partial(_fail, future, error)
    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:  # the loop has ended, and with it whoever waited
        return


def _settle(future: asyncio.Future[Any], result: object) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


class LakeThreads:
    """The threads in which one lake is asked: so many at a time, those included that nobody waits for.

    ``hung`` counts the latter.
    """

    def __init__(self, at_once: int, seconds: float) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._seconds = seconds
        self.hung = 0

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a call in a thread.

        Raises:
            TimeoutError: there is none in time, or no thread.
        """
        async with asyncio.timeout(self._seconds):
            await self._free.acquire()
            asked = in_own_thread(function, *args, **kwargs)
            asked.add_done_callback(lambda _: self._free.release())
            try:
                return await asyncio.shield(asked)
            except asyncio.CancelledError:
                self.hung += 1
                asked.add_done_callback(self._came_late)
                raise

    def _came_late(self, asked: asyncio.Future[Any]) -> None:
        self.hung -= 1
        if not asked.cancelled():
            asked.exception()  # nobody else takes note of it
