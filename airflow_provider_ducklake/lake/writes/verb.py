"""A verb and its steps: a plan, the results of its job, changes to commit, a summary.

Values flow one way. A verb holds what a user asked for. ``plan`` reads the newest snapshot and returns a
value with the job's request and the meaning of its results; ``run.py`` carries it out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from uuid6 import uuid7

from ..format.log_lines import counted, size
from ..planning.writing.write import RowChanges, WriteResult
from ..transaction.changes import ChangeSet
from ..transaction.changes_made import Replay

if TYPE_CHECKING:
    from ..catalog.committing.commit import KeyedCommit
    from ..catalog.lake import Lake
    from ..catalog.ledger.consumers import Consumed
    from ..format.snapshots import CommitInfo, CommitKey, CommitRecord, CommittedSnapshot
    from ..spark.job.request import JobRequest

Summary: TypeAlias = dict[str, Any]
UserSource: TypeAlias = Any  # a path, a mapping, or a DataFrame of a session that is there already
Resolve: TypeAlias = Callable[[UserSource], UserSource]


@dataclass(frozen=True, slots=True)
class Results:
    """What a job did: a result for each plan of its request, and the rows that it found to go, if any."""

    of_plans: tuple[WriteResult, ...] = ()
    changes: RowChanges | None = None

    @classmethod
    def of(cls, done: tuple[WriteResult, ...] | RowChanges) -> Results:
        """Return the results of a job's outcome."""
        if isinstance(done, RowChanges):
            return cls((done.updated, done.inserted), done)
        return cls(done)

    @property
    def has_files(self) -> bool:
        """Return True if a snapshot may name a file of the job."""
        deletes = self.changes is not None and bool(self.changes.deletes)
        return deletes or any(result.data_files for result in self.of_plans)

    @property
    def numbers(self) -> Summary:
        """Rows, files and bytes of all plans."""
        return numbers(self.of_plans)


def numbers(results: Sequence[WriteResult]) -> Summary:
    """Return the rows, files and bytes that results add."""
    files = [file for result in results for file in result.data_files]
    return {
        "rows_added": sum(result.rows_written for result in results),
        "files_added": len(files),
        "bytes_added": sum(file.file_size_bytes for file in files),
    }


def added(numbers: Summary) -> str:
    """Return the rows, files and bytes of a summary as a person reads them."""
    files = f"{counted(numbers['files_added'], 'file')} ({size(numbers['bytes_added'])})"
    return f"{counted(numbers['rows_added'], 'row')} in {files}"


def announce_commit(log: logging.Logger, committed: CommittedSnapshot, table: str, numbers: Summary) -> None:
    """Log what a commit did to a table: rows that went and came; a warning if none came."""
    what, removed = added(numbers), numbers["rows_removed"]
    if removed:
        what = f"replaced {counted(removed, 'row')} by {what if numbers['rows_added'] else 0}"
    level = logging.WARNING if removed and not numbers["rows_added"] else logging.INFO
    log.log(level, "Committed snapshot %d to %s: %s", committed.id, table, what)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A try of a task: for which commit, and which try it is.

    ``is_first``: no try of this run was before it, so that an earlier job of the same commit is that of a
    deleted run of the same name.
    """

    key: CommitKey
    id: str
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    """How a verb's commit is made: what its snapshot says of itself, and the key that it is made once by.

    ``job_id`` is that of the job whose files it commits. With it, and the same lake, a verb plans the same.
    ``attempt`` says which try makes it; without one, no later try finds the job.
    """

    info: CommitInfo
    keyed: KeyedCommit | None = None
    job_id: str = field(default_factory=lambda: str(uuid7()))
    attempt: Attempt | None = None

    @property
    def seen(self) -> Replay:
        """The meaning of the key's records when they were looked up."""
        return Replay() if self.keyed is None else self.keyed.seen


@dataclass(frozen=True, slots=True)
class Write:
    """What is to be committed: changes with their base snapshots, and what was consumed for them."""

    change_sets: tuple[ChangeSet, ...]
    consumed: Consumed | None = None


class PlannedWrite(Protocol):
    """A verb planned on one snapshot."""

    @property
    def request(self) -> JobRequest | None:
        """What the job is to do; None: there is nothing for one to do."""

    def write(self, lake: Lake, results: Results, seen: Replay) -> Write | None:
        """Build the changes that the results make to the lake; None: there is nothing to commit."""

    def write_again(self, lake: Lake, results: Results, seen: Replay) -> Write | None:
        """Build the changes that the same files can still make after a conflict; None: none."""

    def summary(self, results: Results, write: Write | None, committed: CommittedSnapshot | None) -> Summary:
        """Build the summary that a task hands on, and log it."""


class Verb(Protocol):
    """What a user wants, as given: nothing is looked up before ``plan``."""

    def plan(self, lake: Lake, commit: Commit, resolve: Resolve) -> PlannedWrite:
        """Plan on the newest snapshot of ``lake``; ``resolve`` completes a source that names a connection."""

    def summary_of_records(self, lake: Lake, records: Sequence[CommitRecord]) -> Summary:
        """Return the summary of a commit that was made before, as far as the catalog kept it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a verb: the snapshot, if one was made, now or by an earlier try; and the summary."""

    committed: CommittedSnapshot | None
    summary: Summary = field(default_factory=dict)
