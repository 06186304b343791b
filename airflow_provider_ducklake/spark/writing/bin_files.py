"""The files written for bins: their paths, and their records."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.spark.job import compaction_io
from airflow_provider_ducklake.spark.job.request import job_directory

if TYPE_CHECKING:
    from airflow_provider_ducklake.planning.upkeep.compaction import Bin
    from airflow_provider_ducklake.planning.writing.write import WritePlan
    from airflow_provider_ducklake.spark.job.request import CompactionSource
    from airflow_provider_ducklake.transaction.changes import MergedFile, RewrittenFile


def file_path(files: Bin, plan: WritePlan, source: CompactionSource) -> str:
    """Return where the file of a bin is to lie: in the folder of its partition, if that has one by now."""
    staged = replace(plan, directory=_directory(source))
    name = f"{uuid.uuid4().hex}.parquet"
    has_folder = files.partition_id == source.partition_id
    folder = staged.partition_folder(files.partition_values) if has_folder else None
    return staged.directory + name if folder is None else folder + staged.prefix + name


def write_record(source: CompactionSource, compacted: MergedFile | RewrittenFile) -> None:
    """Write down that the file of a bin is complete."""
    compaction_io.write_record(_directory(source), compacted)


def _directory(source: CompactionSource) -> str:
    return job_directory(source.compaction.table.root, source.staging_id)
