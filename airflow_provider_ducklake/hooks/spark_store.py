"""What Spark needs to open a store, and what of it a job's settings lack: found before it is submitted.

Only what would certainly fail is refused. What a cluster's image or its machines may bring is a warning.
*Sources:* "Hadoop-AWS module", "AWS SDK V2 upgrade" and ``CredentialProviderListFactory`` of Hadoop.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.hooks.opened_paths import opened_by_jvm
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.spec.names.paths import hadoop_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_ducklake.hooks.submit_settings import SubmitSettings
    from airflow_provider_ducklake.lake.spark.job.request import JobRequest

_SCHEME = re.compile(r"([a-z][a-z0-9]+)://([^/]*)")


@dataclass(frozen=True, slots=True)
class Connector:
    """The artifact that opens a store; ``of_hadoop`` is whether its version is Hadoop's."""

    group: str
    artifact: str
    of_hadoop: bool = True

    def package(self, hadoop: str | None) -> str:
        """Return the coordinates of what brings it, with words for a version that is not known."""
        version = (hadoop or "<the version of Spark's Hadoop>") if self.of_hadoop else "<its newest version>"
        return f"{self.group}:{self.artifact}:{version}"


_S3A = Connector("org.apache.hadoop", "hadoop-aws")
_ABFS = Connector("org.apache.hadoop", "hadoop-azure")
_GCS = Connector("com.google.cloud.bigdataoss", "gcs-connector", of_hadoop=False)
_CONNECTORS = {"s3a": _S3A, "abfs": _ABFS, "abfss": _ABFS, "gs": _GCS}


def check_store(
    request: JobRequest, settings: SubmitSettings, storage_options: Mapping[str, Any]
) -> list[str]:
    """Return what looks wrong with a job's settings for its stores.

    Raises:
        InvalidInputError: Spark would fail at them.
    """
    _check_connectors(request, settings)
    _check_providers(settings)
    scheme, _ = _store(request.directory)
    found = (
        _maybe_missing(request.directory, settings),
        *(_other_version(one, settings) for one in dict.fromkeys(_CONNECTORS.values()) if one.of_hadoop),
        _other_endpoint(request.directory, settings, storage_options) if scheme == "s3a" else None,
    )
    return [one for one in found if one is not None]


def missing_packages(request: JobRequest, settings: SubmitSettings) -> list[str]:
    """Return the packages that bring what this machine's driver needs for the stores that a job reads.

    Only those whose version is known: that of Spark's Hadoop.
    """
    found = {
        connector.package(settings.hadoop)
        for path in opened_by_jvm(request).values()
        if (connector := _CONNECTORS.get(_store(path)[0])) is not None
        and not (settings.has(connector.artifact) or _is_brought(connector, settings))
        and connector.of_hadoop
        and settings.hadoop is not None
    }
    return sorted(found)


def _store(path: str) -> tuple[str, str]:
    match = _SCHEME.match(hadoop_uri(path))
    return (match[1], match[2]) if match else ("file", "")


def _check_connectors(request: JobRequest, settings: SubmitSettings) -> None:
    """Refuse a job that reads a store which this machine's driver certainly cannot open."""
    for name, path in opened_by_jvm(request).items():
        connector = _CONNECTORS.get(_store(path)[0])
        if connector is None or not settings.is_whole or settings.has(connector.artifact):
            continue
        or_auto = ", or set spark_packages to auto in the lake's connection" if connector.of_hadoop else ""
        raise InvalidInputError(
            f"Spark cannot open {path} ({name}): {connector.artifact}, which brings the file system of its "
            f"store, is neither among the task's packages and jars nor in Spark's folder. Add packages="
            f'"{connector.package(settings.hadoop)}" to the task or its DAG\'s default_args{or_auto}.'
        )


def _maybe_missing(directory: str, settings: SubmitSettings) -> str | None:
    """Return a warning where it looks as if Spark could not open the lake's store."""
    connector = _CONNECTORS.get(_store(directory)[0])
    if connector is None or settings.has(connector.artifact) or _is_brought(connector, settings):
        return None
    where = "Unless the cluster brings it, r" if not settings.is_whole else "R"
    return (
        f"The lake's files are in {directory}, and none of this task's Spark settings names "
        f"{connector.artifact}. {where}eading the lake or other files there in Spark fails; inserts from "
        f'elsewhere work. Add packages="{connector.package(settings.hadoop)}".'
    )


