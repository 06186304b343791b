"""Has this commit been made already? The answer, from the records of its key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import ZombieCommitError
from airflow_provider_ducklake.spec.commit_key import CommitKey, OnClear

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_ducklake.spec.commit_key import CommitRecord


@dataclass(frozen=True, slots=True)
class Replay:
    """``done``: the commit that counts is there, nothing is to be written; ``replaced``: rows to go."""

    done: tuple[CommitRecord, ...] = ()
    replaced: tuple[CommitRecord, ...] = ()


def replay_of(records: Sequence[CommitRecord], key: CommitKey, on_clear: OnClear) -> Replay:
    """Return what the records of a key mean for its next commit.

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
    return Replay(replaced=last if on_clear is OnClear.REPLACE else ())
