"""Loggers whose records no name, path or value of a catalog can break into several lines."""

from __future__ import annotations

import logging

from airflow_provider_ducklake.lake.errors import DuckLakeError, short_line


def logger(name: str) -> logging.Logger:
    """Return a module's logger: values in its records end no line and have no control characters."""
    found = logging.getLogger(name)
    found.addFilter(_in_lines)  # once, however often: it is the same function
    return found


def in_line(value: object) -> object:
    r"""Return a value as a record shows it; an error of ours has no line that begins like a record.

    >>> in_line("a/x\nERROR"), in_line(3)
    ('a/x\\nERROR', 3)
    """
    if value is None or isinstance(value, (int, float, DuckLakeError)):
        return value
    text = str(value)
    line = short_line(text)
    return value if line == text else line


def _in_lines(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(map(in_line, record.args))
    return True
