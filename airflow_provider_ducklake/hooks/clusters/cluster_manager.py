"""What is asked of the manager of a cluster: to know a job's application, how it is, and to stop it."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import requests

from airflow_provider_ducklake.lake.errors import ClusterUnavailableError, UntrustedValueError
from airflow_provider_ducklake.lake.storage.files.parallel import within

if TYPE_CHECKING:
    import re
    from collections.abc import Collection, Mapping

ANSWER_SECONDS = 30  # that a manager has to send its whole answer
_ANSWER_BYTES = 16 * 2**20
_PIECE_BYTES = 1024  # between two looks at the clock
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
        ClusterUnavailableError: it does not answer in time, or too much, or refuses.
    """
    ask = partial(_asked, manager, url, method=method, auth=auth, params=params, json=body)
    try:
        status, content = within(ANSWER_SECONDS, ask)
    except (requests.RequestException, TimeoutError) as error:
        raise ClusterUnavailableError(manager, url, type(error).__name__) from None
    try:
        said = json.loads(content) if content else {}
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise ClusterUnavailableError(manager, url, f"HTTP {status}, and its answer is not JSON")
    return said


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
