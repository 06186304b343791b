"""Ask a lake for its newest snapshot, once per interval for everybody in this process who waits for one.

A poll is one statement while nothing is new, on a connection that is closed before the poller sleeps. It
runs in a thread of the lake's own, since a catalog that hangs must stop neither the triggerer's event loop
nor the polls of other lakes.
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_ducklake.hooks.ducklake import connection_of, open_catalog
from airflow_provider_ducklake.lake.errors import (
    CatalogMigratedError,
    CatalogUnavailableError,
    TransactionConflictError,
)
from airflow_provider_ducklake.triggers.threads import LakeThreads, in_own_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from airflow_provider_ducklake.lake.catalog.lake import Lake
    from airflow_provider_ducklake.lake.catalog.reports.watch import News
    from airflow_provider_ducklake.lake.catalog.snapshot.read_snapshots import RecordedSnapshot
    from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName

T = TypeVar("T")

_LONGEST_WAIT = 60.0  # seconds between two tries while a catalog cannot be asked
_JITTER = 0.1  # of an interval, so that many triggerers do not ask at the same moment
_LOOKS_AT_ONCE = 4  # beside a poll
_PATIENCE = 60.0  # seconds for a question
_SECONDS_TO_CLOSE = 5.0
_KEPT = 10_000  # snapshots


@dataclass(frozen=True, slots=True)
class Polled:
    """What is known of a lake after a poll.

    ``newer`` are the snapshots after ``known_since``, oldest first, up to ``head``; ``table_ids`` are by
    folded name. ``lake_number`` rises when the lake became another one: a backup was restored, or it was
    migrated. ``error`` is why the last poll found nothing out; the rest is as the poll before left it.
    """

    number: int = 0
    lake_number: int = 0
    head: int = -1
    known_since: int = -1
    newer: Sequence[RecordedSnapshot] = ()
    table_ids: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    error: Exception | None = None

    def after(self, snapshot_id: int) -> Sequence[RecordedSnapshot]:
        """Return the snapshots after one, as far as they are known."""
        return self.newer[bisect_right(self.newer, snapshot_id, key=lambda one: int(one.id)) :]

    def told(self, news: News) -> Polled:
        """Return what is known when a poll has found this."""
        newer = (*self.newer, *news.newer)[-_KEPT:]
        dropped = len(self.newer) + len(news.newer) - len(newer)
        known_since = self.known_since if not dropped else newer[0].id - 1
        if self.head < 0:
            known_since = int(news.head.id)
        return Polled(
            self.number + 1,
            self.lake_number,
            int(news.head.id),
            known_since,
            newer,
            self.table_ids if news.table_ids is None else news.table_ids,
        )

    def failed(self, error: Exception) -> Polled:
        """Return what is known when a poll has failed."""
        return replace(self, number=self.number + 1, error=error)

    def of_another_lake(self) -> Polled:
        """Return what is known when the lake became another one: nothing."""
        return Polled(self.number, self.lake_number + 1)


class Interest:
    """Which polls may hold news of one table: only these are worth a look."""

    def __init__(self, table: QualifiedName) -> None:
        self._name = table.folded
        self._lake_number, self._seen, self._table_id = -1, -1, -1

    def is_touched(self, polled: Polled) -> bool:
        """Whether anything was recorded of the table, or of another of its name, since ``note``."""
        if polled.lake_number != self._lake_number or polled.known_since > self._seen:
            return True
        if polled.table_ids.get(self._name, -1) != self._table_id:
            return True
        newer = polled.after(self._seen)
        if len(newer) < polled.head - self._seen:  # a snapshot expired before anybody saw it
            return True
        return any(one.object_id == self._table_id for snapshot in newer for one in snapshot.changes)

    def note(self, polled: Polled) -> None:
        """Remember that a look showed nothing up to this poll."""
        self._lake_number, self._seen = polled.lake_number, polled.head
        self._table_id = polled.table_ids.get(self._name, -1)


class LakePoller:
    """Polls the lake of one connection as long as somebody waits for it.

    ``watermarks`` are those in use, each with the watcher that moves it.
    """

    def __init__(self, conn_id: str) -> None:
        self.conn_id = conn_id
        self.known = Polled()
        self.watermarks: dict[str, object] = {}
        self._intervals: dict[object, float] = {}
        self._polled = asyncio.Condition()
        self._hurry = asyncio.Event()
        self._lake: Lake | None = None
        self._opening = asyncio.Lock()
        self._in_use = 0
        self._looks = asyncio.Semaphore(_LOOKS_AT_ONCE)
        self._threads = LakeThreads(_LOOKS_AT_ONCE + 1, _PATIENCE)
        self._task: asyncio.Task[None] | None = None

    @classmethod
    @asynccontextmanager
    async def shared(cls, conn_id: str, interval: float) -> AsyncIterator[LakePoller]:
        """Join the poller of this process, which polls at the shortest interval, in seconds, of all in it."""
        key = (conn_id, asyncio.get_running_loop())
        poller = _POLLERS.setdefault(key, cls(conn_id))
        waiter = object()
        poller._join(waiter, interval)  # noqa: SLF001 - its own class
        try:
            yield poller
        finally:
            if poller._leave(waiter):  # noqa: SLF001 - as well
                _POLLERS.pop(key, None)
                await poller._stop()  # noqa: SLF001 - as well

    def _join(self, waiter: object, interval: float) -> None:
        if interval < min(self._intervals.values(), default=0.0):
            self._hurry.set()
        self._intervals[waiter] = interval
        if self._task is None:
            self._task = asyncio.create_task(self._poll_forever())

    def _leave(self, waiter: object) -> bool:
        del self._intervals[waiter]
        return not self._intervals

    async def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def polls(self) -> AsyncIterator[Polled]:
        """Yield what is known now, if anything is, and after each poll from here on."""
        seen = 0
        while True:
            async with self._polled:
                while self.known.number == seen:
                    await self._polled.wait()
                known = self.known
            seen = known.number
            yield known

    async def ask(self, question: Callable[[Lake], T]) -> T:
        """Return the answer to a question about the lake; few are asked at the same time."""
        async with self._looks:
            return await self._asked(question)

    async def _asked(self, question: Callable[[Lake], T]) -> T:
        """Ask in a thread; when nobody is asking any more, keep no connection.

        Raises:
            CatalogUnavailableError: there is no answer in time.
        """
        self._in_use += 1
        lake = None
        try:
            lake = await self._opened()
            return await self._threads.run(question, lake)
        except TimeoutError:
            raise self._silence() from None
        finally:
            self._in_use -= 1
            if lake is not None and not self._in_use:
                await asyncio.wait([in_own_thread(lake.close)], timeout=_SECONDS_TO_CLOSE)

    def _silence(self) -> CatalogUnavailableError:
        return CatalogUnavailableError(
            f"of connection {self.conn_id}",
            f"it has not answered within {_PATIENCE:g} s. So many questions wait for it and hold a thread: "
            f"{self._threads.hung}. Check that the database runs, and that its network answers",
        )

    async def _opened(self) -> Lake:
        async with self._opening:
            if self._lake is None:
                connection = await connection_of(self.conn_id)
                self._lake = await self._threads.run(open_catalog, connection, _PATIENCE)
            return self._lake

    async def _poll_forever(self) -> None:
        failures = 0
        while True:
            try:
                known = await self._poll()
                failures = 0
            except Exception as error:  # noqa: BLE001 - whoever waits decides
                known = self.known.failed(error)
                failures += 1
                self._lake = None  # the connection may have been corrected
            async with self._polled:
                self.known = known
                self._polled.notify_all()
            await self._sleep(failures)

    async def _poll(self) -> Polled:
        try:
            since = self.known.head if self.known.head >= 0 else None
            return self.known.told(await self._asked(lambda lake: lake.reads.news(since)))
        except (TransactionConflictError, CatalogMigratedError):
            self._lake, self.known = None, self.known.of_another_lake()
            return self.known.told(await self._asked(lambda lake: lake.reads.news(None)))

    async def _sleep(self, failures: int) -> None:
        interval = min(self._intervals.values(), default=0.0)
        if failures:
            interval = max(interval, random.uniform(0, min(2.0**failures, _LONGEST_WAIT)))
        self._hurry.clear()
        try:
            await asyncio.wait_for(self._hurry.wait(), interval * random.uniform(1 - _JITTER, 1 + _JITTER))
        except TimeoutError:
            return


_POLLERS: dict[tuple[str, asyncio.AbstractEventLoop], LakePoller] = {}
