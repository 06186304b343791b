"""Settings of a session: ours where a value would otherwise be stored wrong, the user's everywhere else."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_SUBSTITUTE = "spark.sql.variable.substitute"
# Without these Spark would store other values or types than the DataFrame has.
_REQUIRED = {
    _SUBSTITUTE: "false",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}
_NANOS_AS_LONG = "spark.sql.legacy.parquet.nanosAsLong"
_QUOTED_REGEX = "spark.sql.parser.quotedRegexColumnNames"
# ... or read other columns, texts or times than the files have, or take names in backticks for patterns.
_REQUIRED_TO_READ = {
    _SUBSTITUTE: "false",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.fieldId.read.ignoreMissing": "false",
    _NANOS_AS_LONG: "true",
    _QUOTED_REGEX: "false",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}
# Spark 4 asks Arrow for a batch's size after each row, half of the Arrow engine's time (ADR 0009).
_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_NOT_MEASURED = "2147483647b"


def take_texts_as_written(spark: SparkSession) -> None:
    """Keep Spark from replacing ``${…}`` in texts of SQL by its settings or by variables of its driver."""
    spark.conf.set(_SUBSTITUTE, "false")


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
    prepare_sources(spark)
    spark.conf.set(_QUOTED_REGEX, "false")  # a user's own queries may take names in backticks for patterns


def prepare_sources(spark: SparkSession) -> None:
    """Set what a job's sources are to be read by; see ``prepare``."""
    for key, value in _REQUIRED.items():
        spark.conf.set(key, value)
    if _BATCH_BYTES not in spark.conf.getAll:
        spark.conf.set(_BATCH_BYTES, _NOT_MEASURED)


_NAMED_FILES = "spark.sql.runSQLOnFiles"
_V1_SOURCES = "spark.sql.sources.useV1SourceList"  # the other readers know no places of rows
_PUSHDOWN = "spark.sql.parquet.filterPushdown"
_ADAPTIVE = "spark.sql.adaptive.enabled"
_PROTOCOL = "spark.sql.sources.commitProtocolClass"
_COMMITTER = "spark.sql.parquet.output.committer.class"


@contextmanager
def exact_filters(spark: SparkSession) -> Iterator[None]:
    """Have Spark look at rows instead of Parquet's bounds, which leave NaN out, as long as this lasts."""
    with _set(spark, _PUSHDOWN, "false"):
        yield


@contextmanager
def nanos_refused(spark: SparkSession) -> Iterator[None]:
    """Keep Spark from taking a user's timestamps in nanoseconds for numbers, as long as this lasts."""
    with _set(spark, _NANOS_AS_LONG, "false"):
        yield


@contextmanager
def no_named_files(spark: SparkSession) -> Iterator[None]:
    """Keep Spark from reading files that SQL names, as ``text.`/path```, as long as this lasts."""
    with _set(spark, _NAMED_FILES, "false"):
        yield


@contextmanager
def committed_by(spark: SparkSession, protocol: str, committer: str) -> Iterator[None]:
    """Have Spark's Parquet writer commit by these classes, as long as this lasts, if the user set none."""
    if {_PROTOCOL, _COMMITTER} & spark.conf.getAll.keys():
        yield
        return
    with _set(spark, _PROTOCOL, protocol), _set(spark, _COMMITTER, committer):
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
