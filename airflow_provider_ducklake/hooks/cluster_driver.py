"""What a driver in cluster mode needs of its own: it first reads the job's request in the lake's store.

*Sources:* "Running on Kubernetes" and "Running on YARN" in Spark's guide.
"""

from __future__ import annotations

import getpass
import os
import re
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.spec.names.paths import hadoop_uri, is_local

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_provider_ducklake.hooks.submit_settings import SubmitSettings

_UPLOAD = "spark.kubernetes.file.upload.path"
_IMAGE = "spark.kubernetes.container.image"
_TEMPLATE = "spark.kubernetes.driver.podTemplateFile"
_OF_IMAGE = "local://"
_MOUNT = re.compile(r"spark\.kubernetes\.driver\.volumes\.\w+\.[^.]+\.mount\.path\Z")
# Its client for that cannot do with the Netty of Spark 4.2, unless it is Amazon's bundle of 660 MB.
_FAST_COPY = "spark.hadoop.fs.s3a.optimized.copy.from.local.enabled"
# By which Hadoop's S3A, and Amazon's own tools, know who they are.
_VARIABLES = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "token"}
# Settings that give pods or containers credentials of their own.
_CREDENTIALS = re.compile(
    r"spark\.kubernetes\.authenticate\.(?:driver\.)?serviceAccountName"
    r"|spark\.kubernetes\.(?:driver\.secretKeyRef|driverEnv)\.(?:AWS|GOOGLE|AZURE)_"
    r"|spark\.yarn\.appMasterEnv\.(?:AWS|GOOGLE|AZURE)_"
    r"|spark\.hadoop\.hadoop\.security\.credential\.provider\.path\Z"
)


def check_submission(settings: SubmitSettings, application: str) -> None:
    """Refuse what Spark cannot submit to Kubernetes; see the settings that its guide asks for.

    Raises:
        InvalidInputError: a setting is missing.
    """
    if settings.has_driver_here or not settings.is_kubernetes or not settings.knows_conf:
        return
    if _IMAGE not in settings.conf and "spark.kubernetes.driver.container.image" not in settings.conf:
        raise InvalidInputError(
            f"On Kubernetes Spark needs an image, and no setting names one. Add conf {{{_IMAGE!r}: "
            "'registry.example.com/spark-lake:4.2.0'}, an image of Spark with pyarrow."
        )
    if not application.startswith(_OF_IMAGE) and _UPLOAD not in settings.conf:
        raise InvalidInputError(
            "In cluster mode on Kubernetes the driver's pod fetches what is submitted from a store. Add conf "
            f"{{{_UPLOAD!r}: 's3a://bucket/spark-uploads/'}}, a place that this machine may write and the "
            "pods may read."
        )


def needs_of_driver(
    directory: str, settings: SubmitSettings, storage_options: Mapping[str, Any]
) -> str | None:
    """Return what a driver on another machine needs to open ``directory``; None where that is nothing."""
    if settings.has_driver_here:
        return None
    parts = [*(_on_disk if is_local(directory) else _in_store)(directory, settings, storage_options)]
    return " ".join(["In cluster mode the driver runs on another machine.", *parts]) if parts else None


def _on_disk(directory: str, settings: SubmitSettings, _options: object) -> Iterator[str]:
    yield (
        f"It reads and writes the lake's files at {directory}, so that directory must be the same there, and "
        f"the driver must run as the user of this task ({getpass.getuser()}, uid {os.geteuid()}), who alone "
        "may read a job's documents."
    )
    if settings.is_kubernetes and not _is_mounted(directory, settings):
        yield (
            "No setting mounts it into the driver's pod. Add conf {'spark.kubernetes.driver.volumes."
            "persistentVolumeClaim.lake.mount.path': '…', 'spark.kubernetes.driver.volumes."
            "persistentVolumeClaim.lake.options.claimName': '…'}, and the same for the executor."
        )
    elif settings.is_yarn:
        yield (
            "YARN runs containers as the user of its NodeManagers, unless its LinuxContainerExecutor is set "
            "up: then as the user who submits."
        )


def _is_mounted(directory: str, settings: SubmitSettings) -> bool:
    mounts = [value for name, value in settings.conf.items() if _MOUNT.match(name)]
    return _TEMPLATE in settings.conf or any(directory.startswith(f"{one.rstrip('/')}/") for one in mounts)


def _in_store(directory: str, settings: SubmitSettings, storage_options: Mapping[str, Any]) -> Iterator[str]:
    has_own = _TEMPLATE in settings.conf or any(map(_CREDENTIALS.match, settings.conf))
    if not storage_options or has_own:
        return
    yield (
        "It gets no credentials of the connection, since they would be seen on the way. It opens "
        f"{directory} with credentials of its own: {_way(directory, settings)}."
    )


def _way(directory: str, settings: SubmitSettings) -> str:
    if settings.is_kubernetes and hadoop_uri(directory).startswith("s3a://"):
        return (
            "those of conf {'spark.kubernetes.authenticate.driver.serviceAccountName': '…'}, or of "
            "{'spark.kubernetes.driver.secretKeyRef.AWS_ACCESS_KEY_ID': '<secret>:<key>'} and the same for "
            "AWS_SECRET_ACCESS_KEY; the executors need them, too"
        )
    if settings.is_yarn:
        return (
            "the role of its machine, or a Hadoop credential store (conf {'spark.hadoop.hadoop.security."
            "credential.provider.path': 'jceks://hdfs/…'}) and AWS_ACCESS_KEY_ID and its like in the "
            "environment of the containers"
        )
    return "the role of its machine or pod, or variables such as AWS_ACCESS_KEY_ID in its environment"


def told_on_the_way(
    directory: str, settings: SubmitSettings, storage_options: Mapping[str, Any]
) -> dict[str, str]:
    """Return settings of ours for a driver on another machine: where the store is, and nothing secret."""
    from airflow_provider_ducklake.lake.storage.files.filesystem import address_as_environment  # noqa: PLC0415 - not for DAG files

    prefixes = {"k8s": "spark.kubernetes.driverEnv.", "yarn": "spark.yarn.appMasterEnv."}
    prefix = prefixes.get("yarn" if settings.is_yarn else settings.master.partition("://")[0])
    if settings.has_driver_here or is_local(directory) or prefix is None:
        return {}
    given = {prefix + name: value for name, value in address_as_environment(storage_options).items()}
    if hadoop_uri(settings.conf.get(_UPLOAD, "")).startswith("s3a://"):
        given[_FAST_COPY] = "false"
    return given


def secrets_of_upload(
    directory: str, settings: SubmitSettings, storage_options: Mapping[str, Any]
) -> dict[str, str]:
    """Return variables by which ``spark-submit`` itself opens the lake's bucket, if it uploads files there.

    Nothing of its environment goes into a pod. On YARN it would: into a file of the staging directory.
    """
    upload = hadoop_uri(settings.conf.get(_UPLOAD, ""))
    bucket = hadoop_uri(directory).split("/")[:3]
    if not settings.is_kubernetes or bucket[0] != "s3a:" or upload.split("/")[:3] != bucket:
        return {}
    return {name: str(storage_options[key]) for name, key in _VARIABLES.items() if storage_options.get(key)}
