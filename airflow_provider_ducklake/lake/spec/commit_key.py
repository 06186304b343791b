"""Commit keys: what makes two commits the same one, the task and its generation.

See ``docs/adr/0005-commit-key.md``.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.spec.names.identifiers import is_storable

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_provider_ducklake.lake.spec.ids import SnapshotId, TableId
    from airflow_provider_ducklake.lake.spec.snapshots import JsonValue

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

    @property
    def said(self) -> dict[str, JsonValue]:
        """The part of ``commit_extra_info`` that says which commit a snapshot is; see ``is_said_in``."""
        return {_KEY: list(self.names), _GENERATION: self.generation}


def is_said_in(extra: str | None, digest: str, generation: int) -> bool:
    """Whether ``commit_extra_info`` says that its snapshot is the commit of a key in a generation.

    Anybody may write anything there. A generation below the first had another number when it committed.

    >>> extra = '{"commit_key": ["a", 1], "commit_generation": 2}'
    >>> [is_said_in(extra, CommitKey(names).digest, 2) for names in (("a", 1), ("b", 1))]
    [True, False]
    """
    try:
        names, said = _said_by(json.loads(extra or "null"))
        is_key = CommitKey(tuple(names)).digest == digest
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False
    return is_key and (said in (None, generation) or generation < FIRST_GENERATION)


def _said_by(extra: Any) -> tuple[list[str | int], int | None]:  # noqa: ANN401 - JSON of anybody
    """Return names and generation, which older commits say in other places."""
    if _KEY in extra:
        return extra[_KEY], extra.get(_GENERATION)
    if "stream" in extra:
        return ["stream", extra["stream"]["query_id"], extra["stream"]["batch_id"]], None
    airflow = extra["airflow"]
    executed = [airflow["operator"]] if "operator" in airflow else []
    return [*(airflow[name] for name in _AIRFLOW_NAMES), *executed], airflow["generation"]


_KEY, _GENERATION = "commit_key", "commit_generation"  # in commit_extra_info
_AIRFLOW_NAMES = ("namespace", "dag_id", "run_id", "task_id", "map_index", "part")


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """What one commit did to one table; ``row_count`` rows got row ids from ``row_id_start`` on.

    ``table_id`` is None for a commit that added no rows. Not ``is_confirmed``: its snapshot has expired, so
    that only the record says that it was this commit.
    """

    generation: int
    table_id: TableId | None
    snapshot_id: SnapshotId
    row_id_start: int
    row_count: int
    committed_at: datetime
    is_confirmed: bool = field(default=True, compare=False)
