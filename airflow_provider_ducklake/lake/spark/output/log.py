"""Filter the output of spark-submit for a task's log: without lines that every job prints."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.errors import SparkJobError
from airflow_provider_ducklake.lake.spark.output.causes import (
    KILLED,
    KILLED_CODES,
    LOST_MASTER,
    NO_EXECUTORS,
    OF_EXCEPTIONS,
    OF_LAUNCH,
    told_by,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# All that is printed whatever the job does.
_NOISE = re.compile(
    r"WARNING: Using incubator modules"
    r"|Using Spark's default log4j profile"
    r"|Setting default log level to|Setting Spark log level to|To adjust logging level use"
    r"|\S+ \S+ INFO SparkContext: (?:OS info|Java version)"
    r"|\S+ INFO (?:Spark application|Job request:) "
    r"|\S+ \S+ WARN NativeCodeLoader: Unable to load native-hadoop"
    r"|\S+ \S+ WARN Utils: (?:Service 'SparkUI' could not bind|Your hostname, |Set SPARK_LOCAL_IP)"
)
# Of packages, before there is a driver: lines of users' own code may look like these.
_NOISE_OF_PACKAGES = re.compile(
    r"Ivy Default Cache set to|The jars for the packages stored in|\S+#\S+ added as a dependency"
    r"|:: (?:loading settings|resolving dependencies|retrieving|resolution report|modules in use)"
    r"|\s+(?:confs: |found \S+#\S+ in |\[\d+\.\d+.*\] \S+#|:: evicted|\S+#\S+ by \[)"
    r"|\s+Host repos\.spark-packages\.org not found"
    r"|\s+[|-][ |:#\d\w-]*[|-]$|downloading https?://|\s+\[SUCCESSFUL |\s*\d+ artifacts? copied"
)
_HALF_NOISE = re.compile(
    r".*FutureWarning: PySpark does not yet fully support pandas"
)  # its source line follows
_LINES_KEPT = 10
_LONGEST_ERROR = 100  # lines
_LOGGED = re.compile(r"\d\d[:/]\d\d[:/]\d\d ")
_OF_DRIVER = re.compile(r"\d\d:\d\d:\d\d (?:INFO|WARNING|ERROR) ")
_ERROR_OF_DRIVER = re.compile(r"\d\d:\d\d:\d\d ERROR (\w+): ")
_OF_SUBMIT = re.compile(r'Exception in thread "main" ')
_BEFORE_EXCEPTION = re.compile(r"Py4JJavaError: An error occurred while calling .*\n: ")
# What a job says that its lost master stopped: another error may show rows, with lines of anybody's.
_OF_STOPPED = re.compile(
    r"(?:\w+: )?(?:An error occurred while calling .*\n\s*: )?(?:[\w.$]+: )?"
    r"(?:Cannot call methods on a stopped SparkContext|SparkContext has been shutdown"
    r"|Job \d+ cancelled because SparkContext was shut down)"
)
_EXIT_CODE = re.compile(r"Error code is: (-?\d+)(?:\. Kubernetes spark exit code is: (\d+))?")


class JobLog:
    """Lets lines through, and remembers what died: the launch, the master, or the driver in its own words."""

    def __init__(self) -> None:
        self._launch: str | None = None
        self._lost_master: str | None = None
        self._error: list[str] = []
        self._in_error = False
        self._has_driver = False
        self._last: deque[str] = deque(maxlen=_LINES_KEPT)

    def shown(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield what a person may need."""
        skips_source = False
        for line in lines:
            self._note(line)
            if skips_source and line.startswith("  "):
                skips_source = False
                continue
            skips_source = _HALF_NOISE.match(line) is not None
            if not skips_source and not self._is_noise(line):
                self._last.append(line.rstrip())
                yield line

    def _is_noise(self, line: str) -> bool:
        of_packages = None if self._has_driver else _NOISE_OF_PACKAGES.match(line)
        return (of_packages or _NOISE.match(line)) is not None

    def _note(self, line: str) -> None:
        self._has_driver = self._has_driver or _OF_DRIVER.match(line) is not None
        self._lost_master = self._lost_master or told_by([line], [LOST_MASTER, NO_EXECUTORS])
        if not self._has_driver:
            self._launch = self._launch or _cause_of_launch(line)
        self._note_error(line)

    def _note_error(self, line: str) -> None:
        """Keep the error that the driver names last; lines that are not logged go on with it."""
        found = _ERROR_OF_DRIVER.match(line)
        if found is not None and _is_ours(found[1]):
            is_known = found[1] == SparkJobError.__name__
            self._error, self._in_error = [line[found.end() if is_known else found.start(1) :]], True
        elif self._in_error and _LOGGED.match(line) is None and len(self._error) < _LONGEST_ERROR:
            self._error.append(line)
        else:
            self._in_error = False

    def cause(self) -> str | None:
        """Return why the job died, in a sentence with Spark's own words; None where nothing says it."""
        if not self._error:
            return self._lost_master or (None if self._has_driver else self._launch)
        first, *more = self._error
        if all(line.startswith("  ") for line in more):  # as errors of ours show their lines
            more = [line[2:] for line in more]
        said = "".join([first, *more]).strip()
        if lost := self.lost_master(said):
            return lost
        found = _BEFORE_EXCEPTION.match(said)
        return (found and told_by([said[found.end() :]], OF_EXCEPTIONS)) or said

    def lost_master(self, said: str) -> str | None:
        """Return that the master went or gave up, where what the job ``said`` is only that it was stopped."""
        return self._lost_master if _OF_STOPPED.match(said) else None

    def end(self, hook_error: str) -> str:
        """Return how a job without a known cause ended; ``hook_error`` begins with Airflow's words for it."""
        code = _EXIT_CODE.search(hook_error.partition("\n")[0])
        number = int(code[2] or code[1]) if code is not None else None
        sentence = KILLED if number in KILLED_CODES else "The Spark job failed and left no reason."
        ended = "" if number is None else f" (exit code {number})"
        return f"{sentence} Its log{ended} ends with:\n" + "\n".join(self._last)


def _is_ours(name: str) -> bool:
    found = getattr(errors, name, None)
    return isinstance(found, type) and issubclass(found, errors.DuckLakeError)


def _cause_of_launch(line: str) -> str | None:
    if found := _OF_SUBMIT.match(line):
        return told_by([line[found.end() :]], OF_EXCEPTIONS)
    return told_by([line], OF_LAUNCH)
