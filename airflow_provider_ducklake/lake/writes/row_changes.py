"""Delete or update rows of one table, merge-on-read; what is done for a merge, too.

Data files stay as they are, and rows keep their row ids. A task that was cleared runs again on the rows that
are there by then: what it changed before stays changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..catalog.snapshot.scan import Wanted
from ..errors import ColumnNotFoundError, InvalidInputError
from ..format.log_lines import counted, logger, size
from ..format.names.identifiers import QualifiedName, TableName, quote, split_parts
from ..planning.reading.predicates import ALWAYS, AllOf, Predicate
from ..planning.reading.scan import ScanPlan, named_columns
from ..planning.writing.write import RowChanges, plan_append, plan_write
from ..spark.job import request as jobs
from ..spark.types.names import quoted
from ..sql.spark.conditions import (
    Spellings,
    check_expression,
    equal_columns,
    functions_in,
    may_read,
    readable_filter,
    unknown_column,
)
from ..transaction.changes import AddDeletes, ReadRows
from .arguments import SOURCE_ALIAS, TARGET_ALIAS, GivenRows, parse_flag
from .sql_plan import Reads, refuse_macros
from .verb import Commit, Resolve, Results, Summary, Write

if TYPE_CHECKING:
    from ..catalog.lake import Lake
    from ..format.snapshots import CommitRecord, CommittedSnapshot, SnapshotId, TableSnapshot
    from ..transaction.changes_made import Replay


log = logger(__name__)

_ROWS = ("rows_deleted", "rows_updated", "rows_added")


@dataclass(frozen=True, slots=True)
class PlannedRowChange:
    """A change of rows of one table; without a ``request`` the catalog shows that no row can be hit.

    ``where`` is true for all rows that it may change.
    """

    changes: jobs.RowChangeSource
    request: jobs.JobRequest | None
    where: Predicate

    def write(self, lake: Lake, results: Results, seen: Replay) -> Write | None:  # noqa: ARG002 - see above
        """Build the changes from the rows that the job found and wrote; None without any; see ``Verb``."""
        if results.changes is None:
            return None
        table = self.changes.target.table
        change_set = lake.writes.row_changes(
            table, results.changes, self._where(results.changes), may_insert=bool(self.changes.not_matched)
        )
        if self._reads_target:  # which rows are hit depends on all rows that the target had
            change_set = replace(
                change_set, changes=(ReadRows(table.table_id, table.name), *change_set.changes)
            )
        return Write((change_set,))

    def _where(self, done: RowChanges) -> Predicate:
        """Combine the verb's condition with that of the source, if only rows that match it were looked at."""
        if self.changes.not_matched_by_source:
            return self.where
        return AllOf((self.where, done.matching))

    @property
    def _reads_target(self) -> bool:
        """Return True if the source read the target as well."""
        source = self.changes.source
        read = source.tables.values() if isinstance(source, jobs.LakeSource) else ()
        return self.changes.target.table.table_id in {one.table.table_id for one in read}

    def write_again(self, lake: Lake, results: Results, seen: Replay) -> None:
        """Return None: on other rows the job would have found others."""

    def summary(self, results: Results, write: Write | None, committed: CommittedSnapshot | None) -> Summary:
        """Return the numbers of the change."""
        done, table, added = results.changes, self.changes.target.table, results.numbers
        change_sets = () if write is None else write.change_sets
        deletes = [
            one for change_set in change_sets for one in change_set.changes if isinstance(one, AddDeletes)
        ]
        summary = {
            "table": str(table.name),
            "snapshot_id": int(committed.id) if committed is not None else None,
            "read_snapshot_id": int(table.snapshot.id),
            "rows_deleted": done.rows_deleted if done is not None else 0,
            "rows_updated": done.updated.rows_written if done is not None else 0,
            "rows_added": done.inserted.rows_written if done is not None else 0,
            "files_added": added["files_added"],
            "bytes_added": added["bytes_added"],
            "delete_files_added": sum(len(change.files) for change in deletes),
            "already_committed": False,
        }
        if committed is None:
            log.info("No rows match: %s is unchanged, no snapshot was made.", table.name)
        else:
            log.info(
                "Committed snapshot %d to %s: %s deleted, %d updated, %d inserted; %s (%s), %s",
                *(committed.id, table.name, counted(summary["rows_deleted"], "row")),
                *(summary["rows_updated"], summary["rows_added"]),
                *(counted(summary["files_added"], "file"), size(summary["bytes_added"])),
                counted(summary["delete_files_added"], "delete file"),
            )
        return summary


