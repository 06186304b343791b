"""The link from a task to the pages of its Spark application.

*Source:* "Monitoring and Instrumentation" in Spark's guide: the history server's pages by application id.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import Connection

_HISTORY_SERVER = "history_server"  # in the extra of a Spark connection
_SAID = re.compile(r"Spark application ((?:app|application|local|spark)-?[\w.-]+)$")


class SparkApplicationLink(BaseOperatorLink):
    """The page that the cluster's manager names, or that of the connection's history server."""

    name = "Spark application"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ANN401, ARG002 - Airflow's
        """Return the address; empty where there is none. Airflow asks in the task's process, at its end."""
        return getattr(getattr(operator, "done", None), "application_url", None) or ""


def application_said_in(line: str) -> str | None:
    """Return the id of the application where a line of the driver's log says it."""
    found = _SAID.search(line.rstrip())
    return None if found is None else found[1]


def history_url(connection: Connection, application_id: str | None) -> str | None:
    """Return an application's page on the history server of a Spark connection; None: it names none."""
    server = str(connection.extra_dejson.get(_HISTORY_SERVER) or "").rstrip("/")
    if not server or application_id is None:
        return None
    return f"{server}/history/{application_id}/"
