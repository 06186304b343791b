"""Filter the output of spark-submit for a task's log: without lines that every job prints."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ... import errors
from ...errors import SparkJobError

# What Spark's messages mean for the task: the cause in a sentence, from its own output and not from rows.
#
# Pure rules. A log and a message may hold any value of a row, so a cause is derived only from the class of an
# exception, where that stands, and from whole lines of Spark's own programs. A wrong cause is worse than
# none.


_LONGEST_LINE = 300


@dataclass(frozen=True, slots=True)
class Cause:
    """A pattern at the beginning of a message, and the advice for it."""

    pattern: re.Pattern[str]
    sentence: str


def _cause(pattern: str, sentence: str) -> Cause:
    return Cause(re.compile(pattern), sentence)


_NO_MASTER = (
    "No Spark master answers at the address of the Spark connection. Check that it runs, that the "
    "connection's host and port are right, and that the worker can reach it."
)
_OLD_JAVA = (
    "The Java where the task runs is too old for its Spark, which needs Java 17 or newer. Set JAVA_HOME "
    "to the folder of one."
)
# Lines of Spark's scripts and of Java, before there is a driver.
OF_LAUNCH: Sequence[Cause] = (
    _cause(
        r"JAVA_HOME is not set(?=\s*\Z)"
        r"|\S.*spark-class: line \d+: .*bin/java: "
        r"(?:No such file|Permission denied|cannot execute|not found)",
        "Spark found no Java where the task runs. Install Java 17 or newer there, or set JAVA_HOME to the "
        "folder of one.",
    ),
    _cause(r"\tjava\.lang\.UnsupportedClassVersionError: org/apache/spark/", _OLD_JAVA),
    _cause(
        r"\t\s*termination reason: OOMKilled\s*\Z",
        "The driver's pod ran out of memory and was killed. Raise driver_memory, or conf "
        "spark.driver.memoryOverhead.",
    ),
    _cause(
        r"\t\s*termination reason: (?!Completed\s*\Z)",
        "The driver's pod failed before the job could say why. Its own log does: kubectl logs, with the "
        "pod's name in the log above.",
    ),
)
# Spark's line for a context that it stops: the error of the job says nothing but that it is stopped.
LOST_MASTER = _cause(
    r"\S+ \S+ ERROR StandaloneSchedulerBackend: Application has been killed\. "
    r"Reason: All masters are unresponsive!",
    _NO_MASTER,
)
NO_EXECUTORS = _cause(
    r"\S+ \S+ ERROR StandaloneSchedulerBackend: Application has been killed\. "
    r"Reason: Master removed our application: FAILED",
    "The cluster could start no executors for the job: each one failed at its start. The logs of the workers "
    "say why.",
)
# A batch of rows has more bytes than one buffer may have.
TOO_WIDE = _cause(
    r"org\.apache\.arrow\.[\w.]*(?:OversizedAllocation|OutOfMemory)Exception\b",
    "The rows are too wide for batches that are counted in rows: set conf="
    "{'spark.sql.execution.arrow.maxBytesPerBatch': '64m'}, so that Spark measures each batch, which is "
    "slower.",
)
_OF_WORKER = (
    r"org\.apache\.spark\.api\.python\.PythonException: "
    r"(?:\[PYTHON_EXCEPTION\] An exception was thrown from the Python worker: )?"
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*"
)
# What exceptions of Java say of themselves: their class and, behind a colon, their message.
OF_EXCEPTIONS: Sequence[Cause] = (
    _cause(
        r"<_\w+ of RPC that terminated with:\n\tstatus = StatusCode\.UNAVAILABLE\n"
        r"|(?:[\w.$]+: |\([\w.$]+\) )?\[INVALID_HANDLE\.SESSION_(?:NOT_FOUND|CLOSED|CHANGED)\]",
        "The Spark Connect server stopped answering, or was started again: the job's session is lost. "
        "Nothing was committed; run the task again when the server is back.",
    ),
    _cause(r"java\.lang\.UnsupportedClassVersionError: org/apache/spark/", _OLD_JAVA),
    _cause(
        r"org\.apache\.spark\.SparkException: (?:Invalid master URL|Could not parse Master URL)", _NO_MASTER
    ),
    _cause(
        r"org\.apache\.spark\.SparkException: When running with master '.*' either HADOOP_CONF_DIR or "
        r"YARN_CONF_DIR must be set",
        "The Spark connection's master is YARN, but the task has no configuration of it. Set "
        "HADOOP_CONF_DIR, or name another master.",
    ),
    _cause(
        r"org\.apache\.spark\.SparkException: Cluster deploy mode is (?:not|currently not)",
        "This master runs Python jobs in client mode only. Set deploy_mode='client' in the task or its Spark "
        "connection.",
    ),
    _cause(
        r"java\.lang\.RuntimeException: \[(?:unresolved dependency|download failed): ",
        "Spark cannot download one of packages=…. Correct its name and version, give Spark access to Maven "
        "Central or a mirror of it (repositories=…), or give the jars themselves (jars=…).",
    ),
    _cause(
        _OF_WORKER + r"ModuleNotFoundError: No module named 'pyarrow'",
        "The Python of Spark's tasks has no pyarrow, which writes the files. Install it on every machine, or "
        "set PYSPARK_PYTHON (or conf spark.pyspark.python) to a Python that has it.",
    ),
    _cause(
        _OF_WORKER + r"[\w.]*\bPySparkRuntimeError: \[PYTHON_VERSION_MISMATCH\]",
        "Driver and executors have different Python versions. Set PYSPARK_PYTHON (or conf "
        "spark.pyspark.python) to the same version on every machine.",
    ),
    _cause(
        r'java\.io\.IOException: Cannot run program "[^"]*(?:python|pypy)[^"]*".*: error=2,',
        "The executors cannot find the Python they are configured to run. Set PYSPARK_PYTHON (or conf "
        "spark.pyspark.python) to one that is installed on every machine.",
    ),
    _cause(
        r"org\.apache\.spark\.SparkException:\s+Error from python worker:",
        "The executors' Python cannot run PySpark: its version is too old, or it lacks a package. Set "
        "PYSPARK_PYTHON (or conf spark.pyspark.python) to the Python of the driver.",
    ),
    TOO_WIDE,
    _cause(
        r"java\.io\.IOException: (?:No space left on device|Disk quota exceeded)",
        "A disk of Spark is full: that of spark.local.dir, most often. Make room there, or set another one.",
    ),
    _cause(
        r"java\.lang\.OutOfMemoryError\b(?!: unable to create)"
        r"|org\.apache\.spark\.memory\.SparkOutOfMemoryError\b"
        r"|ExecutorLostFailure \(executor [^)]*\) Reason: .*(?:exceeding|beyond) .*memory limits?",
        "Spark ran out of memory. Raise driver_memory or executor_memory.",
    ),
    _cause(
        r"org\.apache\.spark\.SparkException: Python worker exited unexpectedly"
        r"|ExecutorLostFailure \(executor [^)]*\) Reason:\s+.*\bcode 137\b",
        "A process of the job was killed, most often because it ran out of memory. Raise executor_memory "
        "and conf spark.executor.memoryOverhead, or split the rows into more tasks.",
    ),
    _cause(
        r"(?:java\.lang\.RuntimeException: )?java\.lang\.ClassNotFoundException: "
        r"Class (?:org\.apache\.hadoop\.fs\.|com\.google\.cloud\.hadoop\.fs\.)\S+ not found"
        r"|org\.apache\.hadoop\.fs\.UnsupportedFileSystemException: No FileSystem for scheme ",
        "Spark has no file system for the store. Start it, or the server of Spark Connect, with the package "
        "that brings one: org.apache.hadoop:hadoop-aws in the version of Spark's Hadoop for s3, "
        "org.apache.hadoop:hadoop-azure for abfs, com.google.cloud.bigdataoss:gcs-connector for gs; or set "
        "spark_packages to auto in the lake's connection.",
    ),
    _cause(
        r"org\.apache\.hadoop\.fs\.s3a\.auth\.(?:NoAuthWithAWS|NoAwsCredentials)Exception\b"
        r"|java\.nio\.file\.AccessDeniedException: (?!/|file:)\S+: .*(?:s3a|awssdk|amazonaws)",
        "Spark has no access to a bucket: its credentials are missing or wrong, or lack a right.",
    ),
    _cause(
        r"org\.apache\.hadoop\.fs\.s3a\.UnknownStoreException\b",
        "A bucket does not exist. Correct the path, or create the bucket.",
    ),
    _cause(
        r"org\.apache\.hadoop\.fs\.s3a\.AWSRedirectException\b",
        "A bucket is in another region than Spark's. Set it: conf {'spark.hadoop.fs.s3a.bucket.<name>."
        "endpoint.region': '…'}, or for the lake's own bucket in storage_options.",
    ),
    _cause(
        r"org\.apache\.hadoop\.fs\.s3a\.AWSBadRequestException\b",
        "A store refuses Spark's requests: temporary credentials have expired, or the bucket is in another "
        "region. The next try asks the connection for credentials again.",
    ),
    _cause(
        r"org\.apache\.hadoop\.fs\.s3a\.AWSServiceThrottledException\b",
        "A store is overloaded. Run the task again later, or with fewer tasks at once.",
    ),
    _cause(
        r"org\.apache\.hadoop\.fs\.s3a\.(?:HttpChannelEOF|AWSClientIO|AWSApiCallTimeout)Exception\b"
        r"|java\.net\.(?:ConnectException|UnknownHostException|SocketTimeoutException): .*\bs3a://",
        "A store does not answer Spark. Check its endpoint, and that driver and executors can reach it.",
    ),
)
KILLED = (
    "The Spark driver was killed from outside, most often because the machine where the task runs ran out "
    "of memory. Give that machine more memory, or lower driver_memory."
)
KILLED_CODES = (137, -9)
# A stage fails with what failed its task last.
_OF_TASK = re.compile(
    r"org\.apache\.spark\.SparkException: Job aborted due to stage failure: "
    r"Task \S+ in stage \S+ failed \d+ times, most recent failure: "
    r"Lost task \S+ in stage \S+ \(TID \d+\) \(\S+ executor \S+\): "
)


def cause_in(texts: Iterable[str], causes: Sequence[Cause]) -> str | None:
    """Return the strongest cause whose pattern matches a text, with Spark's line; None: none does."""
    begun = [(text, found.end() if (found := _OF_TASK.match(text)) else 0) for text in texts]
    for cause in causes:
        for text, start in begun:
            if found := cause.pattern.match(text, start):
                return f"{cause.sentence} Spark says: {_line(text, found)}"
    return None


