"""Run a verb: plan, register the job, run it, commit its files, remove what only the job needed."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.lake.catalog.ledger.jobs import SubmittedJob
from airflow_provider_ducklake.lake.errors import (
    CatalogRefusedError,
    CatalogUnavailableError,
    CommitStateUnknownError,
    DuckLakeError,
    StorageError,
    TransactionConflictError,
    UntrustedValueError,
)
from airflow_provider_ducklake.lake.planning.writing.write import target_of_write
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spec.log_lines import lasting, logger
from airflow_provider_ducklake.lake.spec.names.paths import job_directory
from airflow_provider_ducklake.lake.spec.snapshots import FIRST_GENERATION, CommittedSnapshot
from airflow_provider_ducklake.lake.writes.verb import MAY_RUN, Commit, DetachedSubmitter, Outcome, Results

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from airflow_provider_ducklake.lake.catalog.lake import Lake
    from airflow_provider_ducklake.lake.spark.job.request import JobRequest
    from airflow_provider_ducklake.lake.spec.snapshots import CommitRecord, SnapshotId
    from airflow_provider_ducklake.lake.transaction.changes import Change
    from airflow_provider_ducklake.lake.transaction.changes_made import Replay
    from airflow_provider_ducklake.lake.writes.verb import (
        Attempt,
        PlannedWrite,
        Submitter,
        UserSource,
        Verb,
        Write,
    )


# Jobs that outlive their task: a try that dies, or gives its slot away, leaves its job to a later one.
#
# A job is planned as of one snapshot, which is recorded with its id and the digest of its request before it
# is submitted. A later try plans once more, as of that snapshot and with that id. Where the request comes
# out the same, the job is what this try would submit: its results are taken. Else it is stopped, and its
# files go.


log = logger(__name__)

_TRANSIENT = (CatalogUnavailableError, CatalogRefusedError, StorageError)


@dataclass(frozen=True, slots=True)
class Begun:
    """A verb that is planned, and how its job gets to Spark; a job that ``is_submitted`` is registered."""

    planned: PlannedWrite
    submitter: Submitter
    is_submitted: bool = False


def begin(verb: Verb, lake: Lake, submitter: Submitter, commit: Commit) -> Begun:
    """Plan a verb, or go on with the job that an earlier try submitted for it."""
    if not isinstance(submitter, DetachedSubmitter) or commit.attempt is None:
        return Begun(verb.plan(lake, commit, submitter.resolve), submitter)
    found: Begun | None = None
    for job in reversed(lake.submitted_jobs(commit.attempt.key)):
        again = None if found is not None else _again(verb, lake, submitter, commit, job)
        if again is None:
            give_up(lake, submitter, job, "it is not what this try would do")
        else:
            found = again
    if found is not None:
        return found
    base = lake.current_snapshot().id
    planned = verb.plan(lake.as_of(base), commit, submitter.resolve)
    return Begun(planned, _Attending(submitter, lake, commit.attempt, base))


def attending(lake: Lake, submitter: Submitter, attempt: Attempt | None) -> Submitter:
    """Return the submitter of a verb that plans on what it finds: one that notes what it submits.

    The verb registers another id for the files: the job itself is registered for its directory.
    """
    if not isinstance(submitter, DetachedSubmitter) or attempt is None:
        return submitter
    return _Attending(submitter, lake, attempt, lake.current_snapshot().id, registers=True)


def forget_committed(lake: Lake, submitter: Submitter, commit: Commit) -> None:
    """Forget the jobs of a commit that was made: a try that died after it did not."""
    if isinstance(submitter, DetachedSubmitter) and commit.attempt is not None:
        lake.forget_submitted_of(commit.attempt.key)


def is_shared(submitter: Submitter) -> bool:
    """Whether several tries may go on with one job: a worker that was given up may be alive."""
    return isinstance(submitter, _Attending)


def is_held(submitter: Submitter) -> bool:
    """Whether a job that may be shared is this try's to end: no later try waits for it."""
    return not isinstance(submitter, _Attending) or submitter.is_held()


def take(lake: Lake, job_id: str) -> bool:
    """Release a job, so that nobody commits its files from now on; return whether nobody has, or may have.

    A compaction's or a stream's own documents are nobody's else: they are not registered. Neither is a job
    that was released long ago, whose files may be the lake's.
    """
    if lake.release_job(job_id):
        return True
    return not lake.registered_jobs([job_id]) and lake.snapshot_of_job(job_id) is None


def forget(lake: Lake, submitter: Submitter, request: JobRequest) -> None:
    """Have no later try find a job: what it made is the lake's, or gone. A failure is logged, not raised."""
    if not isinstance(submitter, _Attending):
        return
    try:
        if submitter.registers:
            lake.release_job(request.job_id)
        lake.forget_submitted(request.job_id)
    except Exception as error:  # noqa: BLE001 - it is released, so nobody goes on with it
        log.warning("Cannot forget job %s: %s", request.job_id, error)


