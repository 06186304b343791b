"""Staged writes as tasks hand them on: commit several as one snapshot, exactly once, or discard them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from .. import errors
from ..format.log_lines import logger
from ..planning.writing.staged import StagedWrite, plan_change_sets
from ..planning.writing.write import NewTableAndSchema
from ..spark.job import io as job_io
from ..storage.files.filesystem import exists
from ..transaction.changes import ChangeSet
from .run import announce_earlier, announce_replaced
from .verb import Commit, Summary, announce_commit, numbers

if TYPE_CHECKING:
    from ..catalog.lake import Lake
    from ..catalog.ledger.jobs import RegisteredJob
    from ..format.names.identifiers import FoldedName
    from ..format.snapshots import CommitRecord, CommittedSnapshot, TableSnapshot


Staged: TypeAlias = "str | Mapping[str, object] | Iterable[Staged] | None"


_DEEPEST = 32  # lists in lists


def uris_of(staged: Staged, depth: int = 0) -> list[str]:
    """Collect the URIs of staged writes from what tasks returned: results, URIs, and lists of them."""
    _check_depth(depth)
    match staged:
        case str():
            job_io.job_of_stage(staged)
            return [staged]
        case Mapping() if isinstance(staged.get("staged"), str):
            return uris_of(str(staged["staged"]))
        case Iterable() if not isinstance(staged, Mapping):
            return [uri for one in staged for uri in uris_of(one, depth + 1)]
        case _:
            raise errors.InvalidInputError(
                f"{staged!r} is not a staged write. Give the return value of a task with stage_only=True; a "
                "task that was skipped or failed returns nothing."
            )


def _check_depth(depth: int) -> None:
    if depth > _DEEPEST:
        raise errors.InvalidInputError(
            f"staged has lists in lists, more than {_DEEPEST} deep. Give the return values of tasks with "
            "stage_only=True, or a list of them."
        )


def uris_of_ended(staged: Staged, depth: int = 0) -> list[str]:
    """Do as ``uris_of``, and pass over tasks that did not succeed."""
    _check_depth(depth)
    if staged is None:
        return []
    if isinstance(staged, str | Mapping):
        return uris_of(staged)
    return [uri for one in staged for uri in uris_of_ended(one, depth + 1)]


def read_staged(lake: Lake, staged: Staged) -> list[StagedWrite]:
    """Return staged writes of a lake that wait for their commit."""
    uris = uris_of(staged)
    jobs = _jobs(lake, uris)
    seen: set[str] = set()
    for uri, job in zip(uris, jobs, strict=True):
        if uri in seen:
            raise errors.InvalidInputError(f"The staged write {uri} is given twice; give it once.")
        seen.add(uri)
        if job.released_at is not None:
            raise _released(lake, uri, job)
    return [_read(lake, uri, job) for uri, job in zip(uris, jobs, strict=True)]


def _read(lake: Lake, uri: str, job: RegisteredJob) -> StagedWrite:
    """Read a staged write; refuse documents that contradict what the catalog recorded of the job."""
    staged = job_io.read_stage(uri, lake.opened.storage_options)
    target = staged.target
    if lake.jobs.target_of(job.id) != job_io.target_of_stage(target):
        problem = f"is not the table that job {job.id} was registered for"
        raise errors.UntrustedValueError(uri, f"{target.name} in {target.root}", problem)
    return staged


def _jobs(lake: Lake, uris: list[str]) -> list[RegisteredJob]:
    """Look up the jobs of staged writes; no directory is touched that is not registered for one."""
    ids = [job_io.job_of_stage(uri) for uri in uris]
    known = lake.jobs.registered(ids)
    for uri, job_id in zip(uris, ids, strict=True):
        if job_id not in known or uri != job_io.stage_uri(known[job_id].prefix):
            raise errors.InvalidInputError(
                f"{uri} is not a staged write of this lake, whose files are below {lake.data_path}."
            )
        lake.jobs.check_directory(known[job_id])
    return [known[job_id] for job_id in ids]


def _released(lake: Lake, uri: str, job: RegisteredJob) -> errors.InvalidInputError:
    snapshot_id = lake.jobs.snapshot_of(job.id)
    when = f"{job.released_at:%Y-%m-%d %H:%M:%S} UTC"
    if snapshot_id is None:
        done = f"was discarded, or committed without rows, at {when}"
    elif snapshot_id:
        done = f"was committed at {when}, in snapshot {snapshot_id}"
    else:
        done = f"was committed at {when}, and its rows have been removed since"
    return errors.InvalidInputError(
        f"The staged write {uri} {done}. To do it again, also clear the task that staged it."
    )


def tidy_up(lake: Lake, staged: Staged) -> None:
    """Remove what only the commit needed, of the writes among ``staged`` that were committed."""
    uris = uris_of(staged)
    for uri, job in zip(uris, _jobs(lake, uris), strict=True):
        if job.released_at is not None and exists(uri, lake.opened.storage_options):
            _remove(lake, uri, job)


def discard(lake: Lake, uris: list[str]) -> list[str]:
    """Discard the staged writes that were not committed, with their files; return the URIs of those.

    One that fails does not keep the others; the first error is raised at the end, with the rest as notes.
    """
    discarded: list[str] = []
    failures: list[errors.DuckLakeError] = []
    for uri, job in zip(uris, _jobs(lake, uris), strict=True):
        try:
            is_waiting = lake.jobs.release(job.id)  # from here on no task can commit it
            is_left = is_waiting or exists(uri, lake.opened.storage_options)  # by a clean-up broken off
            if is_left and _remove(lake, uri, job) and is_waiting:
                discarded.append(uri)
        except (errors.SparkJobError, errors.UntrustedValueError) as error:
            error.add_note(
                f"The staged write {uri} was discarded, and the files that belong to its job by their names "
                "were deleted"
            )
            failures.append(error)
        except errors.StorageError as error:
            error.add_note(f"Some files of the staged write {uri}, which was discarded, may be left")
            failures.append(error)
    _raise_first(failures)
    return discarded


def _remove(lake: Lake, uri: str, job: RegisteredJob) -> bool:
    """Delete a write that waits no more; return True if its data files went, too.

    The catalog's files say if the lake has any of them: any client can write what a job's own row says.
    """
    is_free = lake.jobs.snapshot_of(job.id) is None
    delete = job_io.delete_stage if is_free else job_io.delete_stage_files
    delete(uri, lake.opened.storage_options)
    return is_free


def _raise_first(failures: Sequence[errors.DuckLakeError]) -> None:
    for other in failures[1:]:
        failures[0].add_note("; ".join([*other.__notes__, str(other)]))
    if failures:
        raise failures[0]


log = logger(__name__)


def check_given(staged: Staged) -> None:
    """Refuse nothing, and what is not a staged write."""
    if not uris_of(staged):
        raise errors.InvalidInputError(
            "There is nothing to commit: staged is empty. Give the return values of tasks with "
            "stage_only=True."
        )


def commit_staged(lake: Lake, staged: Staged, commit: Commit) -> Summary:
    """Commit staged writes, or find that an earlier try did; see ``DuckLakeCommitOperator``."""
    if commit.seen.done:
        return _earlier(lake, staged, commit.seen.done)
    announce_replaced(lake, commit.seen)
    writes = read_staged(lake, staged)
    try:
        committed = commit_writes(lake, writes, commit)
    except errors.FilesReleasedError as error:
        raise errors.InvalidInputError(f"{error} Clear the task that staged it.") from error
    except errors.TransactionConflictError:
        log.error(  # noqa: TRY400 - the exception itself is logged by Airflow
            "Nothing was committed; everything is still staged. Clear the task that staged the write to "
            "the conflicting table: it plans again."
        )
        raise
    if committed is not None and committed.is_earlier:
        return _earlier(lake, staged, committed.records)
    summary = _summary(writes, committed)
    _tidy_up(lake, staged)
    return summary


def commit_writes(lake: Lake, staged: Sequence[StagedWrite], commit: Commit) -> CommittedSnapshot | None:
    """Commit staged writes as one snapshot, in place of the rows that the key's earlier commit had added.

    Each is checked against what was committed since its own plan. None: there was nothing to commit; the
    jobs are released nevertheless, as by a commit.
    """
    staged = [_in_schema(lake, one) for one in staged]
    change_sets = [
        ChangeSet(base, changes) for base, changes in plan_change_sets(staged, _made_since(lake, staged))
    ]
    if commit.seen.replaced:
        head = lake.current_snapshot().id
        change_sets.insert(0, ChangeSet(head, lake.writes.replaced_rows(commit.seen, head)))
    job_ids = tuple(one.job_id for one in staged)
    committed = lake.committer.commit_change_sets(
        change_sets, commit.info, keyed=commit.keyed, job_ids=job_ids
    )
    if committed is None:
        for job_id in job_ids:
            lake.jobs.release(job_id)
    return committed


def _in_schema(lake: Lake, one: StagedWrite) -> StagedWrite:
    """Return a write with its new table in the schema that was to be created and exists by now."""
    target = one.target
    if not isinstance(target, NewTableAndSchema):
        return one
    try:
        found = lake.reads.new_table(target.name, target.uuid)
    except (errors.AlreadyExistsError, errors.SchemaNotFoundError):
        return one
    return replace(one, target=found)


def _made_since(lake: Lake, staged: Iterable[StagedWrite]) -> dict[FoldedName, TableSnapshot]:
    """Return the tables that were to be created and exist by now."""
    made: dict[FoldedName, TableSnapshot] = {}
    for one in staged:
        if one.creates and one.creates not in made:
            try:
                made[one.creates] = lake.table_snapshot(one.target.name)
            except errors.NotFoundError:
                continue
    return made


def _earlier(lake: Lake, staged: Staged, records: Sequence[CommitRecord]) -> Summary:
    announce_earlier(records)
    _tidy_up(lake, staged)
    ids = {record.table_id for record in records}
    return {
        "tables": [str(row.qualified) for row in lake.reads.table_rows() if row.id in ids],
        "snapshot_id": int(records[0].snapshot_id),
        "rows_added": sum(record.row_count for record in records),
        **dict.fromkeys(("rows_removed", "files_added", "bytes_added")),
        "already_committed": True,
    }


def _summary(writes: Sequence[StagedWrite], committed: CommittedSnapshot | None) -> Summary:
    tables = list(dict.fromkeys(str(one.target.name) for one in writes))
    summary = {
        "tables": tables,
        "snapshot_id": int(committed.id) if committed is not None else None,
        **numbers([one.result for one in writes]),
        "rows_removed": 0 if committed is None else sum(committed.removed.values()),
        "already_committed": False,
    }
    if committed is None:
        log.info("No rows were staged: the lake is unchanged, no snapshot was made.")
    else:
        announce_commit(log, committed, ", ".join(tables), summary)
    return summary


def _tidy_up(lake: Lake, staged: Staged) -> None:
    """Remove what only the commit needed. It has landed: no failure here may fail the task."""
    try:
        tidy_up(lake, staged)
    except errors.DuckLakeError as error:
        log.warning("Cannot remove the files that only the commit needed: %s", error)
