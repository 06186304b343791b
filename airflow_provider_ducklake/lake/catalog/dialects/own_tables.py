"""The provider's own tables in the catalog, named ``airflow_ducklake_…``; DuckDB ignores them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Column, Connection, MetaData, Row, Select, String, Table, select

from ..database.connect import Question
from ..database.tables import TABLE_OPTIONS, catalog_table
from .dialect import Catalog, in_transaction

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
        if catalog.dialect.ask_at_once({"is_missing": self.which_missing(catalog)})["is_missing"]:
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
        if not self.which_missing(catalog).ask(connection):
            return
        table = self.of(catalog)
        table.create(connection)
        if self.first_rows is not None and (rows := self.first_rows(connection, catalog)):
            connection.execute(table.insert(), rows)

    def which_missing(self, catalog: Catalog) -> Question[bool]:
        """Ask whether the database lacks the table."""
        table = self.of(catalog)
        columns = catalog.dialect.which_columns((table.name,), table.schema)
        return Question(columns.query, lambda rows: table.name not in columns.read(rows), columns.parameters)


@lru_cache(maxsize=512)
def _in_schema(table: Table, schema: str | None) -> Table:
    """Copy a table into a schema, once: what is sent again is not compiled again."""
    return table.to_metadata(MetaData(schema=schema))
