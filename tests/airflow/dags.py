"""Running DAGs in this process, as `dag.test()` and a worker do, and what may happen around a commit.

What is taken from Airflow's inside has the names here that the installed version has for it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import airflow
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun, get_or_create_dagrun
from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import clear_task_instances
from airflow.models.taskreschedule import TaskReschedule
from airflow.models.xcom import XComModel
from airflow.sdk import DAG
from airflow.sdk.definitions.dag import _run_task
from airflow.serialization.serialized_objects import LazyDeserializedDAG
from airflow.utils.session import create_session
from airflow.utils.types import DagRunTriggeredByType
from sqlalchemy import event, func, select

from airflow_provider_ducklake.lake.catalog.lake import Lake

try:
    from airflow.dag_processing.dagbag import DagBag
except ImportError:  # Airflow 3.1
    from airflow.models.dagbag import DagBag
try:
    from airflow.serialization.serialized_objects import DagSerialization
except ImportError:  # Airflow 3.1
    from airflow.serialization.serialized_objects import SerializedDAG as DagSerialization  # type: ignore[attr-defined]
try:
    from airflow.serialization.definitions.dag import SerializedDAG
except ImportError:  # Airflow 3.1
    from airflow.serialization.serialized_objects import SerializedDAG  # type: ignore[attr-defined]

# In a whole DAG run in one process, 3.1 takes the time of a sensor's first look for a string.
CAN_RESCHEDULE_IN_PROCESS = not airflow.__version__.startswith("3.1.")
# 3.1 takes the user out of an asset's URI, with a warning, before the provider sees it.
DROPS_USERS = airflow.__version__.startswith("3.1.")

__all__ = ["DagBag", "DagSerialization"]

START = datetime(2026, 1, 1, tzinfo=UTC)
_BUNDLE = "testing"
_NUMBERS = count()


class FakeTaskInstance:
    """What an operator asks of a task instance, for calls without a DAG run.

    `generation` is the first try since the task was last cleared.
    """

    dag_id, run_id, map_index = "dag", "run", -1
    log_url = "http://localhost:8080/dags/dag"

    def __init__(self, task_id: str, try_number: int = 1, generation: int = 1) -> None:
        self.task_id, self.try_number, self.max_tries = task_id, try_number, generation - 1
        self.id = uuid4()


def context_of(task_id: str, try_number: int = 1, generation: int = 1) -> Any:
    """Return the context of a task's try, for calls without a DAG run."""
    return {"ti": FakeTaskInstance(task_id, try_number, generation), "logical_date": None}


def new_dag(dag_id: str, **arguments: Any) -> DAG:
    return DAG(dag_id, start_date=START, schedule=None, **arguments)


def make_task(kind: type, dag_id: str | None = None, **arguments: Any) -> Any:
    """Make the only task of a DAG, whose two retries come at once."""
    # Airflow keeps versions of a DAG whose tasks change
    with new_dag(dag_id or f"dag_{next(_NUMBERS)}") as dag:
        task = kind(retries=2, retry_delay=timedelta(0), **arguments)
    sync_dag(dag)
    return task


def sync_dag(dag: DAG) -> DAG:
    """Register a DAG made in a test, without which Airflow 3 runs nothing of it."""
    with create_session() as session:
        session.merge(DagBundleModel(name=_BUNDLE))
    lazy = LazyDeserializedDAG.from_dag(dag)
    SerializedDAG.bulk_write_to_db(_BUNDLE, None, [lazy])
    SerializedDagModel.write_dag(lazy, bundle_name=_BUNDLE)
    return dag


def parse(file: Path) -> DAG:
    """Read the only DAG of a file anew, as a worker does for each task it starts."""
    bag = DagBag(str(file))
    assert not bag.import_errors, bag.import_errors
    (dag,) = bag.dags.values()
    return dag


def succeeded(dag: DAG, **arguments: Any) -> DagRun:
    """Run a DAG as a whole, to its success."""
    run = sync_dag(dag).test(**arguments)
    assert run.state == "success"
    return run


def _scheduler_dag(dag: DAG) -> SerializedDAG:
    return DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))


def start_run(dag: DAG, start_date: datetime | None = None, run_id: str | None = None) -> DagRun:
    """Create a run of a synced DAG without running anything of it."""
    now = datetime.now(UTC)
    with create_session() as session:
        return get_or_create_dagrun(
            dag=_scheduler_dag(dag),
            run_id=run_id or f"manual__{now.isoformat()}",
            logical_date=now,
            data_interval=(now, now),
            run_after=now,
            conf=None,
            triggered_by=DagRunTriggeredByType.TEST,
            triggering_user_name="test",
            start_date=start_date or now,
            session=session,
        )


def run_once(run: DagRun, task: Any) -> str:
    """Run a task of a run once, with this operator object, and return the task's state."""
    with create_session() as session:
        ti = run.get_task_instance(task.task_id, session=session)
        if ti.state is None:
            ti.try_number += 1
        _run_task(ti=ti, task=task)
    return state_of(run, task.task_id)


