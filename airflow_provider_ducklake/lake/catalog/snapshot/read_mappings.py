"""Name mappings: which columns of added files are which columns of a table."""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sqlalchemy import Select, select

from airflow_provider_ducklake.lake.catalog.database.questions import OF_TABLE, Question
from airflow_provider_ducklake.lake.errors import CatalogError
from airflow_provider_ducklake.lake.spec.files import MappedColumn, NameMapping
from airflow_provider_ducklake.lake.spec.snapshots import ColumnId, MappingId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Row

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables


def name_mappings(
    connection: Connection, tables: CatalogTables, table_id: int
) -> dict[MappingId, NameMapping]:
    """Return the mappings by name of a table, by id, ascending."""
    return which_mappings(tables, table_id).ask(connection)


def which_mappings(tables: CatalogTables, table_id: int) -> Question[dict[MappingId, NameMapping]]:
    """Ask for the mappings by name of a table."""
    return Question(_mappings(tables), _by_id, {"table": table_id})


@lru_cache
def _mappings(tables: CatalogTables) -> Select[Any]:
    mapping, name = tables["column_mapping"], tables["name_mapping"]
    return (
        select(name)
        .join(mapping, mapping.c.mapping_id == name.c.mapping_id)
        .where(mapping.c.table_id == OF_TABLE, mapping.c.type == "map_by_name")
        .order_by(name.c.mapping_id, name.c.column_id)
    )


def _by_id(rows: Sequence[Row[Any]]) -> dict[MappingId, NameMapping]:
    groups = groupby(rows, key=lambda row: MappingId(row.mapping_id))
    return {mapping_id: _mapping(list(found)) for mapping_id, found in groups}


def _mapping(rows: list[Row[Any]]) -> NameMapping:
    places = {row.column_id: place for place, row in enumerate(rows)}
    return tuple(
        MappedColumn(
            row.source_name,
            ColumnId(row.target_field_id),
            None if row.parent_column is None else _place(row, places),
            bool(getattr(row, "is_partition", False)),
        )
        for row in rows
    )


def _place(row: Row[Any], places: Mapping[int, int]) -> int:
    """Return the place of the column that a nested one lies in."""
    if row.parent_column not in places:
        raise CatalogError(
            f"ducklake_name_mapping has {row.source_name} (column {row.column_id} of mapping "
            f"{row.mapping_id}) in column {row.parent_column}, which it does not have. Add the files "
            "again, or restore the catalog from a backup."
        )
    return places[row.parent_column]
