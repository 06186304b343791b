"""Errors of a job that can be found before Spark is started."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.errors import InvalidInputError, SourceNotFoundError, StorageError
from airflow_provider_ducklake.spark.job.request import datasets_of
from airflow_provider_ducklake.spec.names.paths import hadoop_uri

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_provider_ducklake.spark.job.request import JobRequest


_WILDCARDS = frozenset("*?[]{}\\")


def check_master(master: str, deploy_mode: str) -> None:
    """Refuse what Spark would refuse.

    Raises:
        InvalidInputError: this master runs no Python job in cluster mode.
    """
    if deploy_mode == "cluster" and master.startswith(("local", "spark://")):
        raise InvalidInputError(
            f"deploy_mode is 'cluster', but the master {master} runs Python jobs in client mode only. Set "
            "deploy_mode='client' in the task or its Spark connection."
        )


def check_sources(request: JobRequest, master: str, storage_options: Mapping[str, Any]) -> None:
    """Look for the sources' files, as far as this process sees what Spark will see.

    That is in the lake's own bucket, and on local disks where Spark runs on this machine.

    Raises:
        SourceNotFoundError: names the first that does not exist.
    """
    from airflow_provider_ducklake.storage.files.filesystem import exists  # noqa: PLC0415 - loads pyarrow

    for name, dataset in datasets_of(request.source).items():
        path = dataset.path
        if path is None or _WILDCARDS & set(path) or not _is_seen(path, request.directory, master):
            continue
        try:
            found = exists(path, storage_options)
        except StorageError:  # Spark may have other rights
            continue
        if not found:
            raise SourceNotFoundError(name, path)


def _is_seen(path: str, lake: str, master: str) -> bool:
    """Whether the path means the same file here; Spark knows more schemes, and its own relative paths."""
    if path.startswith("/"):
        return master.startswith("local")
    return "://" in path and _bucket(path) == _bucket(lake)


def _bucket(path: str) -> str:
    return "/".join(hadoop_uri(path).split("/")[:3])


def missing_package(directory: str, packages: Iterable[object], elsewhere: Iterable[object]) -> str | None:
    """Return a warning where it looks as if Spark could not open S3, where the job works.

    ``packages`` may name the jar; what is ``elsewhere`` cannot be looked into.
    """
    named = any("aws" in str(one) for one in packages)
    if (
        not hadoop_uri(directory).startswith("s3a://")
        or named
        or any(elsewhere)
        or _is_installed("hadoop-aws")
    ):
        return None
    return (
        f"The job works in {directory}, and none of this task's Spark settings names hadoop-aws. Unless the "
        "cluster has it, inserts are slower and reading the lake fails. Add "
        'packages="org.apache.hadoop:hadoop-aws:<the version of Spark\'s Hadoop>".'
    )


def unlike_here(directory: str, deploy_mode: str, storage_options: Mapping[str, Any]) -> str | None:
    """Return what a driver on another machine needs of its own; None where that is nothing.

    It reads the job's request in ``directory`` before all else.
    """
    if deploy_mode == "client":
        return None
    if "://" not in directory:
        return (
            "In cluster mode the driver runs on another machine. It reads and writes the lake's files at "
            f"{directory}, so that directory must be the same there, and the driver must run as the user of "
            f"this task (uid {os.geteuid()}), who alone may read a job's documents."
        )
    if not storage_options:
        return None
    return (
        "In cluster mode the driver runs on another machine, and gets none of the connection's storage "
        f"options, since they would be seen on the way. It opens {directory} with credentials of its own: "
        "the role of its machine or pod, or variables such as AWS_ACCESS_KEY_ID in its environment."
    )


def _is_installed(jar: str) -> bool:
    """Whether the Spark of this machine has the jar."""
    installed = find_spec("pyspark")
    homes = [os.environ.get("SPARK_HOME"), *((installed and installed.submodule_search_locations) or ())]
    return any(next(Path(home, "jars").glob(f"{jar}-*.jar"), None) for home in homes if home)


def mismatch() -> str | None:
    """Return what is wrong with the installed PySpark, None where nothing is.

    ``pyspark-client``, which Airflow's Spark provider installs, overwrites hundreds of ``pyspark``'s files.
    It is not released with each version of ``pyspark``, so its own is the one that both have.
    """
    try:
        full, client = version("pyspark"), version("pyspark-client")
    except PackageNotFoundError:  # spark-submit is somebody else's
        return None
    if full == client:
        return None
    return (
        f"Where this task runs, pyspark is {full} and pyspark-client is {client}. They install the same "
        "files, so one breaks the other. Install airflow-provider-ducklake-spark[pyspark], which pins both "
        "to the tested version, or install both in the same version: pip install --force-reinstall "
        f"pyspark=={client} pyspark-client=={client}."
    )
