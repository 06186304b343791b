"""Merge small files of a table, or rewrite files with many deleted rows.

The job's files lie in a directory of their own and have records: what is complete is committed also where the
job fails, or by the next try where the worker was killed; a few bins at a time, where their sources are what
they were.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from uuid6 import uuid7

from ..errors import FilesReleasedError, InvalidInputError, TransactionConflictError
from ..format.log_lines import counted, logger, size
from ..format.names.identifiers import QualifiedName, TableName
from ..format.sorting import keys_to_write_by
from ..planning.upkeep.compaction import Compaction, MergeRule, RewriteRule
from ..planning.writing.write import RowOrder, plan_write, target_of_compaction
from ..spark.job import io as compaction_io
from ..spark.job.request import CompactionSource, JobRequest, job_directory
from ..storage.files.listing import check_gone, delete_files
from .arguments import names_of, parse_at, parse_count, parse_size
from .job_life import JobLife, State, Submitter, remove_files, serving
from .resume import finish_earlier

if TYPE_CHECKING:
    from ..catalog.lake import Lake
    from ..catalog.ledger.jobs import RegisteredJob
    from ..format.snapshots import CommitInfo, CommittedSnapshot, TableSnapshot
    from ..transaction.changes import MergedFile, RewrittenFile
    from .verb import Attempt, Summary

    CompactedFile: TypeAlias = MergedFile | RewrittenFile


log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Compact:
    """Which files of a table become which; see ``DuckLakeSparkCompactionOperator`` for the arguments.

    ``filter`` and ``older_than`` go with a ``MergeRule``.
    """

    table: TableName
    rule: MergeRule | RewriteRule
    filter: str | None = None
    older_than: datetime | None = None
    commit_every: int | None = None
    sort: bool = True
    zorder_by: str | Sequence[str] = ()

    @classmethod
    def merging(
        cls,
        table: TableName,
        *,
        filter: str | None = None,  # noqa: A002 - the word for it everywhere
        older_than: datetime | str | None = None,
        **others: Any,  # noqa: ANN401 - see _shared
    ) -> Compact:
        """Return the merge of small files that an operator's arguments mean."""
        before = parse_at(older_than)
        if isinstance(before, int | str):
            raise InvalidInputError(f"older_than={before}: give an aware datetime.")
        limits, shared = _shared(**others)
        return cls(table, MergeRule(**limits), filter, before, **shared)

    @classmethod
    def rewriting(
        cls,
        table: TableName,
        *,
        delete_threshold: float | str | None = None,
        **others: Any,  # noqa: ANN401 - see _shared
    ) -> Compact:
        """Return the rewrite of files with deleted rows that an operator's arguments mean."""
        try:
            threshold = None if delete_threshold in (None, "None") else float(delete_threshold)
        except ValueError:
            raise InvalidInputError(
                f"delete_threshold is {delete_threshold!r}. Give a fraction from 0 to 1."
            ) from None
        limits, shared = _shared(**others)
        return cls(table, RewriteRule(threshold, **limits), **shared)

    def next_request(self, lake: Lake, staging_id: str) -> JobRequest | None:
        """Look for files to compact; None: there are none."""
        compaction = self.find(lake)
        table = lake.table_snapshot(self.table)
        if not compaction.bins:
            is_rewrite = isinstance(self.rule, RewriteRule)
            why = "no file has lost so many rows" if is_rewrite else "no partition has 2 small files to merge"
            log.info("%s: nothing to do – %s", table.name, why)
            return None
        verb = "rewrite" if isinstance(self.rule, RewriteRule) else "merge_adjacent"
        log.info(
            "%s: compacting %s of %s (%s) into at most %d",
            *(verb, counted(compaction.file_count, "file"), table.name),
            *(size(compaction.file_size_bytes), len(compaction.bins)),
        )
        job_id = str(uuid7())
        partition_id = None if table.partition_spec is None else table.partition_spec.id
        source = CompactionSource(compaction, staging_id, partition_id)
        plan = plan_write(table, job_directory(table.root, job_id), self._row_order(table))
        return JobRequest(job_id, source, (plan,), verb=verb)

    def find(self, lake: Lake) -> Compaction:
        """Plan the compaction: which files become which."""
        if isinstance(self.rule, RewriteRule):
            return lake.maintenance.plan_rewrite(self.table, self.rule)
        return lake.maintenance.plan_merge(
            self.table, self.rule, filter=self.filter, older_than=self.older_than
        )

    def _row_order(self, table: TableSnapshot) -> RowOrder:
        """Choose the order of rows in each file: ``zorder_by``, else the table's sort keys, else none."""
        names = tuple(table.schema.find(name, str(table.name)).name for name in names_of(self.zorder_by))
        if names or not self.sort or table.sort_spec is None:
            return RowOrder(zorder_by=names)
        return RowOrder(keys_to_write_by(table.sort_spec.fields, table.schema, str(table.name)))


