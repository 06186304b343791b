"""A catalog database, opened: what every operation on it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_ducklake.catalog.dialects.dialect import CatalogDialect
    from airflow_provider_ducklake.catalog.tables import CatalogTables


@dataclass(frozen=True, slots=True)
class Catalog:
    """The database's ways, its tables, and the root of the lake's files (ends with ``/``)."""

    dialect: CatalogDialect
    tables: CatalogTables
    data_path: str
