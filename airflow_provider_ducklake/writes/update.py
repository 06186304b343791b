"""Update rows of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ducklake.spark.job.request import Action, Clause, RowChangeSource
from airflow_provider_ducklake.writes.row_changes import (
    check_columns,
    check_values,
    find_target,
    plan_change,
    summary_of_records,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.spec.commit_key import CommitRecord
    from airflow_provider_ducklake.spec.names.identifiers import TableName
    from airflow_provider_ducklake.writes.row_changes import PlannedRowChange
    from airflow_provider_ducklake.writes.verb import Commit, Resolve, Summary


@dataclass(frozen=True, slots=True)
class Update:
    """Set columns of the rows for which ``where`` is true; see ``DuckLakeSparkUpdateOperator``."""

    table: TableName
    set: Mapping[str, str]
    where: str | None = None
    engine: str = "auto"

    def plan(self, lake: Lake, commit: Commit, resolve: Resolve) -> PlannedRowChange:  # noqa: ARG002
        """Plan on the newest snapshot; see ``Verb``."""
        values = check_values(self.set, "set")
        target = find_target(lake, self.table, self.where)
        check_columns(target, values)
        clause = Clause(Action.UPDATE, self.where, values)
        return plan_change("update", RowChangeSource(target, not_matched_by_source=(clause,)), self.engine)

    def summary_of_records(self, lake: Lake, records: Sequence[CommitRecord]) -> Summary:  # noqa: ARG002
        """Return what is known of a commit that was made before."""
        return summary_of_records(self.table, records)
