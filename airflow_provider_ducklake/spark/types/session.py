"""The job's SparkSession: ours where a value would otherwise be stored wrong, the user's everywhere else."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from airflow_provider_ducklake.storage.files.process_options import as_environment, process_options

if TYPE_CHECKING:
    from collections.abc import Iterator

# Without these Spark would store other values or types than the DataFrame has.
_REQUIRED = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}
_QUOTED_REGEX = "spark.sql.parser.quotedRegexColumnNames"
# ... or read other columns, texts or times than the files have, or take names in backticks for patterns.
_REQUIRED_TO_READ = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.fieldId.read.ignoreMissing": "false",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    _QUOTED_REGEX: "false",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}
# Spark 4 asks Arrow for a batch's size after each row, half of the Arrow engine's time (ADR 0009).
_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_NOT_MEASURED = "2147483647b"
_PY_FILES = "spark.submit.pyFiles"
_DEFAULTS = {
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}


def start_session(name: str) -> SparkSession:
    """Return the session of a submitted job; what the user configured counts before our defaults."""
    SparkContext._ensure_initialized()  # noqa: SLF001 - without its JVM a SparkConf is empty
    given = SparkConf()
    builder = SparkSession.builder.appName(name)
    for key, value in own_settings(given).items():
        builder = builder.config(key, value)
    builder = builder.config(_PY_FILES, _on_the_path(given.get(_PY_FILES) or ""))
    spark = builder.getOrCreate()
    _prepare_sources(spark)
    return spark


def own_settings(given: SparkConf) -> dict[str, str]:
    """Return what a session gets from us, where the user has not set it."""
    ours = {**_DEFAULTS, **_for_executors(given.get("spark.master") or "")}
    return {key: value for key, value in ours.items() if not given.contains(key)}


def _for_executors(master: str) -> dict[str, str]:
    """Return what hands the lake's storage options to executors that other machines start.

    Pods show their variables to many, and YARN's client writes all settings into a file of the staging
    directory (``__spark_conf__``); in one process with the driver executors have them anyway.
    """
    if not master.startswith(("spark://", "local-cluster")):
        return {}
    options = as_environment(process_options())
    return {f"spark.executorEnv.{name}": value for name, value in options.items()}


def _on_the_path(py_files: str) -> str:
    """Return the files that Python is to find modules in: the launcher has left the large jars out."""
    kept = {os.path.basename(path) for path in sys.path}  # noqa: PTH119 - URIs, too
    return ",".join(
        file for file in py_files.split(",") if not file.endswith(".jar") or file.rpartition("/")[2] in kept
    )


def prepare_reading(spark: SparkSession) -> None:
    """Set what reading a lake's files right depends on, however the session was started."""
    for key, value in _REQUIRED_TO_READ.items():
        spark.conf.set(key, value)
    sources = spark.conf.get(_V1_SOURCES) or ""
    if "parquet" not in [one.strip().lower() for one in sources.split(",")]:
        spark.conf.set(_V1_SOURCES, f"{sources},parquet")


def prepare(spark: SparkSession) -> None:
    """Set what correct files and fast jobs depend on; for a session that somebody else started, too.

    Call it right before a write: code of users, which runs before, may have set the session.
    """
    _prepare_sources(spark)
    spark.conf.set(_QUOTED_REGEX, "false")  # a user's own queries may take names in backticks for patterns


def _prepare_sources(spark: SparkSession) -> None:
    for key, value in _REQUIRED.items():
        spark.conf.set(key, value)
    if _BATCH_BYTES not in spark.conf.getAll:
        spark.conf.set(_BATCH_BYTES, _NOT_MEASURED)


_V1_SOURCES = "spark.sql.sources.useV1SourceList"  # the other readers know no places of rows
_PUSHDOWN = "spark.sql.parquet.filterPushdown"
_ADAPTIVE = "spark.sql.adaptive.enabled"


@contextmanager
def exact_filters(spark: SparkSession) -> Iterator[None]:
    """Have Spark look at rows instead of Parquet's bounds, which leave NaN out, as long as this lasts."""
    with _set(spark, _PUSHDOWN, "false"):
        yield


@contextmanager
def adaptive_as_in(other: SparkSession, spark: SparkSession) -> Iterator[None]:
    """Have Spark plan adaptively if another session does, as long as this lasts.

    The session of a streaming query may not; without it rows that are brought together come into as many
    files as there are shuffle partitions.
    """
    with _set(spark, _ADAPTIVE, other.conf.get(_ADAPTIVE) or "true"):
        yield


def measures_batches(spark: SparkSession) -> bool:
    """Whether batches for Python are counted in bytes, too."""
    return spark.conf.get(_BATCH_BYTES) != _NOT_MEASURED


def measure_batches(spark: SparkSession) -> None:
    """Have Spark count batches for Python in bytes, too, from now on: other threads may be writing."""
    spark.conf.set(_BATCH_BYTES, "64m")


@contextmanager
def _set(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    before = spark.conf.get(key) or "true"
    spark.conf.set(key, value)
    try:
        yield
    finally:
        spark.conf.set(key, before)
