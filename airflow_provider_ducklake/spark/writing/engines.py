"""Which engine writes a table's files, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.spark.types.object_store import why_unreachable
from airflow_provider_ducklake.spark.types.spark_types import why_not_native
from airflow_provider_ducklake.storage.files.filesystem import split_scheme

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_provider_ducklake.planning.writing.write import WritePlan

_NATIVE_CODECS = ("uncompressed", "snappy", "gzip", "zstd", "lz4", "lz4_raw")


def choose_engine(spark: SparkSession, wanted: str, plan: WritePlan) -> tuple[str, str]:
    """Return the engine and the reason for it.

    Raises:
        UnsupportedFeatureError: ``native`` was asked for and cannot store the table.
    """
    if wanted == "arrow":
        return "arrow", "asked for"
    obstacle = why_not_native(plan.target) or _unfit_setting(plan) or why_unreachable(spark, plan.directory)
    if wanted == "native":
        if obstacle is not None:
            raise UnsupportedFeatureError(
                f"engine='native' cannot write {plan.table}: {obstacle}. Use engine='arrow' or 'auto'."
            )
        return "native", "asked for"
    obstacle = obstacle or _costs_copies(plan)
    if obstacle is not None:
        return "arrow", obstacle
    return "native", "Spark's writer can store every column"


def _unfit_setting(plan: WritePlan) -> str | None:
    settings = plan.settings
    codec = settings.compression.lower()
    if codec not in _NATIVE_CODECS:
        return f"Spark has no {codec} codec"
    if settings.compression_level is not None and codec == "gzip":
        return "Spark's writer supports a compression level for zstd only"
    if plan.partition_fields and not settings.hive_file_pattern:
        return "the lake does not use partition folders, which Spark's writer creates"
    return None


def _costs_copies(plan: WritePlan) -> str | None:
    """Return why another engine is better although Spark's writer could do it."""
    if plan.partition_fields and split_scheme(plan.directory)[0] != "file":
        return (
            "files of a partition share a folder of the table, and Spark's writer would have to copy them "
            "there"
        )
    return None