@dataclass(frozen=True, slots=True)
class Finished:
    """Whether this very try had submitted a job that has ended, why it failed, and all requests."""

    is_own: bool = False
    error: DuckLakeError | None = None
    requests: tuple[JobRequest, ...] = ()


def finish_earlier(lake: Lake, submitter: Submitter, attempt: Attempt | None) -> Finished:
    """Wait for the jobs that tries of the task submitted, whose files are committed wherever they ended."""
    finished = Finished()
    if isinstance(submitter, DetachedSubmitter) and attempt is not None:
        for job in lake.submitted_jobs(attempt.key):
            request, error = _ended(lake, submitter, job, attempt)
            is_own = job.try_id == attempt.id
            finished = Finished(
                finished.is_own or is_own,
                error if is_own else finished.error,
                (*finished.requests, *filter(None, [request])),
            )
            remove(lake, job)
    return finished


def _ended(
    lake: Lake, submitter: DetachedSubmitter, job: SubmittedJob, attempt: Attempt
) -> tuple[JobRequest | None, DuckLakeError | None]:
    application = _application(submitter, job)
    request = None
    try:
        request = _request_of(lake, job)
        if application is not None:
            log.info("Waiting for %s, which was submitted earlier", application)
            known = replace(job, application=application)
            _Attending(submitter, lake, attempt, job.base, known).outcome(request, lake.storage_options)
    except MAY_RUN:
        raise
    except DuckLakeError as error:
        log.warning("%s failed: %s", application, error)
        return request, error
    return request, None


def _again(
    verb: Verb, lake: Lake, submitter: DetachedSubmitter, commit: Commit, job: SubmittedJob
) -> Begun | None:
    """Return the job as this try would plan it; None: it would plan another, or the cluster has it not."""
    attempt = commit.attempt
    assert attempt is not None
    is_of_deleted_run = attempt.is_first and job.try_id != attempt.id
    if job.cluster != submitter.cluster:
        log.warning(
            "%s of %s is left alone: the task goes to %s", job.application, job.cluster, submitter.cluster
        )
        return None
    if job.generation != attempt.key.generation or is_of_deleted_run:
        return None
    try:
        planned = verb.plan(lake.as_of(job.base), replace(commit, job_id=job.job_id), submitter.resolve)
    except _TRANSIENT:
        raise  # the job runs on: the next try plans it
    except DuckLakeError as error:
        log.info("Job %s cannot be planned once more: %s", job.job_id, error)
        return None
    if planned.request is None or job_io.request_digest(planned.request) != job.request_digest:
        return None
    application = _application(submitter, job)
    if application is None:
        return None
    log.info("Going on with %s, planned on snapshot %d, of job %s", application, job.base, job.job_id)
    known = replace(job, application=application)
    return Begun(planned, _Attending(submitter, lake, attempt, job.base, known), is_submitted=True)


def _application(submitter: DetachedSubmitter, job: SubmittedJob) -> str | None:
    """Return what this cluster calls a job's application; None: it has none, or another cluster has it.

    The row of a job may name any application: one that the cluster may have for something else is left alone.
    """
    if job.cluster != submitter.cluster:
        return None
    if job.application is None or submitter.runs(job.application, job.job_id):
        return job.application or submitter.find(job.job_id)
    log.warning(
        "%.80r, which airflow_ducklake_application names, is not an application of job %s: it is left alone",
        *(job.application, job.job_id),
    )
    return submitter.find(job.job_id)


def _request_of(lake: Lake, job: SubmittedJob) -> JobRequest:
    """Return the request of a job that was submitted, and of no other."""
    uri = job_io.request_uri(job.directory)
    request = job_io.read_request(uri, job.request_digest, lake.storage_options)
    if request.job_id != job.job_id:
        raise UntrustedValueError(
            uri, f"job {request.job_id}", f"is not job {job.job_id}, which it is noted for"
        )
    for plan in request.plans:
        if not plan.directory.startswith(job_directory(plan.root, job.job_id)):
            raise UntrustedValueError(uri, plan.directory, "is not a directory of the job")
        lake.check_writable(plan.root)
    return request


def give_up(lake: Lake, submitter: DetachedSubmitter, job: SubmittedJob, why: str) -> None:
    """Stop a job, release it and remove its files: nobody takes its results."""
    application = _application(submitter, job)
    log.info("Discarding job %s: %s", job.job_id, why)
    if application is not None:
        log.info("Stopping %s", application)
        submitter.stop(application)
    remove(lake, job)


def give_up_all(lake: Lake, submitter: Submitter, attempt: Attempt) -> None:
    """Stop the jobs that tries of a task submitted: it is over."""
    if isinstance(submitter, DetachedSubmitter):
        for job in lake.submitted_jobs(attempt.key):
            give_up(lake, submitter, job, "its task is over")


