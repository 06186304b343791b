"""Report the changes of one table range by range, for as long as an asset is watched."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider_ducklake.hooks.commit_identity import default_namespace
from airflow_provider_ducklake.hooks.connection_settings import read_settings
from airflow_provider_ducklake.hooks.ducklake import connection_of
from airflow_provider_ducklake.lake.catalog.ledger.watermarks import NAME
from airflow_provider_ducklake.lake.planning.reading.watch import RangeReport, Watermark
from airflow_provider_ducklake.lake.spec.snapshots import Consumer
from airflow_provider_ducklake.triggers.poller import Interest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from airflow_provider_ducklake.hooks.watch import Watch
    from airflow_provider_ducklake.lake.catalog.lake import Lake
    from airflow_provider_ducklake.triggers.poller import LakePoller, Polled

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
        """Return what is stored."""
        found: object | None = await self._store.aget(self._key)
        return found

    async def save(self, state: Mapping[str, Any]) -> None:
        """Store this."""
        await self._store.aset(self._key, dict(state))


class LakeStore:
    """In the lake itself, for one watcher of one Airflow: ``name`` tells it from all others there."""

    def __init__(self, poller: LakePoller, name: str) -> None:
        self._poller = poller
        self._name = name
        self._watcher: Consumer | None = None

    @property
    def place(self) -> str:
        """Return the row of the table."""
        row = "" if self._watcher is None else f" where watcher = '{self._watcher.digest}'"
        return f"The state in the catalog's table {NAME}{row}"

    async def load(self) -> object | None:
        """Return what is stored, a string if it is not JSON."""
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
    """Return what tells this Airflow from others on a connection's lake, as commit keys have it."""
    settings = read_settings(await connection_of(conn_id), with_storage=False)
    return settings.commit_namespace or default_namespace()


class TableWatcher:
    """Makes events of polls: no change is left out, and only a restart repeats an event.

    ``start`` asks the lake after which snapshot a watcher begins that has no watermark yet; None: now.
    ``says_arrived``: ``arrived`` is called of each event; else one has when the next is due.
    """

    def __init__(
        self,
        watch: Watch,
        poller: LakePoller,
        store: Store,
        start: Callable[[Lake], int] | None,
        *,
        says_arrived: bool,
    ) -> None:
        self._watch = watch
        self._poller = poller
        self._store = store
        self._start = start
        self._says_arrived = says_arrived
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
        """Note that an event was stored by Airflow."""
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
        if polled.lake_number != self._lake_number and polled.head < mark.snapshot:
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
            before = self._mark if self._says_arrived else replace(self._mark, pending=())
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
