"""What spark-submit prints, as a task's log shows it: without what each job prints and nobody needs."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING

from airflow_provider_ducklake.spark.causes import KILLED, KILLED_CODES, OF_ERRORS, OF_LOGS, rank_of, told

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# All that is printed whatever the job does. Lines of users' own code look like none of these.
_NOISE = re.compile(
    r"WARNING: Using incubator modules"
    r"|Using Spark's default log4j profile"
    r"|Setting default log level to|Setting Spark log level to|To adjust logging level use"
    r"|\S+ \S+ INFO SparkContext: OS info"
    r"|\S+ \S+ WARN NativeCodeLoader: Unable to load native-hadoop"
    r"|\S+ \S+ WARN Utils: Service 'SparkUI' could not bind"
    r"|Ivy Default Cache set to|The jars for the packages stored in|\S+#\S+ added as a dependency"
    r"|:: (?:loading settings|resolving dependencies|retrieving|resolution report|modules in use)"
    r"|\s+(?:confs: |found \S+#\S+ in |\[\d+\.\d+.*\] \S+#|:: evicted|\S+#\S+ by \[)"
    r"|\s+Host repos\.spark-packages\.org not found"
    r"|\s+[|-][ |:#\d\w-]*[|-]$|downloading https?://|\s+\[SUCCESSFUL |\d+ artifacts? copied"
)
_HALF_NOISE = re.compile(
    r".*FutureWarning: PySpark does not yet fully support pandas"
)  # its source line follows
_LINES_KEPT = 10
_CAUSES = (*OF_LOGS, *OF_ERRORS)
_EXIT_CODE = re.compile(r"Error code is: (-?\d+)")


class JobLog:
    """Lets lines through, and remembers the one that says best why the job died."""

    def __init__(self) -> None:
        self._found: dict[int, str] = {}
        self._last: deque[str] = deque(maxlen=_LINES_KEPT)

    def shown(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield what a person may need."""
        skips_source = False
        for line in lines:
            self.note(line)
            if skips_source and line.startswith("  "):
                skips_source = False
                continue
            skips_source = _HALF_NOISE.match(line) is not None
            if not skips_source and _NOISE.match(line) is None:
                self._last.append(line.rstrip())
                yield line

    def note(self, line: str) -> None:
        """Look for a cause in a line that is not shown, too."""
        rank = rank_of(line, _CAUSES)
        if rank is not None:
            self._found.setdefault(rank, line)

    def cause(self) -> str | None:
        """Return why the job died, in a sentence with Spark's own line; None where no line says it."""
        return told(self._found[min(self._found)], _CAUSES[min(self._found)]) if self._found else None

    def cause_before_session(self) -> str | None:
        """Return the same for reasons that a job with a session cannot have told."""
        return self.cause() if self._found and min(self._found) < len(OF_LOGS) else None

    def end(self, hook_error: str) -> str:
        """Return how a job without a known cause ended; ``hook_error`` begins with Airflow's words for it."""
        code = _EXIT_CODE.search(hook_error.partition("\n")[0])
        number = int(code[1]) if code is not None else None
        sentence = KILLED if number in KILLED_CODES else "The Spark job failed and left no reason."
        ended = "" if number is None else f" (exit code {number})"
        return f"{sentence} Its log{ended} ends with:\n" + "\n".join(self._last)
