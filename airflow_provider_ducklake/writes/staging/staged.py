"""Staged writes as tasks return them: which they are, whether they can be committed, what is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from airflow_provider_ducklake.errors import (
    DuckLakeError,
    InvalidInputError,
    SparkJobError,
    StorageError,
    UntrustedValueError,
)
from airflow_provider_ducklake.planning.writing.write import NewTable
from airflow_provider_ducklake.spark.job import job_io

if TYPE_CHECKING:
    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.catalog.ledger.jobs import RegisteredJob
    from airflow_provider_ducklake.planning.writing.staged import StagedWrite, Target

Staged: TypeAlias = "str | Mapping[str, object] | Iterable[Staged] | None"


def uris_of(staged: Staged) -> list[str]:
    """Return where staged writes lie, for what tasks returned: results, URIs, and lists of them.

    Raises:
        InvalidInputError: something else is among them, as the None of a task that did not succeed.
    """
    match staged:
        case str():
            job_io.job_of_stage(staged)
            return [staged]
        case Mapping() if isinstance(staged.get("staged"), str):
            return uris_of(str(staged["staged"]))
        case Iterable() if not isinstance(staged, Mapping):
            return [uri for one in staged for uri in uris_of(one)]
        case _:
            raise InvalidInputError(
                f"{staged!r} is not a staged write. Give the return value of a task with stage_only=True; a "
                "task that was skipped or failed returns nothing."
            )


def uris_of_ended(staged: Staged) -> list[str]:
    """Do as ``uris_of``, and pass over tasks that did not succeed."""
    if staged is None:
        return []
    if isinstance(staged, str | Mapping):
        return uris_of(staged)
    return [uri for one in staged for uri in uris_of_ended(one)]


def read_staged(lake: Lake, staged: Staged) -> list[StagedWrite]:
    """Return staged writes of a lake that wait for their commit.

    Raises:
        InvalidInputError: one is not a staged write of this lake, is given twice, or was committed or
            discarded.
        StorageError: a file of one is missing.
        UntrustedValueError: its documents say something else than the catalog, or name what no job writes.
    """
    uris = uris_of(staged)
    jobs = _jobs(lake, uris)
    seen: set[str] = set()
    for uri, job in zip(uris, jobs, strict=True):
        if uri in seen:
            raise InvalidInputError(f"The staged write {uri} is given twice; give it once.")
        seen.add(uri)
        if job.released_at is not None:
            raise _released(lake, uri, job)
    return [_read(lake, uri, job) for uri, job in zip(uris, jobs, strict=True)]


def _read(lake: Lake, uri: str, job: RegisteredJob) -> StagedWrite:
    """Return a staged write; the catalog knows what it is for, and its documents have to say the same."""
    staged = job_io.read_stage(uri, lake.storage_options)
    target, noted = staged.target, lake.target_of_job(job.id)
    if noted is None and not _is_table_of(lake, target):
        problem = (
            f"the catalog does not have in this form. An older release registered job {job.id} and did not "
            "record its table: clear the task that staged it"
        )
        raise UntrustedValueError(uri, f"{target.name} in {target.root}", problem)
    if noted not in (None, job_io.target_of_stage(target)):
        problem = f"is not the table that job {job.id} was registered for"
        raise UntrustedValueError(uri, f"{target.name} in {target.root}", problem)
    return staged


def _is_table_of(lake: Lake, target: Target) -> bool:
    """Whether the lake has the very table, by its id, of which a directory is the job's own."""
    if isinstance(target, NewTable):
        return False
    row = next((one for one in lake.table_rows() if one.id == target.table_id), None)
    found = None if row is None else (row.uuid, row.qualified, row.root(lake.data_path))
    return found == (target.table_uuid, target.name, target.root)


def _jobs(lake: Lake, uris: list[str]) -> list[RegisteredJob]:
    """Return the jobs of staged writes; only directories that the lake knows are ever touched.

    Raises:
        InvalidInputError: one is not a staged write of this lake.
        UntrustedValueError: the catalog has the directory of one outside the data path.
    """
    ids = [job_io.job_of_stage(uri) for uri in uris]
    known = lake.registered_jobs(ids)
    for uri, job_id in zip(uris, ids, strict=True):
        if job_id not in known or uri != job_io.stage_uri(known[job_id].prefix):
            raise InvalidInputError(
                f"{uri} is not a staged write of this lake, whose files are below {lake.data_path}."
            )
        lake.check_writable(known[job_id].prefix)
    return [known[job_id] for job_id in ids]


def _released(lake: Lake, uri: str, job: RegisteredJob) -> InvalidInputError:
    snapshot_id = lake.snapshot_of_job(job.id)
    when = f"{job.released_at:%Y-%m-%d %H:%M:%S} UTC"
    if snapshot_id is None:
        done = f"was discarded, or committed without rows, at {when}"
    elif snapshot_id:
        done = f"was committed at {when}, in snapshot {snapshot_id}"
    else:
        done = f"was committed at {when}, and its rows have been removed since"
    return InvalidInputError(
        f"The staged write {uri} {done}. To do it again, also clear the task that staged it."
    )


def tidy_up(lake: Lake, staged: Staged) -> None:
    """Remove what only the commit needed, of the writes among ``staged`` that were committed.

    Raises:
        InvalidInputError: one is not a staged write of this lake.
        StorageError: a file cannot be deleted.
    """
    uris = uris_of(staged)
    for uri, job in zip(uris, _jobs(lake, uris), strict=True):
        if job.released_at is not None and job_io.has_stage(uri, lake.storage_options):
            _remove_released(lake, uri, job)


def discard(lake: Lake, uris: list[str]) -> list[str]:
    """Give up the staged writes that were not committed, and remove their files; return which they were.

    One that fails does not keep the others; the first error is raised at the end, with the rest as notes.

    Raises:
        InvalidInputError: one is not a staged write of this lake.
        SparkJobError, UntrustedValueError: a document of one is damaged; its files are removed all the same.
        StorageError: files cannot be removed.
    """
    discarded: list[str] = []
    errors: list[DuckLakeError] = []
    for uri, job in zip(uris, _jobs(lake, uris), strict=True):
        try:
            if lake.release_job(job.id):  # from here on nobody can commit it
                discarded.append(uri)
                job_io.delete_stage(uri, lake.storage_options)
            elif job_io.has_stage(uri, lake.storage_options):
                _remove_released(lake, uri, job)
        except (SparkJobError, UntrustedValueError) as error:
            error.add_note(
                f"The staged write {uri} was discarded, and the files that belong to its job by their names "
                "were deleted"
            )
            errors.append(error)
        except StorageError as error:
            error.add_note(f"Some files of the staged write {uri}, which was discarded, may be left")
            errors.append(error)
    _raise_first(errors)
    return discarded


def _raise_first(errors: Sequence[DuckLakeError]) -> None:
    for other in errors[1:]:
        errors[0].add_note("; ".join([*other.__notes__, str(other)]))
    if errors:
        raise errors[0]


def _remove_released(lake: Lake, uri: str, job: RegisteredJob) -> None:
    """Finish a clean-up that was broken off: the catalog says whether the data files are the lake's."""
    if lake.snapshot_of_job(job.id) is None:
        job_io.delete_stage(uri, lake.storage_options)
    else:
        job_io.delete_stage_files(uri, lake.storage_options)
