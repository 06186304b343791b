"""Ask the manager of a cluster for a job's application and its state, and stop it."""

from __future__ import annotations

import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import requests
from urllib3.exceptions import HTTPError

from ..lake.errors import ClusterUnavailableError, InvalidInputError, UntrustedValueError
from ..lake.storage.files.parallel import within

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from .submit_settings import SubmitSettings


ANSWER_SECONDS = 30  # that a manager has to send its whole answer
_ANSWER_BYTES = 16 * 2**20
_PIECE_BYTES = 1024  # between two looks at the clock
_STOPPING = 30.0  # seconds that an application has to end
TAG = "ducklake"


class ApplicationState(StrEnum):
    """State of an application; ``GONE``: the manager has no record of it, or no longer has one."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    KILLED = "killed"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Application:
    """A manager's report on an application: its state, the manager's word for it, and its web page.

    ``spark_id`` is what Spark itself calls it.
    """

    state: ApplicationState
    diagnostics: str = ""
    url: str | None = None
    spark_id: str | None = None

    @property
    def has_ended(self) -> bool:
        """Return True if the application has ended."""
        return self.state is not ApplicationState.RUNNING


class ClusterManager(ABC):
    """A manager; ``name`` is what people call it."""

    name: str
    form: re.Pattern[str]  # of the ids that it gives

    @property
    @abstractmethod
    def identity(self) -> str:
        """The manager's identity: an application's id is valid only for the manager that gave it."""

    def check(self) -> None:  # noqa: B027 - most have nothing to look for
        """Refuse what a manager could not be asked with."""

    @abstractmethod
    def settings(self, job_id: str) -> dict[str, str]:
        """Return settings that have ``spark-submit`` end after the submission, and mark the application."""

    @abstractmethod
    def id_in(self, line: str) -> str | None:
        """Return the id of the application where a line of ``spark-submit``'s output says it."""

    def find(self, job_id: str) -> str | None:
        """Return the id of the application that is marked as the job's; None: there is none."""
        return max(self.marked(job_id), default=None)

    @abstractmethod
    def marked(self, job_id: str) -> Collection[str]:
        """Return the ids of the applications that are marked as the job's, with the errors of ``find``."""

    def runs(self, application_id: str, job_id: str) -> bool:
        """Return True if an application is the job's: marked as that, or gone; with the errors of ``find``.

        The id may come from anywhere.
        """
        if self.form.fullmatch(application_id) is None:
            return False
        return (
            application_id in self.marked(job_id)
            or self.status(application_id).state is ApplicationState.GONE
        )

    def checked(self, application_id: str) -> str:
        """Return an id as the manager gives it, quoted for a URL."""
        if self.form.fullmatch(application_id) is None:
            problem = f"is not an application's id as {self.name} gives it"
            raise UntrustedValueError("What is noted of a job", application_id, problem)
        return quote(application_id, safe="")

    @abstractmethod
    def status(self, application_id: str) -> Application:
        """Read the state of an application."""

    @abstractmethod
    def kill(self, application_id: str) -> None:
        """Ask the manager to end an application, with the errors of ``status``."""

    def stop(self, application_id: str) -> Application:
        """End an application if it runs, and wait a while until it has ended."""
        ended = time.monotonic() + _STOPPING
        if not self.status(application_id).has_ended:
            self.kill(application_id)
        while not (found := self.status(application_id)).has_ended and time.monotonic() < ended:
            time.sleep(0.5)
        return found


