"""Append the new rows of a stream to a table, each micro-batch as one snapshot, exactly once."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uuid6 import uuid7

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.planning.writing.job_target import target_of_stream
from airflow_provider_ducklake.planning.writing.write import plan_write
from airflow_provider_ducklake.spark.job import stream_io
from airflow_provider_ducklake.spark.job.request import (
    JobRequest,
    StreamSource,
    TransformSource,
    job_directory,
)
from airflow_provider_ducklake.spark.job.stream_io import StreamOwner
from airflow_provider_ducklake.spec.names.identifiers import QualifiedName
from airflow_provider_ducklake.spec.names.paths import directory_path, is_absolute
from airflow_provider_ducklake.writes.run import check, ran, remove_files
from airflow_provider_ducklake.writes.staging.batches import commit_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.spec.names.identifiers import TableName
    from airflow_provider_ducklake.spec.snapshots import CommitInfo, TableSnapshot
    from airflow_provider_ducklake.writes.given_rows import GivenRows
    from airflow_provider_ducklake.writes.staging.batches import CommittedBatch
    from airflow_provider_ducklake.writes.verb import Resolve, Submitter, Summary

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream and its table; see ``DuckLakeSparkStreamOperator``. ``task`` owns the checkpoint."""

    table: TableName
    rows: GivenRows
    checkpoint: str
    task: str
    engine: str = "auto"

    @property
    def directory(self) -> str:
        """The checkpoint's directory; ends in ``/``.

        Raises:
            InvalidInputError: it is relative: worker and Spark would look at two places.
        """
        if not is_absolute(self.checkpoint):
            raise InvalidInputError(
                f"checkpoint={self.checkpoint!r} is relative; give an absolute path or a URI."
            )
        return directory_path(self.checkpoint)

    def plan(self, table: TableSnapshot, staging_id: str, resolve: Resolve) -> JobRequest:
        """Say where the job is to write."""
        rows = self.rows.resolved(resolve)
        assert isinstance(rows, TransformSource)
        job_id = str(uuid7())
        plan = plan_write(table, job_directory(table.root, job_id))
        source = StreamSource(rows, self.directory, staging_id)
        return JobRequest(job_id, source, (plan,), verb="stream", engine=self.engine)


def stream(verb: Stream, lake: Lake, submitter: Submitter, info: CommitInfo) -> Summary:
    """Commit what an earlier try staged, stage what is new, and commit that.

    Raises:
        InvalidInputError, NotFoundError: bad input; no job was started.
        SparkJobError: the job failed; the batches before the failure are committed.
    """
    committed = _commit(verb, lake, info)
    submitter.ready()
    table, staging_id = lake.table_snapshot(verb.table), str(uuid7())
    request = verb.plan(table, staging_id, submitter.resolve)
    check(lake, request, submitter)
    directory = job_directory(table.root, staging_id)
    lake.register_job(staging_id, directory, target_of_stream(table, verb.directory))
    lake.close()  # no idle connection during the job; the next use opens one again
    try:
        ran(lake, request, submitter)
    except Exception:
        try:
            _commit(verb, lake, info)  # a driver on a cluster may run on: the job is not released
        except Exception as error:  # noqa: BLE001 - why the job failed counts; the next try meets this
            log.warning("Staged batches cannot be committed: %s", error)
        raise
    remove_files(lake, request, has_files=False)
    committed += _commit(verb, lake, info, [staging_id])
    return _summary(verb.table, committed)


def _commit(verb: Stream, lake: Lake, info: CommitInfo, job_ids: Sequence[str] = ()) -> list[CommittedBatch]:
    """Commit what is staged, and release the jobs that did it."""
    table, checkpoint = lake.table_snapshot(verb.table), verb.directory
    owner = StreamOwner(str(table.name), table.table_uuid, verb.task)
    stream_io.claim(checkpoint, owner, lake.storage_options)
    committed = []
    for one in commit_batches(lake, table, checkpoint, info, job_ids):
        result = one.batch.result
        log.info(
            "Committed snapshot %d to %s: batch %d, %d rows, %d data files",
            *(one.snapshot.id, table.name, one.batch.batch_id),
            *(result.rows_written, len(result.data_files)),
        )
        committed.append(one)
    return committed


def _summary(table: TableName, committed: Sequence[CommittedBatch]) -> Summary:
    results = [one.batch.result for one in committed]
    files = [file for result in results for file in result.data_files]
    if not committed:
        log.info("The stream has no new rows: no snapshot was made.")
    return {
        "table": str(QualifiedName.of(table)),
        "snapshot_id": int(committed[-1].snapshot.id) if committed else None,
        "batches": len(committed),
        "rows_added": sum(result.rows_written for result in results),
        "files_added": len(files),
        "bytes_added": sum(file.file_size_bytes for file in files),
    }
