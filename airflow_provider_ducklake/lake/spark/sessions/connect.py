"""Sessions of Spark Connect: the JVM is a server's, and only what its protocol has can be asked of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.connect.dataframe import DataFrame as RemoteDataFrame
from pyspark.sql.connect.session import SparkSession as RemoteSession

from ...storage.files.filesystem import options_of_task, process_options
from ..job.package_zip import package_zip
from .kind import BatchFunction, RunningStage

if TYPE_CHECKING:
    from pyspark.sql.connect.shell.progress import ProgressHandler, StageInfo


_SENT = "_ducklake_package_is_sent"


class Connect:
    """See ``Kind``."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def map_in_arrow(self, df: DataFrame, function: BatchFunction, schema: t.StructType) -> DataFrame:
        """See ``Kind``. The options travel in the function: a session has no environment on the server."""
        self._send_package()
        return df.mapInArrow(_with_options(function, process_options()), schema)

    def explained(self, df: DataFrame) -> str:
        return str(df._explain_string(mode="cost"))  # type: ignore[operator]  # noqa: SLF001 - no public way

    def listed(self, df: DataFrame) -> tuple[int, int | None]:
        return len(df.inputFiles()), None

    def checkpointed(self, df: DataFrame) -> DataFrame:
        """See ``Kind``. What PySpark 4.2 returns is of the thread's active session, whosever ``df`` is."""
        active = RemoteSession._active_session  # noqa: SLF001 - no public way
        before = getattr(active, "session", None)
        active.session = self._spark
        try:
            return df.localCheckpoint()
        finally:
            active.session = before

    def sum_of_tasks(self, documents: Sequence[bytes], function: Callable[[bytes], int]) -> int:
        """See ``Kind``. A range of one number for each task: there are no RDDs."""
        listed = self._spark.createDataFrame(
            pa.table({"number": range(len(documents)), "document": pa.array(documents, pa.binary())}),
            "number long, document binary",
        )

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                counts = [function(one) for one in batch.column("document").to_pylist()]
                yield pa.RecordBatch.from_pydict({"count": pa.array(counts, pa.int64())})

        placed = listed.repartitionByRange(len(documents), "number")
        counted = self.map_in_arrow(placed, run, t.StructType([t.StructField("count", t.LongType())]))
        return int(sum(counted.toArrow().column(0).to_pylist()))

    def drop_view(self, name: str) -> None:
        """See ``Kind``; what was cached of the view is forgotten."""
        self._spark.catalog.dropTempView(name)

    def parsed(self, sql: str) -> None:
        """See ``Kind``: the protocol has no way to Spark's parser that runs nothing (ADR 39)."""

    def rows_of(self, parsed: object) -> DataFrame:
        raise AssertionError(f"{parsed!r} was parsed elsewhere")

    @contextmanager
    def watched(self) -> Iterator[Callable[[], list[RunningStage]]]:
        """See ``Kind``. The server reports each operation's stages while they run."""
        operations: dict[str | None, list[RunningStage]] = {}

        def note(
            stages: Iterable[StageInfo] | None,
            inflight_tasks: int,  # noqa: ARG001 - PySpark names it
            operation_id: str | None,
            done: bool,  # noqa: FBT001 - likewise
        ) -> None:
            if done:
                operations.pop(operation_id, None)
                return
            operations[operation_id] = [
                RunningStage(stage.stage_id, stage.num_tasks, stage.num_completed_tasks)
                for stage in stages or ()
                if not stage.done
            ]

        handler: ProgressHandler = note  # type: ignore[assignment]  # any callable is one
        self._spark.registerProgressHandler(handler)
        try:
            yield lambda: [stage for stages in list(operations.values()) for stage in stages]
        finally:
            self._spark.removeProgressHandler(handler)

    def cores(self) -> int:
        """See ``Kind``: as many tasks as a range has."""
        return int(self._spark.range(2**12).select(f.spark_partition_id()).distinct().count())

    def configured(self) -> Collection[str]:
        return set(self._spark.conf.getAll)

    def has_file_system(self, scheme: str) -> bool:  # noqa: ARG002 - see Kind
        """See ``Kind``: the server says so itself, when a job needs it."""
        return True

    def hadoop_version(self) -> str:
        return "<the version of the server's Hadoop>"

    def set_hadoop(self, settings: Mapping[str, str]) -> None:
        """See ``Kind``: as settings of the session, whose values Spark hides by their names."""
        for name, value in settings.items():
            self._spark.conf.set(name, value)

    @contextmanager
    def pinned(self, frames: Mapping[str, DataFrame]) -> Iterator[Mapping[str, DataFrame]]:
        """See ``Kind``. A copy has temporary views, but not large local rows or checkpoints."""
        views = {name: f"_ducklake_{uuid4().hex}" for name in frames}
        try:
            for name, df in frames.items():
                df.createOrReplaceTempView(views[name])
            yield {name: self._spark.table(view) for name, view in views.items()}
        finally:
            with suppress(PySparkException):  # a server that is gone has no views to drop
                for view in views.values():  # the catalog's dropTempView would drop the user's caches, too
                    self._spark.sql(f"DROP VIEW IF EXISTS {view}")

    @contextmanager
    def copied(self) -> Iterator[SparkSession]:
        self._spark.conf.get("spark.app.id")  # the server has no session before its first call
        session = self._spark.cloneSession()  # type: ignore[attr-defined]  # since Spark 4.1, Connect only
        try:
            yield session
        finally:
            # stop() would also end the server that PySpark runs for SparkSession.builder.remote("local")
            with suppress(PySparkException):  # a server that is gone has no session to release
                session.client.release_session()
            session.client.close()

    def owns(self, df: DataFrame) -> bool:
        return getattr(df.sparkSession, "session_id", None) == getattr(self._spark, "session_id", "")

    def rebind(self, df: DataFrame) -> DataFrame:
        return RemoteDataFrame(df._plan, self._spark)  # type: ignore[arg-type]  # noqa: SLF001 - no public way

    def give_package(self) -> None:
        """Do nothing: what needs no function in tasks needs no package there, and is done sooner."""

    def _send_package(self) -> None:
        """Make this package available to functions in tasks, whatever the server has installed."""
        if getattr(self._spark, _SENT, False):
            return
        with tempfile.TemporaryDirectory(prefix="ducklake-") as folder:
            self._spark.addArtifacts(str(package_zip(folder)), pyfile=True)
        setattr(self._spark, _SENT, True)


def _with_options(function: BatchFunction, options: Mapping[str, object]) -> BatchFunction:
    if not options:
        return function
    given = dict(options)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with options_of_task(given):
            yield from function(batches)

    return run
