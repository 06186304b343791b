"""Put together a table as one snapshot holds it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import column as sql_column
from sqlalchemy import func, literal, select, table

from airflow_provider_ducklake.catalog.snapshot import read, read_files, read_layouts
from airflow_provider_ducklake.catalog.snapshot.file_conditions import may_match
from airflow_provider_ducklake.errors import SchemaNotFoundError, TableNotFoundError
from airflow_provider_ducklake.planning.reading.predicates import column_ids
from airflow_provider_ducklake.spec.options import Options
from airflow_provider_ducklake.spec.snapshots import Snapshot, TableSnapshot

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import ColumnElement, Connection

    from airflow_provider_ducklake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.planning.reading.predicates import Predicate
    from airflow_provider_ducklake.spec.ids import ColumnId
    from airflow_provider_ducklake.spec.names.identifiers import QualifiedName


def find_table(
    connection: Connection, tables: CatalogTables, snapshot: Snapshot, name: QualifiedName
) -> read.TableRow:
    """Return the row of a table.

    Raises:
        SchemaNotFoundError, TableNotFoundError: it did not exist at that snapshot.
    """
    rows = read.table_rows(connection, tables, snapshot.id, name)
    if rows:
        return rows[0]
    if read.find_schema(connection, tables, snapshot.id, name.schema) is None:
        raise SchemaNotFoundError(name.schema, snapshot.id)
    raise TableNotFoundError(str(name), snapshot.id)


def load_table(
    connection: Connection,
    catalog: Catalog,
    snapshot: Snapshot,
    name: QualifiedName,
    *,
    with_files: bool,
) -> TableSnapshot:
    """Return the table with its columns, partitioning, sort keys and options, and with its files if asked."""
    tables = catalog.tables
    row = find_table(connection, tables, snapshot, name)
    root = row.root(catalog.data_path)
    found = TableSnapshot(
        snapshot=snapshot,
        table_id=row.id,
        table_uuid=row.uuid,
        schema_id=row.schema.id,
        name=row.qualified,
        schema=read.columns(connection, tables, snapshot.id, row.id),
        root=root,
        partition_spec=read.partition_spec(connection, tables, snapshot.id, row.id),
        sort_spec=read.sort_spec(connection, tables, snapshot.id, row.id),
        options=Options.effective(read.option_rows(connection, tables), row.schema.id, row.id),
    )
    return with_live_files(connection, catalog, found) if with_files else found


def with_live_files(connection: Connection, catalog: Catalog, table: TableSnapshot) -> TableSnapshot:
    """Return a table with its data files."""
    return _with_files(connection, catalog, table)


def with_files_to_read(
    connection: Connection,
    catalog: Catalog,
    table: TableSnapshot,
    where: Predicate | None,
    stats_of: Collection[ColumnId] = (),
) -> TableSnapshot:
    """Return a table with its data files but those that the catalog can exclude by a filter.

    They have the statistics of the columns that the filter names, of ``stats_of``, and no others.
    """
    name = catalog.dialect.engine.dialect.name
    only = None if where is None else may_match(where, table.table_id, table.schema, catalog.tables, name)
    columns = frozenset((*stats_of, *(() if where is None else column_ids(where))))
    return _with_files(connection, catalog, table, only, columns)


def _with_files(
    connection: Connection,
    catalog: Catalog,
    table: TableSnapshot,
    only: ColumnElement[bool] | None = None,
    stats_of: Collection[ColumnId] | None = None,
) -> TableSnapshot:
    at, tables = table.snapshot, catalog.tables
    return replace(
        table,
        files=read_files.data_files(
            connection, tables, at.id, table.table_id, table.root, only=only, stats_of=stats_of
        ),
        has_inlined_data=has_inlined_data(connection, catalog, at, table.table_id),
    )


def has_inlined_rows(connection: Connection, catalog: Catalog, table_id: int) -> bool:
    """Whether dynamic catalog tables hold rows of the table, of whatever snapshot."""
    schema = catalog.tables.metadata_schema
    return any(
        catalog.dialect.has_table(connection, name, schema)
        and connection.execute(select(literal(1)).select_from(table(name, schema=schema)).limit(1)).first()
        for name in read_layouts.inlined_tables(connection, catalog.tables, table_id)
    )


def has_inlined_data(connection: Connection, catalog: Catalog, snapshot: Snapshot, table_id: int) -> bool:
    """Whether rows visible at the snapshot, or delete marks in force there, lie in dynamic catalog tables."""
    dialect, schema = catalog.dialect, catalog.tables.metadata_schema
    for name in read_layouts.inlined_tables(connection, catalog.tables, table_id):
        if dialect.has_table(connection, name, schema) and _counts(
            connection, schema, name, snapshot, ended=True
        ):
            return True
    marks = f"ducklake_inlined_delete_{table_id}"
    return dialect.has_table(connection, marks, schema) and _counts(
        connection, schema, marks, snapshot, ended=False
    )


def _counts(
    connection: Connection, schema: str | None, name: str, snapshot: Snapshot, *, ended: bool
) -> bool:
    rows = table(name, sql_column("begin_snapshot"), sql_column("end_snapshot"), schema=schema)
    query = select(func.count()).select_from(rows).where(rows.c.begin_snapshot <= snapshot.id)
    if ended:
        query = query.where(rows.c.end_snapshot.is_(None) | (rows.c.end_snapshot > snapshot.id))
    return connection.execute(query).scalar_one() > 0
