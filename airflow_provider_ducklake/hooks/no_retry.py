"""Fail a task at once on errors that no retry can fix."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_ducklake.errors import (
    AlreadyExistsError,
    CatalogError,
    CatalogRefusedError,
    CatalogUnavailableError,
    InvalidInputError,
    NotFoundError,
    UnsupportedFeatureError,
    UntrustedValueError,
    ZombieCommitError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_INCURABLE = (
    InvalidInputError,
    NotFoundError,
    AlreadyExistsError,
    CatalogError,
    UnsupportedFeatureError,
    UntrustedValueError,
    ZombieCommitError,
)


@contextmanager
def no_retry_on_user_errors() -> Iterator[None]:
    """Fail the task for good, also as a decorator, on an error that the next try would meet again.

    Everything else propagates as it is: Airflow then retries as the task's author asked.

    Raises:
        AirflowFailException: for bad input, something that does not exist or does already, a catalog we
            cannot work on, a feature that is not supported, a document that
            names what it may not, or a task that was cleared and done again.
    """
    try:
        yield
    except (CatalogUnavailableError, CatalogRefusedError):
        raise
    except _INCURABLE as error:
        where = getattr(error, "__notes__", ())  # which statement, say
        raise AirflowFailException(": ".join([type(error).__name__, *where, str(error)])) from error
