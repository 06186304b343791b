"""Commit keys: what makes two commits the same one, the task and its generation.

See ``docs/adr/0005-commit-key.md``.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.spec.names.identifiers import is_storable

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_provider_ducklake.spec.ids import SnapshotId, TableId

FIRST_GENERATION = 1  # lower ones are those of a run of the same name that somebody has deleted since


class OnClear(StrEnum):
    """What a task that was cleared does with the rows that it committed before."""

    REPLACE = "replace"
    APPEND = "append"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class CommitKey:
    """The name of one commit.

    ``names`` say who commits: in Airflow namespace, DAG, run, task, map index and part. ``generation`` is the
    same for all retries of a task and rises each time a person clears it.
    """

    names: tuple[str | int, ...]
    generation: int = FIRST_GENERATION

    def __post_init__(self) -> None:
        """Refuse names that cannot be stored."""
        if not all(is_storable(name) for name in self.names if isinstance(name, str)):
            raise InvalidInputError(
                f"The commit key {self.names!r} holds a NUL character or an unpaired surrogate."
            )

    @property
    def digest(self) -> str:
        """SHA-256 of the names, 64 hexadecimal digits: the key in the catalog."""
        text = json.dumps(self.names, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """What one commit did to one table; ``row_count`` rows got row ids from ``row_id_start`` on.

    ``table_id`` is None for a commit that added no rows.
    """

    generation: int
    table_id: TableId | None
    snapshot_id: SnapshotId
    row_id_start: int
    row_count: int
    committed_at: datetime
