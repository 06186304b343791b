"""Jobs through ``spark-submit``, as a ``SparkSubmitOperator`` runs it.

Secrets reach a driver in the environment of its process alone, never in an argument or a file.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException, AirflowNotFoundException, BaseHook

from airflow_provider_ducklake.hooks import before_submit, cluster_driver, spark_store
from airflow_provider_ducklake.hooks.jdbc_source import JdbcPasswords
from airflow_provider_ducklake.hooks.links import application_said_in, history_url
from airflow_provider_ducklake.hooks.submit_settings import submit_settings
from airflow_provider_ducklake.lake.errors import (
    DuckLakeError,
    InvalidInputError,
    SparkJobError,
    StorageError,
)
from airflow_provider_ducklake.lake.spark.job.package_zip import application_file, package_zip
from airflow_provider_ducklake.lake.spark.output.log import JobLog
from airflow_provider_ducklake.lake.spec.log_lines import lasting, logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Connection, Context

    from airflow_provider_ducklake.hooks.clusters.cluster_manager import ClusterManager
    from airflow_provider_ducklake.hooks.spark_connect_submitter import SparkConnectSubmitter
    from airflow_provider_ducklake.hooks.submit_settings import SubmitSettings
    from airflow_provider_ducklake.lake.spark.job.request import JobRequest
    from airflow_provider_ducklake.lake.writes.verb import Results

log = logger(__name__)


# By which somebody says which Python runs a job.
_NAMES_OF_PYTHON = frozenset(
    {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "spark.pyspark.python", "spark.pyspark.driver.python"}
)


def _always() -> bool:
    return True


@dataclass
class Submission:
    """What the hook of one submission needs besides the operator's arguments."""

    job_log: JobLog = field(default_factory=JobLog)
    variables: dict[str, str] = field(default_factory=dict)
    connected: SparkConnectSubmitter | None = None
    environment: dict[str, str] | None = None
    manager: ClusterManager | None = None
    application: str | None = None
    adds_packages: bool = False
    began: float = 0.0
    log: Any = log
    note: Callable[[str], None] | None = None
    is_held: Callable[[], bool] = _always
    spark_id: str | None = None
    url: str | None = None

    def through(self, connected: SparkConnectSubmitter) -> SparkConnectSubmitter:
        """Note that jobs go through Spark Connect."""
        self.connected = connected
        return connected

    def detach(self, manager: ClusterManager, note: Callable[[str], None]) -> None:
        """Have the next submission end when the cluster has its application; ``note`` is told which."""
        self.manager, self.application, self.note = manager, None, note

    def found(self, manager: ClusterManager, application_id: str) -> None:
        """Note which application there is to end."""
        self.manager, self.application = manager, application_id

    def over(self) -> None:
        """Note that there is none any more."""
        self.application = None

    def heard(self, line: str) -> None:
        """Look for the application's id in what a submission, or a driver, says."""
        if self.spark_id is None:
            self.spark_id = application_said_in(line)
            if self.spark_id is not None and self.manager is None:
                took = lasting(time.monotonic() - self.began)
                self.log.info("Spark started in %s: application %s", took, self.spark_id)
        if self.manager is None or self.application is not None:
            return
        found = self.manager.id_in(line)
        if found is not None:
            self.named(found)

    def named(self, application_id: str) -> None:
        """Note what the cluster calls the application."""
        self.application = application_id
        if self.note is not None:
            self.note(application_id)

    def kill(self) -> bool:
        """End a job that no process here holds; return whether there is such a thing."""
        if self.connected is not None:
            self.connected.kill()
        elif self.manager is not None and self.application is not None:
            try:
                if self.is_held():
                    self.manager.kill(self.application)
            except DuckLakeError as error:  # a signal's handler must not end what it interrupts
                log.warning("%s may run on: %s", self.application, error)
        else:
            return False
        return True

    def prepare(self, hook: SparkSubmitHook) -> SparkSubmitHook:
        """Have the hook's lines go through our log, and its driver get our variables."""
        self.began = time.monotonic()
        give_to_driver(hook, self.variables)
        process = hook._process_spark_submit_log  # noqa: SLF001 - it has no public way

        def process_shown(itr: Iterator[Any]) -> None:
            process(self.job_log.shown(self._overheard(itr)))

        hook._process_spark_submit_log = process_shown  # type: ignore[method-assign]  # noqa: SLF001
        if self.manager is not None:
            wait_for_nothing(hook, self.environment)
        return hook

    def _overheard(self, lines: Iterator[Any]) -> Iterator[Any]:
        for line in lines:
            self.heard(line)
            yield line


