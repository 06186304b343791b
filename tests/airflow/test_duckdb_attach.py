"""The ATTACH statement of a connection, run by DuckDB."""

from pathlib import Path

import duckdb
import pytest
from airflow.sdk import Connection
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.engine import URL

from airflow_provider_ducklake.hooks.connection import ConnectionSettings, attach_statement, read_settings
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.catalog.database.connect import open_engine, parse_url
from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.airflow.conftest import connection_fields
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import load_extension, open_lake

SCANNERS = {"sqlite": ["sqlite_scanner"], "postgres": ["postgres_scanner"], "mariadb": ["mysql_scanner"]}


def tables_seen_by_duckdb(kind: str, statement: str, alias: str) -> list[tuple[str]]:
    with duckdb.connect(config={"allow_unsigned_extensions": True}) as connection:
        for extension in [*SCANNERS.get(kind, []), "ducklake"]:
            load_extension(connection, extension)
        connection.execute(statement)
        return connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = ?", [alias]
        ).fetchall()


@pytest.mark.every_catalog
def test_duckdb_attaches_the_lake_of_a_connection(catalog: CatalogDatabase, connect):
    with open_lake(catalog) as lake:
        lake.sql("CREATE TABLE orders (id INT)")
    connect(catalog)

    statement = DuckLakeHook().duckdb_attach(alias="the lake")

    assert tables_seen_by_duckdb(catalog.kind, statement, "the lake") == [("orders",)]


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_duckdb_attaches_a_file_of_any_name(kind, tmp_path: Path, set_connection):
    catalog = CatalogDatabase(kind, f'{tmp_path}/it\'s a "lake".{kind}', f"{tmp_path}/data/")
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake, lake.transaction() as tx:
        tx.create_table("orders", {"id": "int64"})
    set_connection(**connection_fields(catalog))

    assert tables_seen_by_duckdb(kind, DuckLakeHook().duckdb_attach(), "lake") == [("orders",)]


def test_duckdb_attaches_a_lake_in_a_schema_of_its_own(postgres_catalog, set_connection):
    fields = connection_fields(
        postgres_catalog, data_path=postgres_catalog.data_path, metadata_schema="The Lake"
    )
    set_connection(**fields)
    with DuckLakeHook().get_or_create_lake() as lake, lake.transaction() as tx:
        tx.create_table("orders", {"id": "int64"})

    assert tables_seen_by_duckdb("postgres", DuckLakeHook().duckdb_attach(), "lake") == [("orders",)]


# DuckDB 1.5.5 cannot name a MySQL database with a backslash: it asks for two.
@pytest.mark.parametrize(("kind", "name"), [("postgres", "it's a \\ lake=1"), ("mariadb", "it's a lake=1")])
def test_duckdb_attaches_a_database_of_any_name(kind, name, new_catalog, set_connection):
    catalog = new_catalog(kind)
    engine = open_engine(parse_url(catalog.sqlalchemy_url))
    quoted = engine.dialect.identifier_preparer.quote_identifier(name)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {quoted}")
    fields = connection_fields(catalog, data_path=catalog.data_path)
    set_connection(**fields | {"schema": name})
    try:
        with DuckLakeHook().get_or_create_lake() as lake, lake.transaction() as tx:
            tx.create_table("orders", {"id": "int64"})

        assert tables_seen_by_duckdb(kind, DuckLakeHook().duckdb_attach(), "lake") == [("orders",)]
    finally:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"DROP DATABASE {quoted}")
        engine.dispose()


@pytest.mark.parametrize("catalog_type", ["postgres", "mysql"])
def test_the_statement_holds_no_password(catalog_type):
    connection = Connection(
        conn_id="lake",
        conn_type="ducklake",
        host="db",
        login="o'tool",
        password="s3cret-word",
        schema="my lake",
        extra=f'{{"catalog_type": "{catalog_type}"}}',
    )

    statement = attach_statement(read_settings(connection), "lake")

    assert "s3cret-word" not in statement
    quote = "''" if catalog_type == "postgres" else '"'
    assert f"={quote}my lake{quote} host=db user=" in statement


@pytest.mark.parametrize("name", ["a\tb", "a\nb", "a\x0bb", "\n", "it's = \\ all", "é b", "a-b.c:d/e@f+g_1"])
def test_postgresql_reads_each_value_of_the_statement_as_it_is(name):
    url = URL.create("postgresql+psycopg", username=name, host=f"/run/{name}", port=5432, database=name)

    statement = attach_statement(ConnectionSettings("lake", url), "lake")

    literal = statement.removeprefix("ATTACH 'ducklake:postgres:").removesuffix("' AS lake")
    read = conninfo_to_dict(literal.replace("''", "'"))
    assert read == {"dbname": name, "user": name, "host": f"/run/{name}", "port": "5432"}