def summary_of_records(table: TableName, records: Sequence[CommitRecord]) -> Summary:
    """Build the summary of an earlier commit, of which only the snapshot is known."""
    unknown = ("read_snapshot_id", *_ROWS, "files_added", "bytes_added", "delete_files_added")
    return {
        "table": str(QualifiedName.of(table)),
        "snapshot_id": int(records[0].snapshot_id),
        **dict.fromkeys(unknown),
        "already_committed": True,
    }


def plan_change(
    lake: Lake, verb: str, changes: jobs.RowChangeSource, where: Predicate, job_id: str
) -> PlannedRowChange:
    """Plan a change of rows, of which ``where`` is true for all."""
    _check_names(lake, changes)
    changes = _read_before(changes)
    plan = changes.target
    has_rows = bool(plan.files) or any(part.rows for part in plan.inlined_rows)
    if not has_rows and not changes.not_matched:
        return PlannedRowChange(changes, None, where)
    log.info("Reading %s at snapshot %d", plan.table.name, plan.table.snapshot.id)
    directory = jobs.job_directory(plan.table.root, job_id)
    planned = plan_write if all(one.action is jobs.Action.DELETE for one in changes.clauses) else plan_append
    updated = planned(plan.table, f"{directory}updated/")
    plans = (updated, replace(updated, directory=f"{directory}inserted/"))
    request = jobs.JobRequest(job_id, changes, plans, verb=verb)
    return PlannedRowChange(changes, request, where)


def _check_names(lake: Lake, changes: jobs.RowChangeSource) -> None:
    """Look for the columns and functions that conditions and values name, as far as they are certain."""
    table, is_alone = changes.target.table, changes.source is None
    for text in (changes.on, *_texts(changes.clauses)):
        name = unknown_column(text or "", table.schema.names, alias=changes.target_alias, is_alone=is_alone)
        if name is not None:
            raise ColumnNotFoundError(name, str(table.name), table.schema.names, text or "")
        refuse_macros(lake, table.snapshot.id, functions_in(text or ""))


def _read_before(changes: jobs.RowChangeSource) -> jobs.RowChangeSource:
    """Check the texts as far as their words allow, and note what saves the job work."""
    schema, alias, on = changes.target.table.schema, changes.target_alias, changes.on or ""
    compared = Spellings.of(schema, alias, changes.source_alias, on)
    written = replace(compared, source="", equal=())  # values are made of a source's own texts
    check_expression(on, "on")
    compared.check(on, "on")
    for clause in changes.clauses:
        sees_target, condition = clause not in changes.not_matched, clause.condition or ""
        check_expression(condition, jobs.condition_of(clause, changes))
        if sees_target:
            compared.check(condition, jobs.condition_of(clause, changes))
        for text in (clause.values or {}).values():
            check_expression(text, jobs.value_of(clause))
            if sees_target:
                written.check(text, jobs.value_of(clause))
    matched, others, left = (
        tuple(replace(one, values_see_target=_sees_target(one, changes)) for one in clauses)
        for clauses in (changes.matched, changes.not_matched, changes.not_matched_by_source)
    )
    return replace(
        changes,
        matched=matched,
        not_matched=others,
        not_matched_by_source=left,
        on_equal=equal_columns(changes.on or ""),
    )


def _sees_target(clause: jobs.Clause, changes: jobs.RowChangeSource) -> bool:
    columns = changes.target.table.schema.names
    names = {"alias": changes.target_alias, "other": changes.source_alias}
    return any(may_read(text, columns, **names) for text in (clause.values or {}).values())


def _texts(clauses: Iterable[jobs.Clause]) -> Iterator[str | None]:
    for clause in clauses:
        yield clause.condition
        yield from (clause.values or {}).values()


