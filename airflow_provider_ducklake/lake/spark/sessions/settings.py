"""Settings of a session: ours where a value would otherwise be stored wrong, the user's everywhere else."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...errors import InvalidInputError
from ...format.names.paths import hadoop_uri, split_scheme
from ...storage.files.filesystem import arrow_s3_options
from .kind import kind_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SUBSTITUTE = "spark.sql.variable.substitute"
# Spark 4 rounds 1.5 to 2 where it compares it to a decimal(38, 0). With it what does not fit is an error.
_KEEP_FRACTIONS = "spark.sql.legacy.decimal.retainFractionDigitsOnTruncate"
# Without these Spark would store other values or types than the DataFrame has.
_REQUIRED = {
    _SUBSTITUTE: "false",
    _KEEP_FRACTIONS: "true",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}
_NANOS_AS_LONG = "spark.sql.legacy.parquet.nanosAsLong"
_QUOTED_REGEX = "spark.sql.parser.quotedRegexColumnNames"
# ... or read other columns, texts or times than the files have, or take names in backticks for patterns.
_REQUIRED_TO_READ = {
    _SUBSTITUTE: "false",
    _KEEP_FRACTIONS: "true",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.fieldId.read.ignoreMissing": "false",
    _NANOS_AS_LONG: "true",
    _QUOTED_REGEX: "false",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}
# Spark 4 asks Arrow for a batch's size after each row, half of the time of a write (ADR 0009).
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
    """Set what correct files and fast jobs depend on; also for a session that the user started.

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


_V1_SOURCES = "spark.sql.sources.useV1SourceList"  # the other readers give no positions of rows
_ADAPTIVE = "spark.sql.adaptive.enabled"
_DOUBLE_QUOTED = "spark.sql.ansi.doubleQuotedIdentifiers"


@contextmanager
def nanos_refused(spark: SparkSession) -> Iterator[None]:
    """Keep Spark from taking a user's timestamps in nanoseconds for numbers, as long as this lasts."""
    with _set(spark, _NANOS_AS_LONG, "false"):
        yield


@contextmanager
def as_texts(spark: SparkSession) -> Iterator[None]:
    """Keep Spark from finding types for values in the names of folders, as long as this lasts."""
    with _set(spark, "spark.sql.sources.partitionColumnTypeInference.enabled", "false"):
        yield


@contextmanager
def as_views_are_written(spark: SparkSession) -> Iterator[None]:
    """Make Spark's parser read strings alike, and no variables in them, as long as this lasts."""
    take_texts_as_written(spark)
    with _set(spark, _DOUBLE_QUOTED, "false"):
        yield


@contextmanager
def adaptive_as_in(other: SparkSession, spark: SparkSession) -> Iterator[None]:
    """Make Spark plan adaptively if another session does, as long as this lasts.

    The session of a streaming query may not; without it rows that are brought together come into as many
    files as there are shuffle partitions.
    """
    with _set(spark, _ADAPTIVE, other.conf.get(_ADAPTIVE) or "true"):
        yield


def measures_batches(spark: SparkSession) -> bool:
    """Return True if batches for Python are counted in bytes, too."""
    return spark.conf.get(_BATCH_BYTES) != _NOT_MEASURED


def measure_batches(spark: SparkSession) -> None:
    """Make Spark limit batches for Python in bytes, too, from now on: other threads may be writing."""
    spark.conf.set(_BATCH_BYTES, "64m")


