"""What verbs log, as lines of the task: Airflow shows those of an operator's own logger wherever it runs."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_VERBS = logging.getLogger("airflow_provider_ducklake.writes")


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
