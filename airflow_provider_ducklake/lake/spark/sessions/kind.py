"""Which of the two kinds of sessions one is, and what its tasks do in Arrow."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ...errors import DuckLakeError
from ...storage.files import writing
from ..job.errors import marked, secret

if TYPE_CHECKING:
    from ..job.codec import Json


# What a session does for us besides DataFrames, and in which two ways it is had.
#
# DataFrames are the same in a classic session, which has Spark's JVM beside it, and in one of Spark
# Connect, whose JVM is a server's. Whatever else a job needs of Spark is here, and nowhere else asked for.


BatchFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class RunningStage:
    """The progress of a stage: its number, and its tasks."""

    number: int
    tasks: int
    done: int


class SessionBackend(Protocol):
    """What a session offers beyond DataFrames, by its kind."""

    def map_in_arrow(self, df: DataFrame, function: BatchFunction, schema: t.StructType) -> DataFrame:
        """Apply a function to batches, in tasks that have the lake's storage options."""

    def explained(self, df: DataFrame) -> str:
        """Return Spark's plan with its estimates, as ``DataFrame.explain("cost")`` prints it."""

    def listed(self, df: DataFrame) -> tuple[int, int | None]:
        """Return of how many files a scan is, and of how many bytes, as far as the session has that."""

    def checkpointed(self, df: DataFrame) -> DataFrame:
        """Return the rows that a DataFrame has now; it is evaluated once."""

    def sum_of_tasks(self, documents: Sequence[bytes], function: Callable[[bytes], int]) -> int:
        """Return the sum of what a function returns for each document, a task for each."""

    def drop_view(self, name: str) -> None:
        """Drop a temporary view, if there is one of the name; what was cached of it stays."""

    def parsed(self, sql: str) -> Any | None:  # noqa: ANN401 - an object of the JVM
        """Return a query as Spark's parser reads it, which looks up no name; None: it is out of reach."""

    def rows_of(self, parsed: Any) -> DataFrame:  # noqa: ANN401 - likewise
        """Return the rows of a query that ``parsed`` returned."""

    def watched(self) -> AbstractContextManager[Callable[[], Sequence[RunningStage]]]:
        """Yield a function that lists the running stages, as long as the context lasts."""

    def cores(self) -> int:
        """Return the number of tasks that may run at once; a session of Spark Connect runs a job for it."""

    def configured(self) -> Collection[str]:
        """Return the names of all settings that Spark was started with."""

    def has_file_system(self, scheme: str) -> bool:
        """Return True if Spark's JVM has a file system for a scheme, as far as can be seen before a job."""

    def hadoop_version(self) -> str:
        """Return the version of Spark's Hadoop."""

    def set_hadoop(self, settings: Mapping[str, str]) -> None:
        """Pass settings to Spark's file systems of this session, which no log, page or event shows."""

    def pinned(self, frames: Mapping[str, DataFrame]) -> AbstractContextManager[Mapping[str, DataFrame]]:
        """Yield DataFrames of the session as ``rebind`` can read them in a copy that is made later."""

    def copied(self) -> AbstractContextManager[SparkSession]:
        """Return a copy of the session that lasts as long as the context; what changes in it, stays in it."""

    def owns(self, df: DataFrame) -> bool:
        """Return True if a DataFrame belongs to the session; Python may have many objects for one session."""

    def rebind(self, df: DataFrame) -> DataFrame:
        """Return a DataFrame of the session that this one is a copy of."""

    def give_package(self) -> None:
        """Make this package available to the tasks."""


def is_remote(spark: SparkSession) -> bool:
    """Return True if a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


_MOST_TASKS = 1_000
_MOST_ESTIMATED = 2**31  # more than Spark broadcasts
_ESTIMATED = 54  # bytes of a number from which a binary value is made
_BATCH_BYTES = 64 * 2**20  # Spark's own buffers hold 2 GiB, and the memory of a small executor less


def kind_of(spark: SparkSession) -> SessionBackend:
    """Return the session's functions beyond DataFrames."""
    if is_remote(spark):
        from .connect import Connect

        return Connect(spark)
    from .classic import Classic

    return Classic(spark)


def map_in_arrow(df: DataFrame, function: BatchFunction, schema: t.StructType) -> DataFrame:
    """Apply a function to the rows' batches; the driver finds the errors of ours that it raises."""
    of_driver = secret()

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from function(batches)
        except DuckLakeError as error:
            raise RuntimeError(marked(str(error), type(error), of_driver)) from error

    return kind_of(df.sparkSession).map_in_arrow(df, run, schema)


def _narrow(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch in batches of so many bytes."""
    count = max(1, batch.num_rows * _BATCH_BYTES // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, count):
        yield batch.slice(start, count)


def from_tasks(  # noqa: PLR0913 - the last has a default
    spark: SparkSession,
    documents: Iterable[Json],
    rows: Callable[[Json], Iterator[pa.RecordBatch]],
    schema: t.StructType,
    *,
    have_keys: bool,
    size_bytes: int = 0,
) -> DataFrame:
    """Return the rows that tasks make of JSON documents, a task for each of them.

    ``rows`` is sent to the tasks: it may hold plain values only; the job's zip brings the rest. It should be
    small: Spark puts a function above 1 MB into a file. ``have_keys``: the documents contain keys of files.
    ``size_bytes`` is what Spark takes the rows for when it plans a join: else it would broadcast them all.
    """
    key = writing.new_task_key() if have_keys else None

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for content in batch.column(0).to_pylist():
                for made in rows(_loaded(content, key)):
                    yield from _narrow(made)

    contents = pa.array((_dumped(one, key) for one in documents), pa.binary())
    listed = spark.createDataFrame(pa.table({"document": contents}), "document binary")
    if size_bytes:  # rows that there are not, of which Spark's estimate has so many bytes
        absent = spark.range(min(size_bytes, _MOST_ESTIMATED) // _ESTIMATED).where("id < 0")
        listed = listed.unionAll(absent.select(f.lit(None).cast("binary")))
    return map_in_arrow(listed.repartition(min(len(contents), _MOST_TASKS)), run, schema)


def sum_of_tasks(
    spark: SparkSession, documents: Iterable[Json], function: Callable[[Json], int], *, have_keys: bool
) -> int:
    """Return the sum of what a function returns for each JSON document; see ``from_tasks``."""
    of_driver, key = secret(), writing.new_task_key() if have_keys else None

    def run(content: bytes) -> int:
        try:
            return function(_loaded(content, key))
        except DuckLakeError as error:
            raise RuntimeError(marked(str(error), type(error), of_driver)) from error

    return kind_of(spark).sum_of_tasks([_dumped(one, key) for one in documents], run)


def _dumped(document: Json, key: bytes | None) -> bytes:
    content = json.dumps(document).encode()
    return content if key is None else writing.sealed_for_task(key, content)


def _loaded(content: bytes, key: bytes | None) -> Json:
    document: Json = json.loads(content if key is None else writing.opened_in_task(key, content))
    return document
