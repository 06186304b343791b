"""The provider's own tables in the catalog, named ``airflow_ducklake_…``; DuckDB ignores them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from sqlalchemy import MetaData, String, Table, select
from sqlalchemy.exc import DBAPIError

from airflow_provider_ducklake.lake.catalog.database.connect import Question
from airflow_provider_ducklake.lake.catalog.database.tables import TABLE_OPTIONS, catalog_table
from airflow_provider_ducklake.lake.catalog.dialects.bootstrap import AddColumn
from airflow_provider_ducklake.lake.catalog.dialects.dialect import in_transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from typing import Any

    from sqlalchemy import Column, Connection, Row, Select

    from airflow_provider_ducklake.lake.catalog.dialects.dialect import Catalog

DIGEST = String(64)  # SHA-256, in hexadecimal


class OwnTable:
    """A table of this provider, created when a lake first needs it.

    Older releases leave the ``optional`` columns NULL in their rows, and a table that they created lacks them
    until its owner adds them. ``first_rows`` reads what a new table begins with.
    """

    def __init__(
        self,
        name: str,
        *columns: Column[Any],
        optional: Collection[str] = (),
        first_rows: Callable[[Connection, Catalog], list[dict[str, Any]]] | None = None,
    ) -> None:
        self.name = name
        self.optional = frozenset(optional)
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

    def ensure(self, catalog: Catalog) -> list[Column[Any]]:
        """Create the table where it is missing, or its newer columns, in a transaction of its own.

        Returns those of the optional columns that are still missing, as the database lets only the table's
        owner add them.
        """
        missing = self._read_missing(catalog)
        if not missing:
            return []
        try:
            in_transaction(catalog.dialect, lambda connection: self._add_missing(connection, catalog))
        except DBAPIError as error:
            names = {column.name for column in missing}
            if not catalog.dialect.is_missing_right(error) or not names <= self.optional:
                raise
            return self._read_missing(catalog)
        return []

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

    def _add_missing(self, connection: Connection, catalog: Catalog) -> None:
        table, missing = self.of(catalog), self.which_missing(catalog).ask(connection)
        if len(missing) < len(table.columns):
            for column in missing:
                connection.execute(AddColumn(column))
            return
        table.create(connection)
        if self.first_rows is not None and (rows := self.first_rows(connection, catalog)):
            connection.execute(table.insert(), rows)

    def _read_missing(self, catalog: Catalog) -> list[Column[Any]]:
        found: list[Column[Any]] = catalog.dialect.ask_at_once({"missing": self.which_missing(catalog)})[
            "missing"
        ]
        return found

    def which_missing(self, catalog: Catalog) -> Question[list[Column[Any]]]:
        """Ask for the columns that the database lacks; all of them where it lacks the table."""
        table = self.of(catalog)
        columns = catalog.dialect.which_columns((table.name,), table.schema)

        def read(rows: Sequence[Row[Any]]) -> list[Column[Any]]:
            known = columns.read(rows).get(table.name, ())
            return [column for column in table.columns if column.name not in known]

        return Question(columns.query, read, columns.parameters)


@lru_cache(maxsize=512)
def _in_schema(table: Table, schema: str | None) -> Table:
    """Copy a table into a schema, once: what is sent again is not compiled again."""
    return table.to_metadata(MetaData(schema=schema))


def how_to_add(catalog: Catalog, columns: Iterable[Column[Any]]) -> str:
    """Write the statements that add columns, for people."""
    sql = catalog.dialect.engine.dialect
    return "; ".join(str(AddColumn(column).compile(dialect=sql)) for column in columns)
