"""Classic sessions: what they offer is asked of their JVM, most of it in private ways."""

from __future__ import annotations

import os
import sys
import threading
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t
from pyspark.sql.session import _monkey_patch_RDD
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from ...format.log_lines import logger
from ...storage.files.filesystem import address_as_environment, as_environment, process_options
from ..job.package_zip import package_zip
from ..types.names import quoted
from .kind import BatchFunction, RunningStage, is_remote, kind_of
from .settings import prepare_sources

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject


# ruff: noqa: SLF001 - there is no public way


class Classic:
    """See ``Kind``."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._context = spark.sparkContext

    def map_in_arrow(self, df: DataFrame, function: BatchFunction, schema: t.StructType) -> DataFrame:
        """See ``Kind``; ``DataFrame.mapInArrow`` asks for pandas, which the call does not use."""
        udf = UserDefinedFunction(function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
        arguments = udf(*(df[quoted(name)] for name in df.columns))
        return DataFrame(df._jdf.mapInArrow(arguments._jc, False, None), self._spark)  # noqa: FBT003

    def explained(self, df: DataFrame) -> str:
        return str(self._jvm.PythonSQLUtils.explainString(df._jdf.queryExecution(), "cost"))

    def listed(self, df: DataFrame) -> tuple[int, int | None]:
        files = df._jdf.queryExecution().analyzed().collectLeaves().head().relation().location()
        return len(files.inputFiles()), int(files.sizeInBytes())

    def checkpointed(self, df: DataFrame) -> DataFrame:
        return df.localCheckpoint()

    def sum_of_tasks(self, documents: Sequence[bytes], function: Callable[[bytes], int]) -> int:
        return int(self._context.parallelize(documents, len(documents)).map(function).sum())

    def drop_view(self, name: str) -> None:
        """See ``Kind``: Spark's public way forgets what was cached."""
        self._spark._jsparkSession.sessionState().catalog().dropTempView(name)

    def parsed(self, sql: str) -> JavaObject:
        """See ``Kind``; common table expressions are put in place as Spark's analysis does it."""
        analysis = self._jvm.org.apache.spark.sql.catalyst.analysis
        parser = self._spark._jsparkSession.sessionState().sqlParser()
        return analysis.CTESubstitution.apply(parser.parsePlan(sql))

    def rows_of(self, parsed: JavaObject) -> DataFrame:
        of_jvm = self._jvm.org.apache.spark.sql.classic.Dataset
        return DataFrame(of_jvm.ofRows(self._spark._jsparkSession, parsed), self._spark)

    def watched(self) -> AbstractContextManager[Callable[[], list[RunningStage]]]:
        return nullcontext(self._running_stages)

    def _running_stages(self) -> list[RunningStage]:
        tracker = self._context.statusTracker()
        found = [(stage_id, tracker.getStageInfo(stage_id)) for stage_id in tracker.getActiveStageIds()]
        return [
            RunningStage(stage_id, stage.numTasks, stage.numCompletedTasks)
            for stage_id, stage in found
            if stage is not None
        ]

    def cores(self) -> int:
        return int(self._context.defaultParallelism)

    def configured(self) -> Collection[str]:
        return {name for name, _ in self._context.getConf().getAll()}

    def has_file_system(self, scheme: str) -> bool:
        hadoop = self._spark._jsc.hadoopConfiguration()
        try:
            self._jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, hadoop)
        except Exception:  # noqa: BLE001 - py4j wraps whatever the JVM throws
            return False
        return True

    def hadoop_version(self) -> str:
        return str(self._jvm.org.apache.hadoop.util.VersionInfo.getVersion())

    def set_hadoop(self, settings: Mapping[str, str]) -> None:
        """See ``Kind``; all sessions of the process get them, as file systems are shared."""
        hadoop = self._spark._jsc.hadoopConfiguration()
        for name, value in settings.items():
            hadoop.set(name, value)

    @property
    def _jvm(self) -> JavaObject:
        jvm = self._spark._jvm
        assert jvm is not None
        return jvm

    def pinned(self, frames: Mapping[str, DataFrame]) -> AbstractContextManager[Mapping[str, DataFrame]]:
        """See ``Kind``: a copy reads them as they are."""
        return nullcontext(frames)

    @contextmanager
    def copied(self) -> Iterator[SparkSession]:
        """See ``Kind``: settings, views and functions are as in the session."""
        spark = self._spark
        of_jvm = spark._jsparkSession.cloneSession()
        session = SparkSession(self._context, of_jvm)
        _monkey_patch_RDD(spark)  # a new session has taken over RDD.toDF
        with suppress(Py4JError):  # other Spark releases keep them elsewhere
            _share_observations(spark._jsparkSession, of_jvm)
        try:
            yield session
        finally:  # createDataFrame has made the copy the active one
            SparkSession._activeSession = spark
            of_jvm.setActiveSession(spark._jsparkSession)

    def owns(self, df: DataFrame) -> bool:
        theirs = df.sparkSession
        return not is_remote(theirs) and bool(theirs._jsparkSession == self._spark._jsparkSession)

    def rebind(self, df: DataFrame) -> DataFrame:
        """See ``Kind``; what the DataFrame means was settled in its own session."""
        return self.rows_of(df._jdf.logicalPlan())

    def give_package(self) -> None:
        """See ``Kind``; executors in this process's own environment find it already."""
        context = self._context
        master = str(context.master)
        if master == "local" or master.startswith("local["):
            return
        zip_file = package_zip(context._temp_dir)  # lasts as long as the context
        if not any(one.endswith(f"/{zip_file.name}") for one in context.listFiles):
            context.addPyFile(str(zip_file))


