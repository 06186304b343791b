"""The provider's own tables in the catalog, named ``airflow_ducklake_…``; DuckDB ignores them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError

from airflow_provider_ducklake.lake.catalog.database.connect import Question
from airflow_provider_ducklake.lake.catalog.dialects.bootstrap import AddColumn
from airflow_provider_ducklake.lake.catalog.dialects.dialect import DEFAULT_RETRY, with_retries

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from typing import Any

    from sqlalchemy import Column, Connection, Row, Table

    from airflow_provider_ducklake.lake.catalog.dialects.dialect import Catalog, CatalogDialect


def ensure_table(
    catalog: Catalog,
    table: Table,
    optional: Collection[str] = (),
    first_rows: Callable[[Connection], list[dict[str, Any]]] | None = None,
) -> list[Column[Any]]:
    """Create a table of ours where it is missing, or its newer columns, in a transaction of its own.

    Older releases leave newer columns NULL in their rows. Returns those of the ``optional``
    columns that are still missing, as the database lets only the table's owner add them. ``first_rows`` are
    what the table begins with.
    """
    dialect = catalog.dialect
    missing = _read_missing(dialect, table)
    if not missing:
        return []
    try:
        _add(dialect, table, first_rows)
    except DBAPIError as error:
        if not dialect.is_missing_right(error) or not {column.name for column in missing} <= set(optional):
            raise
        return _read_missing(dialect, table)
    return []


def how_to_add(catalog: Catalog, columns: Iterable[Column[Any]]) -> str:
    """Return the statements that add columns, for people."""
    sql = catalog.dialect.engine.dialect
    return "; ".join(str(AddColumn(column).compile(dialect=sql)) for column in columns)


def _add(
    dialect: CatalogDialect, table: Table, first_rows: Callable[[Connection], list[dict[str, Any]]] | None
) -> None:

    def create() -> None:
        with dialect.writing() as connection:
            missing = which_missing(dialect, table).ask(connection)
            if len(missing) == len(table.columns):
                table.create(connection)
                if first_rows is not None and (rows := first_rows(connection)):
                    connection.execute(table.insert(), rows)
            else:
                for column in missing:
                    connection.execute(AddColumn(column))
            connection.commit()

    with_retries(dialect, DEFAULT_RETRY, create)


def _read_missing(dialect: CatalogDialect, table: Table) -> list[Column[Any]]:
    missing: list[Column[Any]] = dialect.ask_at_once({"missing": which_missing(dialect, table)})["missing"]
    return missing


def which_missing(dialect: CatalogDialect, table: Table) -> Question[list[Column[Any]]]:
    """Ask for the columns that the database lacks; all of them where it lacks the table."""
    columns = dialect.which_columns((table.name,), table.schema)

    def read(rows: Sequence[Row[Any]]) -> list[Column[Any]]:
        known = columns.read(rows).get(table.name, ())
        return [column for column in table.columns if column.name not in known]

    return Question(columns.query, read, columns.parameters)
