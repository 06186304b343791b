"""Jobs that earlier tries of a task submitted in cluster mode: go on with one, wait for it, or stop it.

A row of ``airflow_ducklake_application`` is confirmed first: by the cluster, and by the job's request.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .. import errors
from ..format.log_lines import logger
from ..format.names.paths import job_directory
from ..spark.job import io as job_io
from .job_life import DetachedSubmitter, JobLife, State, Submitter, release_uncommitted

if TYPE_CHECKING:
    from ..catalog.lake import Lake
    from ..catalog.ledger.jobs import SubmittedJob
    from ..spark.job.request import JobRequest
    from .verb import Attempt, Commit, PlannedWrite, Verb

log = logger(__name__)

_TWICE = "this try goes on with a later one"


def resumed(
    verb: Verb, lake: Lake, submitter: DetachedSubmitter, commit: Commit, attempt: Attempt
) -> tuple[PlannedWrite, JobLife] | None:
    """Go on with the newest job of earlier tries that does what this try would; all others are discarded."""
    found: tuple[PlannedWrite, JobLife] | None = None
    for job in reversed(lake.jobs.submitted_of(attempt.key)):
        again = _resumed(verb, lake, submitter, commit, job) if found is None else _TWICE
        if isinstance(again, str):
            discard(lake, submitter, job, again)
        else:
            found = again
    return found


def _resumed(
    verb: Verb, lake: Lake, submitter: DetachedSubmitter, commit: Commit, job: SubmittedJob
) -> tuple[PlannedWrite, JobLife] | str:
    """Plan an earlier try's job once more; a text says why this try cannot go on with it."""
    attempt = commit.attempt
    assert attempt is not None
    is_of_deleted_run = attempt.is_first and job.try_id != attempt.id
    if job.cluster != submitter.cluster:
        log.warning(
            "%s may still run on %s: the task goes to %s now", job.application, job.cluster, submitter.cluster
        )
        return f"it was submitted to {job.cluster}"
    if job.generation != attempt.key.generation or is_of_deleted_run:
        return "the task was cleared since, or its run deleted"
    try:
        planned = verb.plan(lake.as_of(job.base), replace(commit, job_id=job.job_id), submitter.resolve)
    except errors.OUTAGES:
        raise  # the job runs on: the next try plans it
    except errors.DuckLakeError as error:
        return f"it cannot be planned once more: {error}"
    if planned.request is None or job_io.request_digest(planned.request) != job.request_digest:
        return "it does not do what this try would"
    application = _application(submitter, job)
    if application is None:
        return "the cluster has no application of it"
    log.info("Going on with %s, planned on snapshot %d, of job %s", application, job.base, job.job_id)
    known = replace(job, application=application)
    return planned, _submitted(lake, submitter, planned.request, attempt, known)


def _submitted(
    lake: Lake, submitter: Submitter, request: JobRequest, attempt: Attempt, job: SubmittedJob
) -> JobLife:
    return JobLife(lake, submitter, request, attempt, job.base, submitted=job, state=State.SUBMITTED)


@dataclass(frozen=True, slots=True)
class Finished:
    """The ended jobs of a task: if this very try had submitted one, the error of that, and all requests."""

    is_own: bool = False
    error: errors.DuckLakeError | None = None
    requests: tuple[JobRequest, ...] = ()


def finish_earlier(lake: Lake, submitter: Submitter, attempt: Attempt | None) -> Finished:
    """Wait for the jobs that tries of the task submitted, whose files are committed wherever they ended."""
    finished = Finished()
    if isinstance(submitter, DetachedSubmitter) and attempt is not None:
        for job in lake.jobs.submitted_of(attempt.key):
            request, error = _finish(lake, submitter, job, attempt)
            is_own = job.try_id == attempt.id
            finished = Finished(
                finished.is_own or is_own,
                error if is_own else finished.error,
                (*finished.requests, *filter(None, [request])),
            )
            remove(lake, job)
    return finished


def _finish(
    lake: Lake, submitter: DetachedSubmitter, job: SubmittedJob, attempt: Attempt
) -> tuple[JobRequest | None, errors.DuckLakeError | None]:
    """Wait for an earlier job; return its request, None where that cannot be used, and why it failed.

    Raises:
        ClusterUnavailableError, StorageError, CatalogError: the cluster, the store or the catalog gives no
            answer. The job runs on, and the next try asks again.
    """
    application = _application(submitter, job)
    if not job_io.has_request(job.directory, lake.opened.storage_options):
        gone = errors.SparkJobError(
            f"The request of job {job.job_id} is not in {job.directory}: it was not waited for."
        )
        return _stopped(submitter, application, gone)
    try:
        request = _request_of(lake, job)
    except errors.OUTAGES:
        raise
    except errors.DuckLakeError as error:
        return _stopped(submitter, application, error)
    if application is None:
        return request, None
    log.info("Waiting for %s, which was submitted earlier", application)
    try:
        _submitted(lake, submitter, request, attempt, replace(job, application=application)).outcome()
    except errors.ClusterUnavailableError:
        raise
    except errors.DuckLakeError as error:  # of the job, which has ended
        log.warning("%s failed: %s", application, error)
        return request, error
    return request, None


def _stopped(
    submitter: DetachedSubmitter, application: str | None, error: errors.DuckLakeError
) -> tuple[None, errors.DuckLakeError]:
    if application is not None:
        log.warning("Stopping %s: %s", application, error)
        submitter.stop(application)
    return None, error


def _application(submitter: DetachedSubmitter, job: SubmittedJob) -> str | None:
    """Look up what this cluster calls a job's application; None: it has none, or another cluster has it.

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
    """Read the request of a job that was submitted, and of no other."""
    uri = job_io.request_uri(job.directory)
    request = job_io.read_request(uri, job.request_digest, lake.opened.storage_options)
    if request.job_id != job.job_id:
        raise errors.UntrustedValueError(
            uri, f"job {request.job_id}", f"is not job {job.job_id}, which it is noted for"
        )
    for plan in request.plans:
        if not plan.directory.startswith(job_directory(plan.root, job.job_id)):
            raise errors.UntrustedValueError(uri, plan.directory, "is not a directory of the job")
        lake.opened.check_writable(plan.root)
    return request


def discard(lake: Lake, submitter: DetachedSubmitter, job: SubmittedJob, why: str) -> None:
    """Stop a job, release it and remove its files: no try takes its results."""
    application = _application(submitter, job)
    log.info("Job %s is released and its files are removed: %s", job.job_id, why)
    if application is not None:
        log.info("Stopping %s", application)
        submitter.stop(application)
    remove(lake, job)


def discard_all(lake: Lake, submitter: Submitter, attempt: Attempt) -> None:
    """Stop the jobs that tries of a task submitted: it is over."""
    if isinstance(submitter, DetachedSubmitter):
        for job in lake.jobs.submitted_of(attempt.key):
            discard(lake, submitter, job, "its task is over")


def remove(lake: Lake, job: SubmittedJob) -> None:
    """Release a job that has ended and remove its files, unless they were committed.

    A file that cannot be removed is logged.
    """
    if release_uncommitted(lake, job.job_id):
        try:
            if job_io.has_request(job.directory, lake.opened.storage_options):
                job_io.delete_job_directories(_request_of(lake, job), lake.opened.storage_options)
            else:  # its try died before the request was whole
                job_io.delete_own_directory(job.directory, job.job_id, lake.opened.storage_options)
        except errors.DuckLakeError as error:
            log.warning("Cannot remove what job %s left in %s: %s", job.job_id, job.directory, error)
    lake.jobs.forget_submitted(job.job_id)
