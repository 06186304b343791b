"""Errors of a job that can be found before Spark is started."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.lake.errors import InvalidInputError, SourceNotFoundError, StorageError
from airflow_provider_ducklake.lake.spark.job.request import datasets_of
from airflow_provider_ducklake.lake.spec.names.paths import hadoop_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_ducklake.lake.spark.job.request import JobRequest


_WILDCARDS = frozenset("*?[]{}\\")


def check_master(master: str, deploy_mode: str) -> None:
    """Refuse what Spark, or Airflow's hook of it, would refuse.

    Raises:
        InvalidInputError: this master runs no Python job in cluster mode, or needs a package here.
    """
    if master.startswith("k8s://") and not _has_kubernetes():
        raise InvalidInputError(
            f"The master is {master}, and Airflow submits to Kubernetes only with its provider for that. "
            "Install apache-airflow-providers-cncf-kubernetes where the task runs."
        )
    if deploy_mode == "cluster" and master.startswith("local"):
        raise InvalidInputError(
            f"deploy_mode is 'cluster', but the master {master} runs Python jobs in client mode only. Set "
            "deploy_mode='client' in the task or its Spark connection."
        )


def _has_kubernetes() -> bool:
    try:
        return find_spec("airflow.providers.cncf.kubernetes.kube_client") is not None
    except ModuleNotFoundError:
        return False


def check_sources(request: JobRequest, master: str, storage_options: Mapping[str, Any]) -> None:
    """Look for the sources' files, as far as this process sees what Spark will see.

    That is in the lake's own bucket, and on local disks where Spark runs on this machine.

    Raises:
        SourceNotFoundError: names the first that does not exist.
    """
    from airflow_provider_ducklake.lake.storage.files.filesystem import exists  # noqa: PLC0415 - loads pyarrow

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
