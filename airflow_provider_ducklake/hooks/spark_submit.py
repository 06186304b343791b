"""Jobs through ``spark-submit``, as a ``SparkSubmitOperator`` runs it.

Secrets reach a driver in the environment of its process alone, never in an argument or a file.
"""

from __future__ import annotations

import getpass
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowNotFoundException,
    BaseHook,
    BaseOperatorLink,
)

from ..lake.errors import DuckLakeError, InvalidInputError, SourceNotFoundError, SparkJobError, StorageError
from ..lake.format.log_lines import lasting, logger
from ..lake.format.names.paths import hadoop_uri, is_local
from ..lake.spark.job.package_zip import application_file, package_zip
from . import storage
from .jdbc_source import JdbcPasswords
from .submit_settings import SubmitSettings, submit_settings

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Connection, Context

    from ..lake.spark.job.request import JobRequest
    from ..lake.spark.output.log import JobLog
    from ..lake.writes.job_life import JobLife
    from ..lake.writes.verb import Results
    from .clusters import ClusterManager


# Errors of a job that can be found before Spark is started.


_WILDCARDS = frozenset("*?[]{}\\")


def check_master(master: str, deploy_mode: str) -> None:
    """Refuse what Spark, or Airflow's hook of it, would refuse."""
    if master.startswith("k8s://") and not _has_kubernetes():
        raise InvalidInputError(
            f"The master is {master}, and Airflow submits to Kubernetes only with its provider for that. "
            "Install apache-airflow-providers-cncf-kubernetes where the task runs."
        )
    if deploy_mode == "cluster" and master.startswith("local"):
        raise InvalidInputError(
            f"deploy_mode is 'cluster', but the master {master} runs Python jobs in client mode only. Set "
            "deploy_mode='client' in the task or its Spark connection."
        )


def _has_kubernetes() -> bool:
    try:
        return find_spec("airflow.providers.cncf.kubernetes.kube_client") is not None
    except ModuleNotFoundError:
        return False


def check_sources(request: JobRequest, master: str, storage_options: Mapping[str, Any]) -> None:
    """Look for the sources' files, as far as this process sees what Spark will see.

    That is in the lake's own bucket, and on local disks where Spark runs on this machine.
    """
    from ..lake.spark.job.request import datasets_of
    from ..lake.storage.files.filesystem import exists

    for name, dataset in datasets_of(request.source).items():
        path = dataset.path
        if path is None or _WILDCARDS & set(path) or not _is_seen(path, request.directory, master):
            continue
        try:
            found = exists(path, storage_options)
        except StorageError:  # Spark may have other rights
            continue
        if not found:
            raise SourceNotFoundError(name, path)


def _is_seen(path: str, lake: str, master: str) -> bool:
    """Return True if a path means the same file here; Spark has more schemes, and its own relative paths."""
    if path.startswith("/"):
        return master.startswith("local")
    return "://" in path and _bucket(path) == _bucket(lake)


def _bucket(path: str) -> str:
    return "/".join(hadoop_uri(path).split("/")[:3])


def mismatch() -> str | None:
    """Describe the conflict between the installed pyspark and pyspark-client; None if there is none.

    ``pyspark-client``, which Airflow's Spark provider installs, overwrites hundreds of ``pyspark``'s files.
    It is not released with each version of ``pyspark``, so its own is the one that both have.
    """
    try:
        full, client = version("pyspark"), version("pyspark-client")
    except PackageNotFoundError:  # spark-submit is of another installation
        return None
    if full == client:
        return None
    return (
        f"Where this task runs, pyspark is {full} and pyspark-client is {client}. They install the same "
        "files, so one breaks the other. Install both in the same version: pip install --force-reinstall "
        f"pyspark=={client} pyspark-client=={client}."
    )


# What a driver in cluster mode needs of its own: it first reads the job's request in the lake's store.
#
# *Sources:* "Running on Kubernetes" and "Running on YARN" in Spark's guide.


