"""Has this commit been made already? The answer, from the records of its key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.errors import ZombieCommitError
from airflow_provider_ducklake.lake.spec.snapshots import CommitKey, OnClear
from airflow_provider_ducklake.lake.transaction.table_history import history_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from airflow_provider_ducklake.lake.spec.snapshots import CommitRecord, RestoredTable, TableId


@dataclass(frozen=True, slots=True)
class Replay:
    """``done``: the commit that counts is there, nothing is to be written; ``replaced``: rows to go.

    The records of ``replaced`` name the tables in which the rows are to be looked for.
    """

    done: tuple[CommitRecord, ...] = ()
    replaced: tuple[CommitRecord, ...] = ()


def replay_of(
    records: Sequence[CommitRecord],
    key: CommitKey,
    on_clear: OnClear,
    restores: Collection[RestoredTable] = (),
) -> Replay:
    """Return what the records of a key mean for its next commit.

    ``restores`` are those of all tables; where all records are of the key's own generation they say nothing.

    Raises:
        ZombieCommitError: the task was cleared and has committed again since we started.
    """
    if not records:
        return Replay()
    newest = max(record.generation for record in records)
    last = tuple(record for record in records if record.generation == newest)
    if newest > key.generation:
        raise ZombieCommitError(key.generation, newest, last[0].snapshot_id)
    if newest == key.generation or on_clear is OnClear.SKIP:
        return Replay(done=last)
    return Replay(replaced=tuple(standing(records, restores)) if on_clear is OnClear.REPLACE else ())


def standing(records: Sequence[CommitRecord], restores: Collection[RestoredTable]) -> Iterator[CommitRecord]:
    """Yield for each table the records of the newest generation that its history has gone through.

    Earlier generations were replaced by it, or were to stay. One that a restore has undone does not count:
    its rows are gone, and those that it had replaced are back.
    """
    for table_id in _tables(records, restores):
        spans = list(history_of(table_id, restores))
        counting = [(span, record) for span in spans for record in records if span.holds(record.snapshot_id)]
        newest = max((record.generation for _, record in counting), default=None)
        for span, record in counting:
            if record.generation == newest and record.table_id == span.table_id:
                yield replace(record, table_id=table_id)


def _tables(records: Sequence[CommitRecord], restores: Collection[RestoredTable]) -> list[TableId]:
    """Return the tables that may have rows of the commits: those that wrote them, and their heirs."""
    found = {record.table_id for record in records if record.table_id is not None}
    found |= {one.table_id for one in restores if one.is_new}
    return sorted(found - {one.source_id for one in restores if one.is_new})
