"""Jobs through Spark Connect: this process says what is to be done, on a server that runs already.

No JVM is started and nothing submitted. Commands go to the server, files are written by its tasks, and what
they leave is read here.
"""

from __future__ import annotations

import re
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from ..lake.errors import InvalidInputError, SparkJobError, UnsupportedFeatureError
from . import spark_submit
from .jdbc_source import JdbcPasswords

if TYPE_CHECKING:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
    from airflow.sdk import Connection, Context

    from ..lake.spark.job.request import JobRequest
    from ..lake.spark.jobs.here import SparkSession
    from ..lake.writes.verb import Results

_DEFAULT_PORT = 15002
_SCHEME = re.compile(r"^[\w.+-]+://")  # as Airflow's hook, which takes any
_PORTS = 2**16
_SECONDS_TO_CONNECT = 10.0
_SECONDS_TO_END = 5.0


class SparkConnectSubmitter:
    """The ``Submitter`` of an operator with a ``spark_connect_conn_id``."""

    def __init__(self, operator: SparkSubmitOperator, context: Context, conn_id: str) -> None:
        self._operator = operator
        self._context = context
        self._conn_id = conn_id
        self._session: SparkSession | None = None

    def ready(self) -> None:
        """Refuse a server that does not answer; see ``Submitter``."""
        host, port = self._address()
        try:
            socket.create_connection((host, port), _SECONDS_TO_CONNECT).close()
        except (OSError, UnicodeError) as error:  # UnicodeError: DNS has no such names
            raise SparkJobError(
                f"No Spark Connect server answers at {host}:{port}, the address of the connection "
                f"{self._conn_id!r}: {error}. Start it, or correct the connection."
            ) from error

    def resolve(self, source: Any) -> Any:  # noqa: ANN401 - as users give it
        """Complete a jdbc source by the Airflow connection that it names; see ``Submitter``."""
        passwords = JdbcPasswords()
        resolved = passwords.resolve(source)
        if passwords:
            raise InvalidInputError(
                "A jdbc source with a password cannot be read through Spark Connect: the server's pages and "
                "events would show it. Leave spark_connect_conn_id out, or keep the password where the "
                "server reads it (a Hadoop credential store, or the reader's connectionProvider option)."
            )
        return resolved

    def check(self, request: JobRequest, storage_options: Mapping[str, Any]) -> None:
        """Look for what the job would fail at; see ``Submitter``."""
        if request.verb == "stream":
            raise UnsupportedFeatureError(
                "A stream cannot run through Spark Connect: its batches would be written by a process of the "
                "server's, which has neither this package nor the store's credentials. Leave "
                "spark_connect_conn_id out."
            )
        host, _ = self._address()
        master = "local" if host in ("localhost", "127.0.0.1", "::1") else "sc"
        spark_submit.check_sources(request, master, storage_options)

    def run(self, request: JobRequest, storage_options: Mapping[str, Any]) -> Results:
        """Run the job's own code on a new session; see ``Submitter``."""
        from ..lake.spark.job.errors import typed
        from ..lake.spark.sessions.remote import remote_mode
        from ..lake.writes.verb import Results

        try:
            with remote_mode(), self._started() as spark:
                from ..lake.spark.jobs.here import run_here

                self._log_start(spark)
                results = Results.of(run_here(spark, request, storage_options, {}, is_ours=True))
        except Exception as error:  # of a session that could not be made, or has ended
            raise typed(error) from error
        _check_disk(request, results)
        return results

    def tidy_up(self, request: JobRequest, storage_options: Mapping[str, Any]) -> None:
        """Do nothing: there are no documents; see ``Submitter``."""

    def kill(self) -> None:
        """End what runs on the server: a task that is killed must not write on."""
        if (spark := self._session) is not None and not _within_seconds(spark.interruptAll):
            self._operator.log.warning(
                "The Spark Connect server does not answer: what the task started there may run on for some "
                "minutes. Nothing of it is committed."
            )

    @contextmanager
    def _started(self) -> Iterator[SparkSession]:
        from ..lake.spark.sessions import remote

        conf = {str(name): str(value) for name, value in self._conf().items()}
        py_files = _files(self._operator.py_files)
        spark = self._session = remote.create(self._url())
        try:
            remote.configure(spark, conf, py_files)
            yield spark
        except BaseException:  # a time-out, say: the server would go on
            self.kill()
            raise
        finally:
            self._session = None
            if not _within_seconds(spark.client.release_session):
                self._operator.log.warning(
                    "The Spark Connect server does not answer, and may keep the session."
                )
            # it was, or cannot be
            spark.release_session_on_close = False  # type: ignore[attr-defined]  # Connect only
            spark.stop()

    def _conf(self) -> Mapping[str, Any]:
        """Return the settings of the session, with the task as its parent if OpenLineage is configured so.

        How events leave a server is a setting of the server's, and with it a key that its pages would show.
        """
        given = self._operator.conf or {}
        if not self._operator._openlineage_inject_parent_job_info:  # noqa: SLF001 - it has no public way
            return given
        from airflow.providers.common.compat.openlineage.utils.spark import (
            inject_parent_job_information_into_spark_properties,
        )

        return inject_parent_job_information_into_spark_properties(given, self._context)

    def _log_start(self, spark: SparkSession) -> None:
        host, port = self._address()
        self._operator.log.info(
            "Spark %s at %s:%d, session %s", spark.version, host, port, getattr(spark, "session_id", "")
        )

    def _url(self) -> str:
        """Return the server's address with user and token; it is never logged.

        Airflow's hook leaves a ``/`` in them as it is, and PySpark shows such a URL in its error.
        """
        host, port = self._address()
        if ":" in host:  # IPv6
            host = f"[{host}]"
        connection = self._connection()
        token = connection.password or ""
        if not (token.isascii() and token.isprintable()):
            raise self._wrong("a token with line ends or characters beyond ASCII, which gRPC cannot send")
        given = {"user_id": connection.login, "token": token, "use_ssl": self._uses_ssl(connection)}
        parameters = (f"{name}={quote(str(value), safe='')}" for name, value in given.items() if value)
        return f"sc://{host}:{port}/;{';'.join(parameters)}"

    def _uses_ssl(self, connection: Connection) -> str:
        """Return ``true`` or nothing: with any other text PySpark opens a plain channel."""
        given = connection.extra_dejson.get("use_ssl")
        text = "" if given is None else str(given).strip().lower()
        if text not in ("true", "false", ""):
            raise self._wrong(f"use_ssl {given!r} in its extras. Give true or false")
        return "true" if text == "true" else ""

    def _address(self) -> tuple[str, int]:
        connection = self._connection()
        given = re.sub(_SCHEME, "", connection.host or "")
        if not given:
            raise self._wrong("no host. Give the server's")
        if given.count(":") > 1 and not given.startswith("["):
            given = f"[{given}]"
        try:
            parts = urlsplit(f"sc://{given}")
            host, port = parts.hostname or "", parts.port
        except ValueError:  # of an address in brackets, or of the port
            raise self._wrong("a host whose port or IPv6 address is invalid") from None
        if not re.fullmatch(r"[\w.-]+", host) and not parts.netloc.startswith("["):
            raise self._wrong("a host that is neither a name nor an address")
        if parts.path or parts.query or parts.fragment or parts.username is not None:
            raise self._wrong(
                "a host with a path, parameters or a user. Give user and token as login and password"
            )
        if port is not None and connection.port:
            raise self._wrong("a port in its host, and another of its own")
        port = _DEFAULT_PORT if port is None and connection.port is None else port or connection.port or 0
        if not 0 < port < _PORTS:
            raise self._wrong(f"the invalid port {port}")
        return host, port

    def _connection(self) -> Connection:
        try:
            return BaseHook.get_connection(self._conn_id)
        except AirflowNotFoundException:
            raise InvalidInputError(
                f"The Spark Connect connection {self._conn_id!r} does not exist. Create it (type "
                "spark_connect, host and port of the server) or leave spark_connect_conn_id out."
            ) from None

    def _wrong(self, fault: str) -> InvalidInputError:
        return InvalidInputError(f"The Spark Connect connection {self._conn_id!r} has {fault}.")


