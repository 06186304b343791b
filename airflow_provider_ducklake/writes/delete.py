"""Delete rows of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.spark.job.request import Action, Clause, RowChangeSource
from airflow_provider_ducklake.writes.row_changes import find_target, plan_change, summary_of_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.spec.commit_key import CommitRecord
    from airflow_provider_ducklake.spec.names.identifiers import TableName
    from airflow_provider_ducklake.writes.row_changes import PlannedRowChange
    from airflow_provider_ducklake.writes.verb import Commit, Resolve, Summary


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the rows for which ``where`` is true; see ``DuckLakeSparkDeleteOperator``."""

    table: TableName
    where: str
    engine: str = "auto"

    def plan(self, lake: Lake, commit: Commit, resolve: Resolve) -> PlannedRowChange:  # noqa: ARG002
        """Plan on the newest snapshot; see ``Verb``."""
        if not str(self.where or "").strip():
            raise InvalidInputError(
                f"where is {self.where!r}. Give a condition; to delete all rows, give where='true'."
            )
        clause = Clause(Action.DELETE, self.where)
        changes = RowChangeSource(find_target(lake, self.table, self.where), not_matched_by_source=(clause,))
        return plan_change("delete", changes, self.engine)

    def summary_of_records(self, lake: Lake, records: Sequence[CommitRecord]) -> Summary:  # noqa: ARG002
        """Return what is known of a commit that was made before."""
        return summary_of_records(self.table, records)
