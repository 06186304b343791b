"""A micro-batch of a streaming query: files whose rows are committed exactly once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ducklake.spec.commit_key import CommitKey

if TYPE_CHECKING:
    from airflow_provider_ducklake.planning.writing.write import WriteResult


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """What a job wrote of one batch, in a directory of the table named by ``job_id``.

    ``query_id`` is the query's in its checkpoint. Spark numbers the batches from 0, and runs one again, with
    the same rows, until it has noted that it is done.
    """

    query_id: str
    batch_id: int
    job_id: str
    result: WriteResult

    @property
    def key(self) -> CommitKey:
        """The key of the batch's commit, the same one whichever task makes it."""
        return CommitKey(("stream", self.query_id, self.batch_id))
