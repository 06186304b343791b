"""When errors are tried again: by their types, and in a run of a real DAG."""

from datetime import UTC, datetime, timedelta

import pytest
from airflow.sdk import DAG

from airflow_provider_ducklake.hooks import compat
from airflow_provider_ducklake.hooks.retry_policy import DuckLakeRetryPolicy
from airflow_provider_ducklake.lake import errors
from tests.airflow.dags import _scheduler_dag, run_next_try, start_run, sync_dag
from tests.airflow.test_no_retry import FOR_GOOD

pytestmark = pytest.mark.skipif(not compat.RETRY_POLICIES, reason="Airflow before 3.3 has no retry policies")

CONFLICT = errors.TransactionConflictError("append", "dropped it", "sales.orders", 7)
DOWN = errors.CatalogUnavailableError("postgresql://db/lake", "connection refused")
UNKNOWN = errors.CommitStateUnknownError(7, "connection lost")


def decided(error: BaseException, try_number: int = 1):
    return DuckLakeRetryPolicy().evaluate(error, try_number, 5)


@pytest.mark.parametrize(
    "error",
    [
        CONFLICT,
        UNKNOWN,
        errors.CommitRetriesExceededError(10, 4.0),
        errors.CatalogMigratedError("1.0", "1.1"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_others_came_before_is_tried_again_at_once(error):
    for try_number in (1, 5):
        decision = decided(error, try_number)
        assert (decision.action.value, str(error) in decision.reason) == ("retry", True)
        assert timedelta(0) <= decision.retry_delay <= timedelta(seconds=5)


def test_tasks_that_met_do_not_meet_again():
    assert len({decided(CONFLICT).retry_delay for _ in range(20)}) > 1
    assert decided(UNKNOWN).retry_delay == timedelta(0)


@pytest.mark.parametrize(
    "error",
    [
        DOWN,
        errors.CatalogRefusedError("postgresql://db/lake", "disk full", "INSERT INTO t"),
        errors.StorageError("/data/files is not writable"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_down_is_given_time(error):
    waits = [decided(error, try_number).retry_delay.total_seconds() for try_number in (1, 3, 12, 5000)]
    for wait, longest in zip(waits, (10, 40, 600, 600), strict=True):
        assert longest / 2 <= wait <= longest


@pytest.mark.parametrize("error", FOR_GOOD, ids=lambda error: type(error).__name__)
def test_what_no_retry_cures_fails_for_good(error):
    assert decided(error).action.value == "fail"


@pytest.mark.parametrize("error", [errors.SparkJobError("exit code 1"), OSError("disk full"), KeyError("x")])
def test_all_else_is_the_tasks_own_business(error):
    assert (decided(error).action.value, decided(error).retry_delay) == ("default", None)


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize(
    ("error", "state"),
    [(CONFLICT, "up_for_retry"), (DOWN, "up_for_retry"), (errors.TableNotFoundError("t", 7), "failed")],
    ids=lambda one: one if isinstance(one, str) else type(one).__name__,
)
def test_it_decides_in_a_dag_run_by_default_args(error, state):
    arguments = {"retries": 3, "retry_policy": DuckLakeRetryPolicy(), "retry_delay": timedelta(days=1)}
    start = datetime(2024, 1, 1, tzinfo=UTC)
    with DAG(f"meets_{type(error).__name__}", start_date=start, schedule=None, default_args=arguments) as dag:

        @dag.task
        def fail() -> None:
            raise error

        fail()

    assert _scheduler_dag(dag).get_task("fail").retries == 3
    run = start_run(sync_dag(dag))

    assert run_next_try(run, dag.task_dict["fail"]) == state
