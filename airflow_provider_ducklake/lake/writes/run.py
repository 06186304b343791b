"""Run a verb: plan, register the job, run it, commit its files, remove what only the job needed."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.errors import (
    CommitStateUnknownError,
    DuckLakeError,
    TransactionConflictError,
)
from airflow_provider_ducklake.lake.planning.writing.write import target_of_write
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spec.log_lines import lasting, logger
from airflow_provider_ducklake.lake.spec.snapshots import FIRST_GENERATION, CommittedSnapshot
from airflow_provider_ducklake.lake.writes.detached import (
    Begun,
    begin,
    forget,
    forget_committed,
    is_held,
    is_shared,
    take,
)
from airflow_provider_ducklake.lake.writes.verb import MAY_RUN, Commit, Outcome, Results

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from airflow_provider_ducklake.lake.catalog.lake import Lake
    from airflow_provider_ducklake.lake.spark.job.request import JobRequest
    from airflow_provider_ducklake.lake.spec.snapshots import CommitRecord, SnapshotId
    from airflow_provider_ducklake.lake.transaction.changes import Change
    from airflow_provider_ducklake.lake.transaction.changes_made import Replay
    from airflow_provider_ducklake.lake.writes.verb import (
        PlannedWrite,
        Submitter,
        Verb,
        Write,
    )


log = logger(__name__)


def run(verb: Verb, lake: Lake, submitter: Submitter, commit: Commit) -> Outcome:
    """Carry a verb out as one snapshot, or find that its commit key was committed before.

    On any failure nothing is visible and the job's files are removed, but where the outcome of COMMIT is
    unknown: then the files stay, and a retry under the same key finds out.

    Raises:
        InvalidInputError, NotFoundError: bad input; no job was started.
        SparkJobError: the job failed.
        CommitError: nothing was committed.
        CommitStateUnknownError: the connection broke during COMMIT.
    """
    if commit.seen.done:
        forget_committed(lake, submitter, commit)
        return earlier(verb, lake, commit.seen.done)
    phases = _Phases()
    submitter.ready()
    begun = begin(verb, lake, submitter, commit)
    planned, submitter, request = begun.planned, begun.submitter, begun.planned.request
    if request is None:
        results = Results()
        write, committed = _commit(lake, planned, results, commit, ())
        return Outcome(committed, planned.summary(results, write, committed))
    if not begun.is_submitted:
        check(lake, request, submitter)
        register(lake, request)
    phases.end("plan")
    with _released(lake, request, submitter) as registered:
        try:
            results = ran(lake, request, submitter)
        except DuckLakeError:
            done = _done_meanwhile(lake, commit, submitter)
            if not done:
                raise
            return earlier(verb, lake, done)
        phases.end("Spark")
        try:
            write, committed = _commit_or_remove(lake, begun, request, results, commit)
        except DuckLakeError:
            done = _done_meanwhile(lake, commit, submitter)
            if not done:
                raise
            return earlier(verb, lake, done)
        registered.is_released = committed is not None and not committed.is_earlier
    if committed is not None and committed.is_earlier:
        discard(lake, request, submitter)
        return earlier(verb, lake, committed.records, committed)
    phases.end("commit")
    summary = planned.summary(results, write, committed)
    _tidy_up(lake, request, results, submitter)
    log.info("Took %s", phases)
    if committed is not None and request.plans:
        log.info("In DuckDB: FROM lake.%s AT (VERSION => %d)", request.plans[0].table, committed.id)
    return Outcome(committed, summary)


class _Phases:
    """How long each part of a task took."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._seconds: dict[str, float] = {}

    def end(self, name: str) -> None:
        now = time.monotonic()
        self._seconds[name], self._last = now - self._last, now

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {lasting(seconds)}" for name, seconds in self._seconds.items())
        return f"{lasting(sum(self._seconds.values()))}: {parts}"


def earlier(
    verb: Verb, lake: Lake, records: Sequence[CommitRecord], committed: CommittedSnapshot | None = None
) -> Outcome:
    """Return the outcome of a commit that was made before."""
    announce_earlier(records)
    found = committed or CommittedSnapshot.earlier(tuple(records))
    return Outcome(found, verb.summary_of_records(lake, records))


def announce_earlier(records: Sequence[CommitRecord]) -> None:
    """Say that the commit was made before."""
    log.info(
        "This task has already committed snapshot %d, at %s: nothing is written.",
        records[0].snapshot_id,
        records[0].committed_at.isoformat(timespec="seconds"),
    )
    _announce_unconfirmed(records)


def _announce_unconfirmed(records: Iterable[CommitRecord]) -> None:
    """Say of which commits no snapshot is left that could confirm them."""
    expired = sorted({record.snapshot_id for record in records if not record.is_confirmed})
    if expired:
        log.warning(
            "Snapshots %s have expired: only airflow_ducklake_commit says that this task made them.",
            ", ".join(map(str, expired)),
        )


def check(lake: Lake, request: JobRequest, submitter: Submitter) -> None:
    """Refuse a request whose job would fail, before it is registered.

    Raises:
        UntrustedValueError: a table has its directory where the lake must not write.
        InvalidInputError, NotFoundError: this Spark could not run it.
    """
    for directory in request.directories:
        lake.check_writable(directory)
    submitter.check(request, lake.storage_options)


class _Registered:
    """A registered job; a commit of its files releases it."""

    is_released = False


def register(lake: Lake, request: JobRequest) -> None:
    """Keep a clean-up of orphaned files away from the job's until it is known what becomes of them."""
    lake.register_job(request.job_id, request.directory, target_of_write(request.directory))
    lake.close()  # no idle connection during the job; the next use opens one again


