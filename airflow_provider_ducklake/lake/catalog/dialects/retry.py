"""Start a catalog transaction again when another writer committed first."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy.exc import DBAPIError
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_random_exponential,
)

from airflow_provider_ducklake.lake.catalog.database.connect import driver_error
from airflow_provider_ducklake.lake.errors import CommitRetriesExceededError
from airflow_provider_ducklake.lake.spec.log_lines import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_ducklake.lake.catalog.dialects.dialect import CatalogDialect

log = logger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to fight against others; with a busy SQLite file each attempt may take a minute."""

    max_attempts: int = 30
    longest_wait_seconds: float = 2.0
    longest_seconds: float = 300.0


DEFAULT_RETRY = RetryPolicy()


class _LostRaceError(Exception):
    """Another writer came first; internal, never leaves this module."""

    def __init__(self, error: DBAPIError) -> None:
        super().__init__()
        self.error = error


def with_retries(dialect: CatalogDialect, policy: RetryPolicy, attempt: Callable[[], T]) -> tuple[T, int]:
    """Return what ``attempt``, one whole transaction, returned, and the number of attempts it took.

    Raises:
        CommitRetriesExceededError: every attempt lost the race; nothing landed.
        DBAPIError: any other, also that somebody else held a lock for as long as we wait.
    """
    started = time.monotonic()
    retrying = Retrying(
        retry=retry_if_exception_type(_LostRaceError),
        wait=wait_random_exponential(multiplier=0.01, max=policy.longest_wait_seconds),
        stop=stop_after_attempt(policy.max_attempts) | stop_after_delay(policy.longest_seconds),
        before_sleep=_log_lost_race,
        reraise=True,
    )
    try:
        result = retrying(_once, dialect, attempt, started + dialect.limits.lock_timeout_seconds)
    except _LostRaceError as error:
        attempts = retrying.statistics["attempt_number"]
        if dialect.is_lock_timeout(error.error):
            raise error.error from None
        raise CommitRetriesExceededError(attempts, time.monotonic() - started) from error.__cause__
    return result, retrying.statistics["attempt_number"]


def _once(dialect: CatalogDialect, attempt: Callable[[], T], locks_until: float) -> T:
    try:
        return attempt()
    except DBAPIError as error:
        has_waited = dialect.is_lock_timeout(error) and time.monotonic() >= locks_until
        if dialect.is_lost_race(error) and not has_waited:
            raise _LostRaceError(error) from driver_error(error)
        raise


def _log_lost_race(state: RetryCallState) -> None:
    log.info("Another writer committed first; starting attempt %d", state.attempt_number + 1)