_UPLOAD = "spark.kubernetes.file.upload.path"
_IMAGE = "spark.kubernetes.container.image"
_TEMPLATE = "spark.kubernetes.driver.podTemplateFile"
_OF_IMAGE = "local://"
_MOUNT = re.compile(r"spark\.kubernetes\.driver\.volumes\.\w+\.[^.]+\.mount\.path\Z")
# Its client for that cannot do with the Netty of Spark 4.2, unless it is Amazon's bundle of 660 MB.
_FAST_COPY = "spark.hadoop.fs.s3a.optimized.copy.from.local.enabled"
# By which Hadoop's S3A, and Amazon's own tools, know who they are.
_VARIABLES = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "token"}
# Settings that give pods or containers credentials of their own.
_CREDENTIALS = re.compile(
    r"spark\.kubernetes\.authenticate\.(?:driver\.)?serviceAccountName"
    r"|spark\.kubernetes\.(?:driver\.secretKeyRef|driverEnv)\.(?:AWS|GOOGLE|AZURE)_"
    r"|spark\.yarn\.appMasterEnv\.(?:AWS|GOOGLE|AZURE)_"
    r"|spark\.hadoop\.hadoop\.security\.credential\.provider\.path\Z"
)


def check_submission(settings: SubmitSettings, application: str) -> None:
    """Refuse what Spark cannot submit to Kubernetes; see the settings that its guide asks for."""
    if settings.has_driver_here or not settings.is_kubernetes or not settings.has_whole_conf:
        return
    if _IMAGE not in settings.conf and "spark.kubernetes.driver.container.image" not in settings.conf:
        raise InvalidInputError(
            f"On Kubernetes Spark needs an image, and no setting names one. Add conf {{{_IMAGE!r}: "
            "'registry.example.com/spark-lake:4.2.0'}, an image of Spark with pyarrow."
        )
    if not application.startswith(_OF_IMAGE) and _UPLOAD not in settings.conf:
        raise InvalidInputError(
            "In cluster mode on Kubernetes the driver's pod fetches what is submitted from a store. Add conf "
            f"{{{_UPLOAD!r}: 's3a://bucket/spark-uploads/'}}, a place that this machine may write and the "
            "pods may read."
        )


def needs_of_driver(
    directory: str, settings: SubmitSettings, storage_options: Mapping[str, Any]
) -> str | None:
    """Describe what a driver on another machine needs to open ``directory``; None if it needs nothing."""
    if settings.has_driver_here:
        return None
    parts = [*(_on_disk if is_local(directory) else _in_store)(directory, settings, storage_options)]
    return " ".join(["In cluster mode the driver runs on another machine.", *parts]) if parts else None


def _on_disk(directory: str, settings: SubmitSettings, _options: object) -> Iterator[str]:
    yield (
        f"It reads and writes the lake's files at {directory}, so that directory must be the same there, and "
        f"the driver must run as the user of this task ({getpass.getuser()}, uid {os.geteuid()}), who alone "
        "may read a job's documents."
    )
    if settings.is_kubernetes and not _is_mounted(directory, settings):
        yield (
            "No setting mounts it into the driver's pod. Add conf {'spark.kubernetes.driver.volumes."
            "persistentVolumeClaim.lake.mount.path': '…', 'spark.kubernetes.driver.volumes."
            "persistentVolumeClaim.lake.options.claimName': '…'}, and the same for the executor."
        )
    elif settings.is_yarn:
        yield (
            "YARN runs containers as the user of its NodeManagers, unless its LinuxContainerExecutor is set "
            "up: then as the user who submits."
        )


def _is_mounted(directory: str, settings: SubmitSettings) -> bool:
    mounts = [value for name, value in settings.conf.items() if _MOUNT.match(name)]
    return _TEMPLATE in settings.conf or any(directory.startswith(f"{one.rstrip('/')}/") for one in mounts)


def _in_store(directory: str, settings: SubmitSettings, storage_options: Mapping[str, Any]) -> Iterator[str]:
    has_own = _TEMPLATE in settings.conf or any(map(_CREDENTIALS.match, settings.conf))
    if not storage_options or has_own:
        return
    yield (
        "It gets no credentials of the connection, since they would be seen on the way. It opens "
        f"{directory} with credentials of its own: {_way(directory, settings)}."
    )


