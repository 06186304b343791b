"""Commit what several jobs staged as one snapshot, or not at all, exactly once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_provider_ducklake.catalog.committing.planned import Stage
from airflow_provider_ducklake.errors import (
    DuckLakeError,
    FilesGivenUpError,
    InvalidInputError,
    NotFoundError,
    TransactionConflictError,
)
from airflow_provider_ducklake.planning.writing.staged import plan_stages
from airflow_provider_ducklake.writes.replaced import announce_replaced
from airflow_provider_ducklake.writes.run import announce_earlier
from airflow_provider_ducklake.writes.staging.staged import read_staged, tidy_up, uris_of
from airflow_provider_ducklake.writes.verb import numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.planning.writing.staged import StagedWrite
    from airflow_provider_ducklake.spec.commit_key import CommitRecord
    from airflow_provider_ducklake.spec.names.identifiers import FoldedName
    from airflow_provider_ducklake.spec.snapshots import CommittedSnapshot, TableSnapshot
    from airflow_provider_ducklake.writes.staging.staged import Staged
    from airflow_provider_ducklake.writes.verb import Commit, Summary

log = logging.getLogger(__name__)


def check_given(staged: Staged) -> None:
    """Refuse nothing, and what is not a staged write.

    Raises:
        InvalidInputError: says which.
    """
    if not uris_of(staged):
        raise InvalidInputError(
            "There is nothing to commit: staged is empty. Give the return values of tasks with "
            "stage_only=True."
        )


def commit_staged(lake: Lake, staged: Staged, commit: Commit) -> Summary:
    """Commit staged writes, or find that an earlier try did; see ``DuckLakeCommitOperator``.

    Raises:
        InvalidInputError: the writes do not go together, or one was committed or discarded meanwhile.
        CommitError: nothing was committed, and everything is still staged.
        CommitStateUnknownError: the connection broke during COMMIT.
    """
    if commit.seen.done:
        return _earlier(lake, staged, commit.seen.done)
    announce_replaced(lake, commit.seen)
    writes = read_staged(lake, staged)
    try:
        committed = commit_writes(lake, writes, commit)
    except FilesGivenUpError as error:
        raise InvalidInputError(f"{error} Clear the task that staged it.") from error
    except TransactionConflictError:
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
    writes are given up then, as a commit would release them.

    Raises:
        InvalidInputError: the writes do not go together.
        FilesGivenUpError: one was committed or discarded meanwhile.
        CommitError: nothing was committed; the writes still can be.
        CommitStateUnknownError: the connection broke during COMMIT.
    """
    stages = [Stage(base, changes) for base, changes in plan_stages(staged, _made_since(lake, staged))]
    if commit.seen.replaced:
        head = lake.current_snapshot().id
        stages.insert(0, Stage(head, lake.replaced_rows(commit.seen, head)))
    job_ids = tuple(one.job_id for one in staged)
    committed = lake.commit_stages(stages, commit.info, keyed=commit.keyed, job_ids=job_ids)
    if committed is None:
        for job_id in job_ids:
            lake.release_job(job_id)
    return committed


def _made_since(lake: Lake, staged: Iterable[StagedWrite]) -> dict[FoldedName, TableSnapshot]:
    """Return the tables that were to be created and exist by now."""
    made: dict[FoldedName, TableSnapshot] = {}
    for one in staged:
        if one.creates and one.creates not in made:
            try:
                made[one.creates] = lake.table_snapshot(one.target.name)
            except NotFoundError:
                continue
    return made


def _earlier(lake: Lake, staged: Staged, records: Sequence[CommitRecord]) -> Summary:
    announce_earlier(records)
    _tidy_up(lake, staged)
    ids = {record.table_id for record in records}
    return {
        "tables": [str(row.qualified) for row in lake.table_rows() if row.id in ids],
        "snapshot_id": int(records[0].snapshot_id),
        "rows_added": sum(record.row_count for record in records),
        "files_added": None,
        "bytes_added": None,
        "already_committed": True,
    }


def _summary(writes: Sequence[StagedWrite], committed: CommittedSnapshot | None) -> Summary:
    tables = list(dict.fromkeys(str(one.target.name) for one in writes))
    summary = {
        "tables": tables,
        "snapshot_id": int(committed.id) if committed is not None else None,
        **numbers([one.result for one in writes]),
        "already_committed": False,
    }
    if committed is None:
        log.info("No rows were staged: the lake is unchanged, no snapshot was made.")
    else:
        log.info(
            "Committed snapshot %d: %d rows, %d data files, %d bytes to %s",
            *(summary[key] for key in ("snapshot_id", "rows_added", "files_added", "bytes_added")),
            ", ".join(tables),
        )
    return summary


def _tidy_up(lake: Lake, staged: Staged) -> None:
    """Remove what only the commit needed. It has landed: no failure here may fail the task."""
    try:
        tidy_up(lake, staged)
    except DuckLakeError as error:
        log.warning("Cannot remove the files that only the commit needed: %s", error)
