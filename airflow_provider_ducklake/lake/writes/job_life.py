"""The life of a job: planned, registered, submitted, ended, and in the end forgotten.

A try of a task owns a ``JobLife`` for each job that it runs. In client mode the job ends with its try. In
cluster mode (a ``DetachedSubmitter``) it outlives a try that dies or gives its slot away: before it is
submitted, its id, its base snapshot and the digest of its request are recorded in the catalog. A later try
plans again as of that snapshot and with that id. If the request comes out the same, it goes on with the job;
else it stops the job and removes its files.

=============  ===================================  ==========  ============================================
state          event                                next        what is done
=============  ===================================  ==========  ============================================
PLANNED        ``register``                         REGISTERED  no clean-up touches the job's directory now
PLANNED        an earlier try's job is this one     SUBMITTED   nothing: that try registered and recorded it
REGISTERED     ``run``, in client mode              ENDED       Spark has run the job; its results are read
REGISTERED     ``run``, in cluster mode             SUBMITTED   recorded, then submitted, then the cluster's
                                                                name for it recorded
SUBMITTED      the application has ended, not       ENDED       its results are read
               failed and not killed
SUBMITTED      the try defers, or the cluster's     LEFT        nothing: a later try goes on
               manager is silent
SUBMITTED,     it fails, or its files cannot be     LEFT        nothing: that try ends it
ENDED          committed, and another try holds or
               has ended it
REGISTERED,    it fails, or its files cannot be     FAILED      released, and its files are removed, unless
SUBMITTED,     committed                                        another try has committed them or, in cluster
ENDED                                                           mode, the catalog cannot be asked
ENDED          the outcome of COMMIT is unknown     LEFT        nothing: a later try looks for the commit
ENDED          in cluster mode, an outage of the    LEFT        nothing: a retry commits the same files; the
               catalog or the store                             store may fail it once
ENDED          another error, a time-out say        ENDED       nothing: in cluster mode a later try goes on,
                                                                else a clean-up takes the files one day
ENDED, FAILED  ``end``                              OVER        released (a commit does that) and forgotten
=============  ===================================  ==========  ============================================

How a later try finds a job is in ``resume``: that of a stream or a compaction does not go on with it as its
own; ``finish_earlier`` waits for it and forgets it. ``discard`` stops and forgets one that no try goes on
with. A staged write stays ENDED: it is forgotten, and registered until its commit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from .. import errors
from ..catalog.ledger.jobs import SubmittedJob
from ..format.log_lines import logger
from ..format.names.identifiers import QualifiedName
from ..format.names.paths import job_directory
from ..spark.job import io as job_io
from ..spark.job.request import CompactionSource, JobRequest
from ..spark.types.names import refuse_equal_names

if TYPE_CHECKING:
    from ..catalog.lake import Lake
    from ..format.snapshots import SnapshotId
    from ..planning.writing.write import JobTarget
    from .verb import Attempt, Results, UserSource

log = logger(__name__)


class Submitter(Protocol):
    """How a job gets to Spark."""

    def ready(self) -> None:
        """Refuse a Spark that could run no job, before anything is planned."""

    def resolve(self, source: UserSource) -> UserSource:
        """Complete a source that names a connection; others come back as they are."""

    def check(self, request: JobRequest, storage_options: Mapping[str, Any]) -> None:
        """Refuse a request that this Spark would fail at, as far as that can be seen before."""

    def run(self, request: JobRequest, storage_options: Mapping[str, Any]) -> Results:
        """Run the job to its end."""

    def tidy_up(self, request: JobRequest, storage_options: Mapping[str, Any]) -> None:
        """Remove what only this way to Spark needed, and leave the job's data files."""


class DetachedSubmitter(Submitter, ABC):
    """A ``Submitter`` whose jobs outlive the task; ``cluster`` identifies its cluster.

    With an ``Attempt``, ``start`` and ``outcome`` are called in place of ``run``.
    """

    cluster: str

    @abstractmethod
    def start(self, life: JobLife) -> None:
        """Submit the job and return when the cluster has it; ``life.named`` gets the cluster's name."""

    @abstractmethod
    def outcome(self, life: JobLife) -> Results:
        """Wait until the submitted job has ended, call ``life.ended``, and return its results.

        Raises:
            JobDeferred: the triggerer waits instead.
            ClusterUnavailableError: the cluster's manager gives no answer.
        """

    @abstractmethod
    def find(self, job_id: str) -> str | None:
        """Look up the cluster's name for a job whose try died before it recorded that, if there is one."""

    @abstractmethod
    def runs(self, application: str, job_id: str) -> bool:
        """Return True if an application is that of a job, as far as the cluster can say, or is gone."""

    @abstractmethod
    def stop(self, application: str) -> None:
        """Stop an application if it still runs."""


class JobDeferred(Exception):  # noqa: N818 - nothing is wrong
    """The job runs and this try does not wait: the operator runs the verb again when the job has ended."""

    def __init__(self, job: SubmittedJob) -> None:
        super().__init__(job.job_id)
        self.job = job


