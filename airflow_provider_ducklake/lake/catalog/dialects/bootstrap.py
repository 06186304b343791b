"""A new catalog, its tables and the rows of snapshot 0; and the provider's own tables ``airflow_ducklake_…``.

*Source:* what the reference leaves after ATTACH (docs/sources.md, new catalogs).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Column,
    Connection,
    Index,
    MetaData,
    Row,
    Select,
    String,
    Table,
    delete,
    literal,
    select,
)
from sqlalchemy import table as sql_table
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateTable, DDLElement

from .... import __version__
from ...errors import AlreadyExistsError
from ...format.log_lines import logger
from ...format.names.identifiers import DEFAULT_SCHEMA, MAIN
from ...format.names.paths import directory_path
from ...transaction.changes_made import ChangeKind, ChangeRecord, format_changes
from ..database.connect import Question
from ..database.tables import TABLE_OPTIONS, catalog_table
from .dialect import Catalog, in_transaction

if TYPE_CHECKING:
    from sqlalchemy.sql.compiler import DDLCompiler

    from ..database.tables import CatalogTables
    from .dialect import CatalogDialect


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


DIGEST = String(64)  # SHA-256, in hexadecimal


class OwnTable:
    """A table of this provider, created when a lake first needs it.

    ``first_rows`` reads what a new table begins with.
    """

    def __init__(
        self,
        name: str,
        *columns: Column[Any],
        first_rows: Callable[[Connection, Catalog], list[dict[str, Any]]] | None = None,
    ) -> None:
        self.name = name
        self.first_rows = first_rows
        self._table = catalog_table(name, MetaData(), *columns, **TABLE_OPTIONS)

    def of(self, catalog: Catalog) -> Table:
        """Look the table up in the schema of a catalog's tables."""
        return self.in_schema(catalog.tables.metadata_schema)

    def in_schema(self, schema: str | None) -> Table:
        """Look the table up in a schema of the database."""
        return _in_schema(self._table, schema)

    def exists(self, connection: Connection, catalog: Catalog) -> bool:
        """Look up whether the table was created."""
        return catalog.dialect.has_table(connection, self.name, catalog.tables.metadata_schema)

    def rows(self, connection: Connection, catalog: Catalog, query: Select[Any]) -> Sequence[Row[Any]]:
        """Execute a query on the table; no rows where the table is missing."""
        return connection.execute(query).all() if self.exists(connection, catalog) else ()

    def ensure(self, catalog: Catalog) -> None:
        """Create the table where it is missing, in a transaction of its own."""
        if catalog.dialect.ask_at_once({"is_missing": self.missing_query(catalog)})["is_missing"]:
            in_transaction(catalog.dialect, lambda connection: self._create(connection, catalog))

    def replace(self, catalog: Catalog, row: dict[str, Any], *, if_same: str | None = None) -> None:
        """Write a row in place of the one with its key, with the time as ``noted_at``.

        ``if_same`` is a column in which the older row has to have the same value; else nothing is written.
        """
        self.ensure(catalog)
        table = self.of(catalog)
        (key,) = table.primary_key

        def write(connection: Connection) -> None:
            now = catalog.dialect.server_time(connection)
            is_older = [table.c[one] == row[one] for one in (key.name, if_same) if one is not None]
            if if_same is not None and connection.execute(select(key).where(*is_older)).first() is None:
                return
            connection.execute(table.delete().where(*is_older))
            of_key = select(key).where(key == row[key.name])
            if if_same is None or connection.execute(of_key).first() is None:
                connection.execute(table.insert(), row | {"noted_at": now})

        in_transaction(catalog.dialect, write)

    def _create(self, connection: Connection, catalog: Catalog) -> None:
        if not self.missing_query(catalog).ask(connection):
            return
        table = self.of(catalog)
        table.create(connection)
        if self.first_rows is not None and (rows := self.first_rows(connection, catalog)):
            connection.execute(table.insert(), rows)

    def missing_query(self, catalog: Catalog) -> Question[bool]:
        """Ask whether the database lacks the table."""
        table = self.of(catalog)
        columns = catalog.dialect.columns_query((table.name,), table.schema)
        return Question(columns.query, lambda rows: table.name not in columns.read(rows), columns.parameters)


@lru_cache(maxsize=512)
def _in_schema(table: Table, schema: str | None) -> Table:
    """Copy a table into a schema, once: what is sent again is not compiled again."""
    return table.to_metadata(MetaData(schema=schema))
