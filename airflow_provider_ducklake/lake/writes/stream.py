"""Append the new rows of a stream to a table, each micro-batch as one snapshot, exactly once."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from uuid6 import uuid7

from .. import errors
from ..catalog.committing.commit import PlannedCommit
from ..format.log_lines import logger
from ..format.names.identifiers import QualifiedName, TableName
from ..format.names.paths import directory_path, is_absolute, job_directory
from ..format.snapshots import CommitInfo, CommitKey, JsonValue, OnClear, SnapshotId, TableSnapshot
from ..planning.writing.write import WriteResult, append_to_existing, plan_append, target_of_stream
from ..spark.job import io as stream_io
from ..spark.job.io import StreamOwner
from ..spark.job.request import JobRequest, StreamSource, TransformSource
from ..storage.files import writing
from ..transaction.changes import Change, ChangeSet
from .job_life import State, Submitter, remove_files, serving
from .resume import finish_earlier
from .verb import Attempt, Resolve, Summary, added, numbers

if TYPE_CHECKING:
    from ..catalog.lake import Lake
    from ..planning.writing.staged import StagedBatch
    from .arguments import GivenRows


log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream and its table; see ``DuckLakeSparkStreamOperator``. ``task`` owns the checkpoint."""

    table: TableName
    rows: GivenRows
    checkpoint: str
    task: str

    @property
    def directory(self) -> str:
        """The checkpoint's directory; ends in ``/``."""
        if not is_absolute(self.checkpoint):
            raise errors.InvalidInputError(
                f"checkpoint={self.checkpoint!r} is relative; give an absolute path or a URI."
            )
        return directory_path(self.checkpoint)

    def next_request(self, table: TableSnapshot, staging_id: str, resolve: Resolve) -> JobRequest:
        """Say where the next job is to write."""
        rows = self.rows.resolved(resolve)
        assert isinstance(rows, TransformSource)
        job_id = str(uuid7())
        plan = plan_append(table, job_directory(table.root, job_id))
        source = StreamSource(rows, self.directory, staging_id)
        return JobRequest(job_id, source, (plan,), verb="stream")


def stream(
    verb: Stream, lake: Lake, submitter: Submitter, info: CommitInfo, attempt: Attempt | None = None
) -> Summary:
    """Commit what an earlier try staged, stage what is new, and commit that."""
    finished = finish_earlier(lake, submitter, attempt)
    committed = _commit(verb, lake, info)
    if finished.error is not None:
        raise finished.error
    if finished.is_own:  # this try was deferred: the job that it submitted has ended
        _tidy_up(verb, lake, committed)
        return _summary(verb.table, committed)
    submitter.ready()
    table, staging_id = lake.table_snapshot(verb.table), str(uuid7())
    request = verb.next_request(table, staging_id, submitter.resolve)
    life = serving(staging_id, lake, submitter, request, attempt)
    life.check()
    life.register(target_of_stream(table, verb.directory))
    try:
        life.run()
    except Exception:
        if life.state is State.LEFT:
            raise
        try:
            _commit(verb, lake, info)  # a driver on a cluster may run on: the job is not released
        except Exception as error:  # noqa: BLE001 - why the job failed counts; the next try meets this
            log.warning("Staged batches cannot be committed: %s", error)
        raise
    committed |= _commit(verb, lake, info, committed)
    _tidy_up(verb, lake, committed, [staging_id])
    remove_files(lake, request, has_files=False)
    life.end()
    return _summary(verb.table, committed)


def _commit(
    verb: Stream, lake: Lake, info: CommitInfo, known: Collection[int] = ()
) -> dict[int, CommittedBatch]:
    """Commit what is staged, and return it but for ``known`` batches.

    An earlier try's are among it until a try has returned them: their events may not have been made.
    """
    table, checkpoint = lake.table_snapshot(verb.table), verb.directory
    writing.learn(checkpoint, writing.key_of(table.root), writing.file_of(table.root))
    owner = StreamOwner(str(table.name), table.table_uuid, verb.task)
    stream_io.claim(checkpoint, owner, lake.opened.storage_options)
    committed = {}
    for one in commit_batches(lake, table, checkpoint, info):
        if one.batch_id in known:
            continue
        if one.result is None:
            log.info("An earlier try committed batch %d as snapshot %d", one.batch_id, one.snapshot_id)
        else:
            log.info(
                "Committed snapshot %d to %s: batch %d, %s",
                *(one.snapshot_id, table.name, one.batch_id, added(numbers((one.result,)))),
            )
        committed[one.batch_id] = one
    return committed


def _tidy_up(verb: Stream, lake: Lake, committed: Collection[int], job_ids: Sequence[str] = ()) -> None:
    """Remove the records of batches, and release jobs. All has landed: a failure is left to the next time.

    Other jobs may still have a driver that runs on; a clean-up of orphaned files releases those in time.
    """
    checkpoint, options = verb.directory, lake.opened.storage_options
    query_id = stream_io.query_id(checkpoint, options)
    try:
        if query_id is not None and committed:
            stream_io.finish_batches(checkpoint, query_id, committed, options)
        for job_id in job_ids:
            lake.jobs.release(job_id)
    except Exception as error:  # noqa: BLE001 - the commits count
        log.warning("Cannot remove the records of committed batches from %s: %s", checkpoint, error)


