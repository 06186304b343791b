"""The tables of every spec version that we name, against those that a reference of that version made."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from airflow_provider_ducklake.lake.catalog.database.tables import catalog_tables
from airflow_provider_ducklake.lake.format.versions import SpecVersion
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

GOLDEN = Path(__file__).parents[1] / "golden"
LAYOUT = """
SELECT t.name, c.name, c.type,
    max(c."notnull", c.pk > 0), c.pk
FROM sqlite_master t, pragma_table_info(t.name) c
WHERE t.type = 'table' ORDER BY t.name, c.cid
"""


def tables_in(catalog: CatalogDatabase) -> dict[str, list[list[object]]]:
    """Return each table's columns in order: name, declared type, NOT NULL, primary key."""
    found: dict[str, list[list[object]]] = {}
    with closing(sqlite3.connect(catalog.location)) as connection:
        for table, *column in connection.execute(LAYOUT):
            found.setdefault(table, []).append(column)
    return found


def create_tables(catalog: CatalogDatabase, version: SpecVersion) -> None:
    engine = sa.create_engine(catalog.sqlalchemy_url, poolclass=sa.NullPool)
    catalog_tables(version).metadata.create_all(engine)


def test_the_tables_of_0_3_are_those_that_duckdb_1_4_made(sqlite_catalog):
    golden = json.loads((GOLDEN / "catalog_0_3" / "tables.json").read_text())

    create_tables(sqlite_catalog, SpecVersion.V0_3)

    assert golden["version"] == SpecVersion.V0_3.value
    assert tables_in(sqlite_catalog) == golden["tables"]


def test_the_tables_of_1_0_are_those_of_the_reference(new_catalog):
    ours, theirs = new_catalog("sqlite"), new_catalog("sqlite")
    open_lake(theirs).close()

    create_tables(ours, SpecVersion.V1_0)

    assert tables_in(ours) == tables_in(theirs)


def test_0_4_has_the_tables_of_1_0(new_catalog):
    older, newer = new_catalog("sqlite"), new_catalog("sqlite")

    create_tables(older, SpecVersion.V0_4)
    create_tables(newer, SpecVersion.V1_0)

    assert tables_in(older) == tables_in(newer)
