"""What the submitted file runs: read the request, run its verb, write the result or the error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import SparkJobError, StorageError, UnsupportedFeatureError
from ...format.log_lines import counted, logger, size
from ...format.names.paths import split_scheme
from ...planning.writing.write import RowChanges, WritePlan, WriteResult
from ...storage.files import writing
from ...storage.files.filesystem import has_secrets, process_options
from ..job import io as job_io
from ..job.errors import typed
from ..job.request import JobRequest, StreamSource
from ..sessions.classic import start_session
from ..sessions.settings import reach_buckets, take_texts_as_written
from ..sources import of_source
from .compact import compact
from .insert import insert
from .row_changes import change_rows, overwrite
from .sql import run_sql
from .stream import run_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = logger(__name__)

_VERBS: dict[str, Callable[[SparkSession, JobRequest], tuple[WriteResult, ...] | RowChanges]] = {
    "insert": insert,
    "overwrite": overwrite,
    "sql": run_sql,
    "stream": run_stream,
    "delete": change_rows,
    "update": change_rows,
    "merge": change_rows,
    "merge_adjacent": compact,
    "rewrite": compact,
}


def main(arguments: Sequence[str]) -> int:
    """Run the job whose request lies at the first argument; return the process's exit code.

    The second one is the request's digest, since others may be able to write there. A third is the file with
    the key that seals it.
    """
    _start_logging()
    uri, digest, *key_file = arguments
    log.info("Job request: %s", uri)  # before users' own code: JobLog looks for a driver's line
    try:
        for file in key_file:
            writing.learn_from_file("", file)
        request = job_io.read_request(uri, digest)
    except StorageError as error:
        log.error("%s: %s", SparkJobError.__name__, unreadable_request(uri, error))  # noqa: TRY400 - one line
        return 1
    try:
        outcome = _run(request)
    except Exception as error:  # whatever it is, the operator must get it
        failure = typed(error)
        log.error("%s: %s", type(failure).__name__, failure)  # noqa: TRY400 - the operator raises it
        log.debug("The error as Spark raised it", exc_info=error)
        job_io.write_error(request, failure)
        return 1
    if isinstance(outcome, RowChanges):
        job_io.write_row_changes(request, outcome)
        log.info(
            "Wrote %s for %s", counted(len(outcome.deletes), "delete file"), counted(outcome.rows_gone, "row")
        )
        results: tuple[WriteResult, ...] = (outcome.updated, outcome.inserted)
    else:
        job_io.write_results(request, outcome)
        results = outcome
    for plan, result in zip(request.plans, results, strict=True):
        if result.details:  # else nothing was written
            _log_numbers(plan, result)
    return 0


def unreadable_request(uri: str, error: StorageError) -> str:
    """Explain why the driver cannot begin, and what helps; only the log can carry this."""
    if split_scheme(uri)[0] == "file":
        cure = (
            "The lake's data path must be the same location for the task and for Spark's driver and "
            "executors."
        )
    elif has_secrets():
        cure = "It was given the connection's storage options: check that they are valid where Spark runs."
    else:
        cure = (
            "It does not get the connection's storage options, which reach a driver in client mode only: "
            "give it the store's credentials through its machine's role or its own environment."
        )
    return f"The Spark driver cannot read {uri} ({error}). {cure}"


def _run(request: JobRequest) -> tuple[WriteResult, ...] | RowChanges:
    spark = start_session(f"ducklake {request.verb} {request.tables}")
    log.info("Spark application %s", spark.sparkContext.applicationId)
    try:
        return do(spark, request, process_options())
    finally:
        spark.stop()


def do(
    spark: SparkSession, request: JobRequest, storage_options: Mapping[str, Any]
) -> tuple[WriteResult, ...] | RowChanges:
    """Do what the request asks for, in a session that reaches the lake's store by these options."""
    verb = _VERBS.get(request.verb)
    if verb is None:
        raise UnsupportedFeatureError(
            f"This release of the job has no verb {request.verb!r}. Use the same release for the "
            "operator and the job."
        )
    reach_buckets(spark, _directories(request), storage_options)
    take_texts_as_written(spark)
    try:
        return verb(spark, request)
    except Exception as error:
        known = of_source(request.source, error)
        if known is None:
            raise
        raise known from error


def _directories(request: JobRequest) -> list[str]:
    checkpoints = [request.source.checkpoint] if isinstance(request.source, StreamSource) else []
    return [*(plan.root for plan in request.plans), *checkpoints]


def _start_logging() -> None:
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S"
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)


def _log_numbers(plan: WritePlan, result: WriteResult) -> None:
    log.info(
        "Wrote %s of %s in %s (%s), in %s s",
        counted(result.rows_written, "row"),
        plan.table,
        counted(len(result.data_files), "file"),
        size(sum(file.file_size_bytes for file in result.data_files)),
        result.details["seconds"],
    )