def _summary(table: TableName, committed: Mapping[int, CommittedBatch]) -> Summary:
    snapshot_ids = [int(one.snapshot_id) for one in committed.values()]
    results = [one.result for one in committed.values() if one.result is not None]
    files = [file for result in results for file in result.data_files]
    if not committed:
        log.info("The stream has no new rows: no snapshot was made.")
    return {
        "table": str(QualifiedName.of(table)),
        "snapshot_id": snapshot_ids[-1] if snapshot_ids else None,
        "snapshot_ids": snapshot_ids,
        "batches": len(results),
        "rows_added": sum(result.rows_written for result in results),
        "files_added": len(files),
        "bytes_added": sum(file.file_size_bytes for file in files),
    }


_WAY_OUT = "If you want its rows, add its files with DuckLakeAddFilesOperator; then remove the record"


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A batch and the snapshot that it became; an earlier try's has no ``result``."""

    batch_id: int
    snapshot_id: SnapshotId
    result: WriteResult | None = None


def commit_batches(
    lake: Lake, table: TableSnapshot, checkpoint: str, info: CommitInfo
) -> Generator[CommittedBatch]:
    """Commit the uncommitted batches of the checkpoint's query; yield each that has landed and has a record.

    ``table`` is the newest. Where a batch cannot be committed, those before it are, and it stays staged with
    those after it. Records of committed ones are not read: the key that seals them may have changed since.
    """
    base, options = table.snapshot.id, lake.opened.storage_options
    query_id = stream_io.query_id(checkpoint, options)
    if query_id is None:
        return
    for batch_id in stream_io.batch_ids(checkpoint, query_id, options, is_staged=True):
        keyed = lake.writes.keyed_commit(CommitKey(("stream", query_id, batch_id)), OnClear.SKIP)
        if keyed.seen.done:
            yield CommittedBatch(batch_id, keyed.seen.done[0].snapshot_id)
            continue
        batch = stream_io.read_batch(checkpoint, query_id, batch_id, table.root, options)
        _refuse(checkpoint, batch, _why_not_of_stream(lake, table, checkpoint, batch))
        stream_io.check_files(checkpoint, batch, options)
        changes = _changes(table, checkpoint, batch)
        change_set = ChangeSet(base, changes)
        try:
            committed = lake.committer.commit_planned(
                PlannedCommit((change_set,), _info(info, batch), keyed, open_jobs=(batch.job_id,))
            )
        except errors.FilesReleasedError as error:
            uri = stream_io.record_uri(checkpoint, batch.query_id, batch.batch_id)
            way_out = f"batch {batch.batch_id} is named by {uri}. {_WAY_OUT}, or use a new checkpoint"
            raise errors.FilesReleasedError(batch.job_id, way_out) from error
        except errors.TransactionConflictError as error:
            _refuse_known(lake, checkpoint, batch, error)
            raise
        if committed is None:
            uri = stream_io.record_uri(checkpoint, batch.query_id, batch.batch_id)
            raise errors.SparkJobError(
                f"{uri} names no files, but a batch without rows is never staged. Remove it."
            )
        if not committed.is_earlier:
            base = committed.id  # the commit has looked at what came before it
        yield CommittedBatch(batch_id, committed.id, None if committed.is_earlier else batch.result)


def _refuse(checkpoint: str, batch: StagedBatch, problem: str | None) -> None:
    """Raise an UntrustedValueError if there is a problem with the job that a batch names."""
    if problem is not None:
        uri = stream_io.record_uri(checkpoint, batch.query_id, batch.batch_id)
        raise errors.UntrustedValueError(uri, f"job {batch.job_id}", f"{problem}. {_WAY_OUT}")


def _refuse_known(
    lake: Lake, checkpoint: str, batch: StagedBatch, conflict: errors.TransactionConflictError
) -> None:
    """Raise an UntrustedValueError if a conflict came of files that are the lake's already."""
    for path in sorted(lake.reads.registered_files([file.path for file in batch.result.data_files])):
        uri = stream_io.record_uri(checkpoint, batch.query_id, batch.batch_id)
        problem = "is already a data file of the lake, through another record; remove this record"
        raise errors.UntrustedValueError(uri, path, problem) from conflict


def _why_not_of_stream(lake: Lake, table: TableSnapshot, checkpoint: str, batch: StagedBatch) -> str | None:
    """Explain why the job that a batch names is none of the stream, to complete "which …"; None: it is.

    The catalog forgets jobs of batches that were committed long ago.
    """
    job = lake.jobs.registered([batch.job_id]).get(batch.job_id)
    if job is None:
        return "is no job of this catalog"
    if job.prefix != job_directory(table.root, job.id):
        return f"is a job of another table, in {job.prefix}"
    if lake.jobs.target_of(job.id) != target_of_stream(table, checkpoint):
        return f"was registered for something other than this stream of {table.name}"
    return None


def _info(info: CommitInfo, batch: StagedBatch) -> CommitInfo:
    stream: JsonValue = {"query_id": batch.query_id, "batch_id": batch.batch_id}
    return replace(info, extra={**(info.extra or {}), "stream": stream})


def _changes(table: TableSnapshot, checkpoint: str, batch: StagedBatch) -> tuple[Change, ...]:
    try:
        return append_to_existing(table, batch.result, is_staged=True)
    except errors.TransactionConflictError as error:
        uri = stream_io.record_uri(checkpoint, batch.query_id, batch.batch_id)
        raise errors.UnsupportedFeatureError(
            f"Batch {batch.batch_id} was written before the columns or partition keys of {table.name} were "
            f"changed; this release does not rewrite it. Add its files, which {uri} names, with "
            "DuckLakeAddFilesOperator, and then remove that record."
        ) from error
