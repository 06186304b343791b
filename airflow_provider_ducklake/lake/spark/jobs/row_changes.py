"""The job that deletes, updates or merges rows of one table, merge-on-read.

It finds the rows first, by the columns that conditions name, and keeps their places: the delete files are
written from them, and only the files that have rows to update are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ...errors import SparkJobError
from ...format.log_lines import counted, logger
from ...format.schema import TableSchema
from ...planning.reading.predicates import ALWAYS, Predicate
from ...planning.writing.write import NewDeletes, RowChanges, WritePlan, WriteResult
from ...storage.rows import table_reader
from .. import sources
from ..job.request import Action, JobRequest, LakeSource, OverwriteSource, RowChangeSource
from ..read import read_table, reading
from ..row_changes import matching as match_rows
from ..row_changes.checks import check, condition_columns, own_names
from ..sessions.kind import kind_of
from ..sessions.settings import prepare_reading
from ..writing import write_deletes
from .insert import write
from .sql import rows_of

if TYPE_CHECKING:
    from ...format.files import DataFile
    from ..types.names import MatchNames


log = logger(__name__)


def change_rows(spark: SparkSession, request: JobRequest) -> RowChanges:
    """Find the rows that are to change, and write what their change takes; nothing is visible yet.

    The request's plans are those of updated and of inserted rows.
    """
    changes = request.source
    assert isinstance(changes, RowChangeSource)
    with reading([changes.target]):
        source = _source_rows(spark, changes, request.plans)
        prepare_reading(spark)  # behind code of users, which may set the session
        return _changed(spark, request, changes, source)


def _changed(
    spark: SparkSession, request: JobRequest, changes: RowChangeSource, source: DataFrame | None
) -> RowChanges:
    names = own_names(changes, source)
    check(spark, changes, source, names)
    found_by, keep = source, None
    matching: Predicate = ALWAYS
    size: match_rows.SourceSize | None = None
    if source is not None:  # evaluated once: another time it might have other rows
        numbered = source.withColumn(names.source_id, f.monotonically_increasing_id())
        source = kind_of(spark).checkpointed(numbered)
        changes, matching, found_by, keep, size = _narrowed(changes, source, names)
    plan = replace(changes.target, columns=condition_columns(changes))
    log.info("Searching %s of %s", counted(len(plan.files), "file"), plan.table.name)
    target = read_table(spark, plan, row_ids=True, positions=True, prefix=names.prefix, keep=keep)
    found = match_rows.find(target, found_by, changes, names)
    try:
        done = _Writer(request, changes, found, match_rows.ChangedRows(changes, source, size, found)).write()
        return replace(done, matching=matching)
    finally:
        found.close()


def _source_rows(
    spark: SparkSession, changes: RowChangeSource, plans: tuple[WritePlan, ...]
) -> DataFrame | None:
    match changes.source:
        case None:
            return None
        case LakeSource() as source:
            return rows_of(spark, source, plans[:1])[0]
        case source:
            return sources.load(spark, source, changes.target.table.schema, fills=False)


def _narrowed(
    changes: RowChangeSource, source: DataFrame, names: MatchNames
) -> tuple[
    RowChangeSource, Predicate, DataFrame, Callable[[DataFrame], DataFrame] | None, match_rows.SourceSize
]:
    """Return the change without files that no row of the source can match, and the source for a join.

    Between both is what is true for the rows that one can match. Behind them what leaves out rows without a
    match before they are joined, and the size of the source.
    """
    own = [name for name in source.columns if name != names.source_id]
    keys = match_rows.comparable(source, match_rows.equal_columns(changes, own), changes.target)
    size, bounds = match_rows.bounds_of(source, keys, changes.target)
    keep = None
    if not changes.not_matched_by_source:
        changes = replace(changes, target=match_rows.files_that_may_match(changes.target, bounds))
        keep = (
            match_rows.only_matching(source, keys)
            if keys and match_rows.is_small(source, size.row_count)
            else None
        )
    shown = match_rows.as_target_shows(source, changes, own)
    return changes, bounds, match_rows.broadcast_if_small(shown, size.row_count), keep, size


@dataclass(frozen=True)
class _Writer:
    """Writes what the change of the rows found takes."""

    request: JobRequest
    changes: RowChangeSource
    found: match_rows.Found
    rows: match_rows.ChangedRows

    def write(self) -> RowChanges:
        updates = match_rows.numbers(self.changes, Action.UPDATE)
        inserts = match_rows.numbers(self.changes, Action.INSERT)
        gone = [*updates, *match_rows.numbers(self.changes, Action.DELETE)]
        with ThreadPoolExecutor() as threads:  # each is a job whose tasks alone do not fill a cluster
            deletes = threads.submit(self._deletes, gone)
            inlined = threads.submit(self._inlined, gone)
            updated = threads.submit(self._updated, updates)
            inserted = threads.submit(self._inserted, inserts)
        done = RowChanges(deletes.result(), inlined.result(), updated.result(), inserted.result())
        self._check(done, [self.found.count(clauses) for clauses in (gone, updates)])
        return done

    def _check(self, done: RowChanges, wanted: list[int]) -> None:
        written = [done.rows_gone, done.updated.rows_written]
        if wanted == written:
            return
        if self.rows.source is not None:
            error = match_rows.changed_twice(self.found, self.rows.source, self.changes)
            if error is not None:
                raise error
        raise SparkJobError(
            f"{self.changes.target.table.name}: {wanted} rows were found to delete or update, but {written} "
            "were written. Nothing was committed; rerun the task."
        )

    def _deletes(self, gone: Sequence[int]) -> tuple[NewDeletes, ...]:
        touched = self.found.files(gone)
        if not touched:
            return ()
        paths = {int(file.id): file.path for file in self.changes.target.files if file.id in touched}
        names = self.found.names
        rows = self.found.rows.where(f.col(names.file_id).isNotNull()).select(
            f.col(names.file_id).alias(write_deletes.FILE_ID),
            f.col(names.position).alias(write_deletes.POSITION),
        )
        key_bytes = self.changes.target.table.options.key_bytes
        place = write_deletes.DeleteFolder(f"{self.request.directory}deletes/", key_bytes)
        return write_deletes.write(rows, self.found.count(gone), paths, place)

    def _inlined(self, gone: Sequence[int]) -> tuple[int, ...]:
        if not any((None, number) in self.found.counts for number in gone):
            return ()
        names = self.found.names
        rows = self.found.rows.where(f.col(names.file_id).isNull()).select(names.row_id)
        return tuple(sorted(set(rows.toArrow().column(0).to_pylist())))

    def _updated(self, clauses: Sequence[int]) -> WriteResult:
        plan = self.request.plans[0]
        with_ids = replace(plan, schema=TableSchema((*plan.target.columns, table_reader.ROW_ID)))
        results = [
            write(self.rows.updated(number), with_ids, self.rows.updated_size(number))
            for number in clauses
            if self.found.count([number])
        ]
        return self._together(plan, results, has_row_ids=True)

    def _inserted(self, clauses: Sequence[int]) -> WriteResult:
        plan = self.request.plans[1]
        size = self.rows.inserted_size()
        results = [write(self.rows.inserted(number), plan, size) for number in clauses]
        return self._together(plan, results, has_row_ids=False)

    def _together(self, plan: WritePlan, results: Sequence[WriteResult], *, has_row_ids: bool) -> WriteResult:
        """Return the results of all clauses as one, without statistics of row ids."""
        return WriteResult(
            plan.target,
            plan.partition_fields,
            tuple(
                _file_of_table(file, has_row_ids=has_row_ids)
                for result in results
                for file in result.data_files
            ),
            sum(result.rows_written for result in results),
            results[-1].details if results else {},
        )


def _file_of_table(file: DataFile, *, has_row_ids: bool) -> DataFile:
    stats = {one: known for one, known in file.column_stats.items() if one != table_reader.ROW_ID.id}
    return replace(file, column_stats=stats, has_row_ids=has_row_ids)


def overwrite(spark: SparkSession, request: JobRequest) -> RowChanges:
    """Find the rows to replace, and write the files of the new ones."""
    source = request.source
    assert isinstance(source, OverwriteSource)
    *_, plan = request.plans
    gone = change_rows(spark, replace(request, source=source.replaced))
    return replace(gone, inserted=write(sources.load(spark, source.rows, plan.schema), plan))
