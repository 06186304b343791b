"""An Airflow connection to a cloud as the options of fsspec that open its store.

*Sources:* the connection guides of Airflow's providers for Amazon, Google and Microsoft Azure; the arguments
of s3fs, gcsfs and adlfs.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from ..lake.errors import InvalidOptionError
from ..lake.format.names.paths import hadoop_uri

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from ..lake.format.files import LiveDataFile
    from ..lake.spark.job.request import JobRequest, LakeSource, Source
    from .submit_settings import SubmitSettings


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
        from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook
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
    from ..lake.spark.job import request as jobs

    for name, dataset in jobs.datasets_of(source).items():
        if dataset.path is not None:
            yield name, dataset.path
    match source:
        case jobs.LakeSource():
            yield from _paths_of_tables(source)
        case jobs.RowChangeSource(target, rows):
            yield from _paths_of_files(str(target.table.name), target.files)
            if isinstance(rows, jobs.LakeSource):
                yield from _paths_of_tables(rows)
        case jobs.OverwriteSource():
            yield from _read(source.replaced)
        case jobs.StreamSource():
            yield "checkpoint", source.checkpoint
        case _:
            return


def _paths_of_tables(source: LakeSource) -> Iterator[tuple[str, str]]:
    for plan in source.tables.values():
        files: list[Any] = [getattr(one, "file", one) for one in plan.files]  # of a FileHistory
        yield from _paths_of_files(str(plan.table.name), files)


def _paths_of_files(table: str, files: Sequence[LiveDataFile]) -> Iterator[tuple[str, str]]:
    if files:
        yield f"the table {table}", files[0].path


# What Spark needs to open a store. *Source:* "Hadoop-AWS module" of Hadoop.


_SCHEME = re.compile(r"([a-z][a-z0-9]+)://([^/]*)")


_CONNECTORS = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure"}  # of Hadoop's release


def missing_packages(request: JobRequest, settings: SubmitSettings) -> list[str]:
    """Return the packages that bring what this machine's driver needs for the stores that a job reads.

    Only those whose version is known: that of Spark's Hadoop.
    """
    schemes = {_store(path)[0] for path in opened_by_jvm(request).values()} if settings.hadoop else set()
    wanted = {_CONNECTORS[one] for one in schemes & _CONNECTORS.keys()}
    return [f"org.apache.hadoop:{one}:{settings.hadoop}" for one in sorted(wanted) if not _has(settings, one)]


def _store(path: str) -> tuple[str, str]:
    match = _SCHEME.match(hadoop_uri(path))
    return (match[1], match[2]) if match else ("file", "")


def _has(settings: SubmitSettings, connector: str) -> bool:
    """Return True if a connector is there, or a jar of another name may bring it, as clouds have."""
    word = connector.removeprefix("hadoop-")
    return settings.has(connector) or any(word in one or "hadoop-cloud" in one for one in settings.artifacts)


def other_endpoint(
    directory: str, settings: SubmitSettings, storage_options: Mapping[str, Any]
) -> str | None:
    """Return a warning if Spark would look for the lake's bucket elsewhere than the task does."""
    scheme, bucket = _store(directory)
    names = (f"spark.hadoop.fs.s3a.bucket.{bucket}.endpoint", "spark.hadoop.fs.s3a.endpoint")
    name = next((one for one in names if one in settings.conf), None)
    if scheme != "s3a" or name is None or endpoint_of(storage_options) is not None:
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
