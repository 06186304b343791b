"""Kubernetes, by the client of Airflow's own provider for it: the driver is a pod.

*Source:* "Running Spark on Kubernetes" in Spark's guide; "Pod Lifecycle" in that of Kubernetes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from urllib3.exceptions import HTTPError

from airflow_provider_ducklake.hooks.clusters.cluster_manager import (
    ANSWER_SECONDS,
    TAG,
    Application,
    ClusterManager,
    State,
)
from airflow_provider_ducklake.lake.errors import ClusterUnavailableError, InvalidInputError
from airflow_provider_ducklake.lake.storage.files.parallel import within

if TYPE_CHECKING:
    from collections.abc import Collection

_LABEL = f"{TAG}-job"
_POD = re.compile(r"pod name: (\S+)|submission ID \S+?:(\S+-driver)\b")
_STATES = {"Succeeded": State.SUCCEEDED, "Failed": State.FAILED}
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
        """See ``ClusterManager``."""
        assert self._client is not None

    def settings(self, job_id: str) -> dict[str, str]:
        """See ``ClusterManager``."""
        return {
            "spark.kubernetes.submission.waitAppCompletion": "false",
            f"spark.kubernetes.driver.label.{_LABEL}": job_id,
        }

    def id_in(self, line: str) -> str | None:
        """See ``ClusterManager``."""
        found = _POD.search(line)
        return None if found is None else found[1] or found[2]

    def marked(self, job_id: str) -> Collection[str]:
        """See ``ClusterManager``."""
        pods = self._asked("list_namespaced_pod", self.namespace, label_selector=f"{_LABEL}={job_id}")
        return [pod.metadata.name for pod in pods.items]

    def look(self, application_id: str) -> Application:
        """See ``ClusterManager``."""
        pod = self._asked("read_namespaced_pod", self.checked(application_id), self.namespace)
        if pod is None:
            return Application(State.GONE)
        state = _STATES.get(pod.status.phase, State.RUNNING)
        spark_id = (pod.metadata.labels or {}).get(_SPARK_ID)
        return Application(state, pod.status.message or "", spark_id=spark_id)

    def kill(self, application_id: str) -> None:
        """See ``ClusterManager``."""
        self._asked("delete_namespaced_pod", self.checked(application_id), self.namespace)

    @cached_property
    def _client(self) -> Any:  # noqa: ANN401 - the provider's, which is not always there
        from airflow.providers.cncf.kubernetes.kube_client import get_kube_client  # noqa: PLC0415
        from kubernetes.config import ConfigException  # type: ignore[import-untyped]  # noqa: PLC0415

        try:
            return get_kube_client()
        except ConfigException as error:
            raise InvalidInputError(
                f"Airflow's client for Kubernetes cannot be made: {error}. It takes its settings from "
                "[kubernetes_executor] in_cluster, config_file and cluster_context in Airflow's "
                "configuration; a pod of the cluster needs a service account that may read and delete pods."
            ) from error

    def _asked(self, method: str, *arguments: str, **named: str) -> Any:  # noqa: ANN401 - the client's
        from airflow.providers.cncf.kubernetes.kube_client import ApiException  # type: ignore[attr-defined]  # noqa: PLC0415

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
