"""Which errors end a task for good, or are tried again when: by type, never by text."""

import logging
from datetime import timedelta

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.hooks import compat
from airflow_provider_ducklake.hooks.retry_policy import DuckLakeRetryPolicy
from airflow_provider_ducklake.hooks.task import no_retry_on_user_errors, verbs_logged_by
from airflow_provider_ducklake.lake import errors
from tests.airflow.dags import _scheduler_dag, new_dag, run_next_try, start_run, sync_dag

FOR_GOOD = [
    errors.InvalidInputError("no such word"),
    errors.InvalidOptionError("no port"),
    errors.UnsupportedVersionError("0.2", ["1.0"]),
    errors.NotADuckLakeError("sqlite:////data/other.sqlite"),
    errors.TableNotFoundError("sales.orders", 7),
    errors.SnapshotNotFoundError("version 9", 1, 3),
    errors.UnsupportedFeatureError("encrypted"),
    errors.ZombieCommitError(1, 2, 7),
]
WORTH_ANOTHER_TRY = [
    errors.CatalogMigratedError("1.0", "1.1"),
    errors.CatalogUnavailableError("postgresql://db/lake", "connection refused"),
    errors.LockTimeoutError("postgresql://db/lake", 300.0, "the session 4711"),
    errors.CatalogRefusedError("postgresql://db/lake", "disk full", "INSERT INTO t"),
    errors.TransactionConflictError("append", "dropped it", "sales.orders", 7),
    errors.CommitRetriesExceededError(10, 4.0),
    errors.CommitStateUnknownError(7, "connection lost"),
    errors.StorageError("/data/files is not writable"),
    errors.SparkJobError("exit code 1"),
    OSError("disk full"),
]


@pytest.mark.parametrize("error", FOR_GOOD, ids=lambda error: type(error).__name__)
def test_an_error_that_comes_again_fails_the_task_without_retry(error, caplog):
    @no_retry_on_user_errors()
    def execute() -> None:
        raise error

    with pytest.raises(AirflowFailException) as raised:
        execute()

    assert str(raised.value) == f"{type(error).__name__}: {error}"
    assert (raised.value.__cause__, raised.value.__suppress_context__) == (None, True)
    (record,) = caplog.records  # before the trace, in which the sentence is hard to find
    assert (record.name, record.levelname) == ("airflow.task", "ERROR")
    assert " ".join(record.getMessage().split()) == " ".join(str(raised.value).split())


def test_what_an_error_says_is_in_lines_that_a_page_shows_and_none_looks_like_a_record(caplog):
    forged = "[2026-11-27T10:00:00] {taskinstance.py:1} ERROR - Rows lost"
    error = errors.InvalidInputError(f"{'filler ' * 15} {forged} {'filler ' * 15}\n- one\n- {forged}")

    with pytest.raises(AirflowFailException), no_retry_on_user_errors():
        raise error

    first, *others = caplog.records[0].getMessage().splitlines()
    assert first.startswith("InvalidInputError: filler")
    assert len(others) >= 3
    assert all(line.startswith("  ") and len(line) <= 102 for line in others)
    assert max(map(len, others)) > 80


def test_notes_say_where_in_front_of_the_error():
    error = errors.AlreadyExistsError("table", "main.t")
    error.add_note("Statement 3 (CREATE TABLE t (a INT))")

    with pytest.raises(AirflowFailException) as raised, no_retry_on_user_errors():
        raise error

    assert str(raised.value) == f"AlreadyExistsError: Statement 3 (CREATE TABLE t (a INT)): {error}"


@pytest.mark.parametrize("error", WORTH_ANOTHER_TRY, ids=lambda error: type(error).__name__)
def test_any_other_error_is_left_to_the_tasks_retries(error):
    with pytest.raises(type(error)) as raised, no_retry_on_user_errors():
        raise error

    assert raised.value is error


def test_verbs_are_logged_by_their_task_as_long_as_it_runs(caplog):
    verbs = logging.getLogger("airflow_provider_ducklake.lake.writes.run")
    tasks = [logging.getLogger("one"), logging.getLogger("two")]
    with caplog.at_level(logging.INFO):
        for task in tasks:
            with verbs_logged_by(task):
                verbs.info("Committed by %s", task.name)
        verbs.warning("Committed by nobody")

    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("one", "Committed by one"),
        ("two", "Committed by two"),
        (verbs.name, "Committed by nobody"),
    ]


# --- when errors are tried again ---


HAS_POLICIES = pytest.mark.skipif(
    not compat.RETRY_POLICIES, reason="Airflow before 3.3 has no retry policies"
)
CONFLICT = errors.TransactionConflictError("append", "dropped it", "sales.orders", 7)
DOWN = errors.CatalogUnavailableError("postgresql://db/lake", "connection refused")
UNKNOWN = errors.CommitStateUnknownError(7, "connection lost")


def decided(error: BaseException, try_number: int = 1):
    return DuckLakeRetryPolicy().evaluate(error, try_number, 5)


TAKEN = [
    CONFLICT,
    UNKNOWN,
    errors.CommitRetriesExceededError(10, 4.0),
    errors.CatalogMigratedError("1.0", "1.1"),
]


@HAS_POLICIES
@pytest.mark.parametrize("error", TAKEN, ids=lambda error: type(error).__name__)
def test_what_others_came_before_is_tried_again_at_once(error):
    for try_number in (1, 5):
        decision = decided(error, try_number)
        assert (decision.action.value, str(error) in decision.reason) == ("retry", True)
        assert timedelta(0) <= decision.retry_delay <= timedelta(seconds=5)


@HAS_POLICIES
def test_tasks_that_met_do_not_meet_again():
    assert len({decided(CONFLICT).retry_delay for _ in range(20)}) > 1
    assert decided(UNKNOWN).retry_delay == timedelta(0)


@HAS_POLICIES
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


@HAS_POLICIES
@pytest.mark.parametrize("error", FOR_GOOD, ids=lambda error: type(error).__name__)
def test_what_no_retry_cures_fails_for_good(error):
    assert decided(error).action.value == "fail"


@HAS_POLICIES
@pytest.mark.parametrize("error", [errors.SparkJobError("exit code 1"), OSError("disk full"), KeyError("x")])
def test_all_else_is_the_tasks_own_business(error):
    assert (decided(error).action.value, decided(error).retry_delay) == ("default", None)


@HAS_POLICIES
@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize(
    ("error", "state"),
    [(CONFLICT, "up_for_retry"), (DOWN, "up_for_retry"), (errors.TableNotFoundError("t", 7), "failed")],
    ids=lambda one: one if isinstance(one, str) else type(one).__name__,
)
def test_it_decides_in_a_dag_run_by_default_args(error, state):
    arguments = {"retries": 3, "retry_policy": DuckLakeRetryPolicy(), "retry_delay": timedelta(days=1)}
    with new_dag(f"meets_{type(error).__name__}", default_args=arguments) as dag:

        @dag.task
        def fail() -> None:
            raise error

        fail()

    assert _scheduler_dag(dag).get_task("fail").retries == 3
    run = start_run(sync_dag(dag))

    assert run_next_try(run, dag.task_dict["fail"]) == state
