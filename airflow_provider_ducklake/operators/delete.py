"""Delete rows of a lake table with Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.operators.row_changes import DuckLakeSparkRowChangeOperator, plan_target
from airflow_provider_ducklake.spark.job.request import Action, Clause, RowChangeSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.hooks.jdbc_source import JdbcPasswords


class DuckLakeSparkDeleteOperator(DuckLakeSparkRowChangeOperator):
    """Delete the rows of a table for which a condition is true, as one snapshot.

    No such row: no snapshot. Where the catalog's statistics tell that there is none, no Spark job runs
    either.

    :param where: a condition in Spark SQL on the table's columns, which may be called ``target.column``, too.
        (templated, also from a ``.sql`` file)
    :return: ``{"table": "sales.orders", "snapshot_id": 43, "read_snapshot_id": 42, "rows_deleted": 3,
        "rows_updated": 0, "rows_inserted": 0, "files_added": 0, "bytes_added": 0, "delete_files_added": 1,
        "already_committed": False}``; ``snapshot_id`` is None where nothing was hit. Where an earlier try had
        committed it is that try's, and the numbers are None.
    """

    verb = "delete"
    template_fields: Sequence[str] = ("where", *DuckLakeSparkRowChangeOperator.template_fields)
    template_fields_renderers = {"where": "sql"}  # noqa: RUF012 - Airflow's

    def __init__(self, *, where: str, **kwargs: Any) -> None:  # noqa: ANN401 - the parent's
        super().__init__(**kwargs)
        self.where = where

    def changes(self, lake: Lake, passwords: JdbcPasswords) -> RowChangeSource:  # noqa: ARG002 - no source
        """Return the rows that may be hit."""
        if not str(self.where or "").strip():
            raise InvalidInputError(f"where is {self.where!r}; say which rows. All of them: where='true'.")
        plan = plan_target(lake, self.table, self.where)
        clause = Clause(Action.DELETE, self.where)
        return RowChangeSource(replace(plan, where=None), not_matched_by_source=(clause,))
