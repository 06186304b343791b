"""YARN, by its ResourceManager's REST API.

*Source:* "ResourceManager REST API's" in Hadoop's guide; ``spark.yarn.tags`` in "Running Spark on YARN".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.hooks.clusters.cluster_manager import (
    TAG,
    Application,
    ClusterManager,
    State,
    answer,
    web_page,
)
from airflow_provider_ducklake.lake.errors import ClusterUnavailableError, InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Collection

# The id is there before the ResourceManager has the application, and is printed then, too.
_ID = re.compile(r"Submitted application (application_\d+_\d+)")
_STATES = {"FINISHED": State.SUCCEEDED, "FAILED": State.FAILED, "KILLED": State.KILLED}
_FINAL = {"FAILED": State.FAILED, "KILLED": State.KILLED}


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
        """See ``ClusterManager``."""
        return self.address

    def check(self) -> None:
        """See ``ClusterManager``."""
        self._auth()

    def settings(self, job_id: str) -> dict[str, str]:
        """See ``ClusterManager``; tags that the user gave are the operator's to keep."""
        return {"spark.yarn.submit.waitAppCompletion": "false", "spark.yarn.tags": f"{TAG}-{job_id}"}

    def id_in(self, line: str) -> str | None:
        """See ``ClusterManager``."""
        found = _ID.search(line)
        return None if found is None else found[1]

    def marked(self, job_id: str) -> Collection[str]:
        """See ``ClusterManager``."""
        apps = answer(self.name, self._apps, auth=self._auth(), params={"applicationTags": f"{TAG}-{job_id}"})
        listed = (apps.get("apps") or {}).get("app") or []
        return [one["id"] for one in listed]

    def look(self, application_id: str) -> Application:
        """See ``ClusterManager``."""
        found = answer(self.name, self._url(application_id), auth=self._auth())
        if found.get("RemoteException", {}).get("exception") == "NotFoundException":
            return Application(State.GONE)
        if "app" not in found:
            raise ClusterUnavailableError(self.name, self.address, "its answer is not about an application")
        app = found["app"]
        state = _STATES.get(app["state"], State.RUNNING)
        state = _FINAL.get(app.get("finalStatus", ""), state) if state is State.SUCCEEDED else state
        return Application(
            state, (app.get("diagnostics") or "").strip(), web_page(app.get("trackingUrl")), application_id
        )

    def kill(self, application_id: str) -> None:
        """See ``ClusterManager``."""
        url = f"{self._url(application_id)}/state"
        answer(self.name, url, "PUT", auth=self._auth(), body={"state": "KILLED"})

    def _auth(self) -> Any:  # noqa: ANN401 - of requests
        if self.auth is not None or not self.has_kerberos:
            return self.auth
        try:
            from requests_kerberos import HTTPKerberosAuth  # type: ignore[import-not-found]  # noqa: PLC0415 - not always installed
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