def find_target(
    lake: Lake,
    table: TableName,
    condition: str | None = None,
    *,
    aliases: Sequence[str] = (TARGET_ALIAS,),
    stats_of: str = "",
) -> tuple[ScanPlan, Predicate]:
    """Return all columns of the rows for which a condition may hold, as the newest snapshot has them.

    The first of the ``aliases`` is what the condition calls the table, the others are of other tables. The
    files have the statistics of the columns that the text ``stats_of`` names. The plan has no filter: the
    job finds the rows itself; last comes what is true for all of them, as far as it can be read.
    """

    def wanted(found: TableSnapshot) -> Wanted:
        where = None
        if condition is not None:
            where = readable_filter(
                condition, found.schema, str(found.name), alias=aliases[0], others=aliases[1:]
            )
        columns = [column.name for column in found.schema.columns if not column.children]
        return Wanted(where=where, stats_of=named_columns([stats_of], columns))

    plan = lake.reads.scan_of(table, wanted)
    return replace(plan, where=None), plan.where or ALWAYS


def check_columns(plan: ScanPlan, paths: Iterable[str]) -> None:
    """Look for columns before a job does, which takes longer; of a field only its column is looked for."""
    for path in paths:
        plan.table.schema.find(split_parts(path)[0], str(plan.table.name))


def check_condition(where: object, verb: str) -> None:
    """Refuse to change all rows of a table unless a condition says so."""
    if not str(where or "").strip():
        raise InvalidInputError(
            f"where is {where!r}. Give a condition; to {verb} all rows, give where='true'."
        )