def remove(lake: Lake, job: SubmittedJob) -> None:
    """Release a job that has ended and remove its files, unless somebody has committed them.

    What cannot be removed is logged.
    """
    if take(lake, job.job_id):
        _remove_files(lake, job)
    lake.forget_submitted(job.job_id)


def _remove_files(lake: Lake, job: SubmittedJob) -> None:
    try:
        if not job_io.has_request(job.directory, lake.storage_options):  # its try died before it was whole
            job_io.delete_own_directory(job.directory, job.job_id, lake.storage_options)
            return
        job_io.delete_job_directories(_request_of(lake, job), lake.storage_options)
    except DuckLakeError as error:
        log.warning("Cannot remove what job %s left in %s: %s", job.job_id, job.directory, error)


@dataclass(slots=True)
class _Attending:
    """A ``Submitter`` that notes what it submits; with a ``job`` it waits for that instead.

    It ``registers`` a job whose files belong to another registered job: a compaction's, or a stream's.
    """

    submitter: DetachedSubmitter
    lake: Lake
    attempt: Attempt
    base: SnapshotId
    job: SubmittedJob | None = None
    registers: bool = False

    def ready(self) -> None:
        self.submitter.ready()

    def resolve(self, source: UserSource) -> UserSource:
        return self.submitter.resolve(source)

    def check(self, request: JobRequest, storage_options: Mapping[str, Any]) -> None:
        self.submitter.check(request, storage_options)

    def run(self, request: JobRequest, storage_options: Mapping[str, Any]) -> Results:
        """Submit the job unless that was done, and wait for it; see ``Submitter`` and ``JobGoesOn``."""
        try:
            if self.job is None:
                self._start(request, storage_options)
            return self.outcome(request, storage_options)
        except MAY_RUN:
            raise
        except BaseException:
            if self.is_held():
                forget(self.lake, self, request)
            raise

    def outcome(self, request: JobRequest, storage_options: Mapping[str, Any]) -> Results:
        """Wait for the job, as the try that it is left to now."""
        assert self.job is not None
        if self.job.attended_by != self.attempt.id:
            self.job = replace(self.job, attended_by=self.attempt.id)
            self._note_if_possible()
        self.submitter.attend(self.is_held)
        return self.submitter.outcome(request, storage_options, self.job)

    def is_held(self) -> bool:
        """Whether no later try waits for the job; where that cannot be asked, too."""
        if self.job is None:
            return True
        try:
            job = self.lake.submitted_job(self.job.job_id)
            self.lake.close()
        except DuckLakeError as error:
            log.warning("Cannot ask who waits for job %s: %s", self.job.job_id, error)
            return True
        if job is None or job.attended_by == self.attempt.id:
            return True
        log.info("%s is left to the try %s, which waits for it now", job.application, job.attended_by)
        return False

    def _start(self, request: JobRequest, storage_options: Mapping[str, Any]) -> None:
        key = self.attempt.key
        self.job = SubmittedJob(
            job_id=request.job_id,
            key_digest=key.digest,
            generation=key.generation,
            try_id=self.attempt.id,
            base=self.base,
            directory=request.directory,
            request_digest=job_io.request_digest(request),
            cluster=self.submitter.cluster,
            attended_by=self.attempt.id,
        )
        if self.registers:
            self.lake.register_job(request.job_id, request.directory)
        self._note(self.job)
        self.submitter.attend(self.is_held)
        self.submitter.start(request, storage_options, self._named)

    def _named(self, application: str) -> None:
        assert self.job is not None
        self.job = replace(self.job, application=application)
        self._note_if_possible()

    def _note_if_possible(self) -> None:
        job = self.job
        assert job is not None
        try:
            self._note(job)
        except DuckLakeError as error:  # the job is submitted, and a later try can ask the cluster for it
            log.warning("Cannot note that job %s is %s: %s", job.job_id, job.application, error)

    def _note(self, job: SubmittedJob) -> None:
        self.lake.note_submitted(job)
        self.lake.close()

    def tidy_up(self, request: JobRequest, storage_options: Mapping[str, Any]) -> None:
        self.submitter.tidy_up(request, storage_options)


def run(verb: Verb, lake: Lake, submitter: Submitter, commit: Commit) -> Outcome:
    """Carry a verb out as one snapshot, or find that its commit key was committed before.

    On any failure nothing is visible and the job's files are removed, but where the outcome of COMMIT is
    unknown: then the files stay, and a retry under the same key finds out.
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
    """Refuse a request whose job would fail, before it is registered."""
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
    """Run the job; where it fails, remove its files."""
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
    """Say whose rows are replaced, and find out before any work whether they can be."""
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
