"""Commit writes that several jobs staged, as one snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.catalog.committing.planned import Stage
from airflow_provider_ducklake.errors import NotFoundError
from airflow_provider_ducklake.planning.writing.staged import plan_stages

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_provider_ducklake.catalog.committing.planned import KeyedCommit
    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.planning.writing.staged import StagedWrite
    from airflow_provider_ducklake.spec.names.identifiers import FoldedName
    from airflow_provider_ducklake.spec.snapshots import (
        CommitInfo,
        CommittedSnapshot,
        TableSnapshot,
    )


def commit_staged(
    lake: Lake, staged: Sequence[StagedWrite], info: CommitInfo, keyed: KeyedCommit
) -> CommittedSnapshot | None:
    """Commit staged writes as one snapshot, in place of the rows that the key's earlier commit had added.

    Each is checked against what was committed since its own plan. None: there was nothing to commit; the
    writes are given up then, as a commit would release them.

    Raises:
        InvalidInputError: the writes do not go together.
        FilesGivenUpError: one was committed or discarded meanwhile.
        CommitError: as the words say; nothing landed, and the writes can still be committed.
        CommitStateUnknownError: the connection broke during COMMIT.
    """
    stages = [Stage(base, changes) for base, changes in plan_stages(staged, _made_since(lake, staged))]
    if keyed.seen.replaced:
        head = lake.current_snapshot().id
        stages.insert(0, Stage(head, lake.replaced_rows(keyed.seen, head)))
    job_ids = tuple(one.job_id for one in staged)
    committed = lake.commit_stages(stages, info, keyed=keyed, job_ids=job_ids)
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
