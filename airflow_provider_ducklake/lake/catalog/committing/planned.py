"""Planned commits: changes, the snapshots they were planned on, and the key that makes them once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.spec.snapshots import OnClear
from airflow_provider_ducklake.lake.transaction.changes import ordered
from airflow_provider_ducklake.lake.transaction.changes_made import Replay
from airflow_provider_ducklake.lake.transaction.declared import Needs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from airflow_provider_ducklake.lake.catalog.ledger.consumers import Consumed
    from airflow_provider_ducklake.lake.spec.snapshots import CommitInfo, CommitKey, JsonValue, SnapshotId
    from airflow_provider_ducklake.lake.transaction.changes import Change


@dataclass(frozen=True, slots=True)
class KeyedCommit:
    """A commit that is to be made once; ``seen`` is what its key's records said when it was planned."""

    key: CommitKey
    on_clear: OnClear = OnClear.REPLACE
    seen: Replay = field(default_factory=Replay)


@dataclass(frozen=True, slots=True)
class Stage:
    """Changes that were planned on snapshot ``base``: they conflict with what came after it.

    ``unused`` are files (absolute paths) that nobody needs once they are committed.
    """

    base: SnapshotId
    changes: Collection[Change]
    unused: Collection[str] = ()


@dataclass(frozen=True)
class PlannedCommit:
    """Stages that become one snapshot, what they say of themselves, and how to make them once.

    ``releases`` are the ids of registered jobs whose files these are; those ``open_jobs`` have more of them,
    and go on. ``consumed`` is what the changes were made of.
    """

    stages: Sequence[Stage]
    info: CommitInfo
    keyed: KeyedCommit | None = None
    releases: Sequence[str] = ()
    open_jobs: Sequence[str] = ()
    consumed: Consumed | None = None

    @property
    def makes_snapshot(self) -> bool:
        """Whether anything changes that has versions; what is consumed is noted without a snapshot, too."""
        return any(change.makes_snapshot for change in self.changes)

    @property
    def extra(self) -> Mapping[str, JsonValue] | None:
        """What ``commit_extra_info`` gets: what the author says, and by which key the commit is made once."""
        if self.keyed is None:
            return self.info.extra
        return {**(self.info.extra or {}), **self.keyed.key.said}

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """The changes of all stages, in the order of their effects."""
        return ordered([change for stage in self.stages for change in stage.changes])

    @cached_property
    def needs(self) -> Needs:
        """What they have to know under the lock."""
        return Needs.of_all(change.needs for change in self.changes)
