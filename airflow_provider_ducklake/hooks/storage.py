"""An Airflow connection to a cloud as the options of fsspec that open its store.

*Sources:* the connection guides of Airflow's providers for Amazon, Google and Microsoft Azure; the arguments
of s3fs, gcsfs and adlfs.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from ..lake.errors import InvalidInputError, InvalidOptionError
from ..lake.planning.reading.scan import FileHistory
from ..lake.spark.job.request import (
    JobRequest,
    LakeSource,
    OverwriteSource,
    RowChangeSource,
    Source,
    StreamSource,
    datasets_of,
)
from ..lake.spec.names.paths import hadoop_uri

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from ..lake.spec.files import LiveDataFile
    from .spark_submit import SubmitSettings


_GOOGLE_PREFIX = "extra__google_cloud_platform__"
_AZURE_PREFIX = "extra__wasb__"


def options_of(conn_id: str) -> dict[str, Any]:
    """Return the storage options that a connection stands for."""
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise InvalidOptionError(
            f"the connection {conn_id!r} does not exist. Create it, or name another one."
        ) from None
    read = _OF_TYPES.get(connection.conn_type or "")
    if read is None:
        raise InvalidOptionError(
            f"the connection {conn_id!r} is of type {connection.conn_type!r}. Name one of type "
            f"{', '.join(_OF_TYPES)}."
        )
    return _given(read(connection, _extra(connection)))


def merged(options: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with a lake's own ones, which count; arguments of the client one by one.

    >>> merged({"key": "a", "client_kwargs": {"region_name": "x"}}, {"client_kwargs": {"verify": False}})
    {'key': 'a', 'client_kwargs': {'region_name': 'x', 'verify': False}}
    """
    both = {name: (options.get(name), own.get(name)) for name in options if name in own}
    deep = {
        name: {**one, **other}
        for name, (one, other) in both.items()
        if isinstance(one, Mapping) and isinstance(other, Mapping)
    }
    return {**options, **own, **deep}


def _extra(connection: Connection) -> dict[str, Any]:
    """Return the extra, where fields may have the names that older forms gave them."""
    try:
        extra = json.loads(connection.extra or "{}")
    except (ValueError, RecursionError):
        extra = None
    if not isinstance(extra, dict):
        raise InvalidOptionError(
            f"the extra of connection {connection.conn_id!r} is not a valid JSON object."
        )
    return {name.removeprefix(_GOOGLE_PREFIX).removeprefix(_AZURE_PREFIX): extra[name] for name in extra}


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value not in (None, "", {})}


