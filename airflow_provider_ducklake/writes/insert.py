"""Insert rows into a table, or create it from them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from uuid6 import uuid7

from airflow_provider_ducklake.catalog.committing.planned import Stage
from airflow_provider_ducklake.catalog.drafting.row_changes import unused_files
from airflow_provider_ducklake.errors import NotFoundError, TableNotFoundError
from airflow_provider_ducklake.planning.writing.write import (
    NewTable,
    RowOrder,
    append_to_existing,
    create_and_append,
    plan_create,
    plan_write,
)
from airflow_provider_ducklake.spark.job.request import JobRequest, OverwriteSource, found_rows, job_directory
from airflow_provider_ducklake.spec.names.identifiers import QualifiedName
from airflow_provider_ducklake.writes.arguments import names_of
from airflow_provider_ducklake.writes.insert_choice import InsertChoice
from airflow_provider_ducklake.writes.replaced import announce_replaced, replacing
from airflow_provider_ducklake.writes.verb import Write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.planning.writing.row_changes import FoundRows
    from airflow_provider_ducklake.planning.writing.staged import Target
    from airflow_provider_ducklake.planning.writing.write import WritePlan
    from airflow_provider_ducklake.spec.commit_key import CommitRecord
    from airflow_provider_ducklake.spec.names.identifiers import TableName
    from airflow_provider_ducklake.spec.snapshots import CommittedSnapshot, TableSnapshot
    from airflow_provider_ducklake.transaction.replay import Replay
    from airflow_provider_ducklake.writes.given_rows import GivenRows
    from airflow_provider_ducklake.writes.verb import Commit, Resolve, Results, Summary

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Insert:
    """Insert ``rows``; see ``DuckLakeSparkInsertOperator`` for the arguments."""

    table: TableName
    rows: GivenRows
    choice: InsertChoice = field(default_factory=InsertChoice)
    create_table: bool = False
    partition_by: str | Sequence[str] = ()
    engine: str = "auto"

    def plan(self, lake: Lake, commit: Commit, resolve: Resolve) -> PlannedInsert:
        """Look at the table and say where the job is to write; see ``Verb``."""
        if not self.choice.replaces:  # overwriting replaces rows by what they are
            announce_replaced(lake, commit.seen)
        target = self._target(lake)
        job_id = str(uuid7())
        directory = job_directory(target.root, job_id)
        rows = self.rows.resolved(resolve)
        if isinstance(target, NewTable):
            plan = plan_create(target, directory, names_of(self.partition_by))
            plan = replace(plan, row_order=RowOrder(zorder_by=self.choice.zorder_by))
        else:
            plan = self.choice.plan(lake, target, directory)
            replaced = self.choice.to_be_found(lake, target)
            if replaced is not None:
                request = self._overwrite(job_id, OverwriteSource(rows, replaced), plan)
                return PlannedInsert(self, target, request)
        return PlannedInsert(self, target, JobRequest(job_id, rows, (plan,), engine=self.engine))

    def _target(self, lake: Lake) -> Target:
        try:
            return lake.table_snapshot(self.table)
        except TableNotFoundError:
            if not self.create_table:
                raise
        return lake.new_table(QualifiedName.of(self.table))

    def _overwrite(self, job_id: str, source: OverwriteSource, plan: WritePlan) -> JobRequest:
        """Have the job find the rows that are to be replaced, too."""
        target = source.replaced.target
        log.info(
            "The job looks for the rows of %s to replace in %d data files with %d bytes",
            *(plan.table, len(target.files), sum(file.file_size_bytes for file in target.files)),
        )
        plans = (plan_write(target.table, f"{plan.directory}updated/"), plan)
        return JobRequest(job_id, source, plans, verb="overwrite", engine=self.engine)

    def summary_of_records(self, lake: Lake, records: Sequence[CommitRecord]) -> Summary:
        """Return the numbers that the catalog kept."""
        ids = {record.table_id for record in records}
        names = [str(row.qualified) for row in lake.table_rows() if row.id in ids]
        return {
            "table": names[0] if names else str(QualifiedName.of(self.table)),
            "snapshot_id": int(records[0].snapshot_id),
            "rows_added": sum(record.row_count for record in records),
            "files_added": None,
            "bytes_added": None,
            "already_committed": True,
        }


@dataclass(frozen=True, slots=True)
class PlannedInsert:
    """An insert into ``target`` as one snapshot has it."""

    verb: Insert
    target: Target
    request: JobRequest

    def write(self, lake: Lake, results: Results, seen: Replay) -> Write:
        """Return the job's files as the table's, with the table itself where it is new; see ``Verb``."""
        *_, result = results.of_plans
        if isinstance(self.target, NewTable):
            base = self.target.snapshot.id
            changes = (*replacing(lake, seen, base), *create_and_append(self.target, result))
            return Write((Stage(base, changes),))
        choice, found = self.verb.choice, self._found(results)
        target = _current(lake, self.target) if seen.replaced and not choice.replaces else self.target
        base = target.snapshot.id
        replaced = () if choice.replaces else replacing(lake, seen, base)
        changes = (*replaced, *choice.changes(lake, target, result, found))
        unused = unused_files(changes, () if found is None else found.deletes)
        return Write((Stage(base, changes, unused),))

    def _found(self, results: Results) -> FoundRows | None:
        return None if results.changes is None else found_rows(self.request, results.changes)

    def write_again(self, lake: Lake, results: Results, seen: Replay) -> Write | None:
        """Return the rows as an append to a table that somebody else created meanwhile."""
        if not isinstance(self.target, NewTable) or self.verb.choice.replaces:
            return None
        try:
            existing = lake.table_snapshot(self.target.name)
        except TableNotFoundError:
            return None
        *_, result = results.of_plans
        base = existing.snapshot.id
        changes = (*replacing(lake, seen, base), *append_to_existing(existing, result))
        return Write((Stage(base, changes),))

    def summary(
        self,
        results: Results,
        write: Write | None,  # noqa: ARG002 - the results tell all
        committed: CommittedSnapshot | None,
    ) -> Summary:
        """Return the numbers of the insert."""
        summary = {
            "table": str(self.target.name),
            "snapshot_id": int(committed.id) if committed is not None else None,
            **results.numbers,
            "already_committed": False,
        }
        if committed is None:
            log.info("The source has no rows: %s is unchanged, no snapshot was made.", self.target.name)
        else:
            keys = ("snapshot_id", "table", "rows_added", "files_added", "bytes_added")
            log.info(
                "Committed snapshot %d to %s: %d rows, %d data files, %d bytes",
                *(summary[key] for key in keys),
            )
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
