"""The smallest and largest value of a column, if the catalog knows them exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from airflow_provider_ducklake.lake.catalog.snapshot import read_files
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_read import inlined_delete_marks, read_inlined
from airflow_provider_ducklake.lake.planning.reading.pruning import (
    ColumnHistory,
    InexactError,
    bounds_of_files,
    exact,
    widened,
)
from airflow_provider_ducklake.lake.spec.schema import TableSchema

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.lake.planning.reading.pruning import Bounds
    from airflow_provider_ducklake.lake.planning.reading.scan import InlinedRows
    from airflow_provider_ducklake.lake.spec.schema import Column
    from airflow_provider_ducklake.lake.spec.snapshots import TableSnapshot


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """The least and the greatest value of a column, of its Arrow type; null scalars where it has no value."""

    min: pa.Scalar
    max: pa.Scalar


def column_bounds(
    connection: Connection, catalog: Catalog, table: TableSnapshot, name: str
) -> ColumnBounds | None:
    """Return the bounds of a top-level column; None where the catalog does not say them exactly.

    Raises:
        ColumnNotFoundError: no such column.
    """
    from airflow_provider_ducklake.lake.storage.parquet.arrow_types import from_physical  # noqa: PLC0415 - heavy

    column = table.schema.find(name, str(table.name))
    try:
        found = _bounds(connection, catalog, table, column)
    except InexactError:
        return None
    low, high = from_physical(column.type, found if found is not None else [None, None])
    return ColumnBounds(low, high)


def _bounds(connection: Connection, catalog: Catalog, table: TableSnapshot, column: Column) -> Bounds:
    at = table.snapshot.id
    history = _history(connection, catalog, table, column)
    files = read_files.data_files(connection, catalog, table, stats_of=(column.id,))
    found = bounds_of_files(history, files, at)
    marked = inlined_delete_marks(connection, catalog, table.table_id, at)
    if any(file.id in marked for file in files):
        raise InexactError
    inlined = read_inlined(connection, catalog, table)
    return widened(found, _of_inlined(inlined, column))


def _history(connection: Connection, catalog: Catalog, table: TableSnapshot, column: Column) -> ColumnHistory:
    rows = catalog.tables["column"]
    query = (
        select(rows.c.column_type, func.min(rows.c.begin_snapshot).label("since"))
        .where(rows.c.table_id == table.table_id, rows.c.column_id == column.id)
        .where(rows.c.begin_snapshot <= table.snapshot.id)
        .group_by(rows.c.column_type)
    )
    found = connection.execute(query).all()
    return ColumnHistory(column, min(row.since for row in found), frozenset(row.column_type for row in found))


def _of_inlined(parts: Sequence[InlinedRows], column: Column) -> Bounds:
    from airflow_provider_ducklake.lake.storage.parquet.arrow_types import values_of  # noqa: PLC0415 - heavy
    from airflow_provider_ducklake.lake.storage.rows.inlined_values import inlined_in_schema  # noqa: PLC0415

    rows = inlined_in_schema(parts, TableSchema((column,)))
    found: Bounds = None
    for value in values_of(rows.column(0), column.type):
        if value is not None:
            found = widened(found, exact(value, value))
    return found
