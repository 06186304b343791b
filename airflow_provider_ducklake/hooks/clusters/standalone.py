"""Spark's standalone manager, by the REST server of its master.

Spark itself refuses Python in this manager's cluster mode, but what it runs for Python elsewhere, its
``PythonRunner``, is a class like any other: the worker fetches the archive that is submitted, and calls it
with the archive's own path there, ``{{USER_JAR}}``.
*Source:* "Spark Standalone Mode" in Spark's guide; measured on 4.2.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.hooks.clusters.cluster_manager import (
    Application,
    ClusterManager,
    State,
    answer,
)
from airflow_provider_ducklake.lake.errors import ClusterUnavailableError

if TYPE_CHECKING:
    from collections.abc import Collection

JAVA_CLASS = "org.apache.spark.deploy.PythonRunner"
FETCHED = "{{USER_JAR}}"
ARCHIVE = ".jar"  # how an application ends that is an archive of the package
_ANSWERS = ("SubmissionStatusResponse", "KillSubmissionResponse")
_NOT_LEADING = "Current state is not alive"  # says a master that waits, or recovers
_STATES = {
    "FINISHED": State.SUCCEEDED,
    "FAILED": State.FAILED,
    "ERROR": State.FAILED,
    "KILLED": State.KILLED,
    "NOT_FOUND": State.GONE,
}


@dataclass(frozen=True)
class Standalone(ClusterManager):
    """The masters of a cluster, by their REST addresses such as ``http://master:6066``: one of them leads."""

    addresses: tuple[str, ...]
    name = "the Spark master's REST server"
    form = re.compile(r"driver-[0-9]{14}-[0-9]{4,10}")

    @property
    def identity(self) -> str:
        """See ``ClusterManager``."""
        return ",".join(self.addresses)

    def settings(self, job_id: str) -> dict[str, str]:  # noqa: ARG002 - it marks nothing
        """See ``ClusterManager``."""
        return {"spark.standalone.submit.waitAppCompletion": "false"}

    def id_in(self, line: str) -> str | None:
        """See ``ClusterManager``."""
        found = self.form.search(line)
        return None if found is None else found[0]

    def marked(self, job_id: str) -> Collection[str]:  # noqa: ARG002 - a master shows no arguments of drivers
        """Return none: a driver nobody noted is not found, and ends as its request is gone."""
        return ()

    def runs(self, application_id: str, job_id: str) -> bool:  # noqa: ARG002 - as well
        """Return whether a driver can have the id: the master does not say which job it runs."""
        return self.form.fullmatch(application_id) is not None

    def look(self, application_id: str) -> Application:
        """See ``ClusterManager``."""
        said = self._asked(f"status/{self.checked(application_id)}")
        unknown = State.RUNNING if said.get("success") else State.GONE
        state = _STATES.get(str(said.get("driverState")), unknown)
        return Application(state, str(said.get("message") or ""))

    def kill(self, application_id: str) -> None:
        """See ``ClusterManager``."""
        self._asked(f"kill/{self.checked(application_id)}", "POST")

    def _asked(self, path: str, method: str = "GET") -> dict[str, Any]:
        last: ClusterUnavailableError | None = None
        for address in self.addresses:
            try:
                said = answer(self.name, f"{address}/v1/submissions/{path}", method)
            except ClusterUnavailableError as error:
                last = error
                continue
            is_leading = _NOT_LEADING not in str(said.get("message"))
            if is_leading and said.get("action") in _ANSWERS:
                return said
            last = ClusterUnavailableError(self.name, address, str(said.get("message") or "HTTP 404"))
        assert last is not None
        raise last
