"""Check that no schema lies in itself: such a one has no full name, and neither has what lies in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.catalog.snapshot.read import all_schema_parents
from airflow_provider_ducklake.lake.planning.upkeep.findings import Finding, FindingCode
from airflow_provider_ducklake.lake.spec.names.identifiers import schema_circles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables


def check_schema_circles(connection: Connection, tables: CatalogTables) -> Iterator[Finding]:
    """Yield each circle of schemas that lie in each other."""
    rows = all_schema_parents(connection, tables)
    names = {schema_id: name for schema_id, _, name in rows}
    for circle in schema_circles({schema_id: parent for schema_id, parent, _ in rows}):
        listed = ", ".join(f"{names[one]!r} (id {one})" for one in circle)
        yield Finding(
            FindingCode.SCHEMA_CIRCLE,
            f"The schemas {listed} lie in each other: parent_schema_id leads round in a circle.",
            {"schema_id": min(circle)},
        )
