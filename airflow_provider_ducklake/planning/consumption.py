"""What a consumer is to consume next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_ducklake.spec.commit_key import CommitKey
    from airflow_provider_ducklake.spec.consumption import Consumption
    from airflow_provider_ducklake.spec.ids import SnapshotId, TableId


@dataclass(frozen=True, slots=True)
class Log:
    """What a consumer has consumed, as the task with ``key`` sees it.

    ``starts_over``: what is there under the key was left by a run of the same name that was deleted since.
    """

    entries: tuple[Consumption, ...]
    key: CommitKey
    starts_over: bool = False

    @property
    def done(self) -> tuple[Consumption, ...]:
        """What an earlier try of this very task consumed: nothing is left to do."""
        if self.starts_over:
            return ()
        return tuple(one for one in self._own if one.generation == self.key.generation)

    @property
    def earlier(self) -> tuple[Consumption, ...]:
        """What the task consumed before a person cleared it."""
        done = self.done
        return tuple(one for one in self._own if one not in done)

    @property
    def _own(self) -> tuple[Consumption, ...]:
        return tuple(one for one in self.entries if one.commit_key == self.key.digest)

    def mark(self, table_id: TableId) -> SnapshotId | None:
        """Return the snapshot up to which a table was consumed; None: never."""
        return max((one.upto for one in self.entries if one.table_id == table_id), default=None)

    def again(self) -> SnapshotId | None:
        """Return the snapshot to read if the task is to consume again what it had consumed."""
        return max((one.upto for one in self.earlier), default=None)

    def after(self, table_id: TableId, *, again: bool) -> SnapshotId | None:
        """Return the snapshot after which changes of a table are to be consumed; None: all it holds."""
        earlier = [one for one in self.earlier if one.table_id == table_id]
        return earlier[-1].after if again and earlier else self.mark(table_id)


def changed(ranges: Iterable[Consumption]) -> tuple[Consumption, ...]:
    """Return the ranges with a snapshot in them: others need no note."""
    return tuple(one for one in ranges if one.after is None or one.after < one.upto)
