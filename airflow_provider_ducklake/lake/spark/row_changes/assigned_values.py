"""What a clause puts into the columns of changed and of new rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.spark.types.names import quoted
from airflow_provider_ducklake.lake.spark.types.spark_types import default_value, has_default, presented
from airflow_provider_ducklake.lake.spec.names.identifiers import split_parts
from airflow_provider_ducklake.lake.spec.schema import TableSchema
from airflow_provider_ducklake.lake.spec.types.ducklake_types import StructType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_ducklake.lake.spark.job.request import Clause
    from airflow_provider_ducklake.lake.spec.schema import Column
    from airflow_provider_ducklake.lake.spec.snapshots import ColumnId


@dataclass(frozen=True)
class Assignment:
    """What a clause puts into the columns of a table; ``target`` and ``source`` are what rows are called."""

    clause: Clause
    schema: TableSchema
    table: str
    target: str
    source: str

    @cached_property
    def values(self) -> Mapping[ColumnId, str]:
        """Expressions by the columns and fields that take them.

        Raises:
            ColumnNotFoundError: no such column.
            InvalidInputError: a column gets two values.
        """
        if self.clause.values is None:
            return {
                column.id: f"{quoted(self.source)}.{quoted(column.name)}" for column in self.schema.columns
            }
        found: dict[ColumnId, str] = {}
        above: set[ColumnId] = set()
        for path, text in self.clause.values.items():
            *parents, column = _path_to(self.schema, path, self.table)
            if column.id in above or any(one.id in found for one in (*parents, column)):
                raise InvalidInputError(f"{path!r} is assigned twice in one clause. Assign it once.")
            found[column.id] = text
            above.update(parent.id for parent in parents)
        return found

    @property
    def needs_target(self) -> bool:
        """Whether a column keeps its value, or part of it."""
        return not all(column.id in self.values for column in self.schema.columns)

    def updated(self) -> list[SparkColumn]:
        """Return the columns of changed rows, from rows of the table and the source."""
        return [
            self._assigned(column, f.col(f"{quoted(self.target)}.{quoted(column.name)}")).alias(column.name)
            for column in self.schema.columns
        ]

    def _assigned(self, column: Column, value: SparkColumn) -> SparkColumn:
        if column.id in self.values:
            return f.expr(self.values[column.id])
        if not any(one.id in self.values for one in column.walk()):
            return value
        fields = [
            self._assigned(child, value.getField(child.name)).alias(child.name) for child in column.children
        ]
        return f.struct(*fields)

    def inserted(self) -> list[SparkColumn]:
        """Return the columns of new rows, from rows of the source; one that is missing is not nullable.

        Raises:
            UnsupportedFeatureError: a default that is not a plain value.
        """
        columns = []
        for column in self.schema.columns:
            if column.id in self.values:
                columns.append(f.expr(self.values[column.id]).alias(column.name))
            elif has_default(column):
                columns.append(presented(default_value(column), column).alias(column.name))
            elif column.nullable:
                columns.append(f.lit(None).alias(column.name))
        return columns


def _path_to(schema: TableSchema, path: str, table: str) -> list[Column]:
    """Return the column that a dotted path names, behind the structs that it lies in."""
    first, *rest = split_parts(path)
    columns = [schema.find(first, table)]
    for part in rest:
        if not isinstance(columns[-1].type, StructType):
            raise InvalidInputError(f"{path!r}: {columns[-1].name} is not a struct; assign the whole column.")
        columns.append(TableSchema(columns[-1].children).find(part, f"{table} column {columns[-1].name}"))
    return columns
