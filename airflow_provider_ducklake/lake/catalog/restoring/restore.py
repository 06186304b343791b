"""Restore a table, a schema or the whole lake to an older snapshot, as one new snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING
from uuid import uuid4

from ...errors import CommitStateUnknownError
from ...format.files import DataFile, LiveDataFile, TableColumnStats
from ...format.log_lines import counts, logger, size
from ...format.names.paths import relative_to
from ...format.partitioning import hive_folders
from ...format.schema import Column, TableSchema
from ...format.snapshots import ColumnId, CommitInfo, CommittedSnapshot
from ...planning.upkeep.restore import RewriteBin, plan_bins, without_bounds
from ...planning.writing.write import ParquetSettings, target_of_write
from ...transaction.changes import Change, ChangeSet, DropTable, RestoredFile, RestoreRows
from ..committing.commit import Committer, KeyedCommit
from ..committing.delete_writer import remove_unused
from ..drafting.rows import delete_changes, end_files, read_targets
from ..ledger import jobs, restores
from .plan import Planned, PlannedTable, RestoreRequest, RestoreResult, find_restore
from .read_restore import TableHistory, with_statistics

if TYPE_CHECKING:
    from ..open_lake import OpenLake

log = logger(__name__)


def restore(
    lake: OpenLake,
    committer: Committer,
    request: RestoreRequest,
    info: CommitInfo,
    keyed: KeyedCommit | None = None,
) -> RestoreResult:
    """Restore what is asked for; the same request under the same key is carried out once."""
    if keyed is not None and keyed.seen.done:
        return RestoreResult(None, committed=CommittedSnapshot.earlier(keyed.seen.done))
    planned = find_restore(lake.locate, lake.catalog, request)
    if planned.has_changes or planned.unchanged:
        restores.prepare(lake.catalog, dry_run=request.dry_run)
    if request.dry_run or not (planned.has_changes or planned.unchanged):
        _log(planned, request)
        return planned.result(dry_run=request.dry_run)
    work = _Work(lake)
    change_set = work.change_set(planned)
    info = replace(info, extra={**(info.extra or {}), **planned.noted})
    try:
        committed = committer.commit_change_sets([change_set], info, keyed=keyed, job_ids=work.job_ids)
    except CommitStateUnknownError:
        raise
    except Exception:  # did not land; an interruption may follow COMMIT and keeps the files
        work.discard()
        raise
    if committed is not None and committed.is_earlier:
        work.discard()
    _log(planned, request)
    return replace(planned.result(), committed=committed)


@dataclass(slots=True)
class _Work:
    """A restore under way: the files that it has written, and the jobs that protect them."""

    lake: OpenLake
    paths: list[str] = field(default_factory=list)
    job_ids: list[str] = field(default_factory=list)

    def change_set(self, planned: Planned) -> ChangeSet:
        """Write what has to be written, and return what is to be committed."""
        try:
            return ChangeSet(planned.head.id, tuple(self._changes(planned)))
        except BaseException:
            self.discard()
            raise

    def _changes(self, planned: Planned) -> Iterator[Change]:
        yield from (DropTable(row.id, row.qualified) for row in planned.dropped)
        yield from planned.others
        yield from planned.unchanged
        for table in planned.tables:
            yield from self._changes_of_table(table)

    def _changes_of_table(self, planned: PlannedTable) -> Iterator[Change]:
        history = planned.history
        table = history.target.table
        files = tuple(self._new_files(planned)) if planned.makes_files else ()
        rows = RestoreRows(
            planned.ref, planned.name, table.snapshot.id, table.schema, files, retyped=history.retyped
        )
        if history.counters is None:
            yield replace(rows, inlined=history.inlined, column_stats=_statistics(history))
        else:
            yield replace(rows, next_row_id=history.counters.next_row_id, heir_of=planned.history.row.id)
        yield from planned.definition
        if history.current is not None:
            yield from self._ends(planned)

    def _ends(self, planned: PlannedTable) -> Iterator[Change]:
        assert planned.history.current is not None
        current, files = planned.history.current.table, planned.files
        if files.ended:
            yield end_files(current, files.ended)
        if files.shortened:
            with self.lake.catalog.dialect.reading() as connection:
                targets = read_targets(connection, self.lake.catalog, current, list(files.shortened))
            yield from delete_changes(targets, files.shortened, (), self.lake.locate)

    def _new_files(self, planned: PlannedTable) -> Iterator[RestoredFile]:
        """Copy and write the files of a table, under the protection of a registered job."""
        from ...storage.files.parallel import in_threads

        table, files, root = planned.history.target.table, planned.files, planned.root
        settings = ParquetSettings.of_options(table.options)
        job_id, numbers = str(uuid4()), count()
        prefix = f"{root}ducklake-{job_id}"
        jobs.register(self.lake.catalog, job_id, prefix, target_of_write(prefix))
        self.job_ids.append(job_id)

        def path_in(folders: str) -> str:
            path = f"{root}{folders}ducklake-{job_id}-{next(numbers)}.parquet"
            self.paths.append(path)
            return path

        def next_path(like: str) -> str:
            return path_in(hive_folders(like.removeprefix(table.root)))

        def rewrite(files: RewriteBin) -> list[DataFile]:
            like = files.pairs[0].target.path
            return planned.restoring.rewrite(files, lambda: next_path(like), settings)

        copies = [(file.path, next_path(file.path)) for file in files.copied]
        in_threads(lambda ends: planned.restoring.copy(*ends), copies)
        with self.lake.catalog.dialect.reading() as connection:
            known = with_statistics(connection, self.lake.catalog, table.table_id, files.copied)
        if planned.new is not None:
            known = [without_bounds(file, planned.history.retyped) for file in known]
        for file, (_, path) in zip(known, copies, strict=True):
            yield _copied(file, path, root, has_new_mapping=planned.new is not None)
        bins = plan_bins(files.rewritten, table.options.integer("target_file_size"))
        for one, written in zip(bins, in_threads(rewrite, bins), strict=True):
            for new in written:
                yield RestoredFile(_below(new, root), partition_id=one.partition_id)
        if planned.new is not None:
            for new in planned.restoring.write_inlined(planned.history.returning, path_in, settings):
                yield RestoredFile(_below(new, root))

    def discard(self) -> None:
        """Remove what was written: nothing landed."""
        remove_unused(self.paths, self.lake.locate)
        for job_id in self.job_ids:
            jobs.release(self.lake.catalog, job_id)


def _below(file: DataFile, root: str) -> DataFile:
    return replace(file, path=relative_to(file.path, root).path or "")


def _copied(file: LiveDataFile, path: str, root: str, *, has_new_mapping: bool) -> RestoredFile:
    """Build the catalog entry of a copied file; a name mapping belongs to one table."""
    copied = DataFile(
        relative_to(path, root).path or "",
        file.record_count,
        file.file_size_bytes,
        file.footer_size,
        file.column_stats,
        file.partition_values,
        (file.mapping or ()) if has_new_mapping and file.mapping_id is not None else None,
        encryption_key=file.encryption_key,
    )
    known = None if has_new_mapping else file.mapping_id
    return RestoredFile(copied, file.row_id_start, file.partition_id, known)


def _statistics(history: TableHistory) -> tuple[Mapping[ColumnId, TableColumnStats | None], ...]:
    """Compute the column statistics of the restored inlined rows."""
    if not history.returning:
        return ()
    from ...storage.rows.inlined_values import inlined_in_schema, inlined_stats

    columns = history.target.table.schema.columns
    bounded = TableSchema(tuple(one for one in columns if not _is_unordered(one)))
    return (inlined_stats(inlined_in_schema(history.returning, bounded), bounded),)


def _is_unordered(column: Column) -> bool:
    """Return True if values of a column, or their texts, have no order: then bounds are left out."""
    return any(not (one.type.facts.has_stats and one.type.facts.comparable) for one in column.walk())


def _log(planned: Planned, request: RestoreRequest) -> None:
    what = request.table or (f"schema {request.schema}" if request.schema else "the lake")
    if not planned.has_changes:
        log.info("%s is the same as at snapshot %d: nothing to restore", what, planned.target.id)
        return
    verb = "Would restore" if request.dry_run else "Restored"
    log.info("%s %s to snapshot %d", verb, what, planned.target.id)
    result = planned.result()
    for one in result.tables:
        files = counts(
            (one.files_ended, "file", " removed"),
            (one.files_shortened, "file", " shortened"),
            (one.files_copied, "file", f" copied ({size(one.bytes_copied)})"),
            (one.files_rewritten, "file", f" with rows that return ({size(one.bytes_read)} read)"),
            (one.inlined_returned, "row", " returned to the catalog"),
            (one.inlined_ended, "row", " removed from the catalog"),
            (one.files_kept, "file", " kept"),
        )
        log.info("%s is %s: %s", one.name, one.action, "; ".join([files, *one.definition]))
    for text in result.objects:
        log.info("%s", text)