def _share_observations(of_user: JavaObject, of_copy: JavaObject) -> None:
    """Pass the copy's observations on to users' ``Observation``s, which would wait forever."""
    known = of_user.observationManager().getClass().getDeclaredField("observations")
    known.setAccessible(True)
    known.set(of_copy.observationManager(), known.get(of_user.observationManager()))


# Log the progress of a long Spark action from its own thread.


log = logger(__name__)

SECONDS_BETWEEN_LINES = 20.0
_one_speaks = threading.Lock()  # of actions that run side by side


@contextmanager
def progress_lines(
    spark: SparkSession, seconds: float = SECONDS_BETWEEN_LINES, say: Callable[[str], None] = log.info
) -> Iterator[None]:
    """Say a line for each running stage every ``seconds`` while the block runs."""
    stopped = threading.Event()
    with kind_of(spark).watched() as stages:
        arguments = (stages, seconds, say, stopped)
        thread = threading.Thread(target=_report, args=arguments, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()


def _report(
    stages: Callable[[], Sequence[RunningStage]],
    seconds: float,
    say: Callable[[str], None],
    stopped: threading.Event,
) -> None:
    speaks = False
    elapsed = 0.0
    try:
        while not stopped.wait(seconds):
            elapsed += seconds
            speaks = speaks or _one_speaks.acquire(blocking=False)
            if speaks:
                for one in stages():
                    say(f"Stage {one.number}: {one.done} of {one.tasks} tasks done, after {elapsed:.0f} s")
    finally:
        if speaks:
            _one_speaks.release()


# Start the session of a submitted job.


_PY_FILES = "spark.submit.pyFiles"
_DEFAULTS = {
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}


def start_session(name: str) -> SparkSession:
    """Return the session of a submitted job; what the user configured counts before our defaults."""
    SparkContext._ensure_initialized()
    given = SparkConf()
    builder = SparkSession.builder.appName(name)
    for key, value in own_settings(given).items():
        builder = builder.config(key, value)
    builder = builder.config(_PY_FILES, _on_the_path(given.get(_PY_FILES) or ""))
    spark = builder.getOrCreate()
    if zipfile.is_zipfile(sys.argv[0]):  # what runs here is the archive that executors need, too
        spark.sparkContext.addPyFile(os.path.abspath(sys.argv[0]))  # noqa: PTH100 - a text
    prepare_sources(spark)
    return spark


def own_settings(given: SparkConf) -> dict[str, str]:
    """Return our settings for a session, except those that the user has set."""
    ours = {**_DEFAULTS, **_for_executors(given.get("spark.master") or "")}
    return {key: value for key, value in ours.items() if not given.contains(key)}


def _for_executors(master: str) -> dict[str, str]:
    """Return settings that pass the lake's storage options to executors that other machines start.

    Pods show their variables to many, and YARN's client writes all settings into a file of the staging
    directory (``__spark_conf__``): there executors get the store's address, and no more. In one process
    with the driver they have the options anyway.
    """
    options = process_options()
    if master.startswith(("spark://", "local-cluster")):
        variables = as_environment(options)
    elif master.startswith("local"):
        variables = {}
    else:
        variables = address_as_environment(options)
    return {f"spark.executorEnv.{name}": value for name, value in variables.items()}


def _on_the_path(py_files: str) -> str:
    """Return the files that Python is to find modules in: the launcher has left the large jars out."""
    kept = {os.path.basename(path) for path in sys.path}  # noqa: PTH119 - URIs, too
    return ",".join(
        file for file in py_files.split(",") if not file.endswith(".jar") or file.rpartition("/")[2] in kept
    )
