"""The rows that a clause writes: changed ones with their row ids, and new ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f

from airflow_provider_ducklake.lake.spark.read import read_table
from airflow_provider_ducklake.lake.spark.row_changes.checks import assignments
from airflow_provider_ducklake.lake.spark.row_changes.matching import broadcast_if_small
from airflow_provider_ducklake.lake.storage.rows import table_reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider_ducklake.lake.spark.job.request import RowChangeSource
    from airflow_provider_ducklake.lake.spark.row_changes.matching import Found
    from airflow_provider_ducklake.lake.spark.types.names import MatchNames


@dataclass(frozen=True)
class ChangedRows:
    """What clauses write of the rows found."""

    changes: RowChangeSource
    source: DataFrame | None
    found: Found

    def inserted(self, number: int) -> DataFrame:
        """Return the rows that the clause of that number inserts."""
        assert self.source is not None
        rows = self.found.unmatched(self.source, self.changes, number)
        return rows.alias(self.changes.source_alias).select(assignments(self.changes)[number].inserted())

    def updated(self, number: int) -> DataFrame:
        """Return the rows that the clause of that number updates, behind their columns their row ids.

        The table is read again only where a column keeps its value or is computed from others.
        """
        assigned = assignments(self.changes)[number]
        names, rows = self.found.names, self._places(number)
        if assigned.needs_target or self.changes.clauses[number].values_see_target:
            same_row = f.col(names.file_id).eqNullSafe(f.col(names.found_file)) & (
                _place(names) == f.col(names.found_place)
            )
            rows = self._read_again(number).join(rows, same_row)
        if self.source is not None and number < len(self.changes.matched):
            source = self.source.alias(self.changes.source_alias)
            rows = rows.join(source, f.col(names.found_source) == f.col(names.source_id))
        return rows.select(*assigned.updated(), f.col(names.found_row).alias(table_reader.ROW_ID.name))

    def _places(self, number: int) -> DataFrame:
        names = self.found.names
        rows = self.found.rows.where(f.col(names.clause) == number).select(
            f.col(names.file_id).alias(names.found_file),
            _place(names).alias(names.found_place),
            f.col(names.row_id).alias(names.found_row),
            f.col(names.source_id).alias(names.found_source),
        )
        return broadcast_if_small(rows, self.found.count([number]))

    def _read_again(self, number: int) -> DataFrame:
        """Return all of the files, and of the rows in the catalog, that have rows to update."""
        plan, files = self.changes.target, self.found.files([number])
        touched = replace(
            plan,
            files=tuple(file for file in plan.files if file.id in files),
            inlined_rows=plan.inlined_rows if (None, number) in self.found.counts else (),
            columns=plan.table.schema.names,
            where=None,
        )
        rows = read_table(
            self.found.rows.sparkSession,
            touched,
            row_ids=True,
            positions=True,
            prefix=self.found.names.prefix,
        )
        return rows.alias(self.changes.target_alias)


def _place(names: MatchNames) -> SparkColumn:
    """Return what tells a row of a file from others, and one in the catalog: its position or its row id."""
    return f.coalesce(f.col(names.position), f.col(names.row_id))