def _line(text: str, found: re.Match[str]) -> str:
    """Return the line with the end of the matched words, from their start on."""
    start = max(found.start(), text.rfind("\n", 0, found.end()) + 1)
    line = text[start:].split("\n", 1)[0].strip()
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} …"


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
# Errors of a job that its lost master stopped: another error may show rows, which can contain any line.
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
        self._lost_master = self._lost_master or cause_in([line], [LOST_MASTER, NO_EXECUTORS])
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
        """Explain why the job died, in a sentence with Spark's own words; None: unknown."""
        if not self._error:
            return self._lost_master or (None if self._has_driver else self._launch)
        first, *more = self._error
        if all(line.startswith("  ") for line in more):  # as errors of ours show their lines
            more = [line[2:] for line in more]
        text = "".join([first, *more]).strip()
        if lost := self.lost_master(text):
            return lost
        found = _BEFORE_EXCEPTION.match(text)
        return (found and cause_in([text[found.end() :]], OF_EXCEPTIONS)) or text

    def lost_master(self, text: str) -> str | None:
        """Return the error of a lost master, if the job's error ``text`` is only that it was stopped."""
        return self._lost_master if _OF_STOPPED.match(text) else None

    def end(self, hook_error: str) -> str:
        """Describe the end of a job without a known cause; ``hook_error`` begins with Airflow's words."""
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
        return cause_in([line[found.end() :]], OF_EXCEPTIONS)
    return cause_in([line], OF_LAUNCH)
