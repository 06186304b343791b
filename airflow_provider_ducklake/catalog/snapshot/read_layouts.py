"""Catalog tables for inlined rows, as the registry has them: one for each layout of columns a table had."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Select, func, select

from airflow_provider_ducklake.catalog.database.questions import Question, one_of, values_of
from airflow_provider_ducklake.spec.ids import TableId

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow_provider_ducklake.catalog.database.tables import CatalogTables


def inlined_tables(connection: Connection, tables: CatalogTables, table_id: int) -> list[str]:
    """Return the names of the registered inlined-data tables of a table, oldest layout first."""
    registry = tables["inlined_data_tables"]
    rows = connection.execute(
        select(registry.c.table_name)
        .where(registry.c.table_id == table_id)
        .order_by(registry.c.schema_version)
    )
    return list(rows.scalars())


def layouts(connection: Connection, tables: CatalogTables, table_id: int) -> list[int]:
    """Return the schema versions that a table has registered inlined tables for, oldest first."""
    registry = tables["inlined_data_tables"]
    query = select(registry.c.schema_version).where(registry.c.table_id == table_id)
    return list(connection.execute(query.distinct().order_by(registry.c.schema_version)).scalars())


def which_newest_layouts(tables: CatalogTables, table_ids: Collection[int]) -> Question[dict[TableId, int]]:
    """Ask for the schema version of the newest registered inlined table of those tables that have one."""
    return Question(
        _newest_layouts(tables, len(table_ids)),
        lambda rows: {TableId(row.table_id): row.newest for row in rows},
        values_of(table_ids),
    )


@lru_cache
def _newest_layouts(tables: CatalogTables, count: int) -> Select[Any]:
    registry = tables["inlined_data_tables"]
    return (
        select(registry.c.table_id, func.max(registry.c.schema_version).label("newest"))
        .where(one_of(registry.c.table_id, count))
        .group_by(registry.c.table_id)
    )
