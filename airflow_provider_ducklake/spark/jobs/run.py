"""What the submitted file runs: read the request, do its verb, leave the result or the error beside it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.planning.row_changes import RowChanges
from airflow_provider_ducklake.spark import job_io
from airflow_provider_ducklake.spark.job_errors import typed
from airflow_provider_ducklake.spark.jobs.compact import compact
from airflow_provider_ducklake.spark.jobs.insert import insert
from airflow_provider_ducklake.spark.jobs.overwrite import overwrite
from airflow_provider_ducklake.spark.jobs.row_changes import change_rows
from airflow_provider_ducklake.spark.jobs.sql import run_sql
from airflow_provider_ducklake.spark.jobs.stream import run_stream
from airflow_provider_ducklake.spark.session import start_session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from airflow_provider_ducklake.planning.write import WritePlan, WriteResult
    from airflow_provider_ducklake.spark.job_request import JobRequest

log = logging.getLogger(__name__)

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

    The second one is the request's digest: the place where it lies may be one where others write.
    """
    _start_logging()
    uri, digest = arguments
    request = job_io.read_request(uri, digest)
    try:
        outcome = _run(request)
    except Exception as error:  # whatever it is, the operator is to know
        failure = typed(error)
        log.error("%s: %s", type(failure).__name__, failure)  # noqa: TRY400 - the operator raises it
        log.debug("The error as Spark raised it", exc_info=error)
        job_io.write_error(request, failure)
        return 1
    if isinstance(outcome, RowChanges):
        job_io.write_row_changes(request, outcome)
        log.info("Wrote %d delete files, %d rows", len(outcome.deletes), outcome.rows_gone)
        results: tuple[WriteResult, ...] = (outcome.updated, outcome.inserted)
    else:
        job_io.write_results(request, outcome)
        results = outcome
    for plan, result in zip(request.plans, results, strict=True):
        _log_numbers(plan, result)
    return 0


def _run(request: JobRequest) -> tuple[WriteResult, ...] | RowChanges:
    verb = _VERBS.get(request.verb)
    if verb is None:
        raise UnsupportedFeatureError(f"This release of the job knows no {request.verb!r}.")
    spark = start_session(f"ducklake {request.verb} {request.tables}")
    try:
        return verb(spark, request)
    finally:
        spark.stop()


def _start_logging() -> None:
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S"
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)


def _log_numbers(plan: WritePlan, result: WriteResult) -> None:
    log.info(
        "Wrote %d rows of %s to %d files, %d bytes, in %s s with the %s engine",
        result.rows_written,
        plan.table,
        len(result.data_files),
        sum(file.file_size_bytes for file in result.data_files),
        result.details.get("seconds"),
        result.engine,
    )
