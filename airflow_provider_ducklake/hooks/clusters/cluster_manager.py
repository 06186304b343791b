"""What is asked of the manager of a cluster: to know a job's application, how it is, and to stop it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import requests

from airflow_provider_ducklake.errors import ClusterUnavailableError, UntrustedValueError

if TYPE_CHECKING:
    import re
    from collections.abc import Collection, Mapping

_TIMEOUT = 30  # seconds that a manager has to answer
_STOPPING = 30.0  # seconds that an application has to end
TAG = "ducklake"


class State(StrEnum):
    """How an application is; ``GONE``: the manager knows nothing of it, or nothing any more."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    KILLED = "killed"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Application:
    """What a manager says of an application: how it is, in its own words, and where its pages are.

    ``spark_id`` is what Spark itself calls it.
    """

    state: State
    said: str = ""
    url: str | None = None
    spark_id: str | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.state is not State.RUNNING


class ClusterManager(ABC):
    """A manager; ``name`` is what people call it."""

    name: str
    form: re.Pattern[str]  # of the ids that it gives

    @property
    @abstractmethod
    def identity(self) -> str:
        """What tells it from others: an application's id means nothing to another one."""

    def check(self) -> None:  # noqa: B027 - most have nothing to look for
        """Refuse what a manager could not be asked with.

        Raises:
            InvalidInputError: something is not installed, or not set, where the task runs.
        """

    @abstractmethod
    def settings(self, job_id: str) -> dict[str, str]:
        """Return settings that have ``spark-submit`` end after the submission, and mark the application."""

    @abstractmethod
    def id_in(self, line: str) -> str | None:
        """Return the id of the application where a line of ``spark-submit``'s output says it."""

    def find(self, job_id: str) -> str | None:
        """Return the id of the application that is marked as the job's; None: there is none.

        Raises:
            ClusterUnavailableError: the manager cannot be asked.
        """
        return max(self.marked(job_id), default=None)

    @abstractmethod
    def marked(self, job_id: str) -> Collection[str]:
        """Return the ids of the applications that are marked as the job's, with the errors of ``find``."""

    def runs(self, application_id: str, job_id: str) -> bool:
        """Whether an application is the job's: marked as that, or gone; with the errors of ``find``.

        The id may come from anywhere.
        """
        if self.form.fullmatch(application_id) is None:
            return False
        return application_id in self.marked(job_id) or self.look(application_id).state is State.GONE

    def checked(self, application_id: str) -> str:
        """Return an id as the manager gives it, quoted for a URL.

        Raises:
            UntrustedValueError: it has another form.
        """
        if self.form.fullmatch(application_id) is None:
            problem = f"is not an application's id as {self.name} gives it"
            raise UntrustedValueError("What is noted of a job", application_id, problem)
        return quote(application_id, safe="")

    @abstractmethod
    def look(self, application_id: str) -> Application:
        """Return how an application is.

        Raises:
            UntrustedValueError: no application can have the id.
            ClusterUnavailableError: the manager cannot be asked.
        """

    @abstractmethod
    def kill(self, application_id: str) -> None:
        """Have the manager end an application, with the errors of ``look``."""

    def stop(self, application_id: str) -> Application:
        """End an application if it runs, and wait a while until it has ended."""
        ended = time.monotonic() + _STOPPING
        if not self.look(application_id).has_ended:
            self.kill(application_id)
        while not (found := self.look(application_id)).has_ended and time.monotonic() < ended:
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
    """Return the JSON object that a manager answers with, also with 404: in which words it says so tells why.

    Raises:
        ClusterUnavailableError: it does not answer, or refuses.
    """
    try:
        got = requests.request(method, url, auth=auth, params=params, json=body, timeout=_TIMEOUT)
    except requests.RequestException as error:
        raise ClusterUnavailableError(manager, url, type(error).__name__) from None
    if not got.ok and got.status_code != requests.codes.not_found:
        raise ClusterUnavailableError(manager, url, f"HTTP {got.status_code}")
    try:
        said = got.json() if got.content else {}
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise ClusterUnavailableError(manager, url, f"HTTP {got.status_code}, and its answer is not JSON")
    return said
