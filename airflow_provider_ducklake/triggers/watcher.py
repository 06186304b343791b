"""Report the changes of one table range by range, for as long as an asset is watched."""

from __future__ import annotations

import asyncio
import contextvars
import json
import random
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from ..hooks.connection import read_settings
from ..hooks.ducklake import connection_of, open_catalog
from ..hooks.task import default_namespace
from ..lake.catalog.ledger.consumers import WATERMARKS
from ..lake.errors import CatalogMigratedError, CatalogUnavailableError, TransactionConflictError
from ..lake.format.snapshots import Consumer
from ..lake.planning.reading.watch import RangeReport, Watermark

if TYPE_CHECKING:
    from ..hooks.events import Watch
    from ..lake.catalog.lake import Lake
    from ..lake.catalog.reports.watch import News
    from ..lake.catalog.snapshot.read_snapshots import RecordedSnapshot
    from ..lake.format.names.identifiers import QualifiedName


# Threads for questions that may never be answered, so that these block no others.
#
# The threads of ``asyncio.to_thread`` are few, and all triggers of a process share them. These are a
# question's own, and do not keep the process from ending.


P = ParamSpec("P")
T = TypeVar("T")


def in_own_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
    """Start a call in a thread, and return its future; the thread goes on if the waiter is gone."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    call = partial(contextvars.copy_context().run, function, *args, **kwargs)
    Thread(target=_run, args=(call, future, loop), name="ducklake_question", daemon=True).start()
    return future


def _run(call: Callable[[], T], future: asyncio.Future[T], loop: asyncio.AbstractEventLoop) -> None:
    try:
        settle = partial(_settle, future, call())
    except BaseException as error:  # noqa: BLE001 - the waiter gets it
        settle = partial(_fail, future, error)
    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:  # the loop has ended, and with it the waiter
        return


def _settle(future: asyncio.Future[Any], result: object) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


class LakeThreads:
    """The threads that query one lake: a limited number at a time, including abandoned ones.

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
            try:
                asked = in_own_thread(function, *args, **kwargs)
            except BaseException:
                self._free.release()
                raise
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
            asked.exception()  # it is not reported elsewhere


# Ask a lake for its newest snapshot, once per interval for everybody in this process who waits for one.
#
# A poll is one statement while nothing is new, on a connection that is closed before the poller sleeps. It
# runs in a thread of the lake's own, since a catalog that hangs must stop neither the triggerer's event
# loop nor the polls of other lakes.


_LONGEST_WAIT = 60.0  # seconds between two tries while a catalog cannot be asked
_JITTER = 0.1  # of an interval, so that many triggerers do not ask at the same moment
_LOOKS_AT_ONCE = 4  # beside a poll
_PATIENCE = 60.0  # seconds for a question
_SECONDS_TO_CLOSE = 5.0
_KEPT = 10_000  # snapshots


@dataclass(frozen=True, slots=True)
class Polled:
    """The state of a lake after a poll.

    ``newer`` are the snapshots after ``known_since``, oldest first, up to ``head``; ``table_ids`` are by
    folded name. ``lake_number`` rises when the lake became another one: a backup was restored, or it was
    migrated. ``error`` is why the last poll failed; the rest is as the poll before left it.
    """

    number: int = 0
    lake_number: int = 0
    head: int = -1
    known_since: int = -1
    newer: Sequence[RecordedSnapshot] = ()
    table_ids: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    error: Exception | None = None

    def after(self, snapshot_id: int) -> Sequence[RecordedSnapshot]:
        """Return the snapshots after one, as far as they are kept."""
        return self.newer[bisect_right(self.newer, snapshot_id, key=lambda one: int(one.id)) :]

    def updated(self, news: News) -> Polled:
        """Return the state after a successful poll."""
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
        """Return the state after a failed poll."""
        return replace(self, number=self.number + 1, error=error)

    def of_another_lake(self) -> Polled:
        """Return the state when the lake became another one: empty."""
        return Polled(self.number, self.lake_number + 1)