def _shared(
    *,
    commit_every: int | str | None = None,
    sort: bool = True,
    zorder_by: str | Sequence[str] = (),
    **limits: int | str | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parse the given limits of a rule, and collect what merges and rewrites have in common besides."""
    read = {
        name: (parse_size if name.endswith("_size") else parse_count)(name, limits[name]) for name in limits
    }
    shared = {"commit_every": parse_count("commit_every", commit_every), "sort": sort, "zorder_by": zorder_by}
    return {name: value for name, value in read.items() if value is not None}, shared


def compact(  # noqa: PLR0913 - the last two have defaults
    verb: Compact,
    lake: Lake,
    submitter: Submitter,
    info: CommitInfo,
    attempts: Sequence[str] = (),
    *,
    attempt: Attempt | None = None,
) -> Summary:
    """Commit what earlier tries left, compact what is left to compact, and commit that.

    ``attempts`` are the ids under which the tries of this task keep their files, the last one this try's.
    """
    finished = finish_earlier(lake, submitter, attempt)
    staging_ids = [
        one.source.staging_id for one in finished.requests if isinstance(one.source, CompactionSource)
    ]
    known = lake.jobs.registered([*attempts, *staging_ids])
    committed = list(_left_behind(verb, lake, known.values(), info))
    if finished.error is not None:
        raise finished.error
    if finished.is_own:  # this try was deferred: the job that it submitted has ended
        return _summary(verb.table, committed)
    is_new = bool(attempts) and attempts[-1] not in known  # else it is of a deleted run of that name
    staging_id = attempts[-1] if is_new else str(uuid7())
    submitter.ready()
    request = verb.next_request(lake, staging_id)
    if request is not None:
        if isinstance(verb.rule, MergeRule):  # a rewrite takes no rows away
            lake.maintenance.check_may_merge()
        life = serving(staging_id, lake, submitter, request, attempt)
        life.check()
        committed += _compacted(verb, lake, life, info)
    return _summary(verb.table, committed)


def _left_behind(
    verb: Compact, lake: Lake, jobs: Collection[RegisteredJob], info: CommitInfo
) -> Iterator[CommittedCompaction]:
    """Commit files left by earlier tries that were killed before their commit."""
    for job in jobs:
        if job.released_at is None:
            log.info("An earlier try left files in %s", job.prefix)
            table = lake.table_snapshot(verb.table)
            if _is_for(lake, job, table):
                yield from _commit(verb, lake, table, job.id, info)
            lake.jobs.release(job.id)


def _is_for(lake: Lake, job: RegisteredJob, table: TableSnapshot) -> bool:
    """Return True if an earlier try compacted this table: the task may have been given another one since."""
    is_of_table = job.prefix == job_directory(table.root, job.id)
    return is_of_table and lake.jobs.target_of(job.id) == target_of_compaction(table)


def _compacted(verb: Compact, lake: Lake, life: JobLife, info: CommitInfo) -> list[CommittedCompaction]:
    """Run the job; where it fails, what is complete is committed nevertheless."""
    assert life.serves is not None
    table, staging_id = lake.table_snapshot(verb.table), life.serves
    life.register(target_of_compaction(table))
    try:
        life.run()
    except Exception:
        if life.state is State.LEFT:
            raise
        try:
            list(_commit(verb, lake, table, staging_id, info))
            lake.jobs.release(staging_id)
        except Exception as error:  # noqa: BLE001 - why the job failed counts; the next try meets this
            log.warning("The files written by the job cannot be committed: %s", error)
        raise
    committed = list(_commit(verb, lake, table, staging_id, info))
    lake.jobs.release(staging_id)
    remove_files(lake, life.request, has_files=False)
    life.end()
    return committed


def _commit(
    verb: Compact, lake: Lake, table: TableSnapshot, job_id: str, info: CommitInfo
) -> Iterator[CommittedCompaction]:
    directory = job_directory(table.root, job_id)
    for one in commit_compacted(lake, table, directory, info, verb.commit_every, job_id=job_id):
        log.info(
            "Committed snapshot %d to %s: %s in place of %d",
            *(one.snapshot.id, table.name, counted(sum(file.file is not None for file in one.files), "file")),
            sum(len(file.sources) for file in one.files),
        )
        yield one


def _summary(table: TableName, committed: Sequence[CommittedCompaction]) -> Summary:
    compacted = [file for one in committed for file in one.files]
    files = [one.file for one in compacted if one.file is not None]
    return {
        "table": str(QualifiedName.of(table)),
        "snapshot_ids": [int(one.snapshot.id) for one in committed],
        "files_removed": sum(len(one.sources) for one in compacted),
        "files_added": len(files),
        "bytes_added": sum(file.file_size_bytes for file in files),
    }


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
    records = compaction_io.read_records(directory, lake.opened.storage_options)
    for part in _parts(records, commit_every or max(1, len(records))):
        committed = _commit_part(lake, table, part, info, job_id)
        if committed is not None:
            yield committed
        for uri in part:
            compaction_io.delete_record(uri, lake.opened.storage_options)


def _parts(records: Mapping[str, CompactedFile], size: int) -> Iterator[dict[str, CompactedFile]]:
    uris = list(records)
    for start in range(0, len(uris), size):
        yield {uri: records[uri] for uri in uris[start : start + size]}


def _commit_part(
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
            committed = lake.maintenance.commit_compacted(table, left, info, job_id)
        except FilesReleasedError:
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
    whole = lake.maintenance.as_planned(table, files)
    others = {one.file.path: one for one in files if one not in whole and one.file is not None}
    known = lake.reads.registered_files(others.keys())  # by now: no other can become so
    lost = [path for path in others if path not in known]
    for path in lost:
        log.warning(
            "Discarding %s: rows of one of its %d sources were deleted or moved in the meantime",
            *(path, len(others[path].sources)),
        )
    check_gone(delete_files(lost, lake.opened.storage_options, below=lake.opened.catalog.only_below))
    return whole
