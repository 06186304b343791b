"""Submit a Spark job of ours and take its result: what all operators that need one have in common."""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowNotFoundException,
    BaseHook,
)

from airflow_provider_ducklake.errors import DuckLakeError, InvalidInputError, SparkJobError, StorageError
from airflow_provider_ducklake.hooks import pyspark_versions
from airflow_provider_ducklake.hooks.driver_environment import give_to_driver
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.hooks.jdbc_source import JdbcPasswords
from airflow_provider_ducklake.operators import before_submit
from airflow_provider_ducklake.spark.job import job_io
from airflow_provider_ducklake.spark.job.package_zip import application_file, package_zip
from airflow_provider_ducklake.spark.output.log import JobLog
from airflow_provider_ducklake.spec.snapshots import CommitInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Connection, Context

    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.hooks.commit_identity import CommitIdentity
    from airflow_provider_ducklake.planning.writing.write import WriteResult
    from airflow_provider_ducklake.spark.job.job_io import JobRequest


class DuckLakeSparkJobOperator(SparkSubmitOperator):
    """Plan on the lake and let a Spark job write files; what becomes of them is said by others.

    Takes every argument of ``SparkSubmitOperator`` under its name, and passes it on. Two are the operator's
    own: ``application_args`` belong to the job, and ``durable`` is always off, as each try writes files of
    its own and must not wait for the job of another.

    :param ducklake_conn_id: the connection of the lake. (templated)
    :param spark_conn_id: the connection of the Spark cluster; ``conn_id`` means the same.
    :param commit_message: what the snapshot says of itself; default: the DAG's and the task's id. (templated)
    :param application: another file to submit instead of the provider's own launcher, as
        ``local:///opt/ducklake/main.py`` inside an image. (templated)
    """

    template_fields: Sequence[str] = (
        "ducklake_conn_id",
        "commit_message",
        *(field for field in SparkSubmitOperator.template_fields if field != "application_args"),
    )
    overwrite_rtif_after_execution = True  # what was really submitted is known only then

    # What we look at ourselves is named here: default_args reach an argument by its name only.
    def __init__(
        self,
        *,
        ducklake_conn_id: str = DuckLakeHook.default_conn_name,
        spark_conn_id: str | None = None,
        conn_id: str | None = None,
        commit_message: str | None = None,
        application: str | None = None,
        deploy_mode: str | None = None,
        durable: bool | None = None,
        **kwargs: Any,  # noqa: ANN401 - SparkSubmitOperator's
    ) -> None:
        if "application_args" in kwargs:
            raise InvalidInputError("application_args belong to the job itself; they cannot be given.")
        if durable:
            raise InvalidInputError(
                "durable=True is not supported: a retry would wait for the job of an earlier try, whose "
                "files nobody commits. Each try submits a job of its own."
            )
        spark_conn_id = spark_conn_id or conn_id or "spark_default"
        super().__init__(
            application=application or "", conn_id=spark_conn_id, deploy_mode=deploy_mode, **kwargs
        )
        self.durable = False
        self.ducklake_conn_id = ducklake_conn_id
        self.spark_conn_id = spark_conn_id
        self.commit_message = commit_message
        self.own_deploy_mode = deploy_mode
        self._job_log = JobLog()
        self._driver_secrets: dict[str, str] = {}

    @abstractmethod
    def make_request(self, lake: Lake, passwords: JdbcPasswords) -> JobRequest | None:
        """Plan on the lake's newest snapshot and return what the job is to do; None: nothing."""

    def _plan(self, lake: Lake) -> tuple[JobRequest | None, JdbcPasswords]:
        spark_connection = self._spark_connection()
        passwords = JdbcPasswords()
        deploy_mode, master = self._deploy_mode_of(spark_connection), _master_of(spark_connection)
        before_submit.check_master(master, deploy_mode)
        request = self.make_request(lake, passwords)
        for directory in () if request is None else request.directories:
            lake.check_writable(directory)
        _check_deploy_mode(passwords, deploy_mode)
        if request is not None:
            before_submit.check_sources(request, master, lake.storage_options)
            self._warn(request)
        return request, passwords

    def _warn(self, request: JobRequest) -> None:
        """Say what may be wrong and cannot be told for certain from here."""
        conf = self.conf or {}
        packages = (self.packages, self.jars, conf.get("spark.jars.packages"), conf.get("spark.jars"))
        elsewhere = (self.properties_file, self.driver_class_path, conf.get("spark.driver.extraClassPath"))
        warning = before_submit.missing_package(request.directory, packages, elsewhere)
        if warning is not None:
            self.log.warning(warning)

    def _spark_connection(self) -> Connection:
        """Return the Spark connection. SparkSubmitOperator would take YARN for one that does not exist."""
        try:
            return BaseHook.get_connection(self.spark_conn_id)
        except AirflowNotFoundException:
            raise InvalidInputError(
                f"The Spark connection {self.spark_conn_id!r} does not exist. Create it (type spark, host "
                "local[2], yarn, spark://… or k8s://…) or name another one as spark_conn_id."
            ) from None

    def _deploy_mode_of(self, connection: Connection) -> str:
        return (
            self.own_deploy_mode
            or connection.extra_dejson.get("deploy-mode")
            or (self.conf or {}).get("spark.submit.deployMode")
            or "client"
        )

    def _run_job(
        self,
        context: Context,
        request: JobRequest,
        passwords: JdbcPasswords,
        storage_options: dict[str, Any],
    ) -> tuple[WriteResult, ...]:
        try:
            self._driver_secrets = self._secrets(request, passwords, storage_options)
            self._submit(context, request, storage_options)
            return job_io.read_results(request, storage_options)
        except BaseException:
            self._remove_files(request, storage_options)
            raise

    def _secrets(
        self, request: JobRequest, passwords: JdbcPasswords, storage_options: dict[str, Any]
    ) -> dict[str, str]:
        """Return what a driver on this machine is to know and nobody else is to see."""
        from airflow_provider_ducklake.storage.files.process_options import as_environment  # noqa: PLC0415 - not for DAG files

        if self._deploy_mode_of(self._spark_connection()) != "client":
            return {}
        is_remote = "://" in request.directory
        return passwords.variables | (as_environment(storage_options) if is_remote else {})

    def _submit(self, context: Context, request: JobRequest, storage_options: dict[str, Any]) -> None:
        """Run the job through the parent; its own error, which it left beside its request, says more."""
        if mismatch := pyspark_versions.mismatch():
            self.log.warning(mismatch)
        uri = job_io.write_request(request, storage_options)
        with tempfile.TemporaryDirectory(prefix="ducklake-") as folder:
            self._set_submission([uri, job_io.request_digest(request)], str(package_zip(folder)))
            self._job_log, self._hook = JobLog(), None
            try:
                super().execute(context)
            except FileNotFoundError as error:
                raise SparkJobError(
                    f"{error.filename} was not found. Install airflow-provider-ducklake-spark[pyspark] and "
                    "have its bin folder on the PATH, or name the binary in the Spark connection."
                ) from error
            except AirflowException as error:
                raise self._failure(request, storage_options, str(error)) from None  # it repeats the log
            except BaseException:  # a time-out, say: the job still runs and writes
                self.on_kill()
                raise

    def _get_hook(self) -> SparkSubmitHook:
        """Return the parent's hook, whose lines go through our log and whose driver gets our secrets."""
        hook = super()._get_hook()
        give_to_driver(hook, self._driver_secrets)
        process, job_log = hook._process_spark_submit_log, self._job_log  # noqa: SLF001 - it has no public way

        def process_shown(itr: Iterator[Any]) -> None:
            process(job_log.shown(itr))

        hook._process_spark_submit_log = process_shown  # type: ignore[method-assign]  # noqa: SLF001
        return hook

    def _failure(
        self, request: JobRequest, storage_options: dict[str, Any], hook_error: str
    ) -> DuckLakeError:
        """Return why the job failed: what it says itself, else what its log says."""
        try:
            typed = job_io.read_error(request, storage_options)
        except StorageError:  # the store that the job could not reach either
            typed = None
        if typed is None:
            return SparkJobError(self._job_log.cause() or self._job_log.end(hook_error))
        lost = self._job_log.lost_master() if type(typed) is SparkJobError else None
        return typed if lost is None else SparkJobError(f"{lost}\n{typed}")

    def _set_submission(self, arguments: list[str], zip_file: str) -> None:
        self.application = self.application or str(application_file())
        self.application_args = arguments
        self.py_files = ",".join(filter(None, [zip_file, self.py_files]))
        self.conf = {"spark.log.level": "WARN", **(self.conf or {})}

    def _remove_files(
        self, request: JobRequest, storage_options: dict[str, Any], *, has_files: bool = True
    ) -> None:
        try:
            job_io.delete_job_directories(request, storage_options, has_files=has_files)
        except Exception as error:  # noqa: BLE001 - a clean-up must not hide why
            self.log.warning("Cannot remove %s: %s", request.directory, error)

    def _commit_info(self, context: Context, identity: CommitIdentity) -> CommitInfo:
        ti = context["ti"]
        return CommitInfo("airflow", self.commit_message or f"{ti.dag_id}.{ti.task_id}", identity.extra)


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
            f"{deploy_mode!r}, where the password would have to travel on a command line. Use Spark's own "
            "credential providers there: a Hadoop credential store "
            "(spark.hadoop.hadoop.security.credential.provider.path) or the reader's "
            "connectionProvider option."
        )
