"""Merge rows of a source into a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.spark.job.request import Action, Clause, LakeSource, RowChangeSource, Step
from airflow_provider_ducklake.lake.spark.types.names import quoted
from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName, quote
from airflow_provider_ducklake.lake.writes.arguments import SOURCE_ALIAS, TARGET_ALIAS, parse_flag
from airflow_provider_ducklake.lake.writes.row_changes import (
    check_columns,
    check_values,
    find_target,
    plan_change,
    summary_of_records,
)
from airflow_provider_ducklake.lake.writes.sql_plan import Reads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_ducklake.lake.catalog.lake import Lake
    from airflow_provider_ducklake.lake.spark.job.request import GivenSource
    from airflow_provider_ducklake.lake.spec.names.identifiers import TableName
    from airflow_provider_ducklake.lake.spec.snapshots import CommitRecord, SnapshotId
    from airflow_provider_ducklake.lake.writes.arguments import GivenRows
    from airflow_provider_ducklake.lake.writes.row_changes import PlannedRowChange
    from airflow_provider_ducklake.lake.writes.verb import Commit, Resolve, Summary


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
    engine: str = "auto"

    def plan(self, lake: Lake, commit: Commit, resolve: Resolve) -> PlannedRowChange:
        """Plan on the newest snapshot; see ``Verb``."""
        on = self._on()
        matched = _clauses(self.when_matched, "when_matched", Action.UPDATE, Action.DELETE)
        not_matched = _clauses(self.when_not_matched, "when_not_matched", Action.INSERT)
        left = _clauses(
            self.when_not_matched_by_source, "when_not_matched_by_source", Action.UPDATE, Action.DELETE
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
        changes = RowChangeSource(
            target,
            self._source(lake, resolve, target.table.snapshot.id, commit.job_id),
            on,
            matched,
            not_matched,
            left,
            target_alias=self.target_alias,
            source_alias=self.source_alias,
        )
        return plan_change("merge", changes, where, self.engine, commit.job_id)

    def _on(self) -> str:
        if isinstance(self.on, str):
            return self.on
        sides = (self.target_alias, self.source_alias)
        equal = [" = ".join(f"{quoted(side)}.{quoted(name)}" for side in sides) for name in self.on]
        if not equal:
            raise InvalidInputError("on is empty; name the columns that must match.")
        return " AND ".join(equal)

    def _source(self, lake: Lake, resolve: Resolve, at: SnapshotId, job_id: str) -> LakeSource | GivenSource:
        if self.source_table is not None:
            with lake.planned_on(at):
                return _lake_source(lake, self.source_table, at, job_id)
        return self.rows.resolved(resolve)

    def summary_of_records(self, lake: Lake, records: Sequence[CommitRecord]) -> Summary:  # noqa: ARG002
        """Return what is known of a commit that was made before."""
        return summary_of_records(self.table, records)


def _lake_source(lake: Lake, table: TableName, at: int, job_id: str) -> LakeSource:
    reads = Reads(lake, job_id, lake.snapshot_at(version=at))
    view = reads.view_of(QualifiedName.of(table))
    steps = (*reads.steps, Step(f"SELECT * FROM {quoted(view)}", plan=0))  # noqa: S608 - a view's name
    return LakeSource(reads.tables, steps=steps)


def _clauses(items: object, name: str, *actions: Action) -> tuple[Clause, ...]:
    """Return the clauses that a user gave.

    Raises:
        InvalidInputError: one cannot be read, or never applies since one before it always does.
    """
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


def _clause(item: object, name: str, actions: Sequence[Action]) -> Clause:
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
    if action is Action.DELETE:
        if not parse_flag(f"{name}['delete']", value):
            raise InvalidInputError(f"{name}: 'delete' is False. Leave the clause out.")
        return Clause(action, condition)
    if value == "*":
        return Clause(action, condition, None)
    return Clause(action, condition, check_values(value, f"{name}[{action.value!r}]"))
