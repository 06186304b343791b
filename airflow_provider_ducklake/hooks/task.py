"""What a task tells Airflow of the library: errors that no retry can cure, and the lines that verbs log.

Airflow shows the lines of an operator's own logger wherever it runs, and not those of other loggers.
"""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_ducklake.lake.errors import (
    AlreadyExistsError,
    CatalogError,
    CatalogMigratedError,
    CatalogRefusedError,
    CatalogUnavailableError,
    DuckLakeError,
    InvalidInputError,
    LockTimeoutError,
    NotFoundError,
    UnsupportedFeatureError,
    UntrustedValueError,
    ZombieCommitError,
)
from airflow_provider_ducklake.lake.spec.log_lines import in_line

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Done:
    """What a try of a task did, for those who ask when it has ended.

    Which snapshots it made and read, and where the pages of its Spark application are.
    """

    snapshot_ids: tuple[int, ...] = ()
    read_at: int | None = None
    application_url: str | None = None


_INCURABLE = (
    InvalidInputError,
    NotFoundError,
    AlreadyExistsError,
    CatalogError,
    UnsupportedFeatureError,
    UntrustedValueError,
    ZombieCommitError,
)


_PAGE_WIDTH = 100  # characters
_TASK = logging.getLogger("airflow.task")
_CURABLE = (CatalogUnavailableError, LockTimeoutError, CatalogRefusedError, CatalogMigratedError)


def is_incurable(error: BaseException) -> bool:
    """Whether the next try would meet an error again: what a person gave or left is wrong."""
    return isinstance(error, _INCURABLE) and not isinstance(error, _CURABLE)


def explained(error: BaseException) -> str:
    """Return an error's type, its notes (which statement, say) and its text."""
    return ": ".join([type(error).__name__, *getattr(error, "__notes__", ()), str(error)])


@contextmanager
def no_retry_on_user_errors() -> Iterator[None]:
    """Fail the task for good, also as a decorator, on an error that the next try would meet again.

    Everything else propagates as it is: Airflow then retries as the task's author asked. What an error of
    ours says is a line of the log, before the trace in which it would be hard to find.

    Raises:
        AirflowFailException: for bad input, something that does not exist or does already, a catalog we
            cannot work on, a feature that is not supported, a document that
            names what it may not, or a task that was cleared and done again.
    """
    try:
        yield
    except DuckLakeError as error:
        _TASK.error("%s", _in_sight(explained(error)))
        if not is_incurable(error):
            raise
        _TASK.debug("Where it was found", exc_info=error)
        raise AirflowFailException(explained(error)) from None  # a person's mistake has no use for our frames


def _in_sight(text: str) -> str:
    """Return a text in lines that Airflow's page shows to their ends in a window of 1400 pixels.

    All but the first begin with spaces: none can be taken for a record, whatever a value holds.
    """
    lines = [
        part
        for line in text.splitlines()
        for part in wrap(line.strip(), _PAGE_WIDTH, break_long_words=False, break_on_hyphens=False)
    ]
    return "\n  ".join(lines)


class TaskLog:
    """Airflow's logger of an operator, a hook or a trigger, whose records values do not break into lines."""

    def __init__(self, log: Any) -> None:  # noqa: ANN401 - Airflow's logger
        self._log = log

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - Airflow's logger
        method = getattr(self._log, name)
        if name not in _LEVELS:
            return method
        return lambda message, *values, **given: method(message, *map(in_line, values), **given)


class LogsInLines:
    """Of operators, hooks, sensors and triggers, before Airflow's base class: no value breaks a line."""

    @property
    def log(self) -> Any:  # noqa: ANN401 - Airflow's logger
        """Airflow's logger, with each value on one line."""
        return TaskLog(super().log)  # type: ignore[misc] # Airflow's base class has it


class ShownByName:
    """Of operators and sensors, before Airflow's base class: its pages say "DuckLake insert" of them."""

    custom_operator_name: str

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        name = re.fullmatch(r"DuckLake(?:Spark)?(.*?)(?:Operator)?", cls.__name__)
        if name is not None:  # else it is a user's own, and named as the one that it extends
            words = (one if one.isupper() else one.lower() for one in _WORD.findall(name[1]))
            cls.custom_operator_name = " ".join(["DuckLake", *words])


_WORD = re.compile("[A-Z]+(?![a-z])|[A-Z][a-z]+")
_LEVELS = ("debug", "info", "warning", "error", "exception", "critical")
_VERBS = logging.getLogger("airflow_provider_ducklake.lake.writes")


class _OfTask(logging.Handler):
    def __init__(self, log: Any) -> None:  # noqa: ANN401 - Airflow's logger
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.log(record.levelno, record.getMessage())


@contextmanager
def verbs_logged_by(log: Any) -> Iterator[None]:  # noqa: ANN401 - Airflow's logger
    """Have a task's logger say what verbs say, as long as this lasts."""
    handler = _OfTask(log)
    before = _VERBS.level, _VERBS.propagate
    _VERBS.addHandler(handler)
    _VERBS.setLevel(logging.INFO)
    _VERBS.propagate = False
    try:
        yield
    finally:
        _VERBS.removeHandler(handler)
        _VERBS.setLevel(before[0])
        _VERBS.propagate = before[1]
