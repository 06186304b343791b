"""What others do to a run while it is tested: people, the scheduler, the triggerer, watchers."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pkgutil import resolve_name
from typing import Any

from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.api_fastapi.core_api.datamodels.hitl import UpdateHITLDetailPayload
from airflow.api_fastapi.core_api.routes.public.hitl import update_hitl_detail
from airflow.models.asset import AssetEvent, AssetModel
from airflow.models.dagrun import DagRun
from airflow.models.deadline import Deadline
from airflow.models.hitl import HITLDetail
from airflow.sdk import DAG, Asset
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_provider_ducklake.triggers.snapshot import DuckLakeSnapshotTrigger


@contextmanager
def answered(option: str) -> Iterator[list[str]]:
    """Answer the one question that a run asks meanwhile, as the UI does; yield what was shown."""
    shown: list[str] = []
    ended = threading.Event()

    def answer() -> None:
        while not ended.wait(0.2) and not shown:
            with create_session() as session:
                asked = session.scalar(select(HITLDetail).where(HITLDetail.responded_at.is_(None)))
                if asked is None or asked.task_instance.state != "awaiting_input":
                    continue
                ti = asked.task_instance
                update_hitl_detail(
                    ti.dag_id,
                    ti.run_id,
                    ti.task_id,
                    UpdateHITLDetailPayload(chosen_options=[option]),
                    SimpleAuthManagerUser(username="auditor", role="op"),
                    session,
                )
                shown.append(str(asked.body))

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield shown
    finally:
        ended.set()
        thread.join()


def miss_deadlines(run: DagRun) -> list[tuple[datetime, str]]:
    """Let a run miss its deadlines; return their times and what is called returned."""
    with create_session() as session:
        deadlines = list(session.scalars(select(Deadline).where(Deadline.dagrun_id == run.id)))
        for one in deadlines:
            one.handle_miss(session)
        triggers = [one.callback.trigger for one in deadlines]
        calls = [resolve_name(one.classpath)(**one.kwargs) for one in triggers]
        times = [one.deadline_time for one in deadlines]
    return [(time, asyncio.run(_called(call))) for time, call in zip(times, calls, strict=True)]


async def _called(trigger: Any) -> str:
    events = [event.payload async for event in trigger.run()]
    assert [str(one["state"]) for one in events] == ["running", "success"], events
    return str(events[-1]["body"])


def watched(dag: DAG, since: int) -> list[dict[str, Any]]:
    """Return the next event of the watcher of a DAG's asset, as the triggerer gets it."""
    (watcher,) = asset_of(dag).watchers
    arguments = {**watcher.trigger.serialize()[1], "since": since, "poll_interval": 0.05}

    async def first() -> list[dict[str, Any]]:
        async for event in DuckLakeSnapshotTrigger(**arguments).run():
            return [dict(event.payload)]
        return []

    return asyncio.run(first())


def asset_of(dag: DAG) -> Asset:
    """Return the one asset by which a DAG is scheduled."""
    (asset,) = dag.timetable.asset_condition.objects
    return asset


def consumes(run: DagRun, dag: DAG, *extras: Mapping[str, Any]) -> None:
    """Let events of the asset by which a DAG is scheduled be what started its run."""
    with create_session() as session:
        model = session.scalar(select(AssetModel).where(AssetModel.uri == asset_of(dag).uri))
        events = [AssetEvent(asset_id=model.id, extra=dict(extra)) for extra in extras]
        stored = session.get(DagRun, run.id)
        stored.consumed_asset_events.extend(events)


def of_partition(run: DagRun, key: str) -> None:
    """Make a run that of a partition."""
    with create_session() as session:
        stored = session.get(DagRun, run.id)
        stored.partition_key = key