def check_values(values: object, name: str) -> Mapping[str, str]:
    """Return expressions by the columns that they are for."""
    is_mapping = hasattr(values, "items") and bool(values)
    if not is_mapping or not all(isinstance(one, str) for pair in values.items() for one in pair):  # type: ignore[attr-defined]  # asked for above
        raise InvalidInputError(
            f'{name} is {values!r}; give {{"column": "expression"}}, a Spark SQL string for each column.'
        )
    return dict(values.items())  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the rows for which ``where`` is true; see ``DuckLakeSparkDeleteOperator``."""

    table: TableName
    where: str

    def plan(self, lake: Lake, commit: Commit, resolve: Resolve) -> PlannedRowChange:  # noqa: ARG002
        """Plan on the newest snapshot; see ``Verb``."""
        check_condition(self.where, "delete")
        target, found = find_target(lake, self.table, self.where)
        changes = jobs.RowChangeSource(
            target, not_matched_by_source=(jobs.Clause(jobs.Action.DELETE, self.where),)
        )
        return plan_change(lake, "delete", changes, found, commit.job_id)

    def summary_of_records(self, lake: Lake, records: Sequence[CommitRecord]) -> Summary:  # noqa: ARG002
        """Build the summary of an earlier commit."""
        return summary_of_records(self.table, records)


@dataclass(frozen=True, slots=True)
class Update:
    """Set columns of the rows for which ``where`` is true; see ``DuckLakeSparkUpdateOperator``."""

    table: TableName
    set: Mapping[str, str]
    where: str

    def plan(self, lake: Lake, commit: Commit, resolve: Resolve) -> PlannedRowChange:  # noqa: ARG002
        """Plan on the newest snapshot; see ``Verb``."""
        values = check_values(self.set, "set")
        check_condition(self.where, "update")
        target, found = find_target(lake, self.table, self.where)
        check_columns(target, values)
        clause = jobs.Clause(jobs.Action.UPDATE, self.where, values)
        changes = jobs.RowChangeSource(target, not_matched_by_source=(clause,))
        return plan_change(lake, "update", changes, found, commit.job_id)

    def summary_of_records(self, lake: Lake, records: Sequence[CommitRecord]) -> Summary:  # noqa: ARG002
        """Build the summary of an earlier commit."""
        return summary_of_records(self.table, records)


# Merge rows of a source into a table.


@dataclass(frozen=True, slots=True)
class Merge:
    """Update, delete and insert rows by those of a source; see ``DuckLakeSparkMergeOperator``.

    The rows are those of ``source_table``, a table of the lake, or else ``rows``.
    """

    table: TableName
    on: str | Sequence[str]
    rows: GivenRows
    source_table: TableName | None = None
    when_matched: Sequence[Mapping[str, Any]] = ()
    when_not_matched: Sequence[Mapping[str, Any]] = ()
    when_not_matched_by_source: Sequence[Mapping[str, Any]] = ()
    target_alias: str = TARGET_ALIAS
    source_alias: str = SOURCE_ALIAS
    trust_views: bool = False

    def plan(self, lake: Lake, commit: Commit, resolve: Resolve) -> PlannedRowChange:
        """Plan on the newest snapshot; see ``Verb``."""
        on = self._on()
        matched = _clauses(self.when_matched, "when_matched", jobs.Action.UPDATE, jobs.Action.DELETE)
        not_matched = _clauses(self.when_not_matched, "when_not_matched", jobs.Action.INSERT)
        left = _clauses(
            self.when_not_matched_by_source,
            "when_not_matched_by_source",
            jobs.Action.UPDATE,
            jobs.Action.DELETE,
        )
        if any(clause.values is None for clause in left):
            raise InvalidInputError(
                "when_not_matched_by_source: '*' needs a source row, and there is none; name the columns."
            )
        target, where = find_target(
            lake,
            self.table,
            None if left else on,
            aliases=(self.target_alias, self.source_alias),
            stats_of="" if left else on,
        )
        check_columns(target, () if isinstance(self.on, str) else map(quote, self.on))
        for clause in (*matched, *not_matched, *left):
            check_columns(target, clause.values or ())
        changes = jobs.RowChangeSource(
            target,
            self._source(lake, resolve, target.table.snapshot.id, commit.job_id),
            on,
            matched,
            not_matched,
            left,
            target_alias=self.target_alias,
            source_alias=self.source_alias,
        )
        return plan_change(lake, "merge", changes, where, commit.job_id)

    def _on(self) -> str:
        if isinstance(self.on, str):
            return self.on
        sides = (self.target_alias, self.source_alias)
        equal = [" = ".join(f"{quoted(side)}.{quoted(name)}" for side in sides) for name in self.on]
        if not equal:
            raise InvalidInputError("on is empty; name the columns that must match.")
        return " AND ".join(equal)

    def _source(
        self, lake: Lake, resolve: Resolve, at: SnapshotId, job_id: str
    ) -> jobs.LakeSource | jobs.GivenSource:
        if self.source_table is not None:
            with lake.opened.planned_on(at):
                reads = Reads(
                    lake,
                    job_id,
                    lake.snapshot_at(at),
                    trust_views=parse_flag("trust_views", self.trust_views),
                )
                view = reads.view_of(QualifiedName.of(self.source_table))
                steps = (*reads.steps, jobs.Step(f"SELECT * FROM {quoted(view)}", plan=0))  # noqa: S608 - a view's name
                return jobs.LakeSource(reads.tables, steps=steps)
        return self.rows.resolved(resolve)

    def summary_of_records(self, lake: Lake, records: Sequence[CommitRecord]) -> Summary:  # noqa: ARG002
        """Build the summary of an earlier commit."""
        return summary_of_records(self.table, records)


def _clauses(items: object, name: str, *actions: jobs.Action) -> tuple[jobs.Clause, ...]:
    """Return the clauses that a user gave."""
    listed = [items] if isinstance(items, dict) else items
    if not isinstance(listed, list | tuple):
        raise InvalidInputError(f"{name} is {items!r}; give a list of clauses.")
    clauses = tuple(_clause(item, f"{name}[{place}]", actions) for place, item in enumerate(listed))
    for place, clause in enumerate(clauses[:-1]):
        if clause.condition is None:
            raise InvalidInputError(
                f"{name}[{place}] has no condition, so the clauses after it would never apply."
            )
    return clauses


def _clause(item: object, name: str, actions: Sequence[jobs.Action]) -> jobs.Clause:
    words = " or ".join(repr(action.value) for action in actions)
    if not isinstance(item, dict) or set(item) - {"condition", *actions}:
        raise InvalidInputError(f"{name} is {item!r}; a clause is a dict of {words}, and 'condition'.")
    given = [action for action in actions if action.value in item]
    if len(given) != 1:
        raise InvalidInputError(f"{name} is {item!r}; it has exactly one of {words}.")
    (action,) = given
    condition = item.get("condition")
    if condition is not None and not isinstance(condition, str):
        raise InvalidInputError(f"{name}: the condition is {condition!r}, not a string.")
    value = item[action.value]
    if action is jobs.Action.DELETE:
        if not parse_flag(f"{name}['delete']", value):
            raise InvalidInputError(f"{name}: 'delete' is False. Leave the clause out.")
        return jobs.Clause(action, condition)
    if value == "*":
        return jobs.Clause(action, condition, None)
    return jobs.Clause(action, condition, check_values(value, f"{name}[{action.value!r}]"))
