"""Running DAGs in this process, as `dag.test()` and a worker do."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

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
from sqlalchemy import func, select

from tests.airflow.any_version import DagBag, DagSerialization, SerializedDAG

_BUNDLE = "testing"


class FakeTaskInstance:
    """What an operator asks of a task instance, for calls without a DAG run: always a first try."""

    dag_id, run_id, map_index, try_number, max_tries = "dag", "run", -1, 1, 0
    log_url = "http://localhost:8080/dags/dag"

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        self.id = uuid4()


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
