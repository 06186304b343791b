"""The compaction job: one Spark task writes one file for each bin, with pyarrow, in the order of rows.

Where rows are to be sorted, Spark does that; see ``sorted_bins``.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import DuckLakeError
from airflow_provider_ducklake.planning.upkeep.compaction import Compaction
from airflow_provider_ducklake.planning.writing.write import RowOrder, WritePlan, WriteResult
from airflow_provider_ducklake.spark.job.codec import Json, decode, encode
from airflow_provider_ducklake.spark.job.errors import marked, secret
from airflow_provider_ducklake.spark.job.request import CompactionSource
from airflow_provider_ducklake.spark.output.progress import progress_lines
from airflow_provider_ducklake.spark.writing.bin_files import file_path, write_record
from airflow_provider_ducklake.spark.writing.sorted_bins import compact_sorted
from airflow_provider_ducklake.storage.moving.compact_files import compactor

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from airflow_provider_ducklake.spark.job.request import JobRequest

log = logging.getLogger(__name__)


def compact(spark: SparkSession, request: JobRequest) -> tuple[WriteResult, ...]:
    """Make a file of each bin; what is complete has a record, whatever becomes of the others.

    Raises:
        StorageError: a file is missing, damaged or has another number of rows than the catalog says.
        UnsupportedFeatureError: a file has a layout that this release cannot read.
    """
    (plan,), source = request.plans, request.source
    assert isinstance(source, CompactionSource)
    compaction = source.compaction
    log.info(
        "%s %d files of %s, %d bytes, into %d",
        "Rewriting" if compaction.is_rewrite else "Merging",
        *(compaction.file_count, compaction.table.name, compaction.file_size_bytes, len(compaction.bins)),
    )
    started = time.monotonic()
    with progress_lines(spark.sparkContext):
        is_sorted = plan.row_order != RowOrder()
        count = compact_sorted(spark, source, plan) if is_sorted else _compact_in_order(spark, source, plan)
    log.info("Wrote %d rows", count)
    details = {"seconds": round(time.monotonic() - started, 1)}
    return (WriteResult(plan.target, plan.partition_fields, (), 0, "arrow", details),)


def _compact_in_order(spark: SparkSession, source: CompactionSource, plan: WritePlan) -> int:
    documents = [json.dumps(one) for one in _one_by_one(source.compaction)]
    return int(spark.sparkContext.parallelize(documents, len(documents)).map(_task(plan, source)).sum())


def _one_by_one(compaction: Compaction) -> list[Json]:
    """Return each bin as JSON with its table, the largest first: it takes the longest."""
    bins = sorted(compaction.bins, key=lambda one: -one.file_size_bytes)
    return [encode(replace(compaction, bins=(one,)), Compaction) for one in bins]


def _task(plan: WritePlan, source: CompactionSource) -> Callable[[str], int]:
    """Return the function that a task runs; it carries plain values, and the job's zip brings the rest."""
    document, staging_id, partition_id = encode(plan, WritePlan), source.staging_id, source.partition_id
    of_driver = secret()

    def run(text: str) -> int:
        alone = CompactionSource(decode(json.loads(text), Compaction), staging_id, partition_id)
        try:
            return compact_bin(alone, decode(document, WritePlan))
        except DuckLakeError as error:
            raise RuntimeError(marked(str(error), type(error), of_driver)) from error

    return run


def compact_bin(source: CompactionSource, plan: WritePlan) -> int:
    """Write the file of the only bin, then its record; return the number of rows."""
    (files,) = source.compaction.bins
    compacted = compactor(source.compaction, plan.settings).compact(files, file_path(files, plan, source))
    write_record(source, compacted)
    return compacted.file.record_count if compacted.file is not None else 0