def run_next_try(run: DagRun, task: Any, map_index: int = -1) -> str:
    """Run a task once more as the scheduler would, which counts its tries; return the task's state."""
    with create_session() as session:
        ti = run.get_task_instance(task.task_id, session=session, map_index=map_index)
        ti.task = _scheduler_dag(task.dag).get_task(task.task_id)
        run.schedule_tis([ti], session=session)
        session.commit()
        ti.refresh_from_db(session=session)
        _run_task(ti=ti, task=task)
    with create_session() as session:
        return str(run.get_task_instance(task.task_id, session=session, map_index=map_index).state)


def tried(task: Any, *states: str) -> DagRun:
    """Create a run of a task's DAG and the task's first tries, which end so; return the run."""
    run = start_run(task.dag)
    assert [run_next_try(run, task) for _ in states] == list(states)
    return run


def clear(run: DagRun, task_id: str, map_index: int = -1) -> None:
    """Clear a task as a person does in the UI."""
    with create_session() as session:
        ti = run.get_task_instance(task_id, session=session, map_index=map_index)
        clear_task_instances([ti], session)


def delete_run(run: DagRun) -> None:
    """Delete a run and all that Airflow knows of it."""
    with create_session() as session:
        session.delete(session.get(DagRun, run.id))


def state_of(run: DagRun, task_id: str) -> str:
    with create_session() as session:
        return str(run.get_task_instance(task_id, session=session).state)


def reschedule_count(run: DagRun, task_id: str) -> int:
    """Return how often the task gave its slot back, as Airflow recorded it."""
    with create_session() as session:
        ti = run.get_task_instance(task_id, session=session)
        return session.scalar(select(func.count()).where(TaskReschedule.ti_id == ti.id))


def xcom(run: DagRun, task_id: str, key: str = "return_value") -> Any:
    """Return what a task of a run handed on."""
    with create_session() as session:
        row = session.scalar(
            select(XComModel).where(
                XComModel.dag_id == run.dag_id,
                XComModel.run_id == run.run_id,
                XComModel.task_id == task_id,
                XComModel.key == key,
            )
        )
        return None if row is None else XComModel.deserialize_value(row)


def mapped_xcoms(run: DagRun, task_id: str) -> list[Any]:
    """Return what each mapped instance of a task returned, in order."""
    with create_session() as session:
        rows = session.scalars(
            select(XComModel)
            .where(XComModel.dag_id == run.dag_id, XComModel.run_id == run.run_id)
            .where(XComModel.task_id == task_id, XComModel.key == "return_value")
            .order_by(XComModel.map_index)
        )
        return [XComModel.deserialize_value(row) for row in rows]


def rendered_fields(run: DagRun, task_id: str) -> dict[str, Any]:
    """Return a task's template fields as the UI shows them."""
    with create_session() as session:
        ti = run.get_task_instance(task_id, session=session)
        return RenderedTaskInstanceFields.get_templated_fields(ti, session=session) or {}


# --- what may happen to a task around its commit ---


class WorkerDiedError(Exception):
    """A worker that dies raises nothing; for Airflow it comes to the same."""


def dies_once(kind: type) -> type:
    """Return an operator whose worker dies when its first try is done."""

    class DiesOnce(kind):  # type: ignore[misc]
        def execute(self, context: Any) -> Any:
            result = super().execute(context)
            if context["ti"].try_number == 1:
                raise WorkerDiedError
            return result

    return DiesOnce


@contextmanager
def dies_after_commit(_lake: Lake) -> Iterator[None]:
    yield
    raise WorkerDiedError


@contextmanager
def dies_before_commit(_lake: Lake) -> Iterator[None]:
    raise WorkerDiedError
    yield


@contextmanager
def loses_the_answer(lake: Lake) -> Iterator[None]:
    """COMMIT lands and its answer is lost."""

    def act(connection: Any) -> None:
        connection.connection.driver_connection.commit()
        raise ConnectionResetError

    engine = lake.opened.catalog.dialect.engine
    event.listen(engine, "commit", act)
    try:
        yield
    finally:
        event.remove(engine, "commit", act)


class UnluckyCommits:
    """Comes before an operator's class: what happens around its commits, one after the other."""

    events: list[Callable[[Lake], Any]]

    def run(self, lake: Lake, *arguments: Any) -> Any:
        return super().run(UnluckyLake(lake, self.events), *arguments)  # type: ignore[misc]


class UnluckyLake:
    """A lake around whose commits something happens."""

    def __init__(self, lake: Lake, events: list[Callable[[Lake], Any]]) -> None:
        self._real, self._events = lake, events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    @property
    def committer(self) -> Any:
        return self

    def commit_change_sets(self, *arguments: Any, **named: Any) -> Any:
        around = self._events.pop(0) if self._events else nullcontext
        with around(self._real):
            return self._real.committer.commit_change_sets(*arguments, **named)
