"""When a task that failed on a lake is tried again, for Airflow 3.3 and later."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..lake import errors
from .compat import RetryDecision, RetryPolicy
from .task import explained, is_incurable

if TYPE_CHECKING:
    from airflow.sdk import Context

_LOST = (
    errors.TransactionConflictError,
    errors.CommitRetriesExceededError,
    errors.FilesReleasedError,
    errors.CatalogMigratedError,
)
_SOON = 5.0  # seconds: so that tasks that met do not meet again
_FIRST_WAIT, _LONGEST_WAIT = 10.0, 600.0  # seconds


class DuckLakeRetryPolicy(RetryPolicy):
    """Retry conflicts at once, outages with a delay, and permanent errors never.

    Made for ``default_args={"retries": 5, "retry_policy": DuckLakeRetryPolicy()}``: of other errors it leaves
    the decision to the task's own ``retry_delay``. The number of retries is always the task's ``retries``.

    - A conflict, a lost race, a concurrent migration: within 5 seconds; the retry plans again.
    - ``CommitStateUnknownError``: at once; the retry finds out whether it was committed.
    - A catalog, a store or a cluster that cannot be reached, refuses, or is locked for long: after 10
      seconds, 20, 40, … at most 10 minutes.
    - Bad input, something that does not exist, a lake that cannot be used: never.
    """

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,
        max_tries: int,  # noqa: ARG002 - Airflow's
        context: Context | None = None,  # noqa: ARG002 - as well
    ) -> RetryDecision:
        """Decide by the type of the error."""
        reason = explained(exception)
        if isinstance(exception, errors.CommitStateUnknownError):
            return RetryDecision.retry(timedelta(0), reason)
        if isinstance(exception, _LOST):
            return RetryDecision.retry(_drawn(0.0, _SOON), reason)
        if isinstance(exception, errors.OUTAGES):
            wait = min(_FIRST_WAIT * 2.0 ** (min(try_number, 20) - 1), _LONGEST_WAIT)
            return RetryDecision.retry(_drawn(wait / 2, wait), reason)
        if is_incurable(exception):
            return RetryDecision.fail(reason)
        return RetryDecision.default()

    def serialize(self) -> dict[str, Any]:
        """Serialize the policy: it has no settings."""
        return {}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> DuckLakeRetryPolicy:  # noqa: ARG003 - nothing is in it
        """Return one."""
        return cls()


def _drawn(low: float, high: float) -> timedelta:
    return timedelta(seconds=random.uniform(low, high))