def _is_brought(connector: Connector, settings: SubmitSettings) -> bool:
    """Whether something of another name may well bring a connector: an own build, or cloud bundles."""
    word = {"hadoop-aws": "aws", "hadoop-azure": "azure"}.get(connector.artifact, "gcs")
    return any(word in one or "hadoop-cloud" in one for one in settings.artifacts)


def _other_version(connector: Connector, settings: SubmitSettings) -> str | None:
    version = settings.artifacts.get(connector.artifact)
    if version is None or settings.hadoop is None or _numbers(version) == _numbers(settings.hadoop):
        return None
    return (
        f"{connector.artifact} is {version}, but Spark's Hadoop is {settings.hadoop}: classes of one do not "
        "fit the other, and Spark may fail with NoSuchMethodError or ClassNotFoundException. Give "
        f'packages="{connector.package(settings.hadoop)}".'
    )


def _numbers(version: str) -> list[int]:
    """Return a version's numbers: a vendor's build of the same release has more behind them."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return [int(one) for one in match[0].split(".")[:3]] if match else []


_OF_SDK_V1 = "com.amazonaws.auth."
_S3A_CLASSES = "org.apache.hadoop.fs.s3a."
_V2_CLASSES = "software.amazon.awssdk.auth.credentials."
# S3A itself takes others for these.
_MAPPED = {
    f"{_OF_SDK_V1}{name}"
    for name in (
        "AnonymousAWSCredentials",
        "EC2ContainerCredentialsProviderWrapper",
        "InstanceProfileCredentialsProvider",
        "EnvironmentVariableCredentialsProvider",
        "profile.ProfileCredentialsProvider",
    )
}
_SUCCESSORS = {
    "WebIdentityTokenCredentialsProvider": f"{_V2_CLASSES}WebIdentityTokenFileCredentialsProvider",
    "DefaultAWSCredentialsProviderChain": f"{_V2_CLASSES}DefaultCredentialsProvider",
    "AWSStaticCredentialsProvider": f"{_S3A_CLASSES}SimpleAWSCredentialsProvider",
    "BasicAWSCredentials": f"{_S3A_CLASSES}SimpleAWSCredentialsProvider",
    "BasicSessionCredentials": f"{_S3A_CLASSES}TemporaryAWSCredentialsProvider",
    "STSAssumeRoleSessionCredentialsProvider": f"{_S3A_CLASSES}auth.AssumedRoleCredentialProvider",
}
_SINCE_V2 = [3, 4]


def _check_providers(settings: SubmitSettings) -> None:
    """Refuse classes of Amazon's SDK v1 where S3A has v2 alone."""
    if settings.hadoop is None or _numbers(settings.hadoop)[:2] < _SINCE_V2 or not settings.is_whole:
        return
    for name, value in settings.conf.items():
        if not (name.startswith("spark.hadoop.fs.s3a.") and "credentials.provider" in name):
            continue
        for one in filter(None, re.split(r"[,\s]+", value)):
            if one.startswith(_OF_SDK_V1) and one not in _MAPPED:
                raise InvalidInputError(_no_such_class(name, one, settings.hadoop))


def _no_such_class(name: str, given: str, hadoop: str) -> str:
    successor = _SUCCESSORS.get(given.rpartition(".")[2], f"{_V2_CLASSES}DefaultCredentialsProvider")
    return (
        f"conf {name!r} names {given}, a class of Amazon's SDK v1, which Hadoop {hadoop} does not have any "
        f"more. Set it to {successor}, or leave it out: S3A then looks for keys in its settings, the "
        "environment and the machine's role."
    )


def _other_endpoint(
    directory: str, settings: SubmitSettings, storage_options: Mapping[str, Any]
) -> str | None:
    """Return that Spark would look for the lake's bucket elsewhere than the task does."""
    _, bucket = _store(directory)
    names = (f"spark.hadoop.fs.s3a.bucket.{bucket}.endpoint", "spark.hadoop.fs.s3a.endpoint")
    name = next((one for one in names if one in settings.conf), None)
    if name is None or endpoint_of(storage_options) is not None:
        return None
    return (
        f"conf {name!r} has Spark open the bucket {bucket} at {settings.conf[name]}, but the task and the "
        "Python of the job open it at Amazon's own address: the DuckLake connection names no endpoint. Add "
        f'"endpoint_url": "{settings.conf[name]}" to its storage_options.'
    )


def endpoint_of(storage_options: Mapping[str, Any]) -> str | None:
    """Return the address of a store that is not at Amazon's own; None: none is named."""
    client = storage_options.get("client_kwargs") or {}
    found = storage_options.get("endpoint_url") or client.get("endpoint_url")
    variables = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    return found or next((os.environ[one] for one in variables if os.environ.get(one)), None)