class Interest:
    """Selects the polls that may have changes of one table: only these are examined."""

    def __init__(self, table: QualifiedName) -> None:
        self._name = table.folded
        self._lake_number, self._seen, self._table_id = -1, -1, -1

    def is_touched(self, polled: Polled) -> bool:
        """Return True if anything was recorded of the table, or of another of its name, since ``note``."""
        if polled.lake_number != self._lake_number or polled.known_since > self._seen:
            return True
        if polled.table_ids.get(self._name, -1) != self._table_id:
            return True
        newer = polled.after(self._seen)
        if len(newer) < polled.head - self._seen:  # a snapshot expired before a poll saw it
            return True
        return any(one.object_id == self._table_id for snapshot in newer for one in snapshot.changes)

    def note(self, polled: Polled) -> None:
        """Remember that a look showed nothing up to this poll."""
        self._lake_number, self._seen = polled.lake_number, polled.head
        self._table_id = polled.table_ids.get(self._name, -1)


class LakePoller:
    """Polls the lake of one connection as long as a trigger waits for it.

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
        """Yield the current state, if there is one, and the state after each poll from here on."""
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
        """Ask in a thread; close the connection when no question is left.

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
            except Exception as error:  # noqa: BLE001 - the waiter decides
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
            return self.known.updated(await self._asked(lambda lake: lake.reads.news(since)))
        except (TransactionConflictError, CatalogMigratedError):
            self._lake, self.known = None, self.known.of_another_lake()
            return self.known.updated(await self._asked(lambda lake: lake.reads.news(None)))

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


_NOTED_EVERY = 300.0  # seconds, where nothing is to be reported


class Store(Protocol):
    """Where a watcher's watermark is kept; ``place`` is how a user finds it."""

    @property
    def place(self) -> str: ...
    async def load(self) -> object | None: ...
    async def save(self, state: Mapping[str, Any]) -> None: ...


class AssetStore:
    """In the store of the watched asset, which Airflow keeps."""

    def __init__(self, store: Any, key: str) -> None:  # noqa: ANN401 - Airflow's accessors
        self._store = store
        self._key = key

    @property
    def place(self) -> str:
        """Return the key in the store."""
        return f"The key {self._key!r} in the state store of the watched asset"

    async def load(self) -> object | None:
        """Load the stored watermark."""
        found: object | None = await self._store.aget(self._key)
        return found

    async def save(self, state: Mapping[str, Any]) -> None:
        """Store this."""
        await self._store.aset(self._key, dict(state))


class LakeStore:
    """In the lake itself, for one watcher of one Airflow, identified by ``name``."""

    def __init__(self, poller: LakePoller, name: str) -> None:
        self._poller = poller
        self._name = name
        self._watcher: Consumer | None = None

    @property
    def place(self) -> str:
        """Return the row of the table."""
        row = "" if self._watcher is None else f" where watcher = '{self._watcher.digest}'"
        return f"The state in the catalog's table {WATERMARKS.name}{row}"

    async def load(self) -> object | None:
        """Load the stored watermark, a string if it is not JSON."""
        watcher = await self._known()
        text = await self._poller.ask(lambda lake: lake.writes.watermark(watcher))
        try:
            return None if text is None else json.loads(text)
        except (ValueError, RecursionError):
            return text

    async def save(self, state: Mapping[str, Any]) -> None:
        """Store this."""
        watcher, text = await self._known(), json.dumps(state)
        await self._poller.ask(lambda lake: lake.writes.note_watermark(watcher, text))

    async def _known(self) -> Consumer:
        if self._watcher is None:
            self._watcher = Consumer(self._name, await namespace_of(self._poller.conn_id))
        return self._watcher


async def namespace_of(conn_id: str) -> str:
    """Return the id of this Airflow among others on a connection's lake, as in commit keys."""
    settings = read_settings(await connection_of(conn_id), with_storage=False)
    return settings.commit_namespace or default_namespace()


