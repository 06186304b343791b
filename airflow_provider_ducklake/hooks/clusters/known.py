"""Which manager a Spark connection's applications have, and whether it can be asked about them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.hooks.clusters.kubernetes import Kubernetes
from airflow_provider_ducklake.hooks.clusters.standalone import Standalone
from airflow_provider_ducklake.hooks.clusters.yarn import Yarn
from airflow_provider_ducklake.lake.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Connection

    from airflow_provider_ducklake.hooks.clusters.cluster_manager import ClusterManager
    from airflow_provider_ducklake.hooks.submit_settings import SubmitSettings

_ADDRESS = "yarn_resourcemanager_webapp_address"  # of the Spark provider, as the names below
_NAMESPACE = "spark.kubernetes.namespace"
_PORT = re.compile(r":\d+\Z")


def manager_of(
    connection: Connection,
    settings: SubmitSettings,
    conf: Mapping[str, Any],
    auth: Any = None,  # noqa: ANN401 - of requests
) -> ClusterManager | None:
    """Return the manager that is to be asked about a connection's applications.

    None: there is none to ask, as the driver runs where the task does, or YARN's address is not known.
    ``conf`` is the operator's own, which counts before the connection; that counts before Spark's defaults.
    """
    extra = connection.extra_dejson
    if settings.has_driver_here:
        return None
    if settings.is_kubernetes:
        named = (conf.get(_NAMESPACE), extra.get("namespace"), settings.conf.get(_NAMESPACE), "default")
        return Kubernetes(next(str(one) for one in named if one))
    if settings.is_yarn:
        address = str(extra.get(_ADDRESS) or "").strip().rstrip("/")
        if not address:
            return None
        has_kerberos = bool(extra.get("keytab") and extra.get("principal"))
        return Yarn(address if "://" in address else f"http://{address}", auth, has_kerberos=has_kerberos)
    scheme, port = extra.get("rest-scheme") or "http", _port(extra.get("rest-port") or 6066)
    hosts = [_PORT.sub("", one.strip()) for one in settings.master.removeprefix("spark://").split(",")]
    return Standalone(tuple(f"{scheme}://{host}:{port}" for host in hosts))


def _port(given: object) -> int:
    try:
        return int(str(given))
    except ValueError:
        raise InvalidInputError(
            f"rest-port in the extra of the Spark connection is {given!r}. Give the port of the master's "
            "REST server, 6066 unless spark.master.rest.port says another."
        ) from None


def why_none(settings: SubmitSettings) -> str:
    """Return why there is no manager to ask, and what helps."""
    if settings.has_driver_here:
        return (
            "In client mode the driver is a process of the task and ends with it. Set "
            "deploy_mode='cluster' in the task or its Spark connection."
        )
    return (
        "The YARN ResourceManager's web address is not known. Set "
        f"{_ADDRESS!r}, such as 'http://rm.example.com:8088', in the extra of the Spark connection."
    )


def as_arguments(manager: ClusterManager) -> dict[str, Any]:
    """Return what makes a manager again elsewhere: JSON, and nothing secret.

    Raises:
        InvalidInputError: it is asked with an object that cannot be sent.
    """
    match manager:
        case Yarn(address, None, has_kerberos):
            return {"kind": "yarn", "address": address, "has_kerberos": has_kerberos}
        case Yarn():
            raise InvalidInputError(
                "yarn_rm_auth is an object of the task's process, and with deferrable=True the triggerer "
                "asks the ResourceManager. Leave it out and give the Spark connection a keytab and a "
                "principal, or leave out deferrable."
            )
        case Kubernetes(namespace):
            return {"kind": "kubernetes", "namespace": namespace}
        case Standalone(addresses):
            return {"kind": "standalone", "addresses": list(addresses)}
        case _:  # pragma: no cover - a new one
            raise AssertionError(type(manager).__name__)


def can_be_sent(manager: ClusterManager) -> bool:
    """Whether a manager can be made again elsewhere."""
    return not (isinstance(manager, Yarn) and manager.auth is not None)


def from_arguments(arguments: Mapping[str, Any]) -> ClusterManager:
    """Return the manager of ``as_arguments``."""
    match arguments["kind"]:
        case "yarn":
            return Yarn(arguments["address"], has_kerberos=arguments["has_kerberos"])
        case "kubernetes":
            return Kubernetes(arguments["namespace"])
        case _:
            return Standalone(tuple(arguments["addresses"]))