def _within_seconds(call: Callable[[], object]) -> bool:
    """Make a call of PySpark's, which has no deadline; return False if the server does not answer in time."""

    def run() -> None:
        with suppress(Exception):  # the server may be gone
            call()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_SECONDS_TO_END)
    return not thread.is_alive()


def _files(py_files: str | None) -> Iterable[str]:
    """Return the files that tasks get, and have this process find their modules, too: functions run here."""
    files = [one.strip() for one in (py_files or "").split(",") if one.strip()]
    for file in files:
        if not Path(file).is_file():
            raise InvalidInputError(
                f"py_files: {file!r} is not a file where the task runs, which sends it to the Spark Connect "
                "server."
            )
        place = str(Path(file).parent) if file.endswith(".py") else file
        if place not in sys.path:
            sys.path.append(place)
    return files


def _check_disk(request: JobRequest, results: Results) -> None:
    """Look for the first file that the job says it wrote, where the lake is on a disk."""
    if "://" in request.directory:
        return
    file = next((file for result in results.of_plans for file in result.data_files), None)
    if file is not None and not Path(file.path).exists():
        raise SparkJobError(
            f"The Spark Connect server wrote {file.path} on a disk of its own. The lake's data path must be "
            "the same location for the task and for the server's tasks: a shared folder or an object store."
        )
