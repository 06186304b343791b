"""Wait in the triggerer for the application of a job in cluster mode."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from airflow.triggers.base import BaseTrigger, TriggerEvent

from ..hooks.clusters import Application, ApplicationState, ClusterManager, as_arguments, from_arguments
from ..hooks.task import LogsInLines
from ..lake.errors import ClusterUnavailableError
from .watcher import in_own_thread

if TYPE_CHECKING:
    from ..lake.catalog.ledger.jobs import SubmittedJob

_POLL_INTERVAL = 10.0  # seconds
_LONGEST_WAIT = 60.0  # seconds between two tries while a manager cannot be asked
_JITTER = 0.1  # of an interval


class SparkApplicationTrigger(LogsInLines, BaseTrigger):
    """Wait until an application has ended; the one event says how: ``{"application": …, "state": …}``.

    A manager that cannot be asked is waited for. If a person ends the deferred task (Airflow 3.3), the
    application is stopped, and what it wrote is removed.

    :param manager: the manager to ask, as ``hooks/clusters.py`` makes it; nothing in it is secret.
    :param application: what the manager calls the application.
    :param job_id: the job that it runs.
    :param ducklake_conn_id: the connection of the lake that it writes to.
    :param poll_interval: seconds between two questions.
    """

    def __init__(
        self,
        *,
        manager: Mapping[str, Any],
        application: str,
        job_id: str,
        ducklake_conn_id: str,
        poll_interval: float = _POLL_INTERVAL,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.manager = dict(manager)
        self.application = application
        self.job_id = job_id
        self.ducklake_conn_id = ducklake_conn_id
        self.poll_interval = poll_interval

    @classmethod
    def of(
        cls, manager: ClusterManager, job: SubmittedJob, ducklake_conn_id: str, poll_interval: float
    ) -> Self:
        """Return the trigger for a job that was submitted."""
        return cls(
            manager=as_arguments(manager),
            application=job.application or "",
            job_id=job.job_id,
            ducklake_conn_id=ducklake_conn_id,
            poll_interval=poll_interval,
        )

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments."""
        cls = type(self)
        return f"{cls.__module__}.{cls.__qualname__}", {
            "manager": self.manager,
            "application": self.application,
            "job_id": self.job_id,
            "ducklake_conn_id": self.ducklake_conn_id,
            "poll_interval": self.poll_interval,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the one event."""
        manager, failures = from_arguments(self.manager), 0
        while True:
            try:
                found = await in_own_thread(manager.status, self.application)
            except ClusterUnavailableError as error:
                if failures == 0:
                    self.log.warning("%s", error)
                failures += 1
            else:
                if failures:
                    self.log.info("%s answers again", manager.name)
                failures = 0
                if found.has_ended:
                    yield TriggerEvent(self._event(found))
                    return
            wait = min(self.poll_interval * 2.0 ** min(failures, 10), max(_LONGEST_WAIT, self.poll_interval))
            await asyncio.sleep(wait * random.uniform(1 - _JITTER, 1 + _JITTER))

    def _event(self, found: Application) -> dict[str, Any]:
        return {
            "application": self.application,
            "state": ApplicationState(found.state).value,
            "diagnostics": found.diagnostics,
        }

    async def on_kill(self) -> None:
        """Stop the application and remove what it wrote: a person has ended the task."""
        await in_own_thread(self._stop)

    def _stop(self) -> None:
        from ..hooks.ducklake import DuckLakeHook
        from ..lake.writes.resume import remove

        found = from_arguments(self.manager).stop(self.application)
        self.log.info("%s was stopped: it is %s", self.application, found.state)
        with DuckLakeHook(self.ducklake_conn_id) as hook:
            job = hook.lake().jobs.submitted(self.job_id)
            if job is not None:
                remove(hook.lake(), job)
