"""Decide what a consumer consumes next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from airflow_provider_ducklake.lake.errors import ChangesUndoneError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_provider_ducklake.lake.spec.snapshots import (
        CommitKey,
        Consumption,
        RestoredTable,
        SnapshotId,
        TableId,
    )


class IsUnchanged(Protocol):
    """Whether a table is known to have been the same at two snapshots, the older one first."""

    def __call__(self, table_id: TableId, after: SnapshotId, upto: SnapshotId) -> bool: ...


@dataclass(frozen=True, slots=True)
class Stretch:
    """Changes to be consumed at once: those of a table after one snapshot, up to another.

    ``after`` None: all that it holds. ``marked_at`` is the consumer's mark then: another one than ``upto``
    where the changes are those of an older table, in whose place a restore created the one that is read.
    """

    table_id: TableId
    after: SnapshotId | None
    upto: SnapshotId
    marked_at: SnapshotId


@dataclass(frozen=True, slots=True)
class Log:
    """What a consumer has consumed, as the task with ``key`` sees it, and the restores of all tables."""

    entries: tuple[Consumption, ...]
    key: CommitKey
    restores: tuple[RestoredTable, ...] = ()

    @property
    def done(self) -> tuple[Consumption, ...]:
        """What an earlier try of this very task consumed: nothing is left to do."""
        return tuple(one for one in self._own if one.generation == self.key.generation)

    @property
    def earlier(self) -> tuple[Consumption, ...]:
        """What the task consumed before a person cleared it."""
        done = self.done
        return tuple(one for one in self._own if one not in done)

    @property
    def _own(self) -> tuple[Consumption, ...]:
        return tuple(one for one in self.entries if one.commit_key == self.key.digest)

    def again(self) -> SnapshotId | None:
        """Return the snapshot to read if the task is to consume again what it had consumed."""
        return max((one.upto for one in self.earlier), default=None)

    def next(
        self, table_id: TableId, upto: SnapshotId, is_unchanged: IsUnchanged, name: str, *, again: bool
    ) -> Stretch:
        """Return the changes of a table to consume next, up to a snapshot at most.

        A restore creates a table again whose schema was dropped. The changes of the one before come first,
        as far as they are in the new one; the mark goes over to that as it was created.

        Raises:
            ChangesUndoneError: the consumer has consumed changes that are not in it.
        """
        earlier = [one for one in self.earlier if one.table_id == table_id]
        after = earlier[-1].after if again and earlier else self._mark(table_id, name)
        if after is None:
            return Stretch(table_id, None, upto, upto)
        for one in creations(table_id, self.restores):
            if one.restored_at <= after:
                continue
            if not is_unchanged(one.source_id, min(after, one.as_of), max(after, one.as_of)):
                if after > one.as_of:
                    raise ChangesUndoneError(name, after, one.restored_at)
                return Stretch(one.source_id, after, one.as_of, one.restored_at)
            after = one.restored_at
        return Stretch(table_id, after, upto, upto)

    def _mark(self, table_id: TableId, name: str) -> SnapshotId | None:
        """Return the snapshot up to which a table, or one whose place it took, was consumed; None: never."""
        kin = self._origin(table_id)
        newest = max(
            (one for one in self.entries if self._origin(one.table_id) == kin),
            key=lambda one: one.upto,
            default=None,
        )
        if newest is None:
            return None
        line, line_of_newest = (_line(one, self.restores) for one in (table_id, newest.table_id))
        if newest.table_id not in line and table_id not in line_of_newest:
            raise ChangesUndoneError(name, newest.upto, creations(table_id, self.restores)[-1].restored_at)
        return newest.upto

    def _origin(self, table_id: TableId) -> TableId:
        return _line(table_id, self.restores)[0]


def creations(table_id: TableId, restores: Iterable[RestoredTable]) -> Sequence[RestoredTable]:
    """Return the restores that created a table in the place of another, and that one, oldest first."""
    created = {one.table_id: one for one in restores if one.is_new}
    found: list[RestoredTable] = []
    while table_id in created:
        found.insert(0, created[table_id])
        table_id = found[0].source_id
    return found


def _line(table_id: TableId, restores: Iterable[RestoredTable]) -> list[TableId]:
    """Return the ids of the tables that took each other's place, oldest first, up to the one given."""
    return [*(one.source_id for one in creations(table_id, restores)), table_id]


def changed(ranges: Iterable[Consumption]) -> tuple[Consumption, ...]:
    """Return the ranges with a snapshot in them: others need no note."""
    return tuple(one for one in ranges if one.after is None or one.after < one.upto)
