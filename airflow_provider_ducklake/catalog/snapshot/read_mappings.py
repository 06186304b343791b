"""Name mappings: which columns of files that others wrote are which columns of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from airflow_provider_ducklake.spec.files import MappedColumn, NameMapping
from airflow_provider_ducklake.spec.ids import ColumnId, MappingId

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

    from airflow_provider_ducklake.catalog.database.tables import CatalogTables


def name_mappings(
    connection: Connection, tables: CatalogTables, table_id: int
) -> dict[MappingId, NameMapping]:
    """Return the mappings by name of a table, by id, ascending."""
    mapping, name = tables["column_mapping"], tables["name_mapping"]
    rows = connection.execute(
        select(name)
        .join(mapping, mapping.c.mapping_id == name.c.mapping_id)
        .where(mapping.c.table_id == table_id, mapping.c.type == "map_by_name")
        .order_by(name.c.mapping_id, name.c.column_id)
    )
    by_id: dict[MappingId, list[Row[tuple[object, ...]]]] = {}
    for row in rows:
        by_id.setdefault(MappingId(row.mapping_id), []).append(row)
    return {mapping_id: _mapping(found) for mapping_id, found in by_id.items()}


def _mapping(rows: list[Row[tuple[object, ...]]]) -> NameMapping:
    places = {row.column_id: place for place, row in enumerate(rows)}
    return tuple(
        MappedColumn(
            row.source_name,
            ColumnId(row.target_field_id),
            None if row.parent_column is None else places[row.parent_column],
            bool(getattr(row, "is_partition", False)),
        )
        for row in rows
    )
