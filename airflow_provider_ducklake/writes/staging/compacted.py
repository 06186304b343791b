"""Commit the files of a compaction, a few bins at a time, if their sources are unchanged."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from airflow_provider_ducklake.errors import FilesGivenUpError, TransactionConflictError
from airflow_provider_ducklake.spark.job import compaction_io

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.spec.snapshots import CommitInfo, CommittedSnapshot, TableSnapshot
    from airflow_provider_ducklake.transaction.changes import MergedFile, RewrittenFile

    CompactedFile: TypeAlias = MergedFile | RewrittenFile

log = logging.getLogger(__name__)
_TRIES = 10  # each finds less to commit than the one before


@dataclass(frozen=True, slots=True)
class CommittedCompaction:
    """Files that became the lake's by one snapshot."""

    files: tuple[CompactedFile, ...]
    snapshot: CommittedSnapshot


def commit_compacted(  # noqa: PLR0913 - the last two have defaults
    lake: Lake,
    table: TableSnapshot,
    directory: str,
    info: CommitInfo,
    commit_every: int | None = None,
    *,
    job_id: str | None = None,
) -> Iterator[CommittedCompaction]:
    """Commit what has a record in a directory, ``commit_every`` bins by a snapshot (None: all by one).

    What cannot be committed any more, as rows of a source were deleted or moved, is removed with a word in
    the log. ``table`` is the one that was planned, or newer; ``job_id`` is that of the registered job whose
    directory it is. Yields what has landed.
    """
    records = compaction_io.read_records(directory, lake.storage_options)
    for part in _parts(records, commit_every or max(1, len(records))):
        committed = _commit(lake, table, part, info, job_id)
        if committed is not None:
            yield committed
        for uri in part:
            compaction_io.delete_record(uri, lake.storage_options)


def _parts(records: Mapping[str, CompactedFile], size: int) -> Iterator[dict[str, CompactedFile]]:
    uris = list(records)
    for start in range(0, len(uris), size):
        yield {uri: records[uri] for uri in uris[start : start + size]}


def _commit(
    lake: Lake,
    table: TableSnapshot,
    records: Mapping[str, CompactedFile],
    info: CommitInfo,
    job_id: str | None,
) -> CommittedCompaction | None:
    """Commit those of the files whose sources are what they were; remove the others."""
    left = list(records.values())
    for attempt in range(_TRIES):
        left = _as_planned(lake, table, left)
        if not left:
            break
        try:
            committed = lake.commit_compacted(table, left, info, job_id)
        except FilesGivenUpError:
            log.warning("A clean-up of orphaned files released %d files of %s", len(left), table.name)
            return None
        except TransactionConflictError:
            if attempt == _TRIES - 1:
                raise
            continue
        assert committed is not None
        return CommittedCompaction(tuple(left), committed)
    return None


def _as_planned(lake: Lake, table: TableSnapshot, files: list[CompactedFile]) -> list[CompactedFile]:
    """Return the files whose sources are what they were.

    The others are removed, but for those that are the lake's: a try before, which did not hear of its commit,
    made them so.
    """
    from airflow_provider_ducklake.storage.files.filesystem import delete_file  # noqa: PLC0415 - loads pyarrow

    whole = lake.as_planned(table, files)
    others = {one.file.path: one for one in files if one not in whole and one.file is not None}
    known = lake.registered_files(others.keys())  # by now: no other can become so
    for path, one in others.items():
        if path not in known:
            log.warning(
                "Discarding %s: rows of one of its %d sources were deleted or moved in the meantime",
                *(path, len(one.sources)),
            )
            delete_file(path, lake.storage_options)
    return whole