def _amazon(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    session = extra.get("session_kwargs") or {}
    of_s3 = (extra.get("service_config") or {}).get("s3") or {}
    client = {
        "region_name": extra.get("region_name") or session.get("region_name"),
        "verify": extra.get("verify"),
    }
    return {
        **_amazon_keys(connection, extra),
        "endpoint_url": of_s3.get("endpoint_url") or extra.get("endpoint_url"),
        "client_kwargs": _given(client),
    }


def _amazon_keys(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    names = ("role_arn", "profile_name", "assume_role_method")
    session = extra.get("session_kwargs") or {}
    if any(extra.get(name) for name in names) or session.get("profile_name"):
        return _keys_of_role(str(connection.conn_id))
    return {
        "key": connection.login or extra.get("aws_access_key_id") or session.get("aws_access_key_id"),
        "secret": connection.password
        or extra.get("aws_secret_access_key")
        or session.get("aws_secret_access_key"),
        "token": extra.get("aws_session_token") or session.get("aws_session_token"),
    }


def _keys_of_role(conn_id: str) -> dict[str, Any]:
    """Take on the role or the profile by Airflow's Amazon provider; its keys expire after a while."""
    try:
        from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook  # noqa: PLC0415 - optional
    except ImportError:
        raise InvalidOptionError(
            f"the connection {conn_id!r} takes on a role or a profile. Install "
            "apache-airflow-providers-amazon, which can."
        ) from None
    hook: AwsGenericHook[Any] = AwsGenericHook(aws_conn_id=conn_id, client_type="s3")
    keys = hook.get_session().get_credentials().get_frozen_credentials()
    return {"key": keys.access_key, "secret": keys.secret_key, "token": keys.token}


def _google(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    names = ("key_secret_name", "impersonation_chain", "credential_config_file")
    if found := next((name for name in names if extra.get(name)), None):
        raise InvalidOptionError(
            f"the connection {connection.conn_id!r} has {found}, which cannot be handed to a Spark job. Give "
            "it a keyfile_dict or a key_path, or leave its credentials to the machines (Application Default "
            "Credentials)."
        )
    return {
        "token": _keyfile(connection, extra) or extra.get("key_path") or "google_default",
        "project": extra.get("project"),
    }


def _keyfile(connection: Connection, extra: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    keyfile = extra.get("keyfile_dict")
    if not isinstance(keyfile, str):
        return keyfile
    try:
        return json.loads(keyfile or "null")
    except (ValueError, RecursionError):
        raise InvalidOptionError(
            f"the connection {connection.conn_id!r} has a keyfile_dict that is not valid JSON."
        ) from None


def _azure(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    if extra.get("connection_string"):
        return {"connection_string": extra["connection_string"]}
    tenant = extra.get("tenant_id") or extra.get("tenant")
    account = extra.get("account_name") or _account(connection, has_client=bool(tenant))
    if tenant:
        client = {"client_id": connection.login, "client_secret": connection.password, "tenant_id": tenant}
        return {"account_name": account, **client}
    if extra.get("sas_token"):
        return {
            "account_name": account,
            "sas_token": str(extra["sas_token"]).partition("?")[2] or extra["sas_token"],
        }
    return {"account_name": account, "account_key": extra.get("shared_access_key") or connection.password}


def _account(connection: Connection, *, has_client: bool) -> str | None:
    """Return the storage account: the login, unless that is a client's id; then the host begins with it."""
    host = (connection.host or "").removeprefix("https://").partition(".")[0]
    return host if has_client or not connection.login else connection.login


_OF_TYPES: dict[str, Callable[[Connection, Mapping[str, Any]], dict[str, Any]]] = {
    "aws": _amazon,
    "google_cloud_platform": _google,
    "wasb": _azure,
    "adls": _azure,
}


# The paths that Spark's JVM opens itself for a job: all else is opened by Python.


def opened_by_jvm(request: JobRequest) -> dict[str, str]:
    """Map names for errors to paths: one for each source and table that is certainly read.

    No job reads tables without files, and the paths of a user's function or stream are unknown.
    """
    return dict(_read(request.source))


def _read(source: Source | None) -> Iterator[tuple[str, str]]:
    for name, dataset in datasets_of(source).items():
        if dataset.path is not None:
            yield name, dataset.path
    match source:
        case LakeSource():
            yield from _of_tables(source)
        case RowChangeSource(target, rows):
            yield from _of_files(str(target.table.name), target.files)
            if isinstance(rows, LakeSource):
                yield from _of_tables(rows)
        case OverwriteSource():
            yield from _read(source.replaced)
        case StreamSource():
            yield "checkpoint", source.checkpoint
        case _:
            return


def _of_tables(source: LakeSource) -> Iterator[tuple[str, str]]:
    for plan in source.tables.values():
        files = [one.file if isinstance(one, FileHistory) else one for one in plan.files]
        yield from _of_files(str(plan.table.name), files)


def _of_files(table: str, files: Sequence[LiveDataFile]) -> Iterator[tuple[str, str]]:
    if files:
        yield f"the table {table}", files[0].path


# What Spark needs to open a store, and what of it a job's settings lack: found before it is submitted.
#
# Only what would certainly fail is refused. What a cluster's image or its machines may bring is a warning.
# *Sources:* "Hadoop-AWS module", "AWS SDK V2 upgrade" and ``CredentialProviderListFactory`` of Hadoop.


_SCHEME = re.compile(r"([a-z][a-z0-9]+)://([^/]*)")


@dataclass(frozen=True, slots=True)
class Connector:
    """The artifact that opens a store; ``of_hadoop`` is whether its version is Hadoop's."""

    group: str
    artifact: str
    of_hadoop: bool = True

    def package(self, hadoop: str | None) -> str:
        """Return the Maven coordinates of the connector, with a placeholder for an unknown version."""
        version = (hadoop or "<the version of Spark's Hadoop>") if self.of_hadoop else "<its newest version>"
        return f"{self.group}:{self.artifact}:{version}"


_S3A = Connector("org.apache.hadoop", "hadoop-aws")
_ABFS = Connector("org.apache.hadoop", "hadoop-azure")
_GCS = Connector("com.google.cloud.bigdataoss", "gcs-connector", of_hadoop=False)
_CONNECTORS = {"s3a": _S3A, "abfs": _ABFS, "abfss": _ABFS, "gs": _GCS}


def check_store(
    request: JobRequest, settings: SubmitSettings, storage_options: Mapping[str, Any]
) -> list[str]:
    """Check a job's settings for its stores; list what looks wrong."""
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
    """Return True if a jar of another name may bring a connector: an own build, or cloud bundles."""
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
