"""A new catalog: its tables and the rows of snapshot 0.

*Source:* what the reference leaves after ATTACH (docs/sources.md, new catalogs).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Connection, Index, delete, literal, select
from sqlalchemy import table as sql_table
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateTable, DDLElement

from .... import __version__
from ...errors import AlreadyExistsError
from ...format.log_lines import logger
from ...format.names.identifiers import DEFAULT_SCHEMA, MAIN
from ...format.names.paths import directory_path
from ...transaction.changes_made import ChangeKind, ChangeRecord, format_changes

if TYPE_CHECKING:
    from sqlalchemy.sql.compiler import DDLCompiler

    from ..database.tables import CatalogTables
    from .dialect import Catalog, CatalogDialect


log = logger(__name__)

CREATED_BY = f"airflow_provider_ducklake {__version__}"


def bootstrap(
    dialect: CatalogDialect, tables: CatalogTables, data_path: str, *, encrypted: bool = False
) -> None:
    """Create the catalog's tables and snapshot 0, in one transaction.

    Where CREATE TABLE is no part of a transaction, the tables come first and then all rows at once. What an
    interruption leaves there is tables without rows, which is no lake; the next call completes it.
    """
    with dialect.creating() as connection:
        if _holds_catalog(connection, dialect, tables):
            raise AlreadyExistsError("DuckLake catalog", dialect.engine.url.database or "")
        dialect.create_metadata_schema(connection, tables.metadata_schema)
        for table in tables.metadata.sorted_tables:
            connection.execute(CreateTable(table, if_not_exists=True))
        for name in dialect.table_names(connection, tables.metadata_schema):
            if name.startswith(PREFIX):  # whose commits and jobs are none of this lake
                gone = connection.execute(delete(sql_table(name, schema=tables.metadata_schema))).rowcount
                if gone > 0:
                    log.warning("Removed %d rows of %s, which an earlier lake left", gone, name)
        _insert_first_rows(connection, dialect, tables, directory_path(data_path), encrypted=encrypted)
        connection.commit()


def _holds_catalog(connection: Connection, dialect: CatalogDialect, tables: CatalogTables) -> bool:
    """Return True if there are rows of a catalog; tables without any are no lake."""
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


# Secondary indexes for catalogs with many files: the format has primary keys only.
#
# They stay out of the way of other clients: DuckDB ignores them.


PREFIX = "airflow_ducklake_"
_INDEXED = (
    ("data_file", ("table_id",)),
    ("delete_file", ("data_file_id",)),
    ("delete_file", ("table_id",)),
    ("file_column_stats", ("table_id", "column_id")),
    ("file_column_stats", ("data_file_id",)),
    ("file_partition_value", ("data_file_id",)),
    ("column", ("table_id",)),
    ("table_column_stats", ("table_id",)),
    ("table_stats", ("table_id",)),
    ("schema_versions", ("table_id",)),
)


def create_indexes(catalog: Catalog) -> list[str]:
    """Create the indexes that are missing and return their names."""
    created: list[str] = []
    with catalog.dialect.writing() as connection:
        for kind, names in _INDEXED:
            table = catalog.tables[kind]
            name = f"{PREFIX}{kind}_{'_'.join(names)}"
            if name not in catalog.dialect.index_names(connection, table.name, table.schema):
                # Beside the table's own definition, not part of it: bootstrap must not create it.
                copy = table.to_metadata(type(table.metadata)(schema=table.schema))
                Index(name, *(copy.c[column] for column in names)).create(connection)
                created.append(name)
        connection.commit()
    return created


# ``ALTER TABLE … ADD COLUMN``, which SQLAlchemy does not have.


class AddColumn(DDLElement):
    """Adds a column to the table that it belongs to."""

    def __init__(self, column: Column[Any]) -> None:
        self.column = column


@compiles(AddColumn)
def _add_column(element: AddColumn, compiler: DDLCompiler, **_: object) -> str:
    table = compiler.preparer.format_table(element.column.table)
    return f"ALTER TABLE {table} ADD COLUMN {compiler.get_column_specification(element.column)}"
