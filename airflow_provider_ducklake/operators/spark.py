"""What the operators have in common that commit what their Spark job wrote, all at once."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.errors import (
    CommitStateUnknownError,
    DuckLakeError,
    UnsupportedFeatureError,
)
from airflow_provider_ducklake.hooks.commit_identity import CommitIdentity, commit_identity
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.operators.base import (
    announce_earlier,
    announce_replaced,
    check_on_clear,
    no_retry_on_user_errors,
    parse_on_clear,
)
from airflow_provider_ducklake.operators.spark_job import DuckLakeSparkJobOperator
from airflow_provider_ducklake.planning.writing.job_target import target_of_write
from airflow_provider_ducklake.planning.writing.staged import StagedWrite
from airflow_provider_ducklake.spark.job import job_io
from airflow_provider_ducklake.spec.commit_key import OnClear

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow.sdk import Context

    from airflow_provider_ducklake.catalog.committing.planned import KeyedCommit
    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.planning.writing.staged import Target
    from airflow_provider_ducklake.planning.writing.write import WriteResult
    from airflow_provider_ducklake.spark.job.job_io import JobRequest
    from airflow_provider_ducklake.spec.commit_key import CommitRecord
    from airflow_provider_ducklake.spec.snapshots import CommitInfo, CommittedSnapshot


class DuckLakeSparkOperator(DuckLakeSparkJobOperator):
    """Plan on the lake, let a Spark job write files, commit them as one snapshot, exactly once.

    A retry of a task whose commit landed finds it, and succeeds without another job.

    :param on_clear: what becomes of the rows that the task committed before a person cleared it, or before
        its run was deleted and recreated: ``replace`` takes them out in the snapshot that adds the new ones,
        ``append`` keeps them, ``skip`` keeps them and adds nothing. (templated)
    :param stage_only: write the files and leave their commit to a ``DuckLakeCommitOperator``, which takes
        what this task returns: ``{"staged": "…/stage.json", "table": "sales.orders", "rows_staged": 3,
        "files_staged": 1, "bytes_staged": 700}``. The other's ``commit_message`` and ``on_clear`` count.
    """

    template_fields: Sequence[str] = ("on_clear", *DuckLakeSparkJobOperator.template_fields)
    template_ext: Sequence[str] = (".sql",)

    # What we look at ourselves is named here: default_args reach an argument by its name only.
    def __init__(
        self,
        *,
        on_clear: str = OnClear.REPLACE.value,
        stage_only: bool = False,
        **kwargs: Any,  # noqa: ANN401 - SparkSubmitOperator's
    ) -> None:
        check_on_clear(on_clear)
        super().__init__(**kwargs)
        self.on_clear = on_clear
        self.stage_only = stage_only
        self.job_ids: tuple[str, ...] = ()  # whose files a commit takes: nobody may give them up before

    def begin(self, lake: Lake, identity: CommitIdentity, keyed: KeyedCommit) -> None:  # noqa: ARG002
        """Look, before any work, at what the task has committed before."""
        announce_replaced(self.log, lake, keyed)

    def target(self) -> Target:
        """Return the one table that the last request is about, as it was planned: for ``stage_only``."""
        raise UnsupportedFeatureError(f"stage_only=True: a {type(self).__name__} commits its rows itself.")

    @abstractmethod
    def commit(
        self, lake: Lake, results: Sequence[WriteResult], info: CommitInfo, keyed: KeyedCommit
    ) -> CommittedSnapshot | None:
        """Commit what the job wrote; None: there was nothing to commit. No job, no results."""

    def has_files(self, results: Sequence[WriteResult]) -> bool:
        """Whether the snapshot may name a file of the job."""
        return any(result.data_files for result in results)

    @abstractmethod
    def summary(self, results: Sequence[WriteResult], committed: CommittedSnapshot | None) -> dict[str, Any]:
        """Return what the task hands on, and log it."""

    @abstractmethod
    def summary_of_records(self, lake: Lake, records: Sequence[CommitRecord]) -> dict[str, Any]:
        """Return the same for a commit that had been made before."""

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # the parent returns nothing
        """Run the job and commit its files; on any failure nothing is visible and its files are removed."""
        on_clear = parse_on_clear(self.on_clear)
        hook = DuckLakeHook(self.ducklake_conn_id)
        identity = commit_identity(context, self, hook.settings().commit_namespace)
        try:
            lake = hook.lake()
            if self.stage_only:
                return self._write_and_stage(context, lake)
            with identity.made_once(lake) as once:
                return self._commit_once(context, lake, once, on_clear)
        finally:
            hook.close()

    def _commit_once(
        self, context: Context, lake: Lake, identity: CommitIdentity, on_clear: OnClear
    ) -> dict[str, Any]:
        keyed = identity.keyed_commit(lake, on_clear)
        if keyed.seen.done:
            return self._already_committed(lake, keyed.seen.done)
        self.begin(lake, identity, keyed)
        return self._write_and_commit(context, lake, identity, keyed)

    def _already_committed(self, lake: Lake, records: Sequence[CommitRecord]) -> dict[str, Any]:
        announce_earlier(self.log, records)
        return self.summary_of_records(lake, records)

    def _write_and_stage(self, context: Context, lake: Lake) -> dict[str, Any]:
        """Run the job and write down what its files are for; nothing of them is visible."""
        request, passwords = self._plan(lake)
        assert request is not None, "what can be staged has a table to write"
        noted = job_io.target_of_stage(self.target())
        lake.register_job(request.job_id, request.directory, noted, must_note=True)
        lake.close()
        try:
            (result,) = self._run_job(context, request, passwords, lake.storage_options)
            staged = StagedWrite(request.job_id, request.directory, request.verb, self.target(), result)
            uri = job_io.write_stage(staged, lake.storage_options)
        except BaseException:
            self._give_up(lake, request)
            raise
        return self._summary_of_stage(staged, uri)

    def _give_up(self, lake: Lake, request: JobRequest) -> None:
        self._remove_files(request, lake.storage_options)
        self._release(lake, request)

    def _release(self, lake: Lake, request: JobRequest) -> None:
        try:
            lake.release_job(request.job_id)
        except Exception as error:  # noqa: BLE001 - a clean-up must not hide why
            self.log.warning("Cannot release job %s: %s", request.job_id, error)

    def _summary_of_stage(self, staged: StagedWrite, uri: str) -> dict[str, Any]:
        summary = {
            "staged": uri,
            "table": str(staged.target.name),
            "rows_staged": staged.result.rows_written,
            "files_staged": len(staged.result.data_files),
            "bytes_staged": sum(file.file_size_bytes for file in staged.result.data_files),
        }
        self.log.info(
            "Staged %d rows, %d data files, %d bytes for %s, planned on snapshot %d: %s",
            *(summary[key] for key in ("rows_staged", "files_staged", "bytes_staged", "table")),
            staged.base,
            uri,
        )
        return summary

    def _write_and_commit(
        self, context: Context, lake: Lake, identity: CommitIdentity, keyed: KeyedCommit
    ) -> dict[str, Any]:
        request, passwords = self._plan(lake)
        if request is None:
            return self.summary((), self.commit(lake, (), self._commit_info(context, identity), keyed))
        self.job_ids = (request.job_id,)
        with self._registered(lake, request):
            results = self._run_job(context, request, passwords, lake.storage_options)
            committed = self._commit(lake, request, results, self._commit_info(context, identity), keyed)
        if committed is not None and committed.is_earlier:
            self._remove_files(request, lake.storage_options)
            return self._already_committed(lake, committed.records)
        summary = self.summary(results, committed)
        self._tidy_up(request, results, lake.storage_options)
        return summary

    @contextmanager
    def _registered(self, lake: Lake, request: JobRequest) -> Iterator[None]:
        """Keep a clean-up of orphaned files away from the job's until their fate is known."""
        lake.register_job(request.job_id, request.directory, target_of_write(request.directory))
        lake.close()  # no idle connection during the job; the next use opens one again
        try:
            yield
        except CommitStateUnknownError:
            raise
        except DuckLakeError:
            self._release(lake, request)
            raise
        self._release(lake, request)

    def _commit(
        self,
        lake: Lake,
        request: JobRequest,
        results: Sequence[WriteResult],
        info: CommitInfo,
        keyed: KeyedCommit,
    ) -> CommittedSnapshot | None:
        try:
            return self.commit(lake, results, info, keyed)
        except CommitStateUnknownError:  # the snapshot may be there, and name the files; the retry looks
            raise
        except DuckLakeError:  # whatever else comes, a time-out say, may come after COMMIT: the files stay
            self._remove_files(request, lake.storage_options)
            raise

    def _tidy_up(
        self, request: JobRequest, results: Sequence[WriteResult], storage_options: dict[str, Any]
    ) -> None:
        """Remove what only the job needed. The commit has landed: no failure here may fail the task."""
        if not self.has_files(results):
            self._remove_files(request, storage_options, has_files=False)
            return
        try:
            job_io.delete_job_files(request, storage_options)
        except Exception as error:  # noqa: BLE001 - a retry would write the rows again
            self.log.warning("Cannot remove the job's own files from %s: %s", request.directory, error)
