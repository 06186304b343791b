"""Check that no row lacks a value that every writer gives it: such a row cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import case, func, or_, select

from airflow_provider_ducklake.catalog.database.column_types import is_needed
from airflow_provider_ducklake.planning.upkeep.findings import Finding, FindingCode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sqlalchemy import Connection

    from airflow_provider_ducklake.catalog.database.tables import CatalogTables


def missing_values(
    connection: Connection, tables: CatalogTables, only: Collection[int] | None
) -> Iterator[Finding]:
    """Yield the columns that are NULL in rows of tables of those ids (None: of all), or of no known table."""
    for table in tables.metadata.sorted_tables:
        columns = [one for one in table.c if is_needed(one)]
        numbers = (func.count(case((one.is_(None), 1))).label(one.name) for one in columns)
        query = select(*numbers).where(or_(*(one.is_(None) for one in columns)))
        if only is not None and "table_id" in table.c:
            query = query.where(or_(table.c.table_id.in_(only), table.c.table_id.is_(None)))
        for column, number in connection.execute(query).one()._asdict().items():
            if number:
                yield Finding(
                    FindingCode.VALUE_MISSING,
                    f"{table.name}.{column} is NULL in {number} rows: nothing else was checked.",
                    {"kind": table.name, "column": column, "rows": number},
                )
