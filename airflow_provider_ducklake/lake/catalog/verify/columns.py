"""The columns that tables have had at each snapshot, read at once."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from airflow_provider_ducklake.lake.catalog.snapshot.read_layouts import schema_of
from airflow_provider_ducklake.lake.catalog.verify.definitions import is_known_type
from airflow_provider_ducklake.lake.errors import DuckLakeError
from airflow_provider_ducklake.lake.spec.snapshots import ColumnId
from airflow_provider_ducklake.lake.spec.types.ducklake_types import parse_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Row

    from airflow_provider_ducklake.lake.catalog.verify.look import Look
    from airflow_provider_ducklake.lake.spec.schema import TableSchema
    from airflow_provider_ducklake.lake.spec.types.ducklake_types import DuckLakeType

_NESTED = ("list", "struct", "map")


class Columns:
    """Every row of ``ducklake_column`` of the tables looked at."""

    def __init__(self, look: Look) -> None:
        self._rows: dict[int, list[Row[Any]]] = {}
        self._layouts: dict[tuple[int, int], TableSchema | None] = {}
        self._turns: dict[int, list[int]] = {}
        column = look.tables["column"]
        query = (
            select(column)
            .where(look.chosen(column.c.table_id))
            .order_by(column.c.column_order, column.c.column_id)
        )
        for row in look.all(query):
            self._rows.setdefault(row.table_id, []).append(row)

    def types(self, table_id: int) -> dict[ColumnId, tuple[DuckLakeType, ...]]:
        """Return the types that each column without fields has had, those we know, the newest last."""
        found: dict[ColumnId, dict[DuckLakeType, None]] = {}
        for row in sorted(self._rows.get(table_id, ()), key=lambda one: one.begin_snapshot):
            if row.column_type not in _NESTED and is_known_type(row.column_type):
                found.setdefault(ColumnId(row.column_id), {})[parse_type(row.column_type)] = None
        return {column_id: tuple(types) for column_id, types in found.items()}

    def at(self, table_id: int, snapshot: int) -> TableSchema | None:
        """Return the columns that a table had at a snapshot; None where they make no schema."""
        place = bisect_right(self._turns_of(table_id), snapshot)
        if (table_id, place) not in self._layouts:
            self._layouts[table_id, place] = _schema(self._rows.get(table_id, ()), snapshot)
        return self._layouts[table_id, place]

    def _turns_of(self, table_id: int) -> list[int]:
        if table_id not in self._turns:
            rows = self._rows.get(table_id, ())
            begins = {row.begin_snapshot for row in rows}
            ends = {row.end_snapshot for row in rows if row.end_snapshot is not None}
            self._turns[table_id] = sorted(begins | ends)
        return self._turns[table_id]


def _schema(rows: Sequence[Row[Any]], at: int) -> TableSchema | None:
    visible = [
        row
        for row in rows
        if row.begin_snapshot <= at and (row.end_snapshot is None or at < row.end_snapshot)
    ]
    try:
        return schema_of(visible)
    except (DuckLakeError, IndexError):
        return None
