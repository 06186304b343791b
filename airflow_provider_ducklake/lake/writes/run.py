"""Run a verb: plan, register the job, run it, commit its files, remove what only the job needed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import CommitStateUnknownError, DuckLakeError, TransactionConflictError
from ..format.log_lines import lasting, logger
from ..format.snapshots import FIRST_GENERATION, CommitRecord, CommittedSnapshot, SnapshotId
from ..planning.writing.write import target_of_write
from .job_life import DetachedSubmitter, JobLife, State, Submitter
from .verb import Commit, Outcome, PlannedWrite, Results, Verb, Write

if TYPE_CHECKING:
    from ..catalog.lake import Lake
    from ..transaction.changes import Change
    from ..transaction.changes_made import Replay


log = logger(__name__)


def run(verb: Verb, lake: Lake, submitter: Submitter, commit: Commit) -> Outcome:
    """Carry a verb out as one snapshot, or find that its commit key was committed before.

    A verb that fails leaves no snapshot, unless the outcome of COMMIT is unknown: then a retry under the same
    key finds out. The table of ``job_life`` says what becomes of the job's files.
    """
    if commit.seen.done:
        if isinstance(submitter, DetachedSubmitter) and commit.attempt is not None:  # a try died after it
            lake.jobs.forget_submitted_of(commit.attempt.key)
        return earlier(verb, lake, commit.seen.done)
    phases = _Phases()
    submitter.ready()
    planned, life = begin(verb, lake, submitter, commit)
    if life is None:
        results = Results()
        write, committed = _commit(lake, planned, results, commit, ())
        return Outcome(committed, planned.summary(results, write, committed))
    request = life.request
    if life.state is State.PLANNED:
        life.check()
        life.register(target_of_write(request.directory))
    phases.end("plan")
    try:
        results = life.run()
        phases.end("Spark")
        write, committed = _commit(lake, planned, results, commit, (request.job_id,))
    except CommitStateUnknownError:  # the snapshot may be there, and name the files; a later try looks
        life.leave()
        raise
    except DuckLakeError as error:
        life.fail(error)
        done = _committed_by_another_try(life, commit)
        if not done:
            raise
        life.end()
        return earlier(verb, lake, done)
    # any other exception of the commit, of a time-out say, may come after COMMIT: the files stay
    if committed is not None and committed.is_earlier:
        life.fail()
        return earlier(verb, lake, committed.records, committed)
    life.end(is_released=committed is not None)
    phases.end("commit")
    summary = planned.summary(results, write, committed)
    life.tidy_up(keeps_files=results.has_files)
    log.info("Took %s", phases)
    if committed is not None and request.plans:
        log.info("In DuckDB: FROM lake.%s AT (VERSION => %d)", request.plans[0].table, committed.id)
    return Outcome(committed, summary)


def begin(
    verb: Verb, lake: Lake, submitter: Submitter, commit: Commit
) -> tuple[PlannedWrite, JobLife | None]:
    """Plan a verb, or go on with the job that an earlier try submitted for it, if it takes a job."""
    base = None
    if isinstance(submitter, DetachedSubmitter) and commit.attempt is not None:
        from .resume import resumed

        if (again := resumed(verb, lake, submitter, commit, commit.attempt)) is not None:
            return again
        base = lake.current_snapshot().id
    planned = verb.plan(lake if base is None else lake.as_of(base), commit, submitter.resolve)
    if planned.request is None:
        return planned, None
    return planned, JobLife(lake, submitter, planned.request, commit.attempt, base)


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


def _committed_by_another_try(life: JobLife, commit: Commit) -> Sequence[CommitRecord]:
    """Look up what another try that goes on with the job, too, has committed: it removes the job's files."""
    if life.detached is None or commit.keyed is None:
        return ()
    try:
        return life.lake.writes.keyed_commit(commit.keyed.key, commit.keyed.on_clear).seen.done or ()
    except DuckLakeError as error:  # why the job failed is what counts
        log.warning("Cannot look for a commit of another try: %s", error)
        return ()


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
    return lake.committer.commit_change_sets(
        write.change_sets, commit.info, keyed=commit.keyed, job_ids=job_ids, consumed=write.consumed
    )


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
    if seen.replaced:
        lake.writes.replaced_rows(seen, lake.current_snapshot().id)


def replacing(lake: Lake, seen: Replay, base: SnapshotId) -> tuple[Change, ...]:
    """Return the changes that take out the rows which the new commit replaces."""
    return lake.writes.replaced_rows(seen, base) if seen.replaced else ()
