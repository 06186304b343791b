"""What a line of Spark's means for the task: the cause in a sentence, found in a log or in an error's text.

Pure rules. The strongest come first: a master that cannot be reached also stops the context, say, and it is
the former that somebody can cure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LONGEST_LINE = 300


@dataclass(frozen=True, slots=True)
class Cause:
    """Lines that match, and what to do about it; without a sentence the match says it itself."""

    pattern: re.Pattern[str]
    sentence: str = ""


def _cause(pattern: str, sentence: str = "") -> Cause:
    return Cause(re.compile(pattern), sentence)


_NO_JAVA = (
    "Spark found no Java where the task runs. Install Java 17 or newer there, or set JAVA_HOME to the folder "
    "of one."
)
# Said before there is a session, by Spark's scripts, by its launcher or by our driver.
OF_LOGS: Sequence[Cause] = (
    _cause(r"SparkJobError: (The Spark driver cannot read .*)"),
    _cause(r"JAVA_HOME is not set|bin/java: (?:No such file|cannot execute|not found)", _NO_JAVA),
    _cause(
        r"UnsupportedClassVersionError",
        "The Java where the task runs is too old for its Spark, which needs Java 17 or newer. Set JAVA_HOME "
        "to the folder of one.",
    ),
    _cause(
        r"All masters are unresponsive|Invalid master URL|Could not parse Master URL",
        "No Spark master answers at the address of the Spark connection. See that it runs, that the "
        "connection's host and port are right, and that the worker can reach it.",
    ),
    _cause(
        r"HADOOP_CONF_DIR or YARN_CONF_DIR must be set",
        "The Spark connection's master is YARN, and the task does not know where that is. Set "
        "HADOOP_CONF_DIR, or name another master.",
    ),
    _cause(
        r"Cluster deploy mode is (?:not|currently not)",
        "This master runs Python jobs in client mode only. Set deploy_mode='client' in the task or its Spark "
        "connection.",
    ),
    _cause(
        r"unresolved dependency: |Server access error at url",
        "Spark cannot fetch a package of packages=…. Correct its name and version, give Spark a way to Maven "
        "Central or a mirror of it (repositories=…), or give the jars themselves (jars=…).",
    ),
)
# Said in an error that a running job meets.
OF_ERRORS: Sequence[Cause] = (
    _cause(
        r"PYTHON_VERSION_MISMATCH",
        "Driver and executors have different Pythons. Set PYSPARK_PYTHON (or conf spark.pyspark.python) to "
        "the same version on every machine.",
    ),
    _cause(
        r'Cannot run program ".*": .*error=2',
        "The executors do not find the Python that they are told to run. Set PYSPARK_PYTHON (or conf "
        "spark.pyspark.python) to one that is on every machine.",
    ),
    _cause(
        r"Error from python worker",
        "The executors' Python cannot run PySpark: its version is too old, or it lacks a package. Set "
        "PYSPARK_PYTHON (or conf spark.pyspark.python) to the Python of the driver.",
    ),
    _cause(
        r"OutOfMemoryError|exceeding (?:physical )?memory limits",
        "Spark ran out of memory. Raise driver_memory or executor_memory.",
    ),
    _cause(
        r"Python worker exited unexpectedly|exited with code 137|ExecutorLostFailure",
        "A process of the job was killed, most often for want of memory. Raise executor_memory and conf "
        "spark.executor.memoryOverhead, or have tasks with fewer rows.",
    ),
    _cause(
        r"AccessDeniedException|NoAuthWithAWSException|NoAwsCredentialsException|InvalidAccessKeyId",
        "Spark may not open a bucket: it has no credentials for it, or wrong ones.",
    ),
)
KILLED = (
    "The Spark driver was killed from outside, most often for want of memory where the task runs. Give that "
    "machine more, or lower driver_memory."
)
KILLED_CODES = (137, -9)


def rank_of(line: str, causes: Sequence[Cause]) -> int | None:
    """Return the place of the first cause that the line tells, None if it tells none."""
    return next((place for place, cause in enumerate(causes) if cause.pattern.search(line)), None)


def told(line: str, cause: Cause) -> str:
    """Return the cause in a sentence, and the line that told it, from the word on that did."""
    found = cause.pattern.search(line)
    assert found is not None
    if not cause.sentence:
        return found[1]
    start = line.rfind(" ", 0, found.start() + 1) + 1
    shown = line[start:].strip()
    shown = shown if len(shown) <= _LONGEST_LINE else f"{shown[:_LONGEST_LINE]} …"
    return f"{cause.sentence} Spark says: {shown}"


def cause_of(lines: Iterable[str], causes: Sequence[Cause]) -> str | None:
    """Return the strongest cause that the lines tell, by the first line that does; None: they tell none."""
    found: tuple[int, str] | None = None
    for line in lines:
        rank = rank_of(line, causes)
        if rank is not None and (found is None or rank < found[0]):
            found = rank, line
    return None if found is None else told(found[1], causes[found[0]])