@contextmanager
def _released(lake: Lake, request: JobRequest, submitter: Submitter) -> Iterator[_Registered]:
    """Release the job once it is known what became of its files."""
    registered = _Registered()
    try:
        yield registered
    except (CommitStateUnknownError, *MAY_RUN):
        raise
    except DuckLakeError:
        release(lake, request)
        forget(lake, submitter, request)
        raise
    if not registered.is_released:
        release(lake, request)
    forget(lake, submitter, request)


def release(lake: Lake, request: JobRequest) -> None:
    """Release the job: its files are the lake's, or gone. A failure is logged, not raised."""
    try:
        lake.release_job(request.job_id)
    except Exception as error:  # noqa: BLE001 - a clean-up must not hide why
        log.warning("Cannot release job %s: %s", request.job_id, error)


def ran(lake: Lake, request: JobRequest, submitter: Submitter) -> Results:
    """Run the job; where it fails, remove its files.

    Raises:
        DuckLakeError: the job's own error.
        JobGoesOn: it runs, and is not waited for.
    """
    try:
        return submitter.run(request, lake.storage_options)
    except MAY_RUN:
        raise
    except BaseException:
        discard(lake, request, submitter)
        raise


def _done_meanwhile(lake: Lake, commit: Commit, submitter: Submitter) -> Sequence[CommitRecord]:
    """Return what another try that goes on with the job, too, has committed: it removes what we look for."""
    if not is_shared(submitter) or commit.keyed is None:
        return ()
    return lake.keyed_commit(commit.keyed.key, commit.keyed.on_clear).seen.done or ()


def discard(lake: Lake, request: JobRequest, submitter: Submitter) -> None:
    """Remove all that the job wrote, unless another try that goes on with it, too, has committed it."""
    if is_shared(submitter) and not (is_held(submitter) and _taken(lake, request)):
        log.info(
            "The files of job %s stay: another try has committed them, waits for it, or removes them",
            request.job_id,
        )
        return
    remove_files(lake, request)


def _taken(lake: Lake, request: JobRequest) -> bool:
    """Release the job, after which its files cannot be committed; return whether they were not."""
    try:
        return take(lake, request.job_id)
    except Exception as error:  # noqa: BLE001 - a clean-up must not hide why
        log.warning("Cannot release job %s: %s", request.job_id, error)
        return False


def _commit_or_remove(
    lake: Lake, begun: Begun, request: JobRequest, results: Results, commit: Commit
) -> tuple[Write | None, CommittedSnapshot | None]:
    try:
        return _commit(lake, begun.planned, results, commit, (request.job_id,))
    except CommitStateUnknownError:  # the snapshot may be there, and name the files; the retry looks
        raise
    except DuckLakeError:  # whatever else comes, a time-out say, may come after COMMIT: the files stay
        discard(lake, request, begun.submitter)
        raise


def _commit(
    lake: Lake, planned: PlannedWrite, results: Results, commit: Commit, job_ids: Sequence[str]
) -> tuple[Write | None, CommittedSnapshot | None]:
    try:
        write = planned.write(lake, results, commit.seen)
        return write, _committed(lake, write, commit, job_ids)
    except TransactionConflictError as error:
        conflict = error
    # others may change the files of this write, if not its rows, again and again
    for _ in range(_MOST_LOOKS):
        log.info("Conflict with snapshot %d, which %s", conflict.snapshot_id, conflict.theirs)
        try:
            again = planned.write_again(lake, results, commit.seen)
            if again is None:
                break
            log.info("The job's files fit the newest snapshot, and are committed there")
            return again, _committed(lake, again, commit, job_ids)
        except TransactionConflictError as error:
            if str(error) == str(conflict):  # another look finds the same
                break
            conflict = error
    raise conflict


_MOST_LOOKS = 20


def _committed(
    lake: Lake, write: Write | None, commit: Commit, job_ids: Sequence[str]
) -> CommittedSnapshot | None:
    if write is None:
        return None
    return lake.commit_stages(
        write.stages, commit.info, keyed=commit.keyed, job_ids=job_ids, consumed=write.consumed
    )


def _tidy_up(lake: Lake, request: JobRequest, results: Results, submitter: Submitter) -> None:
    """Remove what only the job needed. The commit has landed: no failure here may fail the task."""
    if not results.has_files:
        remove_files(lake, request, has_files=False)
    try:
        submitter.tidy_up(request, lake.storage_options)
    except Exception as error:  # noqa: BLE001 - a retry would write the rows again
        log.warning("Cannot remove the job's own files from %s: %s", request.directory, error)


def remove_files(lake: Lake, request: JobRequest, *, has_files: bool = True) -> None:
    """Remove all that the job wrote: no snapshot names it. A failure is logged, not raised."""
    try:
        job_io.delete_job_directories(request, lake.storage_options, has_files=has_files)
    except Exception as error:  # noqa: BLE001 - a clean-up must not hide why
        log.warning("Cannot remove %s: %s", request.directory, error)


def announce_replaced(lake: Lake, seen: Replay) -> None:
    """Say whose rows are replaced, and find out before any work whether they can be.

    Raises:
        UnsupportedFeatureError, TransactionConflictError: they cannot.
    """
    for record in seen.replaced:
        log.info(
            "%s: its %d rows of snapshot %d are replaced.",
            "A deleted run of this name had committed"
            if record.generation < FIRST_GENERATION
            else "This task was cleared after its commit",
            record.row_count,
            record.snapshot_id,
        )
    _announce_unconfirmed(seen.replaced)
    if seen.replaced:
        lake.replaced_rows(seen, lake.current_snapshot().id)


def replacing(lake: Lake, seen: Replay, base: SnapshotId) -> tuple[Change, ...]:
    """Return the changes that take out the rows which the new commit replaces."""
    return lake.replaced_rows(seen, base) if seen.replaced else ()
