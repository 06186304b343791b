"""The job that makes a file of each bin: a task for each, through pyarrow, which keeps the order of rows."""

from __future__ import annotations

import json
import logging
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import DuckLakeError
from airflow_provider_ducklake.planning.scan import ScanPlan
from airflow_provider_ducklake.planning.write import WriteResult
from airflow_provider_ducklake.spark import compaction_io, job_json
from airflow_provider_ducklake.spark.compaction_json import decode_compaction, encode_compaction
from airflow_provider_ducklake.spark.job_errors import marked
from airflow_provider_ducklake.spark.job_request import CompactionSource, job_directory
from airflow_provider_ducklake.spark.progress import progress_lines
from airflow_provider_ducklake.storage.compact_files import Merging, Rewriting

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from airflow_provider_ducklake.planning.compaction import Bin, Compaction
    from airflow_provider_ducklake.planning.write import WritePlan
    from airflow_provider_ducklake.spark.job_request import JobRequest
    from airflow_provider_ducklake.transaction.changes import MergedFile, RewrittenFile

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
    documents = [json.dumps(one) for one in _one_by_one(compaction)]
    context = spark.sparkContext
    with progress_lines(context):
        done = context.parallelize(documents, len(documents)).map(_task(plan, source)).collect()
    log.info("Wrote %d rows", sum(done))
    details = {"seconds": round(time.monotonic() - started, 1)}
    return (WriteResult(plan.target, plan.partition_fields, (), 0, "arrow", details),)


def _one_by_one(compaction: Compaction) -> list[job_json.Json]:
    """Return each bin as JSON with its table, the largest first: it takes the longest."""
    bins = sorted(compaction.bins, key=lambda one: -one.file_size_bytes)
    return [encode_compaction(replace(compaction, bins=(one,))) for one in bins]


def _task(plan: WritePlan, source: CompactionSource) -> Callable[[str], int]:
    """Return the function that a task runs; it carries plain values, and the job's zip brings the rest."""
    document, staging_id, partition_id = job_json.encode_plan(plan), source.staging_id, source.partition_id

    def run(text: str) -> int:
        alone = CompactionSource(decode_compaction(json.loads(text)), staging_id, partition_id)
        try:
            return compact_bin(alone, job_json.decode_plan(document))
        except DuckLakeError as error:
            raise RuntimeError(marked(str(error), type(error))) from error

    return run


def compact_bin(source: CompactionSource, plan: WritePlan) -> int:
    """Write the file of the only bin, then its record; return the number of rows."""
    compaction = source.compaction
    (files,), table = compaction.bins, compaction.table
    staged = replace(plan, directory=job_directory(table.root, source.staging_id))
    path = file_path(files, staged, source.partition_id)
    compacted: MergedFile | RewrittenFile
    if compaction.is_rewrite:
        reading = ScanPlan(table, files.files, (), inlined_deletes=compaction.marks)
        compacted = Rewriting(reading, plan.settings).rewrite(files, path)
    else:
        compacted = Merging(str(table.name), table.snapshot.id, plan.settings).merge(files, path)
    compaction_io.write_record(staged.directory, compacted)
    return compacted.file.record_count if compacted.file is not None else 0


def file_path(files: Bin, plan: WritePlan, partition_id: int | None) -> str:
    """Return where the file of a bin is to lie: in the folder of its partition, if that has one by now."""
    name = f"{uuid.uuid4().hex}.parquet"
    folder = plan.partition_folder(files.partition_values) if files.partition_id == partition_id else None
    return plan.directory + name if folder is None else folder + plan.prefix + name
