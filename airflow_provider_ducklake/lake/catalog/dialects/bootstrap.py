"""A new catalog: its tables and the rows of snapshot 0.

*Source:* what the reference leaves after ATTACH (docs/sources.md, new catalogs).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from sqlalchemy import literal, select
from sqlalchemy.schema import CreateTable

from airflow_provider_ducklake import __version__
from airflow_provider_ducklake.lake.errors import AlreadyExistsError
from airflow_provider_ducklake.lake.spec.names.identifiers import DEFAULT_SCHEMA, MAIN
from airflow_provider_ducklake.lake.spec.names.paths import directory_path
from airflow_provider_ducklake.lake.transaction.changes_made import ChangeKind, ChangeRecord, format_changes

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.catalog.dialects.dialect import CatalogDialect

CREATED_BY = f"airflow_provider_ducklake {__version__}"


def bootstrap(
    dialect: CatalogDialect, tables: CatalogTables, data_path: str, *, encrypted: bool = False
) -> None:
    """Create the catalog's tables and snapshot 0, in one transaction.

    Where CREATE TABLE is no part of a transaction, the tables come first and then all rows at once. What an
    interruption leaves there is tables without rows, which is no lake; the next call completes it.

    Raises:
        AlreadyExistsError: the database holds a DuckLake catalog already.
    """
    with dialect.creating() as connection:
        if _holds_catalog(connection, dialect, tables):
            raise AlreadyExistsError("DuckLake catalog", dialect.engine.url.database or "")
        dialect.create_metadata_schema(connection, tables.metadata_schema)
        for table in tables.metadata.sorted_tables:
            connection.execute(CreateTable(table, if_not_exists=True))
        _insert_first_rows(connection, dialect, tables, directory_path(data_path), encrypted=encrypted)
        connection.commit()


def _holds_catalog(connection: Connection, dialect: CatalogDialect, tables: CatalogTables) -> bool:
    """Whether there are rows of a catalog; tables without any are no lake."""
    return any(
        dialect.has_table(connection, tables[name].name, tables.metadata_schema)
        and connection.execute(select(literal(1)).select_from(tables[name]).limit(1)).first()
        for name in ("metadata", "snapshot")
    )


def _insert_first_rows(
    connection: Connection, dialect: CatalogDialect, tables: CatalogTables, data_path: str, *, encrypted: bool
) -> None:
    options = {
        "version": tables.version.value,
        "created_by": CREATED_BY,
        "data_path": data_path,
        "encrypted": "true" if encrypted else "false",
        **dialect.initial_options,
    }
    connection.execute(
        tables["metadata"].insert(), [{"key": key, "value": text} for key, text in options.items()]
    )
    connection.execute(
        tables["snapshot"].insert(),
        {
            "snapshot_id": 0,
            "snapshot_time": dialect.server_time(connection),
            "schema_version": 0,
            "next_catalog_id": 1,
            "next_file_id": 0,
        },
    )
    made = format_changes([ChangeRecord(ChangeKind.CREATED_SCHEMA, name=MAIN)])
    connection.execute(tables["snapshot_changes"].insert(), {"snapshot_id": 0, "changes_made": made})
    connection.execute(
        tables["schema"].insert(),
        {
            "schema_id": 0,
            "schema_uuid": str(uuid.uuid4()),
            "begin_snapshot": 0,
            "end_snapshot": None,
            "schema_name": DEFAULT_SCHEMA,
            "path": f"{DEFAULT_SCHEMA}/",
            "path_is_relative": True,
        },
    )
