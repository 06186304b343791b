"""The SQL that gives database users the roles of a lake, for an administrator to read and to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.schema import CreateTable

from airflow_provider_ducklake.lake.catalog.database.connect import open_engine, parse_url, shown
from airflow_provider_ducklake.lake.catalog.dialects import dialect_of
from airflow_provider_ducklake.lake.catalog.dialects.grants import Wanted, rights_on, rights_on_inlined
from airflow_provider_ducklake.lake.catalog.ledger import commit_keys, consumers, jobs, restores
from airflow_provider_ducklake.lake.catalog.open_lake import translated
from airflow_provider_ducklake.lake.catalog.snapshot.read_snapshots import TAGS
from airflow_provider_ducklake.lake.catalog.upkeep import cleanup
from airflow_provider_ducklake.lake.errors import CatalogRefusedError
from airflow_provider_ducklake.lake.spec.versions import Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from sqlalchemy import Connection
    from sqlalchemy.engine import URL
    from sqlalchemy.sql.elements import CompilerElement

    from airflow_provider_ducklake.lake.catalog.dialects.dialect import Catalog
    from airflow_provider_ducklake.lake.catalog.dialects.own_tables import OwnTable
    from airflow_provider_ducklake.lake.spec.versions import RoleNames


# The provider's own tables, and what a writer does to them.
_OWN: tuple[tuple[OwnTable, tuple[str, ...]], ...] = (
    (commit_keys.COMMITS, ("SELECT", "INSERT", "UPDATE")),
    (consumers.CONSUMERS, ("SELECT", "INSERT", "UPDATE", "DELETE")),
    (jobs.JOBS, ("SELECT", "INSERT", "UPDATE")),
    (jobs.APPLICATIONS, ("SELECT", "INSERT", "DELETE")),
    (jobs.DOCUMENT_KEYS, ("SELECT", "INSERT")),
    (consumers.WATERMARKS, ("SELECT", "INSERT", "DELETE")),
    (TAGS, ("SELECT", "INSERT", "DELETE")),
    (restores.RESTORES, ("SELECT",)),
    (cleanup.MARKS, ("SELECT",)),
)


def grants(catalog: Catalog, role: Role, names: RoleNames) -> list[str]:
    """Return the statements that give a role, in order; nothing is changed.

    A maintainer's begin with those of the provider's own tables that are missing: a GRANT needs
    the table to exist. So they come before the other roles'.
    """
    with catalog.dialect.reading() as connection:
        schema = catalog.dialect.schema_of(connection, catalog.tables["metadata"])
        rights = _rights(connection, catalog)
        first = _missing(connection, catalog, schema) if role is Role.MAINTAINER else ()
        return [*first, *catalog.dialect.grants(connection, Wanted(role, names, rights), schema)]


def _rights(connection: Connection, catalog: Catalog) -> Mapping[str, tuple[str, ...]]:
    """Return the rights of a writer on all tables of the lake."""
    of_format = {table.name: rights_on(kind) for kind, table in catalog.tables.items()}
    of_ours = {own.name: rights for own, rights in _OWN}
    found = catalog.dialect.which_columns(("ducklake_inlined_%",), catalog.tables.metadata_schema)
    inlined = {name: rights_on_inlined(name) for name in sorted(found.ask(connection))}
    return {**of_format, **of_ours, **{name: rights for name, rights in inlined.items() if rights}}


def _missing(connection: Connection, catalog: Catalog, schema: str) -> Iterator[str]:
    for own, _ in _OWN:
        table = own.in_schema(schema)
        if not own.exists(connection, catalog):
            yield _text(catalog, CreateTable(table, if_not_exists=True))
            if own.first_rows is not None and (rows := own.first_rows(connection, catalog)):
                yield _text(catalog, table.insert().values(rows))


def _text(catalog: Catalog, statement: CompilerElement) -> str:
    """Return a statement as the database reads it, with its values."""
    options: dict[str, Any] = {"compile_kwargs": {"literal_binds": True}}
    text = str(statement.compile(dialect=catalog.dialect.engine.dialect, **options))
    return text.strip() % ()  # a % in a name is doubled


# Check the privileges of a catalog database's user without leaving anything behind.


_WHY = (
    "tasks create tables there: those of a new lake, those called airflow_ducklake_…, and those for rows in "
    "the catalog"
)


def check_creates_tables(url: str | URL, metadata_schema: str | None = None) -> None:
    """Refuse a user who may not create tables in the lake's schema; only PostgreSQL can check it."""
    parsed = parse_url(url)
    dialect = dialect_of(open_engine(parsed), metadata_schema)
    try:
        with translated(dialect):
            dialect.try_to_create_table(metadata_schema)
    except CatalogRefusedError as error:
        reason = f"{error.reason}; {_WHY}"
        raise CatalogRefusedError(shown(parsed), reason, error.statement, error.way_out) from None
    finally:
        dialect.engine.dispose()
