"""Statements on a catalog's tables, and database users who may change none of them."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from sqlalchemy import create_engine, text

from airflow_provider_ducklake.lake.catalog.database.connect import parse_url
from tests.reference.catalogs import CatalogDatabase


def run(catalog: CatalogDatabase, *statements: str, **values: object) -> None:
    engine = create_engine(parse_url(catalog.sqlalchemy_url))
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement), values)
    engine.dispose()


@contextmanager
def another_user(catalog: CatalogDatabase, on_schema: str = "ALL") -> Iterator[CatalogDatabase]:
    """Yield the catalog for a user who may use all of its tables, and add columns to none of them.

    ``on_schema``: the rights on PostgreSQL's schema; without all of them no table can be created.
    """
    name = f"etl_{uuid.uuid4().hex[:16]}"
    if catalog.kind == "postgres":
        begin = (
            f"CREATE ROLE {name} LOGIN",
            f"GRANT {on_schema} ON SCHEMA public TO {name}",
            f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}",
        )
        end = (f"DROP OWNED BY {name}", f"DROP ROLE {name}")
        known = "user=postgres"
    else:
        rights = f"SELECT, INSERT, UPDATE, DELETE{', CREATE' if on_schema == 'ALL' else ''}"
        begin = (f"CREATE USER {name}", f"GRANT {rights} ON {catalog.database}.* TO {name}")
        end = (f"DROP USER {name}",)
        known = "user=root"
    run(catalog, *begin)
    yield replace(catalog, location=catalog.location.replace(known, f"user={name}"))
    run(catalog, *end)
