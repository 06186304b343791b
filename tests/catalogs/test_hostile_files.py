"""A catalog file that somebody changed reads nothing but itself."""

import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from airflow_provider_ducklake.lake.catalog.database.connect import open_engine, parse_url
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.upkeep.export import mark_of
from airflow_provider_ducklake.lake.errors import UntrustedValueError
from tests.reference.catalogs import CatalogDatabase

VIEW = (
    "ALTER TABLE {table} RENAME TO kept",
    "CREATE VIEW {table} AS SELECT * FROM kept",
)
TRIGGER = "CREATE TRIGGER t AFTER INSERT ON {} BEGIN DELETE FROM ducklake_tag; END"


def _run(catalog: CatalogDatabase, *statements: str) -> None:
    connect = sqlite3.connect if catalog.kind == "sqlite" else duckdb.connect
    with closing(connect(catalog.location)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
@pytest.mark.parametrize("table", ["ducklake_view", "ducklake_metadata", "DUCKLAKE_COLUMN"])
def test_a_view_in_the_place_of_a_table_is_refused_by_name(new_catalog, kind, table):
    catalog = new_catalog(kind)
    Lake.create(catalog.sqlalchemy_url, catalog.data_path).close()
    _run(catalog, *(one.format(table=table) for one in VIEW))

    with pytest.raises(UntrustedValueError, match=f"'{table}', which is a view"):
        Lake.connect(catalog.sqlalchemy_url)


@pytest.mark.parametrize("table", ["ducklake_snapshot", "DUCKLAKE_SNAPSHOT"])
@pytest.mark.parametrize("type_", ["trigger", "TRIGGER"])
def test_a_trigger_on_a_table_is_refused(sqlite_catalog, table, type_):
    Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path).close()
    as_type = f"UPDATE sqlite_master SET type = '{type_}' WHERE type = 'trigger'"
    _run(sqlite_catalog, TRIGGER.format(table), "PRAGMA writable_schema = ON", as_type)

    with pytest.raises(UntrustedValueError, match="'ducklake_snapshot', which has a trigger"):
        Lake.connect(sqlite_catalog.sqlalchemy_url)


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_view_that_takes_a_tables_place_while_the_lake_is_open_is_refused(new_catalog, kind):
    catalog = new_catalog(kind)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        assert lake.current_snapshot().id == 0
        _run(catalog, *(one.format(table="ducklake_snapshot") for one in VIEW))

        with pytest.raises(UntrustedValueError, match="'ducklake_snapshot', which is a view"):
            lake.current_snapshot()


def test_a_macro_that_comes_while_the_lake_is_open_is_refused(duckdb_catalog):
    with Lake.create(duckdb_catalog.sqlalchemy_url, duckdb_catalog.data_path) as lake:
        lake.current_snapshot()
        _run(duckdb_catalog, "CREATE MACRO max(a) AS 7")

        with pytest.raises(UntrustedValueError, match="'max', which is a macro"):
            lake.current_snapshot()


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_tables_and_views_of_a_user_beside_the_lakes_are_no_matter(new_catalog, kind):
    catalog = new_catalog(kind)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        _run(catalog, "CREATE TABLE mine (a INTEGER)", "CREATE VIEW ducklake_report AS SELECT * FROM mine")

        assert lake.current_snapshot().id == 0
        with Lake.connect(catalog.sqlalchemy_url) as again:
            assert again.current_snapshot().id == 0


@pytest.mark.parametrize("macro", ["max(a)", "MAX(a)", "current_database()", '"+"(a, b)', "duckdb_columns()"])
def test_a_macro_with_the_name_of_a_function_is_refused(new_catalog, macro):
    catalog = new_catalog("duckdb")
    Lake.create(catalog.sqlalchemy_url, catalog.data_path).close()
    body = "TABLE SELECT 1" if "columns" in macro else "7"
    _run(catalog, f"CREATE MACRO {macro} AS {body}", "CREATE MACRO cents(a) AS a * 100")

    name = macro.partition("(")[0].strip('"').lower()
    with pytest.raises(UntrustedValueError, match=f"'{name.replace('+', '[+]')}', which is a macro"):
        Lake.connect(catalog.sqlalchemy_url)


@pytest.mark.parametrize("only_reads", [True, False])
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT content FROM read_text('{other}')",
        "ATTACH '{other}.duckdb' AS other",
        "COPY (SELECT 1) TO '{other}.csv'",
        "SET enable_external_access = true",
        "SET allowed_paths = ['{other}']",
    ],
)
def test_what_a_duckdb_file_says_reaches_no_other_file(new_catalog, tmp_path, only_reads, statement):
    catalog = new_catalog("duckdb")
    other = tmp_path / "other"
    other.write_text("of the worker")

    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        dialect = lake.opened.catalog.dialect
        refused = pytest.raises(
            DBAPIError, match=r"disabled by configuration|has been locked|Cannot (enable|change)"
        )
        with dialect.reading() if only_reads else dialect.writing() as connection, refused:
            connection.execute(text(statement.format(other=other)))

    assert other.read_text() == "of the worker"
    assert {*tmp_path.iterdir()} == {other, Path(catalog.location).parent}


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_view_at_the_target_of_an_export_is_no_frozen_lake(tmp_path, kind):
    file = tmp_path / "found"
    catalog = CatalogDatabase(kind, str(file), str(tmp_path))
    _run(
        catalog,
        "CREATE VIEW ducklake_metadata AS SELECT 'airflow_ducklake_frozen' AS key, '{}' AS value",
    )

    assert mark_of(file) is None


def test_a_sqlite_file_runs_nothing_that_its_schema_says(sqlite_catalog):
    engine = open_engine(parse_url(sqlite_catalog.sqlalchemy_url))

    with engine.connect() as connection:
        assert connection.execute(text("PRAGMA trusted_schema")).scalar_one() == 0
    engine.dispose()