def answer(
    manager: str,
    url: str,
    method: str = "GET",
    *,
    auth: Any = None,  # noqa: ANN401 - of requests
    params: Mapping[str, str] | None = None,
    body: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the JSON object that a manager answers with, also with 404, where its words say why."""
    ask = partial(_asked, manager, url, method=method, auth=auth, params=params, json=body)
    try:
        status, content = within(ANSWER_SECONDS, ask)
    except (requests.RequestException, TimeoutError) as error:
        raise ClusterUnavailableError(manager, url, type(error).__name__) from None
    try:
        document = json.loads(content) if content else {}
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ClusterUnavailableError(manager, url, f"HTTP {status}, and its answer is not JSON")
    return document


def _asked(manager: str, url: str, *, method: str, **options: Any) -> tuple[int, bytes]:  # noqa: ANN401 - of requests
    """Return the status and the body of an answer, which is read for no longer than a caller waits for it."""
    ends, content = time.monotonic() + ANSWER_SECONDS, bytearray()
    with requests.request(method, url, timeout=ANSWER_SECONDS, stream=True, **options) as got:
        if not got.ok and got.status_code != requests.codes.not_found:
            raise ClusterUnavailableError(manager, url, f"HTTP {got.status_code}")
        for piece in got.iter_content(_PIECE_BYTES):
            content += piece
            if len(content) > _ANSWER_BYTES:
                raise ClusterUnavailableError(manager, url, f"longer than {_ANSWER_BYTES} bytes")
            if time.monotonic() > ends:
                raise TimeoutError
        return got.status_code, bytes(content)


def web_page(address: object) -> str | None:
    """Return the address of an application's page, for a link; None: it is no page of the web."""
    text = str(address or "")
    try:
        is_page = urlsplit(text).scheme in ("http", "https")
    except ValueError:
        return None
    return text if is_page else None


# Kubernetes, by the client of Airflow's own provider for it: the driver is a pod.
#
# *Source:* "Running Spark on Kubernetes" in Spark's guide; "Pod Lifecycle" in that of Kubernetes.


_LABEL = f"{TAG}-job"
_POD = re.compile(r"pod name: (\S+)|submission ID \S+?:(\S+-driver)\b")
_STATES = {"Succeeded": ApplicationState.SUCCEEDED, "Failed": ApplicationState.FAILED}
_SPARK_ID = "spark-app-selector"  # the label that Spark gives its pods
_NOT_FOUND = 404


@dataclass(frozen=True)
class Kubernetes(ClusterManager):
    """The pods of a namespace."""

    namespace: str
    name = "the Kubernetes API"
    form = re.compile(
        r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
    )  # RFC 1123

    @property
    def identity(self) -> str:
        """See ``ClusterManager``; which cluster it is Airflow's configuration says."""
        return f"namespace {self.namespace}"

    def check(self) -> None:
        assert self._client is not None

    def settings(self, job_id: str) -> dict[str, str]:
        return {
            "spark.kubernetes.submission.waitAppCompletion": "false",
            f"spark.kubernetes.driver.label.{_LABEL}": job_id,
        }

    def id_in(self, line: str) -> str | None:
        found = _POD.search(line)
        return None if found is None else found[1] or found[2]

    def marked(self, job_id: str) -> Collection[str]:
        pods = self._asked("list_namespaced_pod", self.namespace, label_selector=f"{_LABEL}={job_id}")
        return [pod.metadata.name for pod in pods.items]

    def status(self, application_id: str) -> Application:
        pod = self._asked("read_namespaced_pod", self.checked(application_id), self.namespace)
        if pod is None:
            return Application(ApplicationState.GONE)
        state = _STATES.get(pod.status.phase, ApplicationState.RUNNING)
        spark_id = (pod.metadata.labels or {}).get(_SPARK_ID)
        return Application(state, pod.status.message or "", spark_id=spark_id)

    def kill(self, application_id: str) -> None:
        self._asked("delete_namespaced_pod", self.checked(application_id), self.namespace)

    @cached_property
    def _client(self) -> Any:  # noqa: ANN401 - the provider's, which is not always there
        from airflow.providers.cncf.kubernetes.kube_client import get_kube_client
        from kubernetes.config import ConfigException  # type: ignore[import-untyped]

        try:
            return get_kube_client()
        except ConfigException as error:
            raise InvalidInputError(
                f"Airflow's client for Kubernetes cannot be made: {error}. It takes its settings from "
                "[kubernetes_executor] in_cluster, config_file and cluster_context in Airflow's "
                "configuration; a pod of the cluster needs a service account that may read and delete pods."
            ) from error

    def _asked(self, method: str, *arguments: str, **named: str) -> Any:  # noqa: ANN401 - the client's
        from airflow.providers.cncf.kubernetes.kube_client import ApiException  # type: ignore[attr-defined]

        ask = partial(getattr(self._client, method), *arguments, _request_timeout=ANSWER_SECONDS, **named)
        try:
            return within(ANSWER_SECONDS, ask)
        except ApiException as error:
            if error.status == _NOT_FOUND:
                return None
            reason = f"HTTP {error.status} {error.reason}"
            raise ClusterUnavailableError(self.name, f"namespace {self.namespace}", reason) from None
        except (HTTPError, TimeoutError) as error:
            where = f"namespace {self.namespace}"
            raise ClusterUnavailableError(self.name, where, type(error).__name__) from error


# Spark's standalone manager, by the REST server of its master.
#
# Spark itself refuses Python in this manager's cluster mode, but what it runs for Python elsewhere, its
# ``PythonRunner``, is a class like any other: the worker fetches the archive that is submitted, and calls
# it with the archive's own path there, ``{{USER_JAR}}``. *Source:* "Spark Standalone Mode" in Spark's
# guide; measured on 4.2.0.


JAVA_CLASS = "org.apache.spark.deploy.PythonRunner"
FETCHED = "{{USER_JAR}}"
ARCHIVE = ".jar"  # how an application ends that is an archive of the package
_ANSWERS = ("SubmissionStatusResponse", "KillSubmissionResponse")
_NOT_LEADING = "Current state is not alive"  # says a master that waits, or recovers
_OF_STANDALONE = {
    "FINISHED": ApplicationState.SUCCEEDED,
    "FAILED": ApplicationState.FAILED,
    "ERROR": ApplicationState.FAILED,
    "KILLED": ApplicationState.KILLED,
    "NOT_FOUND": ApplicationState.GONE,
}


@dataclass(frozen=True)
class Standalone(ClusterManager):
    """The masters of a cluster, by their REST addresses such as ``http://master:6066``: one of them leads."""

    addresses: tuple[str, ...]
    name = "the Spark master's REST server"
    form = re.compile(r"driver-[0-9]{14}-[0-9]{4,10}")

    @property
    def identity(self) -> str:
        return ",".join(self.addresses)

    def settings(self, job_id: str) -> dict[str, str]:  # noqa: ARG002 - it marks nothing
        return {"spark.standalone.submit.waitAppCompletion": "false"}

    def id_in(self, line: str) -> str | None:
        found = self.form.search(line)
        return None if found is None else found[0]

    def marked(self, job_id: str) -> Collection[str]:  # noqa: ARG002 - a master shows no arguments of drivers
        """Return none: a driver that was not noted is not found, and ends if it finds its request gone."""
        return ()

    def runs(self, application_id: str, job_id: str) -> bool:  # noqa: ARG002 - as well
        """Return True if a driver can have the id: the master does not report which job it runs."""
        return self.form.fullmatch(application_id) is not None

    def status(self, application_id: str) -> Application:
        reply = self._asked(f"status/{self.checked(application_id)}")
        unknown = ApplicationState.RUNNING if reply.get("success") else ApplicationState.GONE
        state = _OF_STANDALONE.get(str(reply.get("driverState")), unknown)
        return Application(state, str(reply.get("message") or ""))

    def kill(self, application_id: str) -> None:
        self._asked(f"kill/{self.checked(application_id)}", "POST")

    def _asked(self, path: str, method: str = "GET") -> dict[str, Any]:
        last: ClusterUnavailableError | None = None
        for address in self.addresses:
            try:
                reply = answer(self.name, f"{address}/v1/submissions/{path}", method)
            except ClusterUnavailableError as error:
                last = error
                continue
            is_leading = _NOT_LEADING not in str(reply.get("message"))
            if is_leading and reply.get("action") in _ANSWERS:
                return reply
            last = ClusterUnavailableError(self.name, address, str(reply.get("message") or "HTTP 404"))
        assert last is not None
        raise last


# YARN, by its ResourceManager's REST API.
#
# *Source:* "ResourceManager REST API's" in Hadoop's guide; ``spark.yarn.tags`` in "Running Spark on YARN".


# The id is there before the ResourceManager has the application, and is printed then, too.
_ID = re.compile(r"Submitted application (application_\d+_\d+)")
_OF_YARN = {
    "FINISHED": ApplicationState.SUCCEEDED,
    "FAILED": ApplicationState.FAILED,
    "KILLED": ApplicationState.KILLED,
}
_FINAL = {"FAILED": ApplicationState.FAILED, "KILLED": ApplicationState.KILLED}


@dataclass(frozen=True)
class Yarn(ClusterManager):
    """A ResourceManager at a web address such as ``http://rm:8088``; ``auth`` is one of ``requests``'."""

    address: str
    auth: Any = None
    has_kerberos: bool = False
    name = "the YARN ResourceManager"
    form = re.compile(r"application_[0-9]{1,19}_[0-9]{1,10}")

    @property
    def identity(self) -> str:
        return self.address

    def check(self) -> None:
        self._auth()

    def settings(self, job_id: str) -> dict[str, str]:
        """See ``ClusterManager``; tags that the user gave are the operator's to keep."""
        return {"spark.yarn.submit.waitAppCompletion": "false", "spark.yarn.tags": f"{TAG}-{job_id}"}

    def id_in(self, line: str) -> str | None:
        found = _ID.search(line)
        return None if found is None else found[1]

    def marked(self, job_id: str) -> Collection[str]:
        apps = answer(self.name, self._apps, auth=self._auth(), params={"applicationTags": f"{TAG}-{job_id}"})
        listed = (apps.get("apps") or {}).get("app") or []
        return [one["id"] for one in listed]

    def status(self, application_id: str) -> Application:
        found = answer(self.name, self._url(application_id), auth=self._auth())
        if found.get("RemoteException", {}).get("exception") == "NotFoundException":
            return Application(ApplicationState.GONE)
        if "app" not in found:
            raise ClusterUnavailableError(self.name, self.address, "its answer is not about an application")
        app = found["app"]
        state = _OF_YARN.get(app["state"], ApplicationState.RUNNING)
        state = (
            _FINAL.get(app.get("finalStatus", ""), state) if state is ApplicationState.SUCCEEDED else state
        )
        return Application(
            state, (app.get("diagnostics") or "").strip(), web_page(app.get("trackingUrl")), application_id
        )

    def kill(self, application_id: str) -> None:
        url = f"{self._url(application_id)}/state"
        answer(self.name, url, "PUT", auth=self._auth(), body={"state": "KILLED"})

    def _auth(self) -> Any:  # noqa: ANN401 - of requests
        if self.auth is not None or not self.has_kerberos:
            return self.auth
        try:
            from requests_kerberos import HTTPKerberosAuth  # type: ignore[import-not-found]
        except ImportError as error:
            raise InvalidInputError(
                "The Spark connection has a keytab and a principal, and YARN's ResourceManager is asked with "
                "Kerberos: install requests-kerberos where the task and the triggerer run."
            ) from error
        return HTTPKerberosAuth()

    @property
    def _apps(self) -> str:
        return f"{self.address}/ws/v1/cluster/apps"

    def _url(self, application_id: str) -> str:
        return f"{self._apps}/{self.checked(application_id)}"


# Which manager a Spark connection's applications have, and whether it can be asked about them.


_ADDRESS = "yarn_resourcemanager_webapp_address"  # of the Spark provider, as the names below
_NAMESPACE = "spark.kubernetes.namespace"
_PORT = re.compile(r":\d+\Z")


def manager_of(
    connection: Connection,
    settings: SubmitSettings,
    conf: Mapping[str, Any],
    auth: Any = None,  # noqa: ANN401 - of requests
) -> ClusterManager | None:
    """Return the manager of the cluster on which a connection's applications run.

    None: the driver runs where the task does, or YARN's address is not configured.
    ``conf`` is the operator's own; it wins over the connection, which wins over Spark's defaults.
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
    """Explain why there is no manager, and what to configure."""
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
    """Serialize a manager as JSON for another process, without secrets."""
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
    """Return True if a manager can be made again elsewhere."""
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
