"""Insert rows into a table, or create it from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..catalog.drafting.rows import unused_files
from ..errors import InvalidInputError, NotFoundError, SchemaNotFoundError, TableNotFoundError
from ..format.log_lines import counted, logger, size
from ..format.names.identifiers import QualifiedName, TableName
from ..format.snapshots import CommitInfo, CommitRecord, CommittedSnapshot, SnapshotId, TableSnapshot
from ..planning.reading.predicates import column_ids
from ..planning.writing import write as plans
from ..planning.writing.evolution import changed_columns, evolve_and_append
from ..planning.writing.staged import StagedWrite, Target
from ..spark.job import io as job_io
from ..spark.job.request import (
    Action,
    Clause,
    JobRequest,
    OverwriteSource,
    RowChangeSource,
    found_rows,
    job_directory,
)
from ..sql.predicate import read_predicate
from ..transaction.changes import AppendFiles, Change, ChangeSet, ReadRows, Truncate
from ..transaction.definition import narrower, warn_of_narrower
from .arguments import GivenRows, InsertChoice, InsertMode, SchemaEvolution, names_of
from .job_life import State, Submitter
from .run import announce_replaced, begin, replacing
from .verb import Attempt, Commit, Resolve, Results, Summary, Write, added, announce_commit, numbers

if TYPE_CHECKING:
    from ..catalog.lake import Lake
    from ..transaction.changes_made import Replay

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Insert:
    """Insert ``rows``; see ``DuckLakeSparkInsertOperator`` for the arguments."""

    table: TableName
    rows: GivenRows
    choice: InsertChoice = field(default_factory=InsertChoice)
    create_table: bool = False
    partition_by: str | Sequence[str] = ()

    def plan(self, lake: Lake, commit: Commit, resolve: Resolve) -> PlannedInsert:
        """Look at the table and say where the job is to write; see ``Verb``."""
        if not self.choice.replaces:  # overwriting replaces rows by what they are
            announce_replaced(lake, commit.seen)
        job_id = commit.job_id
        target = self._target(lake, job_id)
        directory = job_directory(target.root, job_id)
        rows = self.rows.resolved(resolve)
        if isinstance(target, plans.NewTable):
            plan = plans.plan_create(target, directory, names_of(self.partition_by))
            plan = replace(plan, row_order=plans.RowOrder(zorder_by=self.choice.zorder_by))
        else:
            plan = plan_into(self.choice, lake, target, directory)
            replaced = rows_to_find(self.choice, lake, target)
            if replaced is not None:
                request = self._overwrite(job_id, OverwriteSource(rows, replaced), plan)
                return PlannedInsert(self, target, request)
        return PlannedInsert(self, target, JobRequest(job_id, rows, (plan,)))

    def _target(self, lake: Lake, job_id: str) -> Target:
        try:
            return lake.table_snapshot(self.table)
        except (SchemaNotFoundError, TableNotFoundError) as error:
            if not self.create_table:
                raise
            without = lake.as_of(SnapshotId(error.snapshot_id))  # later ones may have a table of the name
        name = QualifiedName.of(self.table)
        return without.reads.new_table(name, plans.new_table_uuid(job_id, name), with_schema=True)

    def _overwrite(self, job_id: str, source: OverwriteSource, plan: plans.WritePlan) -> JobRequest:
        """Have the job find the rows that are to be replaced, too."""
        target = source.replaced.target
        log.info(
            "The job looks for the rows of %s to replace in %s (%s)",
            *(plan.table, counted(len(target.files), "file")),
            size(sum(file.file_size_bytes for file in target.files)),
        )
        both = (plans.plan_write(target.table, f"{plan.directory}updated/"), plan)
        return JobRequest(job_id, source, both, verb="overwrite")

    def summary_of_records(self, lake: Lake, records: Sequence[CommitRecord]) -> Summary:
        """Return the numbers that the catalog kept."""
        ids = {record.table_id for record in records}
        names = [str(row.qualified) for row in lake.reads.table_rows() if row.id in ids]
        return {
            "table": names[0] if names else str(QualifiedName.of(self.table)),
            "snapshot_id": int(records[0].snapshot_id),
            "rows_added": sum(record.row_count for record in records),
            **dict.fromkeys(("rows_removed", "files_added", "bytes_added")),
            **dict.fromkeys(("columns_added", "columns_widened")),
            "already_committed": True,
        }


@dataclass(frozen=True, slots=True)
class PlannedInsert:
    """An insert into ``target`` as one snapshot has it."""

    verb: Insert
    target: Target
    request: JobRequest

    def write(self, lake: Lake, results: Results, seen: Replay) -> Write | None:
        """Return the job's files as the table's, with the table itself where it is new; see ``Verb``."""
        *_, result = results.of_plans
        if self.verb.choice.if_empty.keeps(*() if result.rows_written else (str(self.target.name),)):
            return None
        if isinstance(self.target, plans.NewTable):
            base = self.target.snapshot.id
            changes = (*replacing(lake, seen, base), *plans.create_and_append(self.target, result))
            return Write((ChangeSet(base, changes),))
        choice = self.verb.choice
        found = None if results.changes is None else found_rows(self.request, results.changes)
        target = _current(lake, self.target) if seen.replaced and not choice.replaces else self.target
        base = target.snapshot.id
        replaced = () if choice.replaces else replacing(lake, seen, base)
        changes = (*replaced, *changes_of(choice, lake, target, result, found))
        unused = unused_files(changes, () if found is None else found.deletes)
        return Write((ChangeSet(base, changes, unused),))

    def write_again(self, lake: Lake, results: Results, seen: Replay) -> Write | None:
        """Plan the files as those of a table that another writer created, or compacted, in the meantime."""
        if not isinstance(self.target, plans.NewTable):
            return self._on_newest(self.target, lake, results, seen)
        *_, result = results.of_plans
        try:
            existing = lake.table_snapshot(self.target.name)
        except SchemaNotFoundError:
            return None
        except TableNotFoundError as error:
            if not isinstance(self.target, plans.NewTableAndSchema):
                return None
            without = lake.as_of(SnapshotId(error.snapshot_id))
            target = without.reads.new_table(self.target.name, self.target.uuid)
            base = target.snapshot.id
            return Write(
                (ChangeSet(base, (*replacing(lake, seen, base), *plans.create_and_append(target, result))),)
            )
        if self.verb.choice.replaces:
            changes = changes_of(
                replace(self.verb.choice, evolution=SchemaEvolution.STRICT), lake, existing, result
            )
            if not all(isinstance(one, ReadRows | AppendFiles) for one in changes):
                return None  # it has rows that are to be replaced: they came since
        else:
            changes = plans.append_to_existing(existing, result)
        base = existing.snapshot.id
        return Write((ChangeSet(base, (*replacing(lake, seen, base), *changes)),))

    def _on_newest(self, planned: TableSnapshot, lake: Lake, results: Results, seen: Replay) -> Write | None:
        """Return the files on the newest snapshot, where the table has the columns and keys of the plan.

        The rows to be replaced may have moved, or gone; that such rows came since is a conflict as before.
        What the job found is found in the files of the plan alone.
        """
        if results.changes is not None:
            return None
        newest = _current(lake, planned)
        is_same = (newest.schema, newest.partition_spec) == (planned.schema, planned.partition_spec)
        if newest.snapshot.id == planned.snapshot.id or not is_same:
            return None
        again = replace(self, target=newest).write(lake, results, seen)
        assert again is not None  # else there was no conflict
        reads = [
            one for change_set in again.change_sets for one in change_set.changes if isinstance(one, ReadRows)
        ]
        if self.verb.choice.mode is InsertMode.OVERWRITE:
            reads = [ReadRows(planned.table_id, planned.name, counts_gone=False)]
        as_planned = [ChangeSet(planned.snapshot.id, reads)] if reads else []
        return Write((*as_planned, *again.change_sets))

    def summary(
        self,
        results: Results,
        write: Write | None,  # noqa: ARG002 - the results have all numbers
        committed: CommittedSnapshot | None,
    ) -> Summary:
        """Return the numbers of the insert."""
        *_, result = results.of_plans
        columns: tuple[Mapping[str, str], Mapping[str, tuple[str, str]]] = {}, {}
        if committed is not None and not isinstance(self.target, plans.NewTable) and result.data_files:
            columns = changed_columns(self.target.schema, result.schema)
        summary = {
            "table": str(self.target.name),
            "snapshot_id": int(committed.id) if committed is not None else None,
            **results.numbers,
            "rows_removed": 0 if committed is None else sum(committed.removed.values()),
            "columns_added": dict(columns[0]),
            "columns_widened": {name: list(types) for name, types in columns[1].items()},
            "already_committed": False,
        }
        if committed is None:
            log.info("The source has no rows: %s is unchanged, no snapshot was made.", self.target.name)
            return summary
        changed = [
            *(f"added column {name} {type_}" for name, type_ in columns[0].items()),
            *(f"{name} {' → '.join(types)}" for name, types in columns[1].items()),
        ]
        announce_commit(log, committed, str(self.target.name), summary)
        if changed:
            log.info("Its columns: %s", "; ".join(changed))
        return summary


def _current(lake: Lake, table: TableSnapshot) -> TableSnapshot:
    """Read the table again: rows to be replaced may have moved to other files while the job ran.

    A table that is another one by now stays as it was planned with, and becomes a conflict.
    """
    try:
        newest = lake.table_snapshot(table.name)
    except NotFoundError:
        return table
    return newest if newest.table_id == table.table_id else table


def stage(verb: Insert, lake: Lake, submitter: Submitter, attempt: Attempt | None = None) -> Summary:
    """Run the job and record what its files are for; no snapshot shows them yet.

    The task that commits reads the job's documents: they are written if the submitter left none.
    """
    submitter.ready()
    planned, life = begin(verb, lake, submitter, Commit(CommitInfo(), attempt=attempt))
    assert isinstance(planned, PlannedInsert)
    assert life is not None
    request = life.request
    if life.state is State.PLANNED:
        life.check()
        life.register(job_io.target_of_stage(planned.target))
    try:
        (result,) = life.run().of_plans
        if verb.choice.if_empty.keeps(*() if result.rows_written else (str(planned.target.name),)):
            life.end()
            life.tidy_up(keeps_files=False)
            log.info("The source has no rows: nothing is staged for %s.", planned.target.name)
            return {"staged": None, "table": str(planned.target.name), "rows_staged": 0}
        job_io.complete_results(request, (result,), lake.opened.storage_options)
        staged = StagedWrite(request.job_id, request.directory, request.verb, planned.target, result)
        uri = job_io.write_stage(staged, lake.opened.storage_options)
    except Exception as error:  # after a time-out, say, a later try goes on
        life.fail(error)
        raise
    life.forget()  # it stays registered until its commit
    return _summary_of_stage(staged, uri)


def _summary_of_stage(staged: StagedWrite, uri: str) -> Summary:
    summary = {
        "staged": uri,
        "table": str(staged.target.name),
        "rows_staged": staged.result.rows_written,
        "files_staged": len(staged.result.data_files),
        "bytes_staged": sum(file.file_size_bytes for file in staged.result.data_files),
    }
    found = added(numbers((staged.result,)))
    log.info("Staged %s for %s, planned on snapshot %d: %s", found, summary["table"], staged.base, uri)
    return summary


def plan_into(choice: InsertChoice, lake: Lake, table: TableSnapshot, directory: str) -> plans.WritePlan:
    """Return the plan for writing to a table that exists."""
    if choice.mode is InsertMode.OVERWRITE_PARTITIONS and table.partition_spec is None:
        raise InvalidInputError(
            f"mode='overwrite_partitions': {table.name} is not partitioned. Use mode='overwrite', or "
            "say which rows to replace with overwrite_where."
        )
    names = tuple(table.schema.find(name, str(table.name)).name for name in choice.zorder_by)
    plan = plans.plan_append(table, directory)
    plan = replace(plan, row_order=plans.RowOrder(plan.row_order.sort_by, names))
    if choice.where is not None:
        plan = replace(plan, where=read_predicate(choice.where, table.schema, str(table.name)))
    if choice.evolution is SchemaEvolution.STRICT:
        return plan
    evolution = plans.Evolution(
        next_column_id=lake.writes.next_column_id(table),
        widens=choice.evolution is SchemaEvolution.ADD_AND_WIDEN,
        options=table.options,
        fixed=() if plan.where is None else tuple(column_ids(plan.where)),
    )
    return replace(plan, evolution=evolution)


def rows_to_find(choice: InsertChoice, lake: Lake, table: TableSnapshot) -> RowChangeSource | None:
    """Return the rows to be replaced that the job has to find; None: the commit does."""
    plan = None if choice.where is None else lake.writes.too_large_to_read(table, choice.where)
    if plan is None:
        return None
    return RowChangeSource(plan, not_matched_by_source=(Clause(Action.DELETE),))


def changes_of(
    choice: InsertChoice,
    lake: Lake,
    table: TableSnapshot,
    result: plans.WriteResult,
    found: plans.FoundRows | None = None,
) -> tuple[Change, ...]:
    """Build the changes that a job's result makes to the table as it was planned.

    ``found`` are the rows that it was to find.
    """
    if choice.evolution is SchemaEvolution.STRICT:
        adding = plans.append_to_existing(table, result)
    else:
        adding = evolve_and_append(table, result, lake.writes.next_column_id(table))
        if lake.writes.has_live_rows(table):
            warn_of_narrower(table.name, narrower(table.schema, result.schema))
    changes = (*_replacing(choice, lake, table, result, found), *adding)
    return () if all(isinstance(change, ReadRows) for change in changes) else changes


def _replacing(
    choice: InsertChoice,
    lake: Lake,
    table: TableSnapshot,
    result: plans.WriteResult,
    found: plans.FoundRows | None,
) -> tuple[Change, ...]:
    if choice.where is not None:
        return lake.writes.replacing_where(table, choice.where, found)
    match choice.mode:
        case InsertMode.OVERWRITE if result.data_files or lake.writes.has_live_rows(table):
            return (Truncate(table.table_id, table.name),)
        case InsertMode.OVERWRITE_PARTITIONS if result.data_files:
            return lake.writes.replacing_partitions(
                table, {file.partition_values for file in result.data_files}
            )
        case _:
            return ()
