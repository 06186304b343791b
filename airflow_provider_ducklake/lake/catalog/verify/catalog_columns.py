"""Check that the catalog's own tables have no columns of a newer version: DuckDB inserts by position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.catalog.database.found_columns import superfluous, telling
from airflow_provider_ducklake.lake.planning.upkeep.findings import Finding, FindingCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_ducklake.lake.catalog.verify.look import Look


def check_columns(look: Look) -> Iterator[Finding]:
    """Yield the tables and columns that the catalog's version does not have."""
    schema = look.tables.metadata_schema
    found = look.catalog.dialect.which_columns(tuple(telling()), schema).ask(look.connection)
    for name in superfluous(found, look.tables):
        yield Finding(
            FindingCode.COLUMNS_TOO_NEW,
            f"The catalog has {name}, which is not in DuckLake {look.tables.version.value}, its version: "
            "DuckDB inserts by position, and fails.",
            {"name": name},
        )
