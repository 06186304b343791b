"""Errors on their way from a task to the operator: our own classes, found again in Spark's texts."""

from __future__ import annotations

import re

from pyspark.errors import AnalysisException

from airflow_provider_ducklake import errors
from airflow_provider_ducklake.errors import DuckLakeError, InvalidInputError, SparkJobError
from airflow_provider_ducklake.spark.sources import message_of

_MARKED = re.compile(r"<<(\w+)\|(.*?)>>", re.DOTALL)
_LONGEST = 2_000
_ROWS_TOO_WIDE = re.compile(r"org\.apache\.arrow\.[\w.]*(?:OversizedAllocation|OutOfMemory)Exception")
_WIDE_ROWS_HINT = (
    "The rows are too wide for batches of 4096 rows: set conf={'spark.sql.execution.arrow.maxBytesPerBatch': "
    "'256m'}, so that Spark measures each batch, which is slower. "
)


def marked(message: str, class_: type[DuckLakeError] = InvalidInputError) -> str:
    """Return the text that tells the driver the class of a task's error; that class takes one argument."""
    return f"{mark_start(class_)}{message}{MARK_END}"


def mark_start(class_: type[DuckLakeError] = InvalidInputError) -> str:
    """Return what stands before the message."""
    return f"<<{class_.__name__}|"


MARK_END = ">>"


def typed(error: Exception) -> DuckLakeError:
    """Return the error of ours that ``error`` is or carries; anything else becomes a ``SparkJobError``."""
    if isinstance(error, DuckLakeError):
        return error
    # an analysis shows its plan behind its message, with the marks of errors that did not happen
    text = message_of(error) if isinstance(error, AnalysisException) else str(error)
    found = _MARKED.search(text)
    class_ = getattr(errors, found[1], None) if found is not None else None
    if found is not None and isinstance(class_, type) and issubclass(class_, DuckLakeError):
        return class_(found[2])
    hint = _WIDE_ROWS_HINT if _ROWS_TOO_WIDE.search(text) else ""
    return SparkJobError(f"{hint}{type(error).__name__}: {_shortened(text)}")


def _shortened(text: str) -> str:
    text = text.split("\n\nJVM stacktrace:", maxsplit=1)[0]
    text = "\n".join(line for line in text.splitlines() if not line.startswith("\tat ")).strip()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