@contextmanager
def _set(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    before = spark.conf.get(key) or "true"
    spark.conf.set(key, value)
    try:
        yield
    finally:
        spark.conf.set(key, before)


# How Spark's JVM reaches a store: the jar it takes, and the connection's storage options as settings of
# S3A.
#
# They are made in the running session, for the lake's own buckets: no command line and no file has them.
# *Source:* "Configuring different S3 buckets with Per-Bucket Configuration" in Hadoop's guide to S3A.


def hadoop_path(path: str) -> str:
    """Return the absolute URI of a lake path; local ones may be relative to the working directory."""
    scheme, rest = split_scheme(path)
    return hadoop_uri(os.path.abspath(rest) if scheme == "file" else path)  # noqa: PTH100 - resolves no links


_PROVIDERS = "org.apache.hadoop.fs.s3a."
_AMAZON = "amazonaws.com"
_PACKAGES = {
    "s3a": "org.apache.hadoop:hadoop-aws:{hadoop}",
    "abfs": "org.apache.hadoop:hadoop-azure:{hadoop}",
    "abfss": "org.apache.hadoop:hadoop-azure:{hadoop}",
    "gs": "com.google.cloud.bigdataoss:gcs-connector:<its newest version>",
}


def require_file_system(spark: SparkSession, path: str) -> None:
    """Refuse a path that the JVM cannot open for want of a jar."""
    scheme = split_scheme(hadoop_uri(path))[0]
    if kind_of(spark).has_file_system(scheme):
        return
    package = _PACKAGES.get(scheme)
    version = kind_of(spark).hadoop_version()
    cure = f'packages="{package.format(hadoop=version)}"' if package else "packages or jars that bring it"
    raise InvalidInputError(
        f"Cannot read {path}: Spark has no file system for {scheme}:// on its classpath. Give the task "
        f"{cure}, or install the jar with Spark."
    )


def s3a_settings(storage_options: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return settings by their names behind ``fs.s3a.``, those together that make sense together only.

    >>> s3a_settings({"endpoint_url": "http://minio:9000"})
    [{}, {'endpoint': 'http://minio:9000', 'path.style.access': 'true'}, {}]
    """
    given = {name: str(value) for name, value in arrow_s3_options(storage_options).items()}
    return [_credentials(given), _address(given), _named(given, {"endpoint.region": "region"})]


def _credentials(given: Mapping[str, str]) -> dict[str, str]:
    if "anonymous" in given:
        return {"aws.credentials.provider": f"{_PROVIDERS}AnonymousAWSCredentialsProvider"}
    keys = {"access.key": "access_key", "secret.key": "secret_key", "session.token": "session_token"}
    named = _named(given, keys)
    if "access.key" not in named:
        return {}
    provider = (
        "TemporaryAWSCredentialsProvider" if "session.token" in named else "SimpleAWSCredentialsProvider"
    )
    return {**named, "aws.credentials.provider": f"{_PROVIDERS}{provider}"}


def _address(given: Mapping[str, str]) -> dict[str, str]:
    endpoint = given.get("endpoint_override")
    if endpoint is None:
        return {}
    return {"endpoint": endpoint, "path.style.access": str(_AMAZON not in endpoint).lower()}


def _named(given: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    return {name: given[key] for name, key in names.items() if key in given}


def reach_buckets(spark: SparkSession, paths: Iterable[str], storage_options: Mapping[str, Any]) -> None:
    """Set the options for the buckets of ``paths`` in Spark, unless the user has set S3A up."""
    buckets = {bucket for bucket in map(_bucket, paths) if bucket is not None}
    settings = [group for group in s3a_settings(storage_options) if group]
    if not buckets or not settings:
        return
    kind = kind_of(spark)
    configured = kind.configured()
    for bucket in buckets:
        for group in settings:
            if not _is_set(configured, bucket, group):
                kind.set_hadoop({f"fs.s3a.bucket.{bucket}.{name}": value for name, value in group.items()})


def _bucket(path: str) -> str | None:
    scheme, rest = split_scheme(hadoop_uri(path))
    return rest.split("/", 1)[0] if scheme == "s3a" else None


def _is_set(configured: Collection[str], bucket: str, names: Collection[str]) -> bool:
    return any(
        f"{prefix}fs.s3a.{where}{name}" in configured
        for prefix in ("spark.hadoop.", "")  # without it in a session of Spark Connect
        for where in ("", f"bucket.{bucket}.")
        for name in names
    )
