"""Wait for changes of a table in the triggerer: once for a deferred sensor, on and on for a watched asset."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from ..hooks.compat import ACK_STREAMS, AdvanceItem, SharedStreamProducer, asset_state, store_name
from ..hooks.ducklake import connection_of, open_catalog
from ..hooks.events import PollResult, Watch, start_of
from ..hooks.task import LogsInLines, explained, is_incurable
from ..lake.errors import DuckLakeError, InvalidInputError, NotFoundError
from ..lake.format.log_lines import logger
from .watcher import AssetStore, Interest, LakePoller, LakeStore, Polled, TableWatcher, in_own_thread

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from ..lake.catalog.lake import Lake
    from ..lake.catalog.snapshot.read_snapshots import RecordedSnapshot


_POLL_INTERVAL = 10.0  # seconds


class DuckLakeSnapshotTrigger(LogsInLines, BaseEventTrigger):
    """Watch a table: for an ``AssetWatcher`` it makes an event of each range of snapshots that changed it.

    There is one event for each poll that found changes, however many commits made them; docs/assets.md shows
    its fields. No change is left out, whatever is restarted; a restart may repeat the last event, with the
    same ``range_id``. All triggers of a triggerer that wait for tables of one lake share a poll. A catalog
    that cannot be reached is waited for.

    :param table: the table, as ``"schema.table"``.
    :param changes: which changes count: ``"insert"``, ``"delete"``, ``"data"`` (either of them) or
        ``"schema"``.
    :param since: where to begin the first time: after a snapshot id, or an ISO time with an offset; None:
        now.
    :param ducklake_conn_id: the connection of the lake.
    :param poll_interval: seconds between two polls of the lake.
    :param once: end with the first event, as a deferred ``DuckLakeSnapshotSensor`` has it do; ``since`` is
        needed then.
    """

    def __init__(
        self,
        *,
        table: str,
        changes: Collection[str] = ("data",),
        since: int | str | datetime | None = None,
        ducklake_conn_id: str = "ducklake_default",
        poll_interval: float = _POLL_INTERVAL,
        once: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.watch = Watch.of(table, changes, 0 if since is None and not once else since)
        self.since = since
        self.ducklake_conn_id = ducklake_conn_id
        self.poll_interval = poll_interval
        self.once = once

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments."""
        cls, arguments = type(self), self.watch.as_arguments()
        return f"{cls.__module__}.{cls.__qualname__}", {
            **arguments,
            "since": None if self.since is None else arguments["since"],
            "ducklake_conn_id": self.ducklake_conn_id,
            "poll_interval": self.poll_interval,
            "once": self.once,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the one event of a deferred sensor, or those of a watcher where Airflow shares no streams."""
        async with LakePoller.shared(self.ducklake_conn_id, self.poll_interval) as poller:
            if self.once:
                yield TriggerEvent(await self._outcome(poller))
                return
            with Watching(self, poller) as watching:
                async for polled in poller.polls():
                    async for event, _ in watching.events(polled):
                        yield event

    async def _outcome(self, poller: LakePoller) -> dict[str, Any]:
        try:
            result = await self._wait(poller)
        except DuckLakeError as error:
            return {"status": "error", "message": explained(error), "is_incurable": is_incurable(error)}
        self.log.info("%s", self.watch.log_line(result))
        return {"status": "success", "xcom": result.xcom}

    async def _wait(self, poller: LakePoller) -> PollResult:
        """Wait for a change; raise errors that waiting does not cure."""
        interest, trouble, presence = Interest(self.watch.table), Trouble(self), Presence(self)
        before = poller.known.number  # of a poll that others waited for, maybe long ago
        async for polled in poller.polls():
            error = polled.error
            if error is not None and polled.number <= before:
                continue
            if error is None:
                try:
                    if interest.is_touched(polled) and (result := await poller.ask(self.watch.poll)).found:
                        return result
                    interest.note(polled)
                    presence.note(polled)
                except DuckLakeError as raised:
                    error = raised
            if error is not None and not _passes(error):
                raise error
            trouble.note(error)
        raise AssertionError("polls never end")

    # What Airflow 3.3 asks of triggers that share a stream.

    def shared_stream_key(self) -> Hashable | None:
        """Return a key that is equal for the watchers of one lake."""
        return None if self.once or not ACK_STREAMS else (type(self).__name__, self.ducklake_conn_id)

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """Return the polls of a lake, which all its watchers share."""
        return PollStream(kwargs["ducklake_conn_id"], kwargs["poll_interval"])

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Round]) -> AsyncIterator[TriggerEvent]:
        """Yield the events of this table."""
        async with LakePoller.shared(self.ducklake_conn_id, self.poll_interval) as poller:
            with Watching(self, poller, acknowledges=True) as watching:
                async for one in shared_stream:
                    async for event, arrived in watching.events(one.polled):
                        one.when_stored.append(arrived)
                        yield event


class Watching:
    """A trigger's watch of its table: events, and in the log what keeps it from making some."""

    def __init__(
        self, trigger: DuckLakeSnapshotTrigger, poller: LakePoller, *, acknowledges: bool = False
    ) -> None:
        words = ",".join(sorted(trigger.watch.words))
        state = asset_state(trigger)
        of_asset = f"ducklake {trigger.ducklake_conn_id} {trigger.watch.table} {words}"
        of_all = json.dumps(trigger.serialize()[1], sort_keys=True)  # Airflow's identity of a trigger
        self._watermark = of_all if state is None else f"{of_asset} {store_name(state)}"
        self._in_use = poller.watermarks
        self._trouble, self._presence = Trouble(trigger), Presence(trigger)
        self._watcher = TableWatcher(
            trigger.watch,
            poller,
            LakeStore(poller, of_all) if state is None else AssetStore(state, of_asset),
            None if trigger.since is None else lambda lake: start_of(lake, trigger.watch.since),
            acknowledges=acknowledges,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._in_use.get(self._watermark) is self:
            del self._in_use[self._watermark]

    def _take(self) -> None:
        """Take the watermark; of two watchers that have the same one, the first to come moves it."""
        if self._in_use.setdefault(self._watermark, self) is not self:
            raise InvalidInputError(
                "Another watcher of this asset has the same table and changes, and makes these events. "
                "Remove one of the two, or give it other changes."
            )

    async def events(
        self, polled: Polled
    ) -> AsyncIterator[tuple[TriggerEvent, Callable[[], Awaitable[None]]]]:
        """Yield the events of a poll, each with what is to be called when Airflow has stored it."""
        try:
            self._take()
            async for event in self._watcher.events(polled):
                yield TriggerEvent(dict(event)), partial(self._arrived, event["range_id"])
        except Exception as error:  # noqa: BLE001 - a watcher that ended would watch no more
            self._trouble.note(error)
        else:
            self._trouble.note(None)
            self._presence.note(polled)

    async def _arrived(self, range_id: str) -> None:
        try:
            await self._watcher.arrived(range_id)
        except Exception as error:  # noqa: BLE001 - it is repeated after a restart, and that is all
            self._trouble.note(error)


class Trouble:
    """Logs once that a catalog cannot be asked, and once that it can again."""

    def __init__(self, trigger: DuckLakeSnapshotTrigger) -> None:
        self._trigger = trigger
        self._logged: str | None = None

    def note(self, error: Exception | None) -> None:
        """Take note of how a poll went."""
        before, now = self._logged, None if error is None else explained(error)
        conn_id, log = self._trigger.ducklake_conn_id, self._trigger.log
        if now is not None and now != before:
            log.warning("Waiting for the lake of %s: %s", conn_id, now)
        if now is None and before is not None:
            log.info("The lake of %s answers again", conn_id)
        self._logged = now


class Presence:
    """Logs once that the table is not there, and once that it is."""

    def __init__(self, trigger: DuckLakeSnapshotTrigger) -> None:
        self._trigger = trigger
        self._was_there: bool | None = None

    def note(self, polled: Polled) -> None:
        """Log tables that appeared or disappeared since the last poll."""
        trigger = self._trigger
        is_there = trigger.watch.table.folded in polled.table_ids
        if is_there == self._was_there:
            return
        if not is_there:
            what = "is not in" if self._was_there is None else "is gone from"
            trigger.log.warning(
                "Table %s %s the lake of %s: waiting for it",
                trigger.watch.table,
                what,
                trigger.ducklake_conn_id,
            )
        elif self._was_there is not None:
            trigger.log.info(
                "Table %s is in the lake of %s now", trigger.watch.table, trigger.ducklake_conn_id
            )
        self._was_there = is_there


def _passes(error: Exception) -> bool:
    """Return True if waiting may cure an error: a driver that is not installed here stays so."""
    is_missing_driver = isinstance(error.__cause__, ImportError)
    return isinstance(error, DuckLakeError) and not is_incurable(error) and not is_missing_driver


# What to say when a table is not loaded in time: the callback of a ``DeadlineAlert``.
#
# The triggerer imports a callback by its name, from what is installed there or lies in the plugins folder:
# it does not find a function of a DAG file.
#
# *Source:* ``airflow/triggers/callback.py`` of Airflow 3.3.2, ``airflow/triggers/deadline.py`` of 3.1.1.


log = logger(__name__)

REPORT = f"{__name__}.report_freshness"  # what AsyncCallback takes


@dataclass(frozen=True, slots=True)
class LastChange:
    """The newest snapshot that changed a table's rows; if it has expired, the oldest that there is."""

    snapshot_id: int
    time: datetime
    is_expired: bool


async def report_freshness(
    table: str, ducklake_conn_id: str = "ducklake_default", *, context: Mapping[str, Any]
) -> str:
    """Log as a warning, and return, since when a table's rows are unchanged and what its run is doing.

    ``AsyncCallback(REPORT, {"table": "sales.orders"})`` has Airflow call it when the deadline is missed;
    ``context`` is what Airflow adds.

    Raises:
        DuckLakeError: the lake cannot be opened.
    """
    connection = await connection_of(ducklake_conn_id)
    found = await in_own_thread(_look, connection, table)
    text = described(table, found, context["dag_run"], context.get("deadline"))
    log.warning("%s", text)
    return text


def _look(connection: Connection, table: str) -> LastChange | None:
    with closing(open_catalog(connection)) as lake:
        return last_change(lake, table)


def last_change(
    lake: Lake, table: str, snapshots: Sequence[RecordedSnapshot] | None = None
) -> LastChange | None:
    """Return when a table's rows last changed, by the lake's snapshots; None: there is no such table."""
    try:
        lake.table_snapshot(table)
    except NotFoundError:
        return None
    snapshots = snapshots or lake.snapshots()
    number = bisect_left(snapshots, 1, key=lambda one: int(_is_unchanged(lake, table, one.id)))
    found = snapshots[number]
    is_expired = number == 0 and _is_unchanged(lake, table, found.id - 1)
    return LastChange(int(found.id), found.time, is_expired)


def _is_unchanged(lake: Lake, table: str, after: int) -> bool:
    return lake.table_changes(table, after, ("data",)) is None


def described(
    table: str, last: LastChange | None, dag_run: Mapping[str, Any], deadline: Mapping[str, Any] | None = None
) -> str:
    """Return the report; ``dag_run`` and ``deadline`` are Airflow's, as its REST API shows the first.

    >>> run = {"dag_run_id": "r1", "state": "running", "run_after": "2026-11-25T05:00:00Z"}
    >>> seven = {"deadline_time": "2026-11-25T07:00:00Z"}
    >>> described("orders", LastChange(7, datetime(2026, 11, 24, 5, 9, tzinfo=UTC), False), run, seven)
    'orders is not fresh: unchanged since snapshot 7 of 2026-11-24 05:09:00 UTC. The run r1, due by \
2026-11-25 07:00:00 UTC, is running.'
    """
    due = datetime.fromisoformat(dag_run["run_after"])
    until = str((deadline or {}).get("deadline_time") or "")
    by = f"due by {_shown(datetime.fromisoformat(until))}" if until else f"of {_shown(due)}"
    run = f"The run {dag_run['dag_run_id']}, {by}, is {dag_run['state']}."
    if last is None:
        return f"{table} is not fresh: it does not exist. {run}"
    changed = f"snapshot {last.snapshot_id} of {_shown(last.time)}"
    if last.is_expired:
        return f"{table} is not fresh: not changed since {changed}, as far back as history goes. {run}"
    if last.time < due:
        return f"{table} is not fresh: unchanged since {changed}. {run}"
    return f"{table} is fresh: changed last by {changed}. But it is late: {run[0].lower()}{run[1:]}"


def _shown(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


# The polls of a lake as the stream that its watchers share, on Airflow 3.3.


@dataclass(slots=True)
class Round:
    """A poll, and what is to be called when the events that were made of it are stored."""

    polled: Polled
    when_stored: list[Callable[[], Awaitable[None]]] = field(default_factory=list)


class PollStream(SharedStreamProducer):
    """Yields the polls; Airflow says of each when all that came of it is stored."""

    def __init__(self, conn_id: str, interval: float) -> None:
        self._conn_id = conn_id
        self._interval = interval

    async def open_stream(self) -> AsyncIterator[tuple[Round, Round]]:
        """Yield each poll twice: for the watchers, and for ``advance``."""
        async with LakePoller.shared(self._conn_id, self._interval) as poller:
            async for polled in poller.polls():
                one = Round(polled)
                yield one, one

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Make watchers drop their events of these polls, unless one of them may not have been stored."""
        for item in batch:
            if item.outcome.failed == 0:
                for stored in item.broker_payload.when_stored:
                    await stored()
