"""Errors on their way from a task to the operator: our own classes, found again in Spark's texts.

Such a text may hold values of rows as well. So our errors stand between marks that no row can have: they are
drawn by the driver when it starts, and tasks get them with what they are to do.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from traceback import walk_tb
from typing import Any

from pyspark.errors import AnalysisException

from ... import errors
from ...errors import DuckLakeError, InvalidInputError, SparkJobError, short_line
from ..output.log import OF_EXCEPTIONS, TOO_WIDE, cause_in

_LONGEST = 2_000
_MOST_CAUSES = 20
_FRAMES = 5


@cache
def secret() -> str:
    """Return the random key of this driver's marks; a task gets it from the driver."""
    return secrets.token_hex(8)


def marked(
    message: str, class_: type[DuckLakeError] = InvalidInputError, of_driver: str | None = None
) -> str:
    """Wrap a message so that the driver finds the class of a task's error; that class takes one argument.

    ``of_driver`` is the driver's secret; None: this is the driver.
    """
    key = of_driver or secret()
    return f"<<{key}:{class_.__name__}|{message}|{key}>>"


def marks() -> tuple[str, str]:
    """Return the text before and after the message of an ``InvalidInputError``."""
    before, after = marked("\0").split("\0")
    return before, after


def typed(error: Exception) -> DuckLakeError:
    """Return the error of ours that ``error`` is or carries; anything else becomes a ``SparkJobError``."""
    if isinstance(error, DuckLakeError):
        return error
    if _has_lost_jvm(error):
        return SparkJobError(
            f"Spark's JVM has ended or cannot be reached ({type(error).__name__}: {short_line(str(error))}). "
            "Start a new SparkSession, and run this again."
        )
    # an analysis shows its plan behind its message, with the marks of errors that did not happen
    text = message_of(error) if isinstance(error, AnalysisException) else str(error)
    found = re.search(rf"<<{secret()}:(\w+)\|(.*?)\|{secret()}>>", text, re.DOTALL)
    class_ = getattr(errors, found[1], None) if found is not None else None
    if found is not None and isinstance(class_, type) and issubclass(class_, DuckLakeError):
        return _made(class_, found[2])
    cause = cause_of(error)
    text_of_error = f"{type(error).__name__}: {_shortened(text)}"
    return SparkJobError.of_log(text_of_error if cause is None else f"{cause}\n{text_of_error}")


def cause_of(error: Exception) -> str | None:
    """Explain the cause of Spark's error in a sentence, with Spark's words; None: unknown."""
    return cause_in(java_exceptions(error), OF_EXCEPTIONS)


def is_of_wide_rows(error: Exception) -> bool:
    """Return True if a batch of rows had more bytes than Arrow takes at once."""
    return cause_in(java_exceptions(error), (TOO_WIDE,)) is not None


def java_exceptions(error: Exception) -> list[str]:
    """List the text of each Java exception behind an error, its causes last."""
    if type(error).__module__.startswith("pyspark.errors.exceptions.connect"):
        return _server_causes(error)
    found: list[str] = []
    with suppress(Exception):  # there is no JVM any more: py4j's own, or the socket's
        found.extend(java.toString() for java in _throwables(error))
    return found


def classes_of_root(error: Exception) -> list[str]:
    """Return the classes that threw the last cause of Spark's error, innermost first; none by Connect."""
    with suppress(Exception):  # as above
        *_, root = _throwables(error)
        return [frame.getClassName() for frame in root.getStackTrace()[:_FRAMES]]
    return []


def _throwables(error: Exception) -> Iterator[Any]:
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(_MOST_CAUSES):
        if java is None:
            return
        yield java
        java = java.getCause()


def is_of_spark(error: BaseException) -> bool:
    """Return True if Spark raised an error, in PySpark or through Py4J, and not a user's code."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j") or _has_lost_jvm(error)


def _has_lost_jvm(error: BaseException) -> bool:
    """Return True if Py4J could not reach the JVM: it raises an error of its own, or the socket's."""
    if isinstance(error, OSError):
        modules = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
        return modules[-1:] != [] and modules[-1].startswith("py4j.")
    return type(error).__name__ == "Py4JNetworkError"


_PYTHON_WORKER = "org.apache.spark.api.python.PythonException"
_FRAME = re.compile(r"\n\tat [^\n]*(?=\Z|\nCaused by: |\n\tat )")


def _server_causes(error: Any) -> list[str]:  # noqa: ANN401 - of Spark Connect, which may not be installed
    """Return the same of an error that the server of Spark Connect sent, with its trace as one text."""
    trace = getattr(error, "_stacktrace", None)
    if not trace:
        text = str(error)
        start = text.find("Traceback (most recent call last):")
        return [text if start < 0 else f"{_PYTHON_WORKER}: {text[start:]}"]
    first, *causes = re.split(r"(?<=\))\nCaused by: ", trace)
    root = first.split("\n", 1)[0]
    message = str(error).removeprefix(f"({root}) ")
    return [f"{root}: {message}", *(_FRAME.sub("", cause) for cause in causes)][:_MOST_CAUSES]


def _made(class_: type[DuckLakeError], message: str) -> DuckLakeError:
    try:
        return class_(message)
    except TypeError:  # it has several arguments, which its message alone does not give
        return SparkJobError.of_log(f"{class_.__name__}: {message}".replace("\n  ", "\n"))


_FRAMES_OF_PYTHON = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*")


def _shortened(text: str) -> str:
    """Return an error's text without Java's frames; what Python says below its own comes first."""
    text = text.split("\n\nJVM stacktrace:", maxsplit=1)[0]
    text = "\n".join(line for line in text.splitlines() if not line.startswith("\tat ")).strip()
    before, *raised = _FRAMES_OF_PYTHON.split(text)
    if raised:
        text = f"{raised[-1].strip()}\n{before}{text[len(before) :]}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


_OUR_COLUMN = re.compile(r"(?:(?<=\[)|, )(?:`\w+`\.)?`_+ducklake_\w+`")


def message_of(error: AnalysisException) -> str:
    """Shorten Spark's message: without the plan, the stack trace and the columns that we add."""
    text = _OUR_COLUMN.sub("", str(error).split("\nJVM stacktrace")[0].split(";\n")[0].strip())
    return f"{text}. Put strings in single quotes." if "[UNRESOLVED_COLUMN" in text else text
