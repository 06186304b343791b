"""The columns that a catalog has, beside those of the version that it says it has.

Only tables are looked at that newer versions than 1.0 changed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.catalog.database.tables import catalog_tables
from airflow_provider_ducklake.lake.errors import CatalogError
from airflow_provider_ducklake.lake.spec.versions import DEFAULT, NEWEST

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables


@lru_cache(maxsize=1)
def telling() -> dict[str, tuple[str, ...]]:
    """Return the columns that are newer than 1.0, by their tables."""
    old, new = catalog_tables(DEFAULT).metadata.tables, catalog_tables(NEWEST).metadata.tables
    added = {
        name: tuple(one.name for one in table.columns if name not in old or one.name not in old[name].columns)
        for name, table in new.items()
    }
    return {name: columns for name, columns in added.items() if columns}


def check_complete(found: Mapping[str, Sequence[str]], tables: CatalogTables, catalog: str) -> None:
    """Refuse a catalog that lacks what its version has.

    Raises:
        CatalogError: names the tables and columns.
    """
    missing = _without(_of(tables), found)
    if missing:
        version = tables.version.value
        raise CatalogError(
            f"{catalog} says that it has DuckLake {version}, and lacks {', '.join(missing)}. A migration by "
            "other means that did not finish may have left it so. Restore the catalog from a backup, or set "
            f"its version in ducklake_metadata to {tables.writer.unfinished.value!r} and complete it with "
            f"DuckLakeMigrateOperator(to_version={version!r}). MySQL and MariaDB also hide tables from "
            "users without rights on them: grant again, by DuckLakeHook.grants(role)."
        )


def superfluous(found: Mapping[str, Sequence[str]], tables: CatalogTables) -> list[str]:
    """Return the tables and columns that a catalog has although only newer versions have them."""
    there = {
        table: [one for one in columns if one in found.get(table, ())] for table, columns in telling().items()
    }
    return _without(there, _of(tables))


def _of(tables: CatalogTables) -> dict[str, list[str]]:
    """Return those of the columns that a version has."""
    known = {table.name: table.columns for table in tables.metadata.sorted_tables}
    return {
        name: [one for one in columns if name in known and one in known[name]]
        for name, columns in telling().items()
    }


def _without(ours: Mapping[str, Sequence[str]], theirs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return what ours has and theirs has not: a whole table by its name, else each column."""
    found = []
    for table, columns in ours.items():
        lacking = [one for one in columns if one not in theirs.get(table, ())]
        is_whole = lacking and not theirs.get(table)
        is_new = table not in catalog_tables(DEFAULT).metadata.tables
        found += [table] if is_whole and is_new else [f"{table}.{one}" for one in lacking]
    return found