def _way(directory: str, settings: SubmitSettings) -> str:
    if settings.is_kubernetes and hadoop_uri(directory).startswith("s3a://"):
        return (
            "those of conf {'spark.kubernetes.authenticate.driver.serviceAccountName': '…'}, or of "
            "{'spark.kubernetes.driver.secretKeyRef.AWS_ACCESS_KEY_ID': '<secret>:<key>'} and the same for "
            "AWS_SECRET_ACCESS_KEY; the executors need them, too"
        )
    if settings.is_yarn:
        return (
            "the role of its machine, or a Hadoop credential store (conf {'spark.hadoop.hadoop.security."
            "credential.provider.path': 'jceks://hdfs/…'}) and AWS_ACCESS_KEY_ID and its like in the "
            "environment of the containers"
        )
    return "the role of its machine or pod, or variables such as AWS_ACCESS_KEY_ID in its environment"


def driver_environment(
    directory: str, settings: SubmitSettings, storage_options: Mapping[str, Any]
) -> dict[str, str]:
    """Return settings of ours for a driver on another machine: where the store is, and nothing secret."""
    from ..lake.storage.files.filesystem import address_as_environment

    prefixes = {"k8s": "spark.kubernetes.driverEnv.", "yarn": "spark.yarn.appMasterEnv."}
    prefix = prefixes.get("yarn" if settings.is_yarn else settings.master.partition("://")[0])
    if settings.has_driver_here or is_local(directory) or prefix is None:
        return {}
    given = {prefix + name: value for name, value in address_as_environment(storage_options).items()}
    if hadoop_uri(settings.conf.get(_UPLOAD, "")).startswith("s3a://"):
        given[_FAST_COPY] = "false"
    return given


def secrets_of_upload(
    directory: str, settings: SubmitSettings, storage_options: Mapping[str, Any]
) -> dict[str, str]:
    """Return variables by which ``spark-submit`` itself opens the lake's bucket, if it uploads files there.

    Nothing of its environment goes into a pod. On YARN it would: into a file of the staging directory.
    """
    upload = hadoop_uri(settings.conf.get(_UPLOAD, ""))
    bucket = hadoop_uri(directory).split("/")[:3]
    if not settings.is_kubernetes or bucket[0] != "s3a:" or upload.split("/")[:3] != bucket:
        return {}
    return {name: str(storage_options[key]) for name, key in _VARIABLES.items() if storage_options.get(key)}


log = logger(__name__)


# By which a user chooses the Python of a job.
_NAMES_OF_PYTHON = frozenset(
    {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "spark.pyspark.python", "spark.pyspark.driver.python"}
)


@dataclass
class Submission:
    """What the hook of one submission needs besides the operator's arguments."""

    variables: dict[str, str] = field(default_factory=dict)
    interrupt: Callable[[], object] | None = None
    environment: dict[str, str] | None = None
    manager: ClusterManager | None = None
    application: str | None = None
    adds_packages: bool = False
    began: float = 0.0
    log: Any = log
    life: JobLife | None = None
    spark_id: str | None = None
    url: str | None = None

    @cached_property
    def job_log(self) -> JobLog:
        """What Spark says of the job; made when it is used, since DAG files make operators over and over."""
        from ..lake.spark.output.log import JobLog

        return JobLog()

    def track(self, manager: ClusterManager, life: JobLife, application_id: str | None = None) -> None:
        """Have the job outlive ``spark-submit``: its application is killed only while this try holds it."""
        self.manager, self.life, self.application = manager, life, application_id

    def parse_line(self, line: str) -> None:
        """Look for the application's id in what a submission, or a driver, says."""
        if self.spark_id is None:
            self.spark_id = application_id_in(line)
            if self.spark_id is not None and self.manager is None:
                took = lasting(time.monotonic() - self.began)
                self.log.info("Spark started in %s: application %s", took, self.spark_id)
        if self.manager is None or self.application is not None:
            return
        found = self.manager.id_in(line)
        if found is not None:
            self.set_application(found)

    def set_application(self, application_id: str) -> None:
        """Take the cluster's name for the application."""
        self.application = application_id
        if self.life is not None:
            self.life.named(application_id)

    def kill(self) -> bool:
        """End a job that no process here holds; return whether there is such a thing."""
        if self.interrupt is not None:
            self.interrupt()
        elif self.manager is not None and self.application is not None:
            try:
                if self.life is None or self.life.is_ours():
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
            self.parse_line(line)
            yield line


