"""Macros, whose rows we keep as they are: those of 1.0 after a migration, and those that only 1.1 has."""

import pytest
from sqlalchemy import NullPool, create_engine, text

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.interop.lakes import alone, by_duckdb
from tests.reference import ducklakepy_lake
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

MACROS = (
    "CREATE MACRO s.plus(a, b := 2) AS a + b",
    "CREATE MACRO s.over(a) AS a + 1, (a, b) AS a + b, (a INTEGER, b, c := 'x') AS concat(a, b, c)",
    "CREATE MACRO s.many(n) AS TABLE SELECT i FROM range(n) r(i)",
)
# Of 1.1 alone: a default that is an expression, and a nested type as DuckDB writes it.
OF_1_1 = """
UPDATE ducklake_macro_parameters
SET parameter_type = 'INTEGER[]', default_value = 'list_value(1, 2)', default_value_type = 'expression'
WHERE parameter_name = 'b' AND default_value_type <> 'unknown'
"""
ROWS = ("ducklake_macro_impl", "ducklake_macro_parameters")


@pytest.fixture
def migrated(catalog: CatalogDatabase):
    """A migrated lake with macros in schema `s`."""
    by_duckdb(catalog, "CREATE SCHEMA s", "CREATE TABLE s.t (i INTEGER)", *MACROS)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        lake.migrate(to_version="1.1", backup=False)
        yield lake


@pytest.fixture
def macros(catalog: CatalogDatabase, migrated: Lake):
    """The same, with a macro that only 1.1 can have."""
    with create_engine(catalog.sqlalchemy_url, poolclass=NullPool).begin() as connection:
        assert connection.execute(text(OF_1_1)).rowcount == 1
    return migrated


def definitions(catalog: CatalogDatabase) -> list[list[dict[str, object]]]:
    dump = dump_catalog(catalog)
    return [dump[name] for name in ROWS]


def names(catalog: CatalogDatabase) -> list[tuple[str, ...]]:
    with ducklakepy_lake.open_lake(catalog) as theirs:
        return sorted(theirs.macros())


def test_they_come_through_a_migration(macros, catalog):
    assert names(catalog) == [("s", "many"), ("s", "over"), ("s", "plus")]
    assert macros.verify() == []


def test_a_restored_schema_has_them_as_they_were(macros, catalog):
    before, was = macros.current_snapshot().id, definitions(catalog)
    alone(macros).drop_schema("s", cascade=True)
    assert names(catalog) == []
    assert definitions(catalog) == was

    macros.restore(schema="s", at=before)

    assert names(catalog) == [("s", "many"), ("s", "over"), ("s", "plus")]
    assert definitions(catalog) == was
    assert macros.verify() == []


def test_they_go_with_the_last_snapshot_that_has_them(macros, catalog):
    alone(macros).drop_schema("s", cascade=True)
    macros.expire_snapshots(keep_last=1)

    assert definitions(catalog) == [[], []]
    assert dump_catalog(catalog)["ducklake_macro"] == []
    assert macros.verify() == []


@pytest.mark.usefixtures("migrated")
def test_the_reference_calls_what_1_0_knows(catalog, judge):
    with open_lake(judge(catalog)) as reference:
        assert reference.sql("SELECT s.over(1), s.over(1, 2), s.over(1, 2, 'z')") == [(2, "12x", "12z")]
        assert reference.sql("SELECT count(*) FROM s.many(3)") == [(3,)]
