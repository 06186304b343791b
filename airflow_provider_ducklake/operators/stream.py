"""Append the rows of a stream to a lake table with Spark."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.hooks.commit_identity import commit_identity
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.hooks.jdbc_source import refuse_secrets
from airflow_provider_ducklake.operators.base import no_retry_on_user_errors
from airflow_provider_ducklake.operators.spark_job import DuckLakeSparkJobOperator
from airflow_provider_ducklake.planning.writing.job_target import target_of_stream
from airflow_provider_ducklake.planning.writing.write import plan_write
from airflow_provider_ducklake.spark.job import stream_io
from airflow_provider_ducklake.spark.job.request import (
    JobRequest,
    StreamSource,
    TransformSource,
    job_directory,
    source_of,
)
from airflow_provider_ducklake.spark.job.stream_io import StreamOwner
from airflow_provider_ducklake.spec.names.identifiers import QualifiedName
from airflow_provider_ducklake.spec.names.paths import directory_path, is_absolute

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow.sdk import Context

    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.hooks.jdbc_source import JdbcPasswords
    from airflow_provider_ducklake.hooks.staged_batches import CommittedBatch
    from airflow_provider_ducklake.planning.writing.job_target import JobTarget
    from airflow_provider_ducklake.spec.snapshots import CommitInfo


class DuckLakeSparkStreamOperator(DuckLakeSparkJobOperator):
    """Append what is new in a stream to a table, each micro-batch as one snapshot, exactly once.

    A task takes what is there when it begins, and ends; its next run goes on from the checkpoint. So do a
    retry and a task that was cleared: they commit what an earlier try had staged, and take what is new since.

    :param table: the table, as ``"schema.table"`` or ``("schema", "table")``; it has to exist. (templated)
    :param transform: ``"module:function"``; called as ``f(spark, sources)`` with a ``dict`` of DataFrames, it
        returns a streaming DataFrame with the table's columns. Its module comes along in ``py_files``.
        (templated)
    :param checkpoint: the directory or URI where Spark notes how far it has read; the stream's own, and
        reached by the worker, too. Without it the stream begins again, with all rows. (templated)
    :param sources: what ``transform`` joins the stream with: ``{"name": path or {…}}``, as
        ``DuckLakeSparkInsertOperator`` takes them. (templated)
    :param engine: ``auto``, ``native`` (Spark's Parquet writer) or ``arrow`` (for lists, maps, uuids, …).
    :return: ``{"table": "sales.events", "snapshot_id": 43, "batches": 2, "rows_added": 3, "files_added": 2,
        "bytes_added": 1400}``: what this try committed. ``snapshot_id`` is the last one, None where there was
        nothing.
    """

    template_fields: Sequence[str] = (
        "table",
        "transform",
        "checkpoint",
        "sources",
        *DuckLakeSparkJobOperator.template_fields,
    )
    template_fields_renderers = {"sources": "json"}  # noqa: RUF012 - Airflow's

    def __init__(
        self,
        *,
        table: str | tuple[str, str],
        transform: str,
        checkpoint: str,
        sources: Mapping[str, str | Mapping[str, Any]] | None = None,
        engine: str = "auto",
        **kwargs: Any,  # noqa: ANN401 - SparkSubmitOperator's
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        refuse_secrets(None, sources)
        self.transform = transform
        self.checkpoint = checkpoint
        self.sources = sources
        self.engine = engine
        self._target: JobTarget | None = None

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # the parent returns nothing
        """Commit what an earlier try staged, stage what is new, and commit that."""
        hook = DuckLakeHook(self.ducklake_conn_id)
        try:
            identity = commit_identity(context, self, hook.settings().commit_namespace)
            commit = partial(self._commit, hook.lake(), self._commit_info(context, identity), identity.task)
            committed = commit()
            committed += self._stage_and_commit(context, hook.lake(), commit)
            return self._summary(committed)
        finally:
            hook.close()

    def _commit(
        self, lake: Lake, info: CommitInfo, task: str, job_ids: Sequence[str] = ()
    ) -> list[CommittedBatch]:
        """Commit what is staged, and release the jobs that did it."""
        from airflow_provider_ducklake.hooks.staged_batches import commit_batches  # noqa: PLC0415 - heavy

        table, checkpoint = lake.table_snapshot(self.table), _directory(self.checkpoint)
        owner = StreamOwner(str(table.name), table.table_uuid, task)
        stream_io.claim(checkpoint, owner, lake.storage_options)
        committed = []
        for one in commit_batches(lake, table, checkpoint, info, job_ids):
            result = one.batch.result
            self.log.info(
                "Committed snapshot %d to %s: batch %d, %d rows, %d data files",
                *(one.snapshot.id, table.name, one.batch.batch_id),
                *(result.rows_written, len(result.data_files)),
            )
            committed.append(one)
        return committed

    def _stage_and_commit(
        self, context: Context, lake: Lake, commit: Callable[[Sequence[str]], list[CommittedBatch]]
    ) -> list[CommittedBatch]:
        """Run the job; where it fails, the batches before the failure are committed nevertheless."""
        request, passwords = self._plan(lake)
        assert request is not None
        assert isinstance(request.source, StreamSource)
        staging_id = request.source.staging_id
        assert self._target is not None
        directory = job_directory(request.plans[0].root, staging_id)
        lake.register_job(staging_id, directory, self._target)
        lake.close()  # no idle connection during the job; the next use opens one again
        try:
            self._run_job(context, request, passwords, lake.storage_options)
        except Exception:
            try:
                commit(())  # a driver on a cluster may run on: the job is not released
            except Exception as error:  # noqa: BLE001 - why the job failed counts; the next try meets this
                self.log.warning("Staged batches cannot be committed: %s", error)
            raise
        self._remove_files(request, lake.storage_options, has_files=False)
        return commit([staging_id])

    def make_request(self, lake: Lake, passwords: JdbcPasswords) -> JobRequest:
        """Look at the table and say where the job is to write."""
        from uuid6 import uuid7  # noqa: PLC0415 - not needed to parse a DAG

        sources = {name: passwords.resolve(item) for name, item in (self.sources or {}).items()}
        rows = source_of(transform=self.transform, sources=sources)
        assert isinstance(rows, TransformSource)
        table = lake.table_snapshot(self.table)
        job_id, staging_id = str(uuid7()), str(uuid7())
        plan, checkpoint = plan_write(table, job_directory(table.root, job_id)), _directory(self.checkpoint)
        self._target = target_of_stream(table, checkpoint)
        source = StreamSource(rows, checkpoint, staging_id)
        return JobRequest(job_id, source, (plan,), verb="stream", engine=self.engine)

    def _summary(self, committed: Sequence[CommittedBatch]) -> dict[str, Any]:
        results = [one.batch.result for one in committed]
        files = [file for result in results for file in result.data_files]
        if not committed:
            self.log.info("The stream has no new rows: no snapshot was made.")
        return {
            "table": str(QualifiedName.of(self.table)),
            "snapshot_id": int(committed[-1].snapshot.id) if committed else None,
            "batches": len(committed),
            "rows_added": sum(result.rows_written for result in results),
            "files_added": len(files),
            "bytes_added": sum(file.file_size_bytes for file in files),
        }


def _directory(checkpoint: str) -> str:
    """Return the checkpoint's directory, ending in ``/``.

    Raises:
        InvalidInputError: it is relative: worker and Spark would look at two places.
    """
    if not is_absolute(checkpoint):
        raise InvalidInputError(f"checkpoint={checkpoint!r} is relative; give an absolute path or a URI.")
    return directory_path(checkpoint)
