"""Which errors end a task for good, by type, never by text; and who logs what its verbs say."""

import logging

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ducklake.hooks.task import no_retry_on_user_errors, verbs_logged_by
from airflow_provider_ducklake.lake import errors

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
