"""Update rows of a lake table with Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.operators.row_changes import (
    DuckLakeSparkRowChangeOperator,
    check_columns,
    check_values,
    plan_target,
)
from airflow_provider_ducklake.spark.job.request import Action, Clause, RowChangeSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.hooks.jdbc_source import JdbcPasswords


class DuckLakeSparkUpdateOperator(DuckLakeSparkRowChangeOperator):
    """Change columns of the rows for which a condition is true, as one snapshot; the rows keep their row ids.

    Expressions see the row as it was. They must fit their columns as an insert's values do: without loss,
    or cast by yourself. No row hit: no snapshot.

    :param set: ``{"price": "price * 2", "address.zip": "NULL"}``: expressions in Spark SQL by columns, or by
        paths of fields in structs. (templated)
    :param where: a condition in Spark SQL on the table's columns; default: all rows. (templated, also from a
        ``.sql`` file)
    :return: as ``DuckLakeSparkDeleteOperator``.
    """

    verb = "update"
    template_fields: Sequence[str] = ("set", "where", *DuckLakeSparkRowChangeOperator.template_fields)
    template_fields_renderers = {"where": "sql", "set": "json"}  # noqa: RUF012 - Airflow's

    def __init__(
        self,
        *,
        set: Mapping[str, str],  # noqa: A002 - SQL's own word
        where: str | None = None,
        **kwargs: Any,  # noqa: ANN401 - the parent's
    ) -> None:
        super().__init__(**kwargs)
        self.set = set
        self.where = where

    def changes(self, lake: Lake, passwords: JdbcPasswords) -> RowChangeSource:  # noqa: ARG002 - no source
        """Return the rows that may be hit, and their new values."""
        values = check_values(self.set, "set")
        plan = plan_target(lake, self.table, self.where)
        check_columns(plan, values)
        clause = Clause(Action.UPDATE, self.where, values)
        return RowChangeSource(replace(plan, where=None), not_matched_by_source=(clause,))