class State(Enum):
    """Where a job is in its life; the module has the transitions."""

    PLANNED = "planned"
    REGISTERED = "registered"
    SUBMITTED = "submitted"
    ENDED = "ended"
    LEFT = "left"
    FAILED = "failed"
    OVER = "over"


@dataclass(slots=True)
class JobLife:
    """The life of one job in one try; the module has its states.

    ``attempt`` says which try this is; without one, no later try finds the job. ``base`` is the snapshot that
    it was planned on. ``serves`` is the id of the registered job into whose directory it writes, as those of
    compactions and streams do; None: into its own.
    """

    lake: Lake
    submitter: Submitter
    request: JobRequest
    attempt: Attempt | None = None
    base: SnapshotId | None = None
    serves: str | None = None
    submitted: SubmittedJob | None = None
    state: State = State.PLANNED

    @property
    def detached(self) -> DetachedSubmitter | None:
        """The submitter of a job that outlives its try; None: it ends with the try."""
        is_found_again = isinstance(self.submitter, DetachedSubmitter) and self.attempt is not None
        return self.submitter if is_found_again else None  # type: ignore[return-value] # it is one

    def check(self) -> None:
        """Refuse a request whose job would fail, before it is registered."""
        for directory in self.request.directories:
            self.lake.opened.check_writable(directory)
        if not isinstance(self.request.source, CompactionSource):  # which Spark does not look into
            for plan in self.request.plans:
                refuse_equal_names(() if plan.schema is None else plan.schema.columns, plan.table)
        self.submitter.check(self.request, self.lake.opened.storage_options)

    def register(self, target: JobTarget) -> None:
        """Keep a clean-up of orphaned files away from the job's until it is clear what becomes of them."""
        job_id, directory = self.request.job_id, self.request.directory
        if self.serves is not None:
            job_id, directory = self.serves, job_directory(target.root, self.serves)
        self.lake.jobs.register(job_id, directory, target)
        self.lake.close()  # no idle connection during the job; the next use opens one again
        self.state = State.REGISTERED

    def run(self) -> Results:
        """Run the job to its end, or go on with it. Where it fails, its files are removed."""
        try:
            detached = self.detached
            if detached is None:
                results = self.submitter.run(self.request, self.lake.opened.storage_options)
            else:
                if self.submitted is None:
                    self._submit(detached)
                results = self.outcome()
        except (JobDeferred, errors.ClusterUnavailableError):
            self.leave()
            raise
        except BaseException as error:
            self._leave_ended(error)
            if self.state is not State.LEFT:
                self._fail()
            if self.detached is None:  # no later try finds it, and no commit has begun
                self.end()
            if isinstance(error, errors.QueryTableError) and self._has_table(error.table):
                raise errors.QueryTableError(error.table, error.sources, is_of_lake=True) from None
            raise
        self.ended()
        return results

    def _has_table(self, name: str) -> bool:
        with suppress(errors.DuckLakeError):
            return QualifiedName.of(name).folded in {one.folded for one in self.lake.tables()}
        return False

    def outcome(self) -> Results:
        """Wait for the submitted job, as the try that it is left to now."""
        assert self.detached is not None
        assert self.attempt is not None
        assert self.submitted is not None
        if self.submitted.attended_by != self.attempt.id:
            self.submitted = replace(self.submitted, attended_by=self.attempt.id)
            self._record_if_possible(self.lake.jobs.note_submitted)
        return self.detached.outcome(self)

    def _submit(self, detached: DetachedSubmitter) -> None:
        assert self.attempt is not None
        assert self.base is not None
        key, request = self.attempt.key, self.request
        self.submitted = SubmittedJob(
            job_id=request.job_id,
            key_digest=key.digest,
            generation=key.generation,
            try_id=self.attempt.id,
            base=self.base,
            directory=request.directory,
            request_digest=job_io.request_digest(request),
            cluster=detached.cluster,
            attended_by=self.attempt.id,
        )
        if self.serves is not None:
            self.lake.jobs.register(request.job_id, request.directory)
        self.lake.jobs.note_submitted(self.submitted)
        self.lake.close()
        self.state = State.SUBMITTED
        detached.start(self)

    def ended(self) -> None:
        """Note that the application has done its work; its results are still to be read."""
        self.state = State.ENDED

    def named(self, application: str) -> None:
        """Record the cluster's name for the job, unless another try has taken it over."""
        assert self.submitted is not None
        self.submitted = replace(self.submitted, application=application)
        self._record_if_possible(self.lake.jobs.note_named)

    def _record_if_possible(self, note: Callable[[SubmittedJob], None]) -> None:
        job = self.submitted
        assert job is not None
        try:
            note(job)
            self.lake.close()
        except (
            errors.DuckLakeError
        ) as error:  # the job is submitted, and a later try can ask the cluster for it
            log.warning("Cannot note that job %s is %s: %s", job.job_id, job.application, error)

    def is_ours(self) -> bool:
        """Return True if no other try waits for the job or ended it, or if the catalog cannot be asked."""
        if self.submitted is None or self.attempt is None:
            return True
        try:
            job = self.lake.jobs.submitted(self.submitted.job_id)
            self.lake.close()
        except errors.DuckLakeError as error:
            log.warning("Cannot see which tasks wait for job %s: %s", self.submitted.job_id, error)
            return True
        if job is None:  # this try does not ask once it has forgotten the job
            log.info("Another try has ended job %s", self.submitted.job_id)
            return False
        if job.attended_by == self.attempt.id:
            return True
        log.info("%s is left to the try %s, which waits for it now", job.application, job.attended_by)
        return False

    def leave(self) -> None:
        """Leave the job and its files to a later try."""
        self.state = State.LEFT

    def fail(self, error: BaseException | None = None) -> None:
        """End a job whose files cannot be committed; nothing is done to one that is left to another try.

        ``error`` says why; after an outage a retry commits the files of a job that it finds again.
        """
        self._leave_ended(error)
        if self.state not in (State.LEFT, State.FAILED, State.OVER):
            self._fail()
        if self.state is State.FAILED:
            self.end()

    def _leave_ended(self, error: BaseException | None) -> None:
        """Leave an ended job of a cluster to a retry after an outage.

        A store that fails for the retry, too, may have lost the job's files: that try removes them.
        """
        job, attempt = self.submitted, self.attempt
        if self.state is not State.ENDED or self.detached is None or job is None or attempt is None:
            return
        if isinstance(error, errors.OUTAGES) and (
            job.try_id == attempt.id or not isinstance(error, errors.StorageError)
        ):
            log.warning("Job %s has ended and its files stay: a retry commits them", self.request.job_id)
            self.leave()

    def _fail(self) -> None:
        """Remove all that the job wrote, unless another try that goes on with it, too, has committed it."""
        if self.detached is not None and not self.is_ours():
            self.leave()
            log.info("The files of job %s are left to that try", self.request.job_id)
            return
        self.state = State.FAILED
        is_lost = self.detached is None  # then no other try has a way to the files
        try:
            is_lost = release_uncommitted(self.lake, self.request.job_id)
        except Exception as error:  # noqa: BLE001 - a clean-up must not hide why
            log.warning("Cannot release job %s: %s", self.request.job_id, error)
            if not is_lost:
                return
        if is_lost:
            remove_files(self.lake, self.request)
        else:
            log.info(
                "The files of job %s stay: another try has committed or removes them", self.request.job_id
            )
        self.forget()

    def end(self, *, is_released: bool = False) -> None:
        """Release the job, unless its commit did, and have no later try find it."""
        if self.state is State.OVER:
            return
        if not is_released and self.serves is None:
            try:
                self.lake.jobs.release(self.request.job_id)
            except Exception as error:  # noqa: BLE001 - a clean-up must not hide why
                log.warning("Cannot release job %s: %s", self.request.job_id, error)
        self.forget()
        self.state = State.OVER

    def forget(self) -> None:
        """Have no later try find the job. A failure is logged: no try goes on with a released job."""
        if self.detached is None:
            return
        try:
            if self.serves is not None:
                self.lake.jobs.release(self.request.job_id)
            self.lake.jobs.forget_submitted(self.request.job_id)
        except Exception as error:  # noqa: BLE001 - see above
            log.warning("Cannot forget job %s: %s", self.request.job_id, error)

    def tidy_up(self, *, keeps_files: bool) -> None:
        """Remove what only the job needed. The commit has landed: no failure here may fail the task."""
        if not keeps_files:
            remove_files(self.lake, self.request, has_files=False)
        try:
            self.submitter.tidy_up(self.request, self.lake.opened.storage_options)
        except Exception as error:  # noqa: BLE001 - a retry would write the rows again
            log.warning("Cannot remove the job's own files from %s: %s", self.request.directory, error)


def remove_files(lake: Lake, request: JobRequest, *, has_files: bool = True) -> None:
    """Remove all that a job wrote: no snapshot names it. A failure is logged, not raised."""
    try:
        job_io.delete_job_directories(request, lake.opened.storage_options, has_files=has_files)
    except Exception as error:  # noqa: BLE001 - a clean-up must not hide why
        log.warning("Cannot remove %s: %s", request.directory, error)


def release_uncommitted(lake: Lake, job_id: str) -> bool:
    """Release a job; return True if its files may be removed: none is, or can become, the lake's.

    A compaction's or a stream's own documents are registered in cluster mode alone. A job that was released
    long ago may have files of the lake, and so may one whose row says that it was not: any client writes it.
    """
    is_over = lake.jobs.release(job_id) or not lake.jobs.registered([job_id])
    return is_over and lake.jobs.snapshot_of(job_id) is None


def serving(
    staging_id: str, lake: Lake, submitter: Submitter, request: JobRequest, attempt: Attempt | None
) -> JobLife:
    """Begin the life of a job that writes into the directory of another registered job."""
    life = JobLife(lake, submitter, request, attempt, serves=staging_id)
    if life.detached is not None:
        life.base = lake.current_snapshot().id
    return life
