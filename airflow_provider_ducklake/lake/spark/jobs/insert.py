"""The insert job: rows of a source become data files of one table."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from ...errors import SparkJobError
from ...format.log_lines import logger
from ...format.partitioning import parse_partition_by
from ...format.schema import new_columns
from ...planning.writing.evolution import evolved
from ...planning.writing.write import WritePlan, WriteResult
from .. import sources
from ..job.errors import is_of_wide_rows
from ..output.log import TOO_WIDE
from ..sessions.classic import progress_lines
from ..sessions.settings import measure_batches, measures_batches, prepare
from ..types.spark_types import fields_of_spark, without_void
from ..writing import write_arrow
from ..writing.assignment import assign, fits, only_matching
from ..writing.partitions import with_keys
from ..writing.row_order import placed
from ..writing.write_arrow import Size, few_rows

if TYPE_CHECKING:
    from ...format.files import DataFile
    from ..job.request import JobRequest


log = logger(__name__)

_MANY_PARTITIONS = 1_000
_SMALL_FILE_BYTES = 4 * 2**20


def insert(spark: SparkSession, request: JobRequest) -> tuple[WriteResult, ...]:
    """Load the request's rows and write them."""
    (plan,) = request.plans
    return (write(sources.load(spark, request.source, plan.schema), plan),)


def write(df: DataFrame, plan: WritePlan, size: Size | None = None) -> WriteResult:
    """Write the rows of ``df`` as data files by one Spark action; ``size`` is theirs if it is known."""
    started = time.monotonic()
    prepare(df.sparkSession)
    plan = _resolved(df, plan)
    prepared, keys = _prepared(df, plan)
    with progress_lines(df.sparkSession):
        files, count = _written(prepared, keys, plan, size)
    _warn_of_many_partitions(plan, files)
    details = _details(df.sparkSession, time.monotonic() - started)
    return WriteResult(plan.target, plan.partition_fields, tuple(files), count, details)


def _written(
    df: DataFrame, keys: list[str], plan: WritePlan, size: Size | None
) -> tuple[list[DataFile], int]:
    """Return the files and how many rows they hold; rows too wide for a batch are written in smaller ones."""
    are_measured = measures_batches(df.sparkSession)
    try:
        return _written_once(df, keys, plan, size)
    except Exception as error:
        if are_measured or not is_of_wide_rows(error):
            raise
    log.warning("%s: %s Writing again in that way.", plan.table, TOO_WIDE.sentence)
    measure_batches(df.sparkSession)
    return _written_once(df, keys, plan, size)


def _written_once(
    df: DataFrame, keys: list[str], plan: WritePlan, size: Size | None
) -> tuple[list[DataFile], int]:
    few = few_rows(df, keys, plan, size)
    if few is not None:
        return write_arrow.write_here(few, keys, plan), few.num_rows
    rows = Observation()
    observed = placed(df, keys, plan).observe(rows, f.count(f.lit(1)).alias("count"))
    files = write_arrow.write(observed, keys, plan)
    return files, _checked_count(plan, files, int(rows.get["count"]))


def _resolved(df: DataFrame, plan: WritePlan) -> WritePlan:
    """Return ``plan`` with the columns and keys that a new table is to have, or one that is to evolve."""
    if plan.evolution is not None:
        return replace(plan, schema=evolved(plan, fields_of_spark(without_void(df.schema)), fits))
    if plan.schema is not None:
        return plan
    schema = new_columns(fields_of_spark(df.schema))
    fields = parse_partition_by(plan.partition_by, schema, plan.table)
    return replace(plan, schema=schema, partition_fields=fields)


def _prepared(df: DataFrame, plan: WritePlan) -> tuple[DataFrame, list[str]]:
    assigned = assign(df, plan.target, plan.table, fills=plan.evolution is not None)
    if plan.where is not None:
        assigned = only_matching(assigned, plan.where, plan.target)
    return with_keys(assigned, plan.target, plan.partition_fields)


def _warn_of_many_partitions(plan: WritePlan, files: list[DataFile]) -> None:
    """Say what so many files cost; writing them is safe: a task has one file open at a time."""
    partitions = len({file.partition_values for file in files})
    size = sum(file.file_size_bytes for file in files) // max(1, len(files))
    if partitions >= _MANY_PARTITIONS and size < _SMALL_FILE_BYTES:
        log.warning(
            "%s: the rows were written to %d partitions in %d files of %d bytes on average. Each file adds "
            "rows for all its columns to the catalog, and every scan opens it. Use partition keys with "
            "fewer values, such as year(…), month(…) or bucket(…).",
            plan.table,
            partitions,
            len(files),
            size,
        )


def _checked_count(plan: WritePlan, files: list[DataFile], observed: int) -> int:
    counted = sum(file.record_count for file in files)
    if counted != observed:
        raise SparkJobError(
            f"{plan.table}: {observed} rows were given to the writer, but the files in {plan.directory} "
            f"hold {counted}. Nothing was committed; rerun the task."
        )
    return counted


def _details(spark: SparkSession, seconds: float) -> dict[str, str | int | float | None]:
    return {
        "seconds": round(seconds, 3),
        "application_id": spark.conf.get("spark.app.id"),
        "spark_version": spark.version,
    }
