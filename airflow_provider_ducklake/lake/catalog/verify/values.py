"""Check that no row lacks a value that every writer gives it: such a row cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import case, func, literal, or_, select

from airflow_provider_ducklake.lake.catalog.database.column_types import is_needed
from airflow_provider_ducklake.lake.catalog.database.questions import asked
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_tables import (
    bare_table,
    inlined_delete_name,
    inlined_delete_table,
)
from airflow_provider_ducklake.lake.planning.upkeep.findings import Finding, FindingCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import ColumnElement, Connection, Table

    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog


def missing_values(connection: Connection, catalog: Catalog) -> Iterator[Finding]:
    """Yield the columns of the catalog that are NULL in some rows, and the inlined tables with such rows."""
    found = list(_in_catalog(connection, catalog))
    yield from found or _in_inlined(connection, catalog)  # of which rows of the catalog say the names


def _in_catalog(connection: Connection, catalog: Catalog) -> Iterator[Finding]:
    for kind, table in catalog.tables.items():
        numbers = (func.count(case((one.is_(None), 1))).label(one.name) for one in table.c if is_needed(one))
        query = select(*numbers).where(_has_none(table))
        for column, number in connection.execute(query).one()._asdict().items():
            if number:
                yield _missing(f"{table.name}.{column} is NULL", number, kind=kind, column=column)


def _in_inlined(connection: Connection, catalog: Catalog) -> Iterator[Finding]:
    counts = [
        select(literal(one.name).label("name"), func.count().label("number")).where(_has_none(one))
        for one in _inlined_tables(connection, catalog)
    ]
    for row in asked(connection, counts):
        if row.number:
            yield _missing(f"{row.name} lacks a row id, file id or begin_snapshot", row.number, name=row.name)


def _inlined_tables(connection: Connection, catalog: Catalog) -> Iterator[Table]:
    tables = catalog.tables
    existing = catalog.dialect.table_names(connection, tables.metadata_schema)
    registered = connection.execute(select(tables["inlined_data_tables"].c.table_name).distinct())
    for name in registered.scalars():
        if name in existing:
            yield bare_table(name, tables)
    for table_id in connection.execute(select(tables["table"].c.table_id).distinct()).scalars():
        if inlined_delete_name(table_id) in existing:
            yield inlined_delete_table(table_id, tables.metadata_schema)


def _has_none(table: Table) -> ColumnElement[bool]:
    return or_(*(one.is_(None) for one in table.c if is_needed(one)))


def _missing(what: str, number: int, **objects: Any) -> Finding:  # noqa: ANN401 - names
    sentence = f"{what} in {number} rows: nothing else was checked."
    return Finding(FindingCode.VALUE_MISSING, sentence, {**objects, "rows": number})
