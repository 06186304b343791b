"""Wait for a change of a table in the triggerer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_provider_ducklake.errors import DuckLakeError
from airflow_provider_ducklake.hooks.task import explained, is_incurable
from airflow_provider_ducklake.hooks.watch import Looked, Watch
from airflow_provider_ducklake.triggers.poller import LakePoller, Polled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from datetime import datetime

_POLL_INTERVAL = 10.0  # seconds


class DuckLakeSnapshotTrigger(BaseEventTrigger):
    """Wait until a snapshot changes a table, as ``DuckLakeSnapshotSensor`` does, and end.

    All triggers of a triggerer that wait for tables of one lake share a poll. A catalog that cannot be
    reached is waited for; what no retry can cure ends the trigger with an event of status ``error``.

    :param table: the table, as ``"schema.table"``.
    :param changes: which changes count, as the sensor's.
    :param since: only later snapshots count: a snapshot id or an ISO time with an offset.
    :param ducklake_conn_id: the connection of the lake.
    :param poll_interval: seconds between two polls of the lake.
    """

    def __init__(
        self,
        *,
        table: str,
        changes: Sequence[str] = ("data",),
        since: int | str | datetime | None = None,
        ducklake_conn_id: str = "ducklake_default",
        poll_interval: float = _POLL_INTERVAL,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table
        self.changes = tuple(changes)
        self.since = since
        self.ducklake_conn_id = ducklake_conn_id
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments."""
        cls = type(self)
        return f"{cls.__module__}.{cls.__qualname__}", {
            "table": self.table,
            "changes": list(self.changes),
            "since": self.since,
            "ducklake_conn_id": self.ducklake_conn_id,
            "poll_interval": self.poll_interval,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the one event of a deferred sensor."""
        try:
            watch = Watch.of(self.table, self.changes, self.since)
            looked = await self._wait(watch)
        except DuckLakeError as error:
            failed = {"message": explained(error), "is_incurable": is_incurable(error)}
            yield TriggerEvent({"status": "error", **failed})
            return
        self.log.info(watch.said(looked))
        yield TriggerEvent({"status": "success", "handed_on": looked.handed_on})

    async def _wait(self, watch: Watch) -> Looked:
        """Return what was found; raise what waiting does not cure."""
        interest, trouble = Interest(watch), None
        async with LakePoller.shared(self.ducklake_conn_id, self.poll_interval) as poller:
            async for polled in poller.polls():
                error = polled.error
                if error is None:
                    try:
                        if interest.is_touched(polled) and (looked := await poller.ask(watch.look)).found:
                            return looked
                        interest.note(polled)
                    except DuckLakeError as raised:
                        error = raised
                if error is not None and not _passes(error):
                    raise error
                trouble = self._said(trouble, error)
        raise AssertionError("polls never end")

    def _said(self, before: str | None, error: Exception | None) -> str | None:
        """Log once that a catalog cannot be asked, and once that it can again."""
        now = None if error is None else explained(error)
        if now is not None and before is None:
            self.log.warning("Waiting for the catalog of %s: %s", self.ducklake_conn_id, now)
        if now is None and before is not None:
            self.log.info("The catalog of %s answers again", self.ducklake_conn_id)
        return now


def _passes(error: Exception) -> bool:
    """Whether waiting may cure an error: a driver that is not installed here stays so."""
    is_missing_driver = isinstance(error.__cause__, ImportError)
    return isinstance(error, DuckLakeError) and not is_incurable(error) and not is_missing_driver


class Interest:
    """Which polls may hold news of one table: only these are worth a look."""

    def __init__(self, watch: Watch) -> None:
        self._name = watch.table.folded
        self._lake_number, self._seen, self._table_id = -1, -1, -1

    def is_touched(self, polled: Polled) -> bool:
        """Whether anything was recorded of the table, or of another of its name, since ``note``."""
        if polled.lake_number != self._lake_number or polled.known_since > self._seen:
            return True
        if polled.table_ids.get(self._name, -1) != self._table_id:
            return True
        return any(
            one.object_id == self._table_id
            for snapshot in polled.after(self._seen)
            for one in snapshot.changes
        )

    def note(self, polled: Polled) -> None:
        """Remember that a look showed nothing up to this poll."""
        self._lake_number, self._seen = polled.lake_number, polled.head
        self._table_id = polled.table_ids.get(self._name, -1)
