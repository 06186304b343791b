"""Write the micro-batches of a streaming query as data files that wait for their commit.

Spark records in its checkpoint that a batch is done when our function returns, before the files are
committed. So each batch leaves a record beside the checkpoint, by which the operator commits it, in this try
of the task or in the next one. See ``docs/adr/0013-streams-are-staged.md``.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, StreamingQueryException

from ...errors import InvalidInputError, StorageError
from ...format.log_lines import logger
from ...format.names.paths import hadoop_uri
from ...planning.writing.staged import StagedBatch
from ...planning.writing.write import WritePlan, WriteResult
from ...storage.files.listing import delete_tree
from .. import sources
from ..job import io as stream_io
from ..job.errors import message_of
from ..job.request import JobRequest, StreamSource, job_directory
from ..sessions.settings import adaptive_as_in, prepare, require_file_system
from ..writing.assignment import assign
from .insert import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


log = logger(__name__)


def stage_batches(df: DataFrame, plan: WritePlan, source: StreamSource) -> WriteResult:
    """Stage the rows of a streaming DataFrame that are there by now and new to its checkpoint.

    The result sums up all batches.
    """
    started = time.monotonic()
    prepare(df.sparkSession)
    assign(df, plan.target, plan.table)  # before Spark decides what the first batch is
    batches = _Batches(df.sparkSession, plan, source)
    query = _start(df, batches, source.checkpoint)
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        raise batches.error or error from error
    staged = batches.staged
    return WriteResult(
        plan.target,
        plan.partition_fields,
        tuple(file for one in staged for file in one.data_files),
        sum(one.rows_written for one in staged),
        {"batches": len(staged), "seconds": round(time.monotonic() - started, 3)},
    )


def _start(df: DataFrame, batches: _Batches, checkpoint: str) -> StreamingQuery:
    require_file_system(df.sparkSession, checkpoint)
    writer = df.writeStream.foreachBatch(batches.stage).trigger(availableNow=True)
    try:
        return writer.start(checkpointLocation=hadoop_uri(checkpoint.rstrip("/")))
    except AnalysisException as error:
        raise InvalidInputError(f"The stream cannot be appended to a table: {message_of(error)}") from error


class _Batches:
    """Called by Spark with each batch; ``error`` is why it failed, before it went through the JVM."""

    def __init__(self, spark: SparkSession, plan: WritePlan, source: StreamSource) -> None:
        self.staged: list[WriteResult] = []
        self.error: Exception | None = None
        self._spark, self._plan, self._source = spark, plan, source
        self._newest = _newest(source.checkpoint)  # before another driver adds some

    def stage(self, df: DataFrame, batch_id: int) -> None:
        try:
            self._stage(df, batch_id)
        except Exception as error:
            self.error = error
            raise

    def _stage(self, df: DataFrame, batch_id: int) -> None:
        checkpoint = self._source.checkpoint
        query_id = stream_io.query_id(checkpoint)
        assert query_id is not None, "Spark writes it before the first batch"
        if batch_id in stream_io.batch_ids(checkpoint, query_id):
            log.info("Batch %d is already staged; skipping its rows", batch_id)
            _consume(df)
            return
        if batch_id < self._newest:
            raise InvalidInputError(
                f"The checkpoint {checkpoint} was reset: Spark runs batch {batch_id}, but batch "
                f"{self._newest} is already staged. Rows would be missing or duplicated; use a new "
                "checkpoint."
            )
        result = self._write(df, batch_id)
        if result.data_files:
            batch = StagedBatch(query_id, batch_id, self._source.staging_id, result)
            stream_io.write_batch(checkpoint, batch)
            self.staged.append(result)
            log.info(
                "Staged batch %d: %d rows, %d files", batch_id, result.rows_written, len(result.data_files)
            )

    def _write(self, df: DataFrame, batch_id: int) -> WriteResult:
        directory = f"{job_directory(self._plan.root, self._source.staging_id)}{batch_id}/"
        try:
            with adaptive_as_in(self._spark, df.sparkSession):
                return write(df, replace(self._plan, directory=directory))
        except Exception:
            with suppress(StorageError):
                delete_tree(directory)
            raise


def _newest(checkpoint: str) -> int:
    """Return the newest batch with a record, -1 where there is none."""
    query_id = stream_io.query_id(checkpoint)
    known = [] if query_id is None else stream_io.batch_ids(checkpoint, query_id)
    return known[-1] if known else -1


def _consume(df: DataFrame) -> None:
    """Run the batch for nothing: what a query remembers from batch to batch has to go on."""
    df.write.format("noop").mode("overwrite").save()


def run_stream(spark: SparkSession, request: JobRequest) -> tuple[WriteResult, ...]:
    """Stage all batches that there are by now; the result sums them up."""
    (plan,), source = request.plans, request.source
    assert isinstance(source, StreamSource)
    df = sources.load(spark, source.rows, plan.schema)
    if not df.isStreaming:
        raise InvalidInputError(
            f"transform={source.rows.function!r} returned a DataFrame that is not streaming. Read with "
            "spark.readStream, or insert the rows with DuckLakeSparkInsertOperator."
        )
    return (stage_batches(df, plan, source),)
