"""Commit planned changes to an open lake, checked against the lake's options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.catalog.committing.commit import commit
from airflow_provider_ducklake.lake.catalog.committing.planned import KeyedCommit, PlannedCommit, Stage
from airflow_provider_ducklake.lake.catalog.dialects.retry import DEFAULT_RETRY, RetryPolicy
from airflow_provider_ducklake.lake.catalog.snapshot import read
from airflow_provider_ducklake.lake.spec.options import Options

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from airflow_provider_ducklake.lake.catalog.ledger.consumers import Consumed
    from airflow_provider_ducklake.lake.catalog.open_lake import OpenLake
    from airflow_provider_ducklake.lake.spec.snapshots import CommitInfo, CommittedSnapshot, SnapshotId
    from airflow_provider_ducklake.lake.transaction.changes import Change


class Committer:
    """Commits to one lake."""

    def __init__(self, lake: OpenLake) -> None:
        self._lake = lake

    def commit(
        self,
        base: SnapshotId,
        changes: Iterable[Change],
        info: CommitInfo,
        *,
        retry: RetryPolicy = DEFAULT_RETRY,
        keyed: KeyedCommit | None = None,
    ) -> CommittedSnapshot | None:
        """Commit changes that were planned on snapshot ``base``; see ``catalog.commit``.

        Raises:
            InvalidInputError: the lake demands a commit message and there is none.
        """
        planned = PlannedCommit((Stage(base, tuple(changes)),), info, keyed)
        self.demand_message(planned)
        return self.commit_planned(planned, retry)

    def commit_stages(
        self,
        stages: Sequence[Stage],
        info: CommitInfo,
        *,
        keyed: KeyedCommit | None = None,
        job_ids: Collection[str] = (),
        consumed: Consumed | None = None,
    ) -> CommittedSnapshot | None:
        """Commit changes planned on several snapshots as one; each is checked against what followed its own.

        The commit releases the jobs that wrote the files; where nothing is to be committed they stay as they
        are. What is ``consumed`` is noted in the same transaction, also without changes.

        Raises:
            InvalidInputError: the lake demands a commit message and there is none.
            FilesReleasedError: a job was released before.
        """
        planned = PlannedCommit(tuple(stages), info, keyed, releases=tuple(job_ids), consumed=consumed)
        self.demand_message(planned)
        return self.commit_planned(planned)

    def demand_message(self, planned: PlannedCommit) -> None:
        """Refuse a snapshot without a message where the lake demands one.

        Raises:
            InvalidInputError: there is none.
        """
        if planned.makes_snapshot and planned.info.message is None:
            with self._lake.reading() as connection:
                rows = read.option_rows(connection, self._lake.catalog.tables)
            planned.info.check(Options.effective(rows))

    def commit_planned(
        self, planned: PlannedCommit, retry: RetryPolicy = DEFAULT_RETRY
    ) -> CommittedSnapshot | None:
        """Commit what was planned, and checked against the lake's options."""
        self._lake.refuse_unwritable()
        with self._lake.translated():
            committed = commit(self._lake.catalog, planned, self._lake.locate, retry)
        if committed is not None:
            self._lake.tell_written(planned.changes)
        return committed