class TableWatcher:
    """Makes events of polls: no change is left out, and only a restart repeats an event.

    ``start`` asks the lake after which snapshot a watcher begins that has no watermark yet; None: now.
    ``acknowledges``: ``arrived`` is called of each event; else one has when the next is due.
    """

    def __init__(
        self,
        watch: Watch,
        poller: LakePoller,
        store: Store,
        start: Callable[[Lake], int] | None,
        *,
        acknowledges: bool,
    ) -> None:
        self._watch = watch
        self._poller = poller
        self._store = store
        self._start = start
        self._acknowledges = acknowledges
        self._interest = Interest(watch.table)
        self._mark: Watermark | None = None
        self._repeats: list[Mapping[str, Any]] = []
        self._lake_number = -1
        self._saved_at = 0.0
        self._saving = asyncio.Lock()

    async def events(self, polled: Polled) -> AsyncIterator[Mapping[str, Any]]:
        """Yield what is to be reported after a poll, one event at most; it is noted before it is yielded.

        Two at once would be one too many for Airflow's scheduler: an event that comes while it takes the one
        before from its queue starts no run.

        Raises:
            Exception: the catalog or the store cannot be asked; a later poll goes on.
        """
        if polled.error is not None:
            raise polled.error
        if self._mark is None:
            self._mark = await self._first_mark(polled)
            self._repeats = list(self._mark.pending)
        if self._repeats:
            yield self._repeats.pop(0)
            return
        report = await self._report(self._mark, polled)
        if report is None:
            await self._move(polled)
        else:
            yield await self._reporting(report)
        self._lake_number = polled.lake_number
        self._interest.note(polled)

    async def arrived(self, range_id: str) -> None:
        """Record that Airflow stored an event."""
        async with self._saving:
            assert self._mark is not None
            await self._save(self._mark.arrived(range_id))

    async def _first_mark(self, polled: Polled) -> Watermark:
        stored = await self._store.load()
        if stored is not None:
            self._saved_at = time.monotonic()
            return Watermark.of_json(stored, self._store.place, str(self._watch.table))
        start = polled.head if self._start is None else await self._poller.ask(self._start)
        self._lake_number = polled.lake_number  # a start to come is not a lake that went back
        mark = Watermark(start, polled.table_ids.get(self._watch.table.folded))
        await self._save(mark)
        return mark

    async def _report(self, mark: Watermark, polled: Polled) -> RangeReport | None:
        is_since = mark.snapshot == self._watch.since  # nothing was reported yet, so nothing is taken back
        if polled.lake_number != self._lake_number and polled.head < mark.snapshot and not is_since:
            table_id = polled.table_ids.get(self._watch.table.folded, mark.table_id or 0)
            words = tuple(sorted(self._watch.words))
            return RangeReport(
                str(self._watch.table), table_id, mark.snapshot, polled.head, words, is_complete=False
            )
        if not self._interest.is_touched(polled):
            return None
        watch, after = self._watch, mark.snapshot
        return await self._poller.ask(
            lambda lake: lake.reads.range_report(str(watch.table), after, watch.words)
        )

    async def _reporting(self, report: RangeReport) -> Mapping[str, Any]:
        async with self._saving:
            assert self._mark is not None
            before = self._mark if self._acknowledges else replace(self._mark, pending=())
            mark, event = before.reporting(report)
            await self._save(mark)
        return event

    async def _move(self, polled: Polled) -> None:
        async with self._saving:
            assert self._mark is not None
            mark = self._mark.moved(polled.head, polled.table_ids.get(self._watch.table.folded))
            is_old = time.monotonic() - self._saved_at > _NOTED_EVERY and mark != self._mark
            if is_old:
                await self._save(mark)
            self._mark = mark

    async def _save(self, mark: Watermark) -> None:
        await self._store.save(mark.as_json())
        self._mark, self._saved_at = mark, time.monotonic()
