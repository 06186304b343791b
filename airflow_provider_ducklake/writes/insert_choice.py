"""What an insert does with the existing rows and columns of its table: keep, replace, evolve."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.planning.writing.write import (
    Evolution,
    InsertMode,
    RowOrder,
    SchemaEvolution,
    append_to_existing,
    plan_write,
)
from airflow_provider_ducklake.writes.arguments import names_of, parse_word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.planning.writing.row_changes import FoundRows
    from airflow_provider_ducklake.planning.writing.write import WritePlan, WriteResult
    from airflow_provider_ducklake.spark.job.request import RowChangeSource
    from airflow_provider_ducklake.spec.snapshots import TableSnapshot
    from airflow_provider_ducklake.transaction.changes import Change


@dataclass(frozen=True, slots=True)
class InsertChoice:
    """How rows go into a table that exists; ``where`` are the rows to be replaced, as a condition."""

    mode: InsertMode = InsertMode.APPEND
    where: str | None = None
    evolution: SchemaEvolution = SchemaEvolution.STRICT
    zorder_by: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        mode: str,
        where: str | None,
        evolution: str,
        zorder_by: str | Sequence[str],
        *,
        stage_only: bool = False,
    ) -> InsertChoice:
        """Return the choice for an operator's arguments.

        Raises:
            InvalidInputError: a word cannot be read, or some do not go together.
        """
        choice = cls(
            parse_word("mode", mode, InsertMode),
            where,
            parse_word("schema_evolution", evolution, SchemaEvolution),
            names_of(zorder_by),
        )
        choice.check(stage_only=stage_only)
        return choice

    @property
    def replaces(self) -> bool:
        """Whether rows that the table has give way to the new ones."""
        return self.mode is not InsertMode.APPEND or self.where is not None

    def check(self, *, stage_only: bool) -> None:
        """Refuse what does not go together.

        Raises:
            InvalidInputError: says what.
        """
        if self.where is not None and self.mode is InsertMode.OVERWRITE_PARTITIONS:
            raise InvalidInputError(
                "overwrite_where and mode='overwrite_partitions' both say which rows to replace: give one "
                "of them."
            )
        if stage_only and (self.replaces or self.evolution is not SchemaEvolution.STRICT):
            raise InvalidInputError(
                "stage_only=True can only append: if staged writes replaced rows or changed columns, the "
                "result would depend on their order. Leave out mode, overwrite_where and schema_evolution, "
                "or commit in this task."
            )

    def plan(self, lake: Lake, table: TableSnapshot, directory: str) -> WritePlan:
        """Return the plan for writing to a table.

        Raises:
            InvalidInputError: its partitions are to be replaced, and it has none.
            InvalidPredicateError, ColumnNotFoundError: ``where`` or ``zorder_by`` cannot be meant.
        """
        if self.mode is InsertMode.OVERWRITE_PARTITIONS and table.partition_spec is None:
            raise InvalidInputError(
                f"mode='overwrite_partitions': {table.name} is not partitioned. Use mode='overwrite', or "
                "say which rows to replace with overwrite_where."
            )
        names = tuple(table.schema.find(name, str(table.name)).name for name in self.zorder_by)
        plan = plan_write(table, directory)
        plan = replace(plan, row_order=RowOrder(plan.row_order.sort_by, names))
        if self.where is not None:
            from airflow_provider_ducklake.sql.predicate import read_predicate  # noqa: PLC0415 - heavy

            plan = replace(plan, where=read_predicate(self.where, table.schema, str(table.name)))
        if self.evolution is not SchemaEvolution.STRICT:
            plan = replace(plan, evolution=self._evolution(lake, table, plan))
        return plan

    def _evolution(self, lake: Lake, table: TableSnapshot, plan: WritePlan) -> Evolution:
        from airflow_provider_ducklake.planning.reading.predicates import column_ids  # noqa: PLC0415 - no DAG needs it

        return Evolution(
            next_column_id=lake.next_column_id(table),
            widens=self.evolution is SchemaEvolution.ADD_AND_WIDEN,
            inlining=table.options.integer("data_inlining_row_limit") > 0,
            fixed=() if plan.where is None else tuple(column_ids(plan.where)),
        )

    def to_be_found(self, lake: Lake, table: TableSnapshot) -> RowChangeSource | None:
        """Return the rows to be replaced that the job has to find; None: the commit does."""
        from airflow_provider_ducklake.spark.job.request import Action, Clause, RowChangeSource  # noqa: PLC0415

        plan = None if self.where is None else lake.too_large_to_read(table, self.where)
        if plan is None:
            return None
        return RowChangeSource(plan, not_matched_by_source=(Clause(Action.DELETE),))

    def changes(
        self,
        lake: Lake,
        table: TableSnapshot,
        result: WriteResult,
        found: FoundRows | None = None,
    ) -> tuple[Change, ...]:
        """Return what a job's result makes of the table as it was planned.

        ``found`` are the rows that it was to find.

        Raises:
            TransactionConflictError: the table is another one by now.
            UnsupportedFeatureError: a file may hold rows of a partition to be replaced beside others.
        """
        from airflow_provider_ducklake.transaction.changes import EndFiles  # noqa: PLC0415 - no DAG file needs it

        changes = (*self._replacing(lake, table, result, found), *self._adding(lake, table, result))
        is_idle = all(isinstance(change, EndFiles) and not change.file_ids for change in changes)
        return () if is_idle else changes

    def _replacing(
        self,
        lake: Lake,
        table: TableSnapshot,
        result: WriteResult,
        found: FoundRows | None,
    ) -> tuple[Change, ...]:
        if self.where is not None:
            return lake.replacing_where(table, self.where, found)
        match self.mode:
            case InsertMode.OVERWRITE if result.data_files or lake.has_live_rows(table):
                from airflow_provider_ducklake.transaction.changes import Truncate  # noqa: PLC0415 - no DAG file needs it

                return (Truncate(table.table_id, table.name),)
            case InsertMode.OVERWRITE_PARTITIONS if result.data_files:
                return lake.replacing_partitions(table, {file.partition_values for file in result.data_files})
            case _:
                return ()

    def _adding(self, lake: Lake, table: TableSnapshot, result: WriteResult) -> tuple[Change, ...]:
        if self.evolution is SchemaEvolution.STRICT:
            return append_to_existing(table, result)
        from airflow_provider_ducklake.planning.writing.evolution import evolve_and_append  # noqa: PLC0415

        return evolve_and_append(table, result, lake.next_column_id(table))


def check_partition_by(partition_by: str | Sequence[str], *, create_table: bool) -> None:
    """Refuse keys for a table that is not to be created.

    Raises:
        InvalidInputError: says so.
    """
    if partition_by and not create_table:
        raise InvalidInputError(
            "partition_by applies only when the table is created: give create_table=True, too."
        )
