"""Jobs in cluster mode, as ``spark-submit`` hands them over: their applications outlive it, and the task.

The cluster's manager is asked how an application is, by the task or in the triggerer.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import conf

from ..lake.errors import ClusterUnavailableError, DuckLakeError, InvalidInputError, SparkJobError
from ..lake.format.names.paths import hadoop_uri
from ..lake.spark.job import io as job_io
from ..lake.spark.job.package_zip import runnable_zip
from ..lake.writes.job_life import DetachedSubmitter, JobDeferred, JobLife
from ..lake.writes.verb import Results
from .clusters import (
    ARCHIVE,
    FETCHED,
    JAVA_CLASS,
    Application,
    ApplicationState,
    ClusterManager,
    Standalone,
    as_arguments,
    can_be_sent,
    manager_of,
    why_none,
)
from .spark_submit import SparkSubmitter

if TYPE_CHECKING:
    from ..lake.catalog.ledger.jobs import SubmittedJob
    from ..lake.spark.job.request import JobRequest

Answer = TypeVar("Answer")
_TAGS = "spark.yarn.tags"
_LONGEST_SILENCE = 600.0  # seconds that a manager may not answer while a task waits for an application
# A client of the standalone manager sends all of its environment to the cluster.
_SENT = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LC_\w+|TZ|TMPDIR|(?:JAVA|JDK|SPARK|PYSPARK|HADOOP|KRB5)\w*", re.ASCII
)
_SECRET = re.compile(r"SECRET|PASS|PWD|TOKEN|CREDENTIAL|KEY", re.IGNORECASE)


def detached(submitter: SparkSubmitter, *, durable: bool | None, deferrable: bool | None) -> SparkSubmitter:
    """Return the submitter of jobs that outlive the task, or the given one where there is no such thing.

    Without ``deferrable`` Airflow's default counts where it is possible.
    """
    operator = submitter.operator
    settings = submitter.settings()
    auth = getattr(operator, "_yarn_rm_auth", None)
    manager = manager_of(submitter.connection(), settings, operator.conf or {}, auth)
    if manager is None and (deferrable or durable):
        name = "deferrable" if deferrable else "durable"
        raise InvalidInputError(f"{name}=True: {why_none(settings)}")
    if durable is False and deferrable:
        raise InvalidInputError(
            "deferrable=True needs a job that outlives its task. Leave out durable=False."
        )
    if durable is False and isinstance(manager, Standalone):
        raise InvalidInputError(
            "durable=False: in cluster mode a standalone master runs no Python application but in a job that "
            "outlives its task. Leave durable out, or use deploy_mode='client', YARN or Kubernetes."
        )
    is_wished = durable is not False and conf.getboolean("operators", "default_deferrable", fallback=False)
    defers = is_wished if deferrable is None else deferrable
    tracks = getattr(operator, "_track_driver_via_k8s_api", False)
    is_known = durable or defers or tracks or not settings.is_kubernetes
    if manager is None or not is_known or durable is False:
        return submitter
    if defers and not deferrable and not can_be_sent(manager):  # Airflow's default, where it is possible
        defers = False
    if defers:
        as_arguments(manager)  # refuses one that the triggerer could not ask
    return ClusterSubmitter(submitter, manager, deferrable=defers)


class ClusterSubmitter(SparkSubmitter, DetachedSubmitter):
    """The ``DetachedSubmitter`` of an operator's run; it is made of the one for jobs that are waited for."""

    def __init__(self, submitter: SparkSubmitter, manager: ClusterManager, *, deferrable: bool) -> None:
        super().__init__(
            submitter.operator,
            submitter.context,
            submitter.submission,
            conn_id=submitter.conn_id,
            deploy_mode=submitter.given_deploy_mode,
        )
        self.manager = manager
        self.cluster = manager.identity
        self._deferrable = deferrable

    def ready(self) -> None:
        """Refuse a cluster that cannot be asked, too, before anything is planned; see ``Submitter``."""
        super().ready()
        self.manager.check()

    def run(self, request: JobRequest, storage_options: Mapping[str, Any]) -> Results:  # noqa: ARG002
        """Raise AssertionError: a JobLife starts these jobs, and any try of the task may wait for them."""
        raise AssertionError("a DetachedSubmitter is run by a JobLife")

    def start(self, life: JobLife) -> None:
        """Submit the job; see ``DetachedSubmitter``."""
        self.submission.track(self.manager, life)
        try:
            self.submit(life.request, life.lake.opened.storage_options)
        except BaseException:
            self._stop_accepted(life)
            self._after_submission()
            raise
        if self.submission.application is None:
            found = self.manager.find(life.request.job_id)
            if found is None:
                self._after_submission()
                raise SparkJobError(
                    f"spark-submit ended without an error, but {self.manager.name} has no application of "
                    f"job {life.request.job_id}. Look for the cause in the log above."
                )
            self.submission.set_application(found)

    def _stop_accepted(self, life: JobLife) -> None:
        """Stop an application that the cluster took before its submission failed, if no other try has it."""
        job_id = life.request.job_id
        try:
            application = self.submission.application or self.manager.find(job_id)
            if application is not None and life.is_ours():
                self.stop(application)
        except DuckLakeError as error:
            self.operator.log.warning("An application of job %s may run on: %s", job_id, error)

    def outcome(self, life: JobLife) -> Results:
        """Wait for the application, or leave it to the triggerer; see ``DetachedSubmitter``."""
        job = life.submitted
        assert job is not None
        application_id = job.application
        assert application_id is not None
        self.submission.track(self.manager, life, application_id)
        try:
            application = self._ended(application_id, job)
        except (JobDeferred, ClusterUnavailableError):
            raise
        except BaseException:  # a time-out, say
            self.submission.kill()
            self._after_submission()
            raise
        self.submission.application = None
        self.show_page(application.spark_id, application.url)
        self._after_submission()
        self.operator.log.info("%s: %s %s", application_id, application.state, application.diagnostics)
        if application.state in (ApplicationState.FAILED, ApplicationState.KILLED):
            raise self._why(life, application_id, application)
        life.ended()
        return Results.of(job_io.read_outcome(life.request, life.lake.opened.storage_options))

    def _ended(self, application_id: str, job: SubmittedJob) -> Application:
        self.operator.log.info("Polling %s for %s", self.manager.name, application_id)
        while True:
            application = self._answer(lambda: self.manager.status(application_id))
            if application.has_ended:
                return application
            if self._deferrable:
                raise JobDeferred(job)
            self._pause()

    def _answer(self, ask: Callable[[], Answer]) -> Answer:
        """Return the manager's answer, also where it cannot be asked for a while."""
        begun, logged = time.monotonic(), ""
        while True:
            try:
                return ask()
            except ClusterUnavailableError as error:
                if time.monotonic() - begun > _LONGEST_SILENCE:
                    raise
                if logged != str(error):
                    self.operator.log.warning("%s", error)
                logged = str(error)
            self._pause()

    def _pause(self) -> None:
        time.sleep(max(1, getattr(self.operator, "_status_poll_interval", 1)))

    def _why(self, life: JobLife, application_id: str, application: Application) -> Exception:
        reason = f" {application.diagnostics}" if application.diagnostics else ""
        killed = " A person, or a time-out, ended it." if application.state is ApplicationState.KILLED else ""
        return self.job_error(life.request, life.lake.opened.storage_options) or SparkJobError(
            f"{application_id} is {application.state}, and left no reason.{reason}{killed}"
        )

    def find(self, job_id: str) -> str | None:
        """Ask the manager; see ``DetachedSubmitter``."""
        return self.manager.find(job_id)

    def runs(self, application: str, job_id: str) -> bool:
        """Ask the manager, which may be silent for a while; see ``DetachedSubmitter``."""
        return self._answer(lambda: self.manager.runs(application, job_id))

    def stop(self, application: str) -> None:
        """Have the manager end an application; see ``DetachedSubmitter``."""
        if not self.manager.stop(application).has_ended:
            self.operator.log.warning("%s was asked to end, and runs on", application)

    def _after_submission(self) -> None:
        """Run what is to be run when the job has ended; the hook of a submission would do it at once."""
        if not getattr(self.operator, "post_submit_commands", None):
            return
        try:
            hook = SparkSubmitOperator._get_hook(self.operator)  # noqa: SLF001 - it has no public way
            hook._run_post_submit_commands()  # noqa: SLF001 - it has no public way
        except Exception as error:  # noqa: BLE001 - a job that has ended does not fail for them
            self.operator.log.warning("post_submit_commands were not all run: %s", error)

    def prepare(
        self, request: JobRequest, arguments: list[str], zip_file: str, storage_options: Mapping[str, Any]
    ) -> None:
        """Have the operator hand the job over and end; see ``SparkSubmitter``."""
        one, given = self.operator, (self.operator.application, self.operator.py_files)
        super().prepare(request, arguments, zip_file, storage_options)
        ours = self.manager.settings(request.job_id)
        tags = (one.conf or {}).get(_TAGS)
        if _TAGS in ours and tags:
            ours[_TAGS] = f"{tags},{ours[_TAGS]}"
        one.conf = {**(one.conf or {}), **ours}
        if isinstance(self.manager, Standalone):
            application, py_files = given
            if application and application.endswith(ARCHIVE):  # lies where those who write lakes do not
                uri, script = application, FETCHED
            else:
                uri = hadoop_uri(job_io.write_package(request, runnable_zip(), storage_options))
                script = application.removeprefix("local://") if application else FETCHED
            one.application, one.py_files = uri, None
            one.application_args = [script, py_files or "", *arguments]
            one._java_class = JAVA_CLASS  # noqa: SLF001 - it has no public way
            self.submission.environment = _sent()


def _sent() -> dict[str, str]:
    """Collect the variables of this environment that a cluster may get: none of Airflow's, and no secret."""
    return {
        name: value
        for name, value in os.environ.items()
        if _SENT.fullmatch(name) and not _SECRET.search(name)
    }
