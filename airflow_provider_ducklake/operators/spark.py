"""The common part of operators that run a Spark job: their arguments, and one way to run a verb."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowSkipException, TaskDeferred

from ..hooks.ducklake import DuckLakeHook
from ..hooks.events import announce
from ..hooks.spark_connect_submitter import SparkConnectSubmitter
from ..hooks.spark_submit import SparkApplicationLink, SparkSubmitter, Submission, without_empty_link
from ..hooks.task import CommitIdentity, TaskDone, commit_identity, no_retry_on_user_errors, verbs_logged_by
from ..lake.errors import InvalidInputError
from ..lake.format.snapshots import CommitInfo, OnClear
from ..lake.writes.arguments import IfEmpty, parse_word
from .base import TaskBase

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

    from ..lake.catalog.lake import Lake
    from ..lake.catalog.ledger.jobs import SubmittedJob
    from ..lake.writes.job_life import Submitter
    from ..lake.writes.verb import Attempt, Verb


class DuckLakeSparkOperator(TaskBase, SparkSubmitOperator):  # type: ignore[override] # log is never set
    """Plan on the lake, have a Spark job write files, and commit them.

    Accepts every argument of ``SparkSubmitOperator`` and passes it on, but for ``application_args``, which
    are set by the operator. docs/long_jobs.md says what becomes of a job when its task ends before it.

    :param ducklake_conn_id: the connection of the lake. (templated)
    :param spark_conn_id: the connection of the Spark cluster; ``conn_id`` means the same. (templated)
    :param spark_connect_conn_id: the connection of a Spark Connect server (type ``spark_connect``). The job
        runs on that server, without ``spark-submit`` and without a Java on the worker; ``spark_conn_id`` and
        what else is for ``spark-submit`` alone are not used. ``conf`` is set for the job's own session,
        ``py_files`` are sent to the server. (templated)
    :param message: the commit message of the snapshot; default: the ids of the DAG and the task.
        (templated)
    :param asset_events: Airflow gets an event of the asset of each table that the task changed,
        ``ducklake://connection/schema/table``.
    :param application: the file to submit instead of the provider's own launcher, such as
        ``local:///opt/ducklake/main.py`` inside an image. (templated)

    :param durable: in cluster mode the application goes on when the task's process dies, and the next try
        takes its results instead of submitting another. Default: wherever the cluster's manager can be asked;
        True: an error where it cannot be; False: each try submits its own job (an error on a standalone
        master).
    :param deferrable: in cluster mode leave the worker while the application runs: the triggerer waits for
        it. Default: Airflow's ``[operators] default_deferrable``, where it is possible; True: an error where
        it is not.
    :param poll_interval: seconds between two questions of the triggerer.

    Operators that commit one snapshot per task, exactly once, also take:

    :param on_clear: what happens to the rows that the task committed before it was cleared, or before its run
        was deleted and created again: ``replace`` removes them in the snapshot that adds the new ones,
        ``append`` keeps them, ``skip`` keeps them and adds nothing. (templated)
    :param stage_only: for inserts only: write the files and leave the commit to a ``DuckLakeCommitOperator``,
        which takes the return value of this task: ``{"staged": "…/stage.json", "table": "sales.orders",
        "rows_staged": 3, "files_staged": 1, "bytes_staged": 700}``. The ``message`` and ``on_clear``
        of that operator apply.
    """

    template_fields: Sequence[str] = (
        "ducklake_conn_id",
        "spark_conn_id",
        "spark_connect_conn_id",
        "message",
        *(field for field in SparkSubmitOperator.template_fields if field != "application_args"),
    )
    operator_extra_links = (SparkApplicationLink(),)
    supports_staging = True  # else the verb commits its changes itself
    overwrite_rtif_after_execution = True  # the submitted values exist only then

    # Arguments that this class reads must be named: Airflow passes default_args by name.
    def __init__(
        self,
        *,
        ducklake_conn_id: str = DuckLakeHook.default_conn_name,
        spark_conn_id: str | None = None,
        spark_connect_conn_id: str | None = None,
        conn_id: str | None = None,
        message: str | None = None,
        asset_events: bool = True,
        application: str | None = None,
        deploy_mode: str | None = None,
        durable: bool | None = None,
        deferrable: bool | None = None,
        poll_interval: float = 10.0,
        **kwargs: Any,  # noqa: ANN401 - SparkSubmitOperator's
    ) -> None:
        defaults = kwargs.get("default_args") or {}
        if not self.supports_staging and (kwargs.get("stage_only") or defaults.get("stage_only")):
            raise InvalidInputError(
                f"stage_only=True: {type(self).__name__} commits its changes itself. Leave it out; where it "
                "is one of default_args, give it to the inserts instead."
            )
        if "application_args" in kwargs:
            raise InvalidInputError("application_args are set by the operator itself and cannot be given.")
        if spark_connect_conn_id is not None or deploy_mode == "client":
            _refuse_to_outlive(
                durable=durable, deferrable=deferrable, connects=spark_connect_conn_id is not None
            )
        spark_conn_id = spark_conn_id or conn_id or "spark_default"
        super().__init__(
            application=application or "", conn_id=spark_conn_id, deploy_mode=deploy_mode, **kwargs
        )
        self.durable = False  # the parent's: it would take a job for done whose files are not committed
        self.wants_durable = durable
        self.deferrable = deferrable
        self.poll_interval = poll_interval
        self.ducklake_conn_id = ducklake_conn_id
        self.spark_conn_id = spark_conn_id
        self.spark_connect_conn_id = spark_connect_conn_id
        self.message = message
        self.asset_events = asset_events
        self.done = TaskDone()
        self.own_deploy_mode = deploy_mode
        self._submission = Submission()

    def _get_hook(self) -> SparkSubmitHook:
        return self._submission.prepare(super()._get_hook())

    def on_kill(self) -> None:
        """End the job, however it got to Spark."""
        if not self._submission.kill():
            super().on_kill()

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # the parent returns nothing
        """Run the operator's verb on the connection's lake."""
        return self._execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on when the application has ended, as ``event`` says."""
        self.log.info("%s %s", event.get("application"), event.get("state"))
        return self._execute(context)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:  # noqa: ANN401 - Airflow's
        """Resume a deferred task; if it cannot resume, stop the application."""
        from ..hooks.compat import TaskDeferralError, TaskDeferralTimeout

        ti: Any = context["ti"]
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            self._discard(context)
            raise
        except TaskDeferralError:  # the trigger failed, and a retry waits for the application itself
            if ti.try_number > ti.max_tries:
                self._discard(context)
            raise

    @no_retry_on_user_errors()
    def _discard(self, context: Context) -> None:
        from ..lake.writes.resume import discard_all

        with DuckLakeHook(self.ducklake_conn_id, hook_lineage=False) as hook, verbs_logged_by(self.log):
            identity = commit_identity(context, self, hook.settings().commit_namespace)
            discard_all(hook.lake(), self.submitter(context), self.attempt(identity))

    @no_retry_on_user_errors()
    def _execute(self, context: Context) -> dict[str, Any]:
        from ..lake.writes.job_life import JobDeferred

        try:
            return self._run_and_announce(context)
        except JobDeferred as goes_on:
            raise self._deferred(goes_on.job) from None

    def _deferred(self, job: SubmittedJob) -> TaskDeferred:
        from ..triggers.application import SparkApplicationTrigger

        assert self._submission.manager is not None
        self.log.info("Deferred: the triggerer waits for %s of job %s", job.application, job.job_id)
        return TaskDeferred(
            trigger=SparkApplicationTrigger.of(
                self._submission.manager, job, self.ducklake_conn_id, self.poll_interval
            ),
            method_name="execute_complete",
            timeout=self.execution_timeout,
        )

    def _run_and_announce(self, context: Context) -> dict[str, Any]:
        with DuckLakeHook(self.ducklake_conn_id, hook_lineage=False) as hook, verbs_logged_by(self.log):
            settings = hook.settings()
            self._submission.adds_packages = settings.adds_packages
            identity = commit_identity(context, self, settings.commit_namespace)
            try:
                summary = self.run(hook.lake(), identity, context)
            finally:
                self.done.application_url = self._submission.url
                without_empty_link(self)
            self.done.read_at = summary.get("read_snapshot_id")
            changed_in = self.changed_in(summary)
            if changed_in is not None:
                announce(self, context, hook.lake(), changed_in)
            return summary

    def changed_in(self, summary: Mapping[str, Any]) -> Sequence[int] | None:
        """Return the snapshots in which the task changed tables, by its return value; None: it never does."""
        if "snapshot_id" not in summary:  # staged, or upkeep
            return None
        snapshot_id: int | None = summary["snapshot_id"]
        return () if snapshot_id is None else (snapshot_id,)

    @abstractmethod
    def run(self, lake: Lake, identity: CommitIdentity, context: Context) -> dict[str, Any]:
        """Do the operator's work and return the task's return value."""

    def submitter(self, context: Context) -> Submitter:
        """Choose the submitter of this operator's jobs."""
        if self.spark_connect_conn_id:
            connected = SparkConnectSubmitter(self, context, self.spark_connect_conn_id)
            self._submission.interrupt = connected.kill
            return connected
        submitter = SparkSubmitter(
            self, context, self._submission, conn_id=self.spark_conn_id, deploy_mode=self.own_deploy_mode
        )
        if submitter.deploy_mode() != "client":
            from ..lake.storage.files import writing

            writing.expect_drivers_without_key()
        elif not (self.deferrable or self.wants_durable):
            return submitter
        from ..hooks.cluster_submitter import detached

        deferrable = self.deferrable
        if self.task_id != context["ti"].task_id:  # Airflow would go on with the task's own operator
            if deferrable:
                raise InvalidInputError(
                    f"deferrable=True: {self.task_id!r} is executed by the task {context['ti'].task_id!r}, "
                    "and only a task's own operator can be deferred. Make it a task, or leave it out."
                )
            deferrable = False
        return detached(submitter, durable=self.wants_durable, deferrable=deferrable)

    def attempt(self, identity: CommitIdentity) -> Attempt:
        """Identify this try, so that a later one finds its job."""
        from ..lake.writes.verb import Attempt

        return Attempt(identity.key, identity.try_id, identity.starts_over)

    def commit_info(self, identity: CommitIdentity) -> CommitInfo:
        """Return the author, message and extra info of the task's snapshots."""
        return CommitInfo("airflow", self.message or identity.message, identity.extra)

    def run_once(
        self,
        verb_of: Callable[[CommitIdentity], Verb],
        lake: Lake,
        identity: CommitIdentity,
        context: Context,
        on_clear: str,
    ) -> dict[str, Any]:
        """Run a verb; its commit is made once, whatever becomes of this try.

        ``verb_of`` makes the verb, by the identity of that one commit.

        Raises:
            InvalidInputError: ``on_clear`` is not one of the words.
        """
        from ..lake.writes.run import run
        from ..lake.writes.verb import Commit

        wanted = parse_word("on_clear", on_clear, OnClear)
        with identity.made_once(lake) as once:
            keyed = once.keyed_commit(lake, wanted)
            commit = Commit(self.commit_info(once), keyed, attempt=self.attempt(identity))
            return run(verb_of(once), lake, self.submitter(context), commit).summary


def skipped_if_empty(summary: dict[str, Any], if_empty: str) -> dict[str, Any]:
    """Return the summary of a write, unless nothing was written and the user wants the task skipped then."""
    if if_empty == IfEmpty.SKIP and summary.get("snapshot_id") is None and summary.get("staged") is None:
        raise AirflowSkipException(f"No rows for {summary['table']}, and if_empty is 'skip'.")
    return summary


def _refuse_to_outlive(*, durable: bool | None, deferrable: bool | None, connects: bool) -> None:
    """Refuse what a job cannot do that ends with its task.

    Raises:
        InvalidInputError: says why.
    """
    wanted = {"deferrable": deferrable, "durable": durable}
    named = next((name for name, value in wanted.items() if value), None)
    if named is None:
        return
    why = (
        "A job through Spark Connect is a call that the task makes, and ends with it; leave out "
        "spark_connect_conn_id and submit the job with deploy_mode='cluster'."
        if connects
        else "In client mode the driver is a process of the task, and ends with it; set "
        "deploy_mode='cluster'."
    )
    raise InvalidInputError(f"{named}=True: {why}")
