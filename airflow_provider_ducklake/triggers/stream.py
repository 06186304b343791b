"""The polls of a lake as the stream that its watchers share, on Airflow 3.3."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_ducklake.hooks.compat import SharedStreamProducer
from airflow_provider_ducklake.triggers.poller import LakePoller

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from airflow_provider_ducklake.hooks.compat import AdvanceItem
    from airflow_provider_ducklake.triggers.poller import Polled


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
        """Have watchers forget their events of these polls, unless one of them may not have been stored."""
        for item in batch:
            if item.outcome.failed == 0:
                for stored in item.broker_payload.when_stored:
                    await stored()
