"""The storage options of a Spark job's lake, which the job's process was started with.

A job's request is a file and its arguments are seen by every user of the machine, so what opens the lake's
store comes by the environment, which only the same user can read. The variable's name has Spark and Airflow
hide its value wherever they show settings.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VARIABLE = "DUCKLAKE_STORAGE_SECRETS"
_of_tasks: list[dict[str, Any]] = []  # at most one: a process of Spark's runs one task at a time


def as_environment(storage_options: Mapping[str, Any]) -> dict[str, str]:
    """Return the variable that hands options to a process; nothing where there are none.

    >>> as_environment({"key": "id"}), as_environment({})
    ({'DUCKLAKE_STORAGE_SECRETS': '{"key": "id"}'}, {})
    """
    return {VARIABLE: json.dumps(dict(storage_options))} if storage_options else {}


def process_options() -> dict[str, Any]:
    """Return the options that this process, or the task in it, was started with; empty where none were."""
    if _of_tasks:
        return dict(_of_tasks[-1])
    options: dict[str, Any] = json.loads(os.environ.get(VARIABLE, "{}"))
    return options


@contextmanager
def options_of_task(options: Mapping[str, Any]) -> Iterator[None]:
    """Have the process know options as long as a task of Spark Connect runs: it outlives the session."""
    _of_tasks.append(dict(options))
    try:
        yield
    finally:
        _of_tasks.clear()
