"""How Spark's JVM reaches a store: the jar it takes, and the connection's storage options as settings of S3A.

They are made in the running session, for the lake's own buckets: no command line and no file has them.
*Source:* "Configuring different S3 buckets with Per-Bucket Configuration" in Hadoop's guide to S3A.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.spark.sessions.kind import kind_of
from airflow_provider_ducklake.lake.spec.names.paths import hadoop_uri
from airflow_provider_ducklake.lake.storage.files.filesystem import arrow_s3_options, split_scheme

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pyspark.sql import SparkSession


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


def why_unreachable(spark: SparkSession, path: str) -> str | None:
    """Return why the JVM cannot open a path at all, None if it can."""
    scheme = split_scheme(hadoop_uri(path))[0]
    if kind_of(spark).has_file_system(scheme):
        return None
    return f"Spark has no file system for {scheme}:// on its classpath"


def require_file_system(spark: SparkSession, path: str) -> None:
    """Refuse a path that the JVM cannot open for want of a jar.

    Raises:
        InvalidInputError: names the package.
    """
    reason = why_unreachable(spark, path)
    if reason is None:
        return
    package = _PACKAGES.get(split_scheme(hadoop_uri(path))[0])
    version = kind_of(spark).hadoop_version()
    cure = f'packages="{package.format(hadoop=version)}"' if package else "packages or jars that bring it"
    raise InvalidInputError(
        f"Cannot read {path}: {reason}. Give the task {cure}, or install the jar with Spark."
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
    """Have Spark open the buckets of ``paths`` with the options, except where the user has set S3A up."""
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
        f"spark.hadoop.fs.s3a.{where}{name}" in configured
        for where in ("", f"bucket.{bucket}.")
        for name in names
    )
