"""Which rows of a table a write read, or replaced: what others do with other rows is no conflict.

A scope may be wider than the rows, never narrower: what is not known of a file, or cannot be read of a
condition, counts as one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.planning.reading.predicates import ALWAYS, column_ids
from airflow_provider_ducklake.lake.planning.reading.pruning import may_match

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_ducklake.lake.planning.reading.predicates import Predicate
    from airflow_provider_ducklake.lake.planning.writing.overwrite import Partitions
    from airflow_provider_ducklake.lake.spec.files import LiveDataFile
    from airflow_provider_ducklake.lake.spec.partitioning import PartitionSpec
    from airflow_provider_ducklake.lake.spec.snapshots import ColumnId, PartitionId, TableSnapshot


@dataclass(frozen=True)
class RowScope:
    """Rows of ``table`` as it was read: those of ``partitions``, or else those that satisfy ``where``."""

    table: TableSnapshot
    where: Predicate = ALWAYS
    partitions: Partitions | None = None

    @cached_property
    def column_ids(self) -> frozenset[ColumnId]:
        """The columns whose statistics tell whether a file may hold such rows."""
        if self.partitions is not None:
            return frozenset(field.column_id for field in self.partitions.fields)
        return frozenset(column_ids(self.where))

    def may_hold(self, file: LiveDataFile, specs: Mapping[PartitionId, PartitionSpec]) -> bool:
        """Whether a file may hold such rows, deleted ones too; ``specs`` are all that the table ever had."""
        if self.partitions is not None:
            return self.partitions.may_hold(file)
        types = {column.id: column.type for column in self.table.schema.walk()}
        return may_match(self.where, file, types, specs)