def wait_for_nothing(hook: SparkSubmitHook, environment: Mapping[str, str] | None) -> None:
    """Have the hook end with ``spark-submit``, which has the given environment, None: that of this process.

    The application runs on then: what the hook would do at its end, or to know of it, is not its work.
    """
    own: Any = hook  # it has no public way
    own._should_track_driver_status = own._track_driver_via_k8s_api = own._yarn_track_via_rm_api = False  # noqa: SLF001
    own._spark_exit_code = 0  # noqa: SLF001 - of a pod, which has none yet
    own._post_submit_commands = []  # noqa: SLF001
    if environment is None:
        return
    given, build = dict(environment), own._build_spark_submit_command  # noqa: SLF001

    def built(application: str) -> list[str]:
        command: list[str] = build(application)
        given.update(own._env or {})  # noqa: SLF001 - with them the hook would hand on all of this process's
        own._env = {}  # noqa: SLF001
        return command

    own._build_spark_submit_command = built  # noqa: SLF001
    own.submit = partial(hook.submit, env=given)


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
        check_master(_master_of(self.connection()), self.deploy_mode())

    def resolve(self, source: Any) -> Any:  # noqa: ANN401 - as users give it
        """Complete a jdbc source by the Airflow connection that it names; see ``Submitter``."""
        return self._passwords.resolve(source)

    def check(self, request: JobRequest, storage_options: Mapping[str, Any]) -> None:
        """Look for what the job would fail at, and say what may be wrong; see ``Submitter``."""
        _check_deploy_mode(self._passwords, self.deploy_mode())
        settings = self._with_packages(request)
        check_sources(request, settings.master, storage_options)
        check_submission(settings, self.operator.application)
        warnings = [
            storage.other_endpoint(request.directory, settings, storage_options),
            needs_of_driver(request.directory, settings, storage_options),
        ]
        for warning in filter(None, warnings):
            self.operator.log.warning("%s", warning)

    def _with_packages(self, request: JobRequest) -> SubmitSettings:
        """Return the settings, with the packages that the job's stores need where the lake says so."""
        settings = self.settings()
        if not self.submission.adds_packages:
            return settings
        added = storage.missing_packages(request, settings)
        if not added:
            return settings
        self.operator.packages = ",".join(filter(None, [self.operator.packages, *added]))
        self.operator.log.info("Added packages=%s (spark_packages of the connection)", ",".join(added))
        return self.settings()

    def run(self, request: JobRequest, storage_options: Mapping[str, Any]) -> Results:
        """Submit the job and read what it left; see ``Submitter``."""
        from ..lake.spark.job import io as job_io
        from ..lake.writes.verb import Results

        try:
            self.submit(request, storage_options)
        finally:
            self.show_page(self.submission.spark_id)
        return Results.of(job_io.read_outcome(request, storage_options))

    def show_page(self, application_id: str | None, url: str | None = None) -> None:
        """Have the task's link lead to the application's page, if that can be found out."""
        try:
            self.submission.url = url or history_url(self.connection(), application_id)
        except Exception as error:  # noqa: BLE001 - no job fails for a link
            self.operator.log.warning("There is no link to %s: %s", application_id, error)

    def submit(self, request: JobRequest, storage_options: Mapping[str, Any]) -> None:
        """Run ``spark-submit`` to its end."""
        from ..lake.spark.job import io as job_io

        if (problem := mismatch()) is not None:
            self.operator.log.warning("%s", problem)
        arguments = self._document_key(request.directory)
        uri = job_io.write_request(request, storage_options, is_sealed=arguments is not None)
        with tempfile.TemporaryDirectory(prefix="ducklake-") as folder:
            given = [uri, job_io.request_digest(request), *(arguments or ())]
            self.prepare(request, given, str(package_zip(folder)), storage_options)
            try:
                SparkSubmitOperator.execute(self.operator, self.context)
            except FileNotFoundError as error:
                raise SparkJobError(
                    f"{error.filename} was not found. Install pyspark and pyspark-client, both in "
                    "one version, and put the bin folder on the PATH, or name the binary in the Spark "
                    "connection."
                ) from error
            except (AirflowException, RuntimeError) as error:  # the latter by its own polling
                if isinstance(error, RuntimeError):  # it may also not have reached the manager
                    self.operator.on_kill()
                log = self.submission.job_log
                raise self.job_error(request, storage_options) or SparkJobError.of_log(
                    log.cause() or log.end(str(error))
                ) from None  # it repeats the log
            except BaseException:  # a time-out, say: the job still runs and writes
                self.operator.on_kill()
                raise

    def _document_key(self, directory: str) -> list[str] | None:
        """Return the arguments by which the driver opens a sealed request; None: it cannot."""
        from ..lake.storage.files import writing

        if self.settings().has_driver_here:  # it gets the key by its environment
            return []
        file = writing.file_of(directory)
        if file is None and writing.key_of(directory) is not None:
            self.operator.log.warning(
                "In cluster mode the keys of the lake's files are in the job's documents in %s, for all who "
                "may read there. Put a document_key_file into the extra of the lake's connection, a file "
                "that the driver has, too, and they are sealed.",
                directory,
            )
            return None
        return [] if file is None else [file]

    def tidy_up(self, request: JobRequest, storage_options: Mapping[str, Any]) -> None:
        """Remove the documents of the job; see ``Submitter``."""
        from ..lake.spark.job import io as job_io

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
        given = driver_environment(request.directory, settings, storage_options)
        one.conf = {"spark.log.level": "WARN", **given, **(one.conf or {})}
        one._hook = None  # noqa: SLF001 - the hook of an earlier job would submit that one
        vars(submission).pop("job_log", None)  # that of an earlier job
        submission.log = one.log
        submission.variables = self._variables(request, settings, storage_options)

    def settings(self) -> SubmitSettings:
        return submit_settings(self.operator, _master_of(self.connection()), self.deploy_mode())

    def _variables(
        self, request: JobRequest, settings: SubmitSettings, storage_options: Mapping[str, Any]
    ) -> dict[str, str]:
        """Return the environment of ``spark-submit`` on this machine; it holds secrets."""
        from ..lake.storage.files import writing
        from ..lake.storage.files.filesystem import as_environment

        if not settings.has_driver_here:
            return secrets_of_upload(request.directory, settings, storage_options)
        is_remote = "://" in request.directory
        of_store = as_environment(storage_options) if is_remote else {}
        of_documents = writing.as_environment(request.directory)
        return {**self._python(settings), **self._passwords.variables, **of_store, **of_documents}

    def _python(self, settings: SubmitSettings) -> dict[str, str]:
        """Give jobs in local mode the task's own Python, unless a user named one."""
        named = {*os.environ, *(self.operator.env_vars or {}), *settings.conf}
        if not settings.master.startswith("local") or named & _NAMES_OF_PYTHON:
            return {}
        return {"PYSPARK_PYTHON": sys.executable}

    def job_error(self, request: JobRequest, storage_options: Mapping[str, Any]) -> DuckLakeError | None:
        """Read the error that a failed job left, if it left one."""
        from ..lake.spark.job import io as job_io

        try:
            typed = job_io.read_error(request, storage_options)
        except StorageError:  # the store that the job could not reach either
            return None
        if not isinstance(typed, SparkJobError):
            return typed
        lost = self.submission.job_log.lost_master("\n".join([typed.problem, *typed.log]))
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


