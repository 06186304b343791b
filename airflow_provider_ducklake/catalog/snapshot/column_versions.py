"""The columns of a table: at any snapshot, and since when they have been as they are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Row, Select, select

from airflow_provider_ducklake.catalog.database.questions import OF_TABLE, Question
from airflow_provider_ducklake.spec.ids import ColumnId, SnapshotId
from airflow_provider_ducklake.spec.schema import Column, Default, TableSchema, assemble
from airflow_provider_ducklake.spec.types.ducklake_types import ScalarType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_provider_ducklake.catalog.database.tables import CatalogTables


def which_columns(tables: CatalogTables, table_id: int) -> Question[ColumnVersions]:
    """Ask for every column that a table ever had."""
    return Question(_columns(tables), ColumnVersions, {"table": table_id})


@lru_cache
def _columns(tables: CatalogTables) -> Select[Any]:
    column = tables["column"]
    return (
        select(column)
        .where(column.c.table_id == OF_TABLE)
        .order_by(column.c.column_order, column.c.column_id)
    )


@dataclass(frozen=True, slots=True)
class ColumnVersions:
    """The rows of ``ducklake_column`` of a table, in the columns' order."""

    rows: Sequence[Row[Any]]

    def at(self, at: int) -> TableSchema:
        """Return the columns at a snapshot."""
        return schema_of(row for row in self.rows if is_visible(row, at))

    def since(self, at: int) -> dict[ColumnId, SnapshotId]:
        """Return the snapshot that gave each column and nested field the name and type it has at a snapshot.

        A column that came back after it had gone is as old as that: files between lack it. One that ends and
        begins again without any difference is as well: a restored table may have files from before the column
        was as it is, in snapshots since (``planning.restore.outdated_columns``).
        """
        known: dict[ColumnId, Row[Any]] = {}
        since: dict[ColumnId, SnapshotId] = {}
        for row in sorted(self.rows, key=lambda row: row.begin_snapshot):
            if row.begin_snapshot > at:
                break
            before = known.get(row.column_id)
            if before is None or not _goes_on(before, row):
                since[row.column_id] = SnapshotId(row.begin_snapshot)
            known[row.column_id] = row
        return since


_NAME_AND_TYPE = ("column_name", "column_type")
_LIFE = ("begin_snapshot", "end_snapshot")


def _goes_on(before: Row[Any], row: Row[Any]) -> bool:
    """Whether files of a column's first row have it by the name and type of the second."""
    pairs = zip(row._fields, before, row, strict=True)
    differs = {name for name, old, new in pairs if name not in _LIFE and old != new}
    return before.end_snapshot == row.begin_snapshot and bool(differs) and differs.isdisjoint(_NAME_AND_TYPE)


def is_visible(row: Row[Any], at: int) -> bool:
    """Whether a versioned row is visible at a snapshot."""
    return row.begin_snapshot <= at and (row.end_snapshot is None or row.end_snapshot > at)


def schema_of(rows: Iterable[Row[Any]]) -> TableSchema:
    """Return the columns that rows of ``ducklake_column`` make, in their order."""
    return assemble((_column(row), row.parent_column, row.column_type) for row in rows)


def _column(row: Row[Any]) -> Column:
    default = Default(
        row.default_value,
        getattr(row, "default_value_type", "literal"),
        getattr(row, "default_value_dialect", "duckdb"),
    )
    return Column(
        ColumnId(row.column_id),
        row.column_name,
        _UNKNOWN,
        nullable=row.nulls_allowed,
        initial_default=row.initial_default,
        default=default,
    )


_UNKNOWN = ScalarType("unknown")  # until the text is read with those of its fields
