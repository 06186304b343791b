"""The common part of operators that run a Spark job: their arguments, and one way to run a verb."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import closing
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.hooks.asset_events import announce
from airflow_provider_ducklake.hooks.commit_identity import commit_identity
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.hooks.spark_connect_submitter import SparkConnectSubmitter
from airflow_provider_ducklake.hooks.spark_submitter import SparkSubmitter, Submission
from airflow_provider_ducklake.hooks.task import Done, no_retry_on_user_errors, verbs_logged_by
from airflow_provider_ducklake.spec.commit_key import OnClear
from airflow_provider_ducklake.spec.snapshots import CommitInfo
from airflow_provider_ducklake.writes.arguments import parse_word

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.hooks.commit_identity import CommitIdentity
    from airflow_provider_ducklake.hooks.lineage import Flow
    from airflow_provider_ducklake.writes.verb import Submitter, Verb


class DuckLakeSparkOperator(SparkSubmitOperator):
    """Plan on the lake, have a Spark job write files, and commit them.

    Accepts every argument of ``SparkSubmitOperator`` and passes it on, with two exceptions:
    ``application_args`` are set by the operator, and ``durable`` is always off, because each try writes its
    own files and must not wait for the job of another try.

    :param ducklake_conn_id: the connection of the lake. (templated)
    :param spark_conn_id: the connection of the Spark cluster; ``conn_id`` means the same.
    :param spark_connect_conn_id: the connection of a Spark Connect server (type ``spark_connect``). The job
        runs on that server, without ``spark-submit`` and without a Java on the worker; ``spark_conn_id`` and
        what else is for ``spark-submit`` alone are not used. ``conf`` is set for the job's own session,
        ``py_files`` are sent to the server. (templated)
    :param commit_message: the commit message of the snapshot; default: the ids of the DAG and the task.
        (templated)
    :param asset_events: tell Airflow which tables the task changed: an event of each one's asset,
        ``ducklake://connection/schema/table``.
    :param application: the file to submit instead of the provider's own launcher, such as
        ``local:///opt/ducklake/main.py`` inside an image. (templated)

    Operators that commit one snapshot per task, exactly once, also take:

    :param on_clear: what happens to the rows that the task committed before it was cleared, or before its run
        was deleted and created again: ``replace`` removes them in the snapshot that adds the new ones,
        ``append`` keeps them, ``skip`` keeps them and adds nothing. (templated)
    :param stage_only: for inserts only: write the files and leave the commit to a ``DuckLakeCommitOperator``,
        which takes the return value of this task: ``{"staged": "…/stage.json", "table": "sales.orders",
        "rows_staged": 3, "files_staged": 1, "bytes_staged": 700}``. The ``commit_message`` and ``on_clear``
        of that operator apply.
    """

    template_fields: Sequence[str] = (
        "ducklake_conn_id",
        "spark_connect_conn_id",
        "commit_message",
        *(field for field in SparkSubmitOperator.template_fields if field != "application_args"),
    )
    template_ext: Sequence[str] = (".sql",)
    overwrite_rtif_after_execution = True  # what was really submitted is known only then

    # What we look at ourselves is named here: default_args reach an argument by its name only.
    def __init__(
        self,
        *,
        ducklake_conn_id: str = DuckLakeHook.default_conn_name,
        spark_conn_id: str | None = None,
        spark_connect_conn_id: str | None = None,
        conn_id: str | None = None,
        commit_message: str | None = None,
        asset_events: bool = True,
        application: str | None = None,
        deploy_mode: str | None = None,
        durable: bool | None = None,
        **kwargs: Any,  # noqa: ANN401 - SparkSubmitOperator's
    ) -> None:
        if "application_args" in kwargs:
            raise InvalidInputError("application_args are set by the operator itself and cannot be given.")
        if durable:
            raise InvalidInputError(
                "durable=True is not supported: a retry would wait for the job of an earlier try, whose "
                "files are never committed. Leave it out; each try submits its own job."
            )
        spark_conn_id = spark_conn_id or conn_id or "spark_default"
        super().__init__(
            application=application or "", conn_id=spark_conn_id, deploy_mode=deploy_mode, **kwargs
        )
        self.durable = False
        self.ducklake_conn_id = ducklake_conn_id
        self.spark_conn_id = spark_conn_id
        self.spark_connect_conn_id = spark_connect_conn_id
        self.commit_message = commit_message
        self.asset_events = asset_events
        self.done = Done()
        self.own_deploy_mode = deploy_mode
        self._submission = Submission()

    def _get_hook(self) -> SparkSubmitHook:
        return self._submission.prepare(super()._get_hook())

    def on_kill(self) -> None:
        """End the job, however it got to Spark."""
        if not self._submission.kill():
            super().on_kill()

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # the parent returns nothing
        """Run the operator's verb on the connection's lake."""
        with closing(DuckLakeHook(self.ducklake_conn_id)) as hook, verbs_logged_by(self.log):
            identity = commit_identity(context, self, hook.settings().commit_namespace)
            summary = self.run(hook.lake(), identity, context)
            self.done.read_at = summary.get("read_snapshot_id")
            changed_in = self.changed_in(summary)
            if changed_in is not None:
                announce(self, context, hook.lake(), changed_in)
            return summary

    def flow(self) -> Flow:
        """Return what the task read and did, for OpenLineage."""
        from airflow_provider_ducklake.hooks.lineage import Flow  # noqa: PLC0415 - not always asked for

        return Flow()

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:  # noqa: ANN401, ARG002 - OpenLineage's
        """Return the datasets that the task read and wrote."""
        from airflow_provider_ducklake.hooks.lineage import operator_lineage  # noqa: PLC0415 - not always asked for

        return operator_lineage(self.ducklake_conn_id, self.done.snapshot_ids, self.flow())

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
        """Return how this operator's jobs get to Spark."""
        if self.spark_connect_conn_id:
            return self._submission.through(SparkConnectSubmitter(self, self.spark_connect_conn_id))
        return SparkSubmitter(
            self, context, self._submission, conn_id=self.spark_conn_id, deploy_mode=self.own_deploy_mode
        )

    def commit_info(self, identity: CommitIdentity) -> CommitInfo:
        """Return the author, message and extra info of the task's snapshots."""
        return CommitInfo("airflow", self.commit_message or identity.message, identity.extra)

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
        from airflow_provider_ducklake.writes.run import run  # noqa: PLC0415 - heavy
        from airflow_provider_ducklake.writes.verb import Commit  # noqa: PLC0415 - heavy

        wanted = parse_word("on_clear", on_clear, OnClear)
        with identity.made_once(lake) as once:
            commit = Commit(self.commit_info(once), once.keyed_commit(lake, wanted))
            return run(verb_of(once), lake, self.submitter(context), commit).summary