def wait_for_nothing(hook: SparkSubmitHook, environment: Mapping[str, str] | None) -> None:
    """Have the hook end with ``spark-submit``, which has the given environment, None: that of this process.

    The application runs on then: what the hook would do at its end, or to know of it, is not its work.
    """
    own: Any = hook  # it has no public way
    own._should_track_driver_status = own._track_driver_via_k8s_api = own._yarn_track_via_rm_api = False  # noqa: SLF001
    own._spark_exit_code = 0  # noqa: SLF001 - of a pod, which has none yet
    own._post_submit_commands = []  # noqa: SLF001
    if environment is not None:
        own.submit = partial(hook.submit, env=dict(environment))


def give_to_driver(hook: SparkSubmitHook, variables: Mapping[str, str]) -> None:
    """Have the process that the hook starts see the variables; neither this one nor others do.

    The hook's own ``env_vars`` would be arguments on YARN and Kubernetes.
    """
    build = hook._build_spark_submit_command  # noqa: SLF001 - it has no public way

    def built(application: str) -> list[str]:
        command: list[str] = build(application)
        hook._env = {**(hook._env or {}), **variables}  # noqa: SLF001
        return command

    hook._build_spark_submit_command = built  # type: ignore[method-assign]  # noqa: SLF001


class SparkSubmitter:
    """The ``Submitter`` of an operator's run; ``submission`` is what the operator's hook is prepared by."""

    def __init__(
        self,
        operator: SparkSubmitOperator,
        context: Context,
        submission: Submission,
        *,
        conn_id: str,
        deploy_mode: str | None,
    ) -> None:
        self.operator = operator
        self.context = context
        self.submission = submission
        self.conn_id = conn_id
        self.given_deploy_mode = deploy_mode
        self._passwords = JdbcPasswords()

    def ready(self) -> None:
        """Refuse a Spark connection that could run no job; see ``Submitter``."""
        before_submit.check_master(_master_of(self.connection()), self.deploy_mode())

    def resolve(self, source: Any) -> Any:  # noqa: ANN401 - as users give it
        """Complete a jdbc source by the Airflow connection that it names; see ``Submitter``."""
        return self._passwords.resolve(source)

    def check(self, request: JobRequest, storage_options: Mapping[str, Any]) -> None:
        """Look for what the job would fail at, and say what may be wrong; see ``Submitter``."""
        _check_deploy_mode(self._passwords, self.deploy_mode())
        settings = self._with_packages(request)
        before_submit.check_sources(request, settings.master, storage_options)
        cluster_driver.check_submission(settings, self.operator.application)
        warnings = [
            *spark_store.check_store(request, settings, storage_options),
            cluster_driver.needs_of_driver(request.directory, settings, storage_options),
        ]
        for warning in filter(None, warnings):
            self.operator.log.warning("%s", warning)

    def _with_packages(self, request: JobRequest) -> SubmitSettings:
        """Return the settings, with the packages that the job's stores need where the lake says so."""
        settings = self.settings()
        if not self.submission.adds_packages:
            return settings
        added = spark_store.missing_packages(request, settings)
        if not added:
            return settings
        self.operator.packages = ",".join(filter(None, [self.operator.packages, *added]))
        self.operator.log.info("Added packages=%s (spark_packages of the connection)", ",".join(added))
        return self.settings()

    def run(self, request: JobRequest, storage_options: Mapping[str, Any]) -> Results:
        """Submit the job and read what it left; see ``Submitter``."""
        from airflow_provider_ducklake.lake.spark.job import io as job_io  # noqa: PLC0415 - no DAG file needs it
        from airflow_provider_ducklake.lake.writes.verb import Results  # noqa: PLC0415

        try:
            self.submit(request, storage_options)
        finally:
            self.submission.url = history_url(self.connection(), self.submission.spark_id)
        return Results.of(job_io.read_outcome(request, storage_options))

    def submit(self, request: JobRequest, storage_options: Mapping[str, Any]) -> None:
        """Run ``spark-submit`` to its end.

        Raises:
            DuckLakeError: the job's own error.
            SparkJobError: there is none.
        """
        from airflow_provider_ducklake.lake.spark.job import io as job_io  # noqa: PLC0415 - no DAG file needs it

        if mismatch := before_submit.mismatch():
            self.operator.log.warning("%s", mismatch)
        arguments = self._document_key(request.directory)
        uri = job_io.write_request(request, storage_options, is_sealed=arguments is not None)
        with tempfile.TemporaryDirectory(prefix="ducklake-") as folder:
            given = [uri, job_io.request_digest(request), *(arguments or ())]
            self.prepare(request, given, str(package_zip(folder)), storage_options)
            try:
                SparkSubmitOperator.execute(self.operator, self.context)
            except FileNotFoundError as error:
                raise SparkJobError(
                    f"{error.filename} was not found. Install airflow-provider-ducklake-spark[pyspark] and "
                    "put its bin folder on the PATH, or name the binary in the Spark connection."
                ) from error
            except AirflowException as error:
                raise self.failure(request, storage_options, str(error)) from None  # it repeats the log
            except BaseException:  # a time-out, say: the job still runs and writes
                self.operator.on_kill()
                raise

    def _document_key(self, directory: str) -> list[str] | None:
        """Return the arguments by which the driver opens a sealed request; None: it cannot."""
        from airflow_provider_ducklake.lake.storage.files import writing as sealing  # noqa: PLC0415 - no DAG file needs it

        if self.settings().has_driver_here:  # it gets the key by its environment
            return []
        file = sealing.file_of(directory)
        if file is None and sealing.key_of(directory) is not None:
            self.operator.log.warning(
                "In cluster mode the keys of the lake's files are in the job's documents in %s, for whoever "
                "may read there. Put a document_key_file into the extra of the lake's connection, a file "
                "that the driver has, too, and they are sealed.",
                directory,
            )
            return None
        return [] if file is None else [file]

    def tidy_up(self, request: JobRequest, storage_options: Mapping[str, Any]) -> None:
        """Remove the documents of the job; see ``Submitter``."""
        from airflow_provider_ducklake.lake.spark.job import io as job_io  # noqa: PLC0415 - no DAG file needs it

        job_io.delete_job_files(request, storage_options)

    def prepare(
        self, request: JobRequest, arguments: list[str], zip_file: str, storage_options: Mapping[str, Any]
    ) -> None:
        """Have the operator submit this job: Airflow shows these attributes as what was submitted."""
        one, submission = self.operator, self.submission
        one.application = one.application or str(application_file())
        one.application_args = arguments
        one.py_files = ",".join(filter(None, [zip_file, one.py_files]))
        settings = self.settings()
        given = cluster_driver.told_on_the_way(request.directory, settings, storage_options)
        one.conf = {"spark.log.level": "WARN", **given, **(one.conf or {})}
        one._hook = None  # noqa: SLF001 - the hook of an earlier job would submit that one
        submission.job_log, submission.log = JobLog(), one.log
        submission.variables = self._variables(request, settings, storage_options)

    def settings(self) -> SubmitSettings:
        return submit_settings(self.operator, _master_of(self.connection()), self.deploy_mode())

    def _variables(
        self, request: JobRequest, settings: SubmitSettings, storage_options: Mapping[str, Any]
    ) -> dict[str, str]:
        """Return the environment of ``spark-submit`` on this machine, which nobody else is to see."""
        from airflow_provider_ducklake.lake.storage.files import writing as sealing  # noqa: PLC0415 - not for DAG files
        from airflow_provider_ducklake.lake.storage.files.filesystem import as_environment  # noqa: PLC0415 - as well

        if not settings.has_driver_here:
            return cluster_driver.secrets_of_upload(request.directory, settings, storage_options)
        is_remote = "://" in request.directory
        of_store = as_environment(storage_options) if is_remote else {}
        of_documents = sealing.as_environment(request.directory)
        return {**self._python(settings), **self._passwords.variables, **of_store, **of_documents}

    def _python(self, settings: SubmitSettings) -> dict[str, str]:
        """Return which Python is to run jobs in local mode: the task's own, unless somebody named one."""
        named = {*os.environ, *(self.operator.env_vars or {}), *settings.conf}
        if not settings.master.startswith("local") or named & _NAMES_OF_PYTHON:
            return {}
        return {"PYSPARK_PYTHON": sys.executable}

    def failure(
        self,
        request: JobRequest,
        storage_options: Mapping[str, Any],
        unknown: str,
        *,
        is_known: bool = False,
    ) -> DuckLakeError:
        """Return why the job failed: what it says itself, else what its log says, which ``is_known`` here.

        ``unknown`` is all that is known else: Airflow's words for it, or those to use.
        """
        from airflow_provider_ducklake.lake.spark.job import io as job_io  # noqa: PLC0415 - no DAG file needs it

        job_log = self.submission.job_log
        try:
            typed = job_io.read_error(request, storage_options)
        except StorageError:  # the store that the job could not reach either
            typed = None
        if typed is None and is_known:
            return SparkJobError(unknown)
        if typed is None:
            return SparkJobError.of_log(job_log.cause() or job_log.end(unknown))
        if not isinstance(typed, SparkJobError):
            return typed
        lost = job_log.lost_master("\n".join([typed.problem, *typed.log]))
        if lost is None:
            return typed
        return SparkJobError(lost, [typed.problem, *typed.log])

    def connection(self) -> Connection:
        """Return the Spark connection. SparkSubmitOperator would take YARN for one that does not exist."""
        try:
            return BaseHook.get_connection(self.conn_id)
        except AirflowNotFoundException:
            raise InvalidInputError(
                f"The Spark connection {self.conn_id!r} does not exist. Create it (type spark, host "
                "local[2], yarn, spark://… or k8s://…) or name another one as spark_conn_id."
            ) from None

    def deploy_mode(self) -> str:
        return (
            self.given_deploy_mode
            or self.connection().extra_dejson.get("deploy-mode")
            or (self.operator.conf or {}).get("spark.submit.deployMode")
            or "client"
        )


def _master_of(connection: Connection) -> str:
    """Return the master that SparkSubmitHook makes of a connection."""
    host = connection.host or ""
    if connection.conn_type == "spark" and host and ("://" in host or not connection.port):
        return host
    return f"{connection.conn_type}://{host}"


def _check_deploy_mode(passwords: JdbcPasswords, deploy_mode: str) -> None:
    if passwords and deploy_mode != "client":
        raise InvalidInputError(
            "A jdbc source with a password runs in client mode only; this job's deploy mode is "
            f"{deploy_mode!r}, where the password would have to be passed on a command line. Use Spark's "
            "own credential providers instead: a Hadoop credential store "
            "(spark.hadoop.hadoop.security.credential.provider.path) or the reader's connectionProvider "
            "option."
        )