# Links from a task to its Spark application. *Source:* "Monitoring and Instrumentation" in Spark's guide.

_HISTORY_SERVER = "history_server"  # in the extra of a Spark connection
_SAID = re.compile(r"Spark application ((?:app|application|local|spark)-?[\w.-]+)$")


class SparkApplicationLink(BaseOperatorLink):
    """The page that the cluster's manager names, or that of the connection's history server."""

    name = "Spark application"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ANN401, ARG002 - Airflow's
        """Return the address; empty where there is none. Airflow asks in the task's process, at its end."""
        return getattr(getattr(operator, "done", None), "application_url", None) or ""


def without_empty_link(operator: Any) -> None:  # noqa: ANN401 - Airflow's
    """Leave the link out where no application has a page: Airflow would keep an empty XCom of it."""
    if not operator.done.application_url:
        links = operator.operator_extra_links
        operator.operator_extra_links = tuple(
            one for one in links if not isinstance(one, SparkApplicationLink)
        )


def application_id_in(line: str) -> str | None:
    """Return the id of the application where a line of the driver's log says it."""
    found = _SAID.search(line.rstrip())
    return None if found is None else found[1]


def history_url(connection: Connection, application_id: str | None) -> str | None:
    """Return an application's page on the history server of a Spark connection; None: it names none."""
    server = str(connection.extra_dejson.get(_HISTORY_SERVER) or "").rstrip("/")
    if not server or application_id is None:
        return None
    return f"{server}/history/{application_id}/"
