"""Rows and deletes of a table that lie in catalog tables, as one snapshot shows them.

An inlined table has the columns of the schema version that it is named after. A name there means the column
that had it then. *Source:* observed behaviour of the reference (dossier §6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import VARCHAR, LargeBinary, cast, func, select, type_coerce
from sqlalchemy.types import NullType

from airflow_provider_ducklake.catalog.database.questions import in_parts, streamed_parts
from airflow_provider_ducklake.catalog.snapshot import read
from airflow_provider_ducklake.catalog.snapshot.inlined_tables import (
    READABLE_DIALECTS,
    inlined_delete_table,
    inlined_table,
)
from airflow_provider_ducklake.catalog.snapshot.read_layouts import layouts
from airflow_provider_ducklake.errors import CatalogError, UnsupportedFeatureError
from airflow_provider_ducklake.planning.reading.scan import InlinedRows
from airflow_provider_ducklake.spec.ids import DataFileId
from airflow_provider_ducklake.spec.names.identifiers import fold
from airflow_provider_ducklake.spec.schema import TableSchema
from airflow_provider_ducklake.spec.types.ducklake_types import ScalarType
from airflow_provider_ducklake.spec.types.literals import format_literal, parse_cast

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from sqlalchemy import ColumnElement, Connection, Row, Select, Table

    from airflow_provider_ducklake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.spec.snapshots import TableSnapshot


def read_inlined(connection: Connection, catalog: Catalog, table: TableSnapshot) -> tuple[InlinedRows, ...]:
    """Return the rows that the snapshot shows of every inlined table of a table, oldest layout first.

    Raises:
        CatalogError: the columns that an inlined table was made with are not known any more.
        UnsupportedFeatureError: there are rows, in a database whose inlined tables we do not know.
    """
    if not table.has_inlined_data:
        return ()
    return tuple(_rows(connection, catalog, table, lambda rows: read.visible(rows, table.snapshot.id)))


def inlined_history(
    connection: Connection, catalog: Catalog, table: TableSnapshot
) -> tuple[InlinedRows, ...]:
    """Return the rows that the snapshot or one before it shows, each with its ``end_snapshot``.

    Raises:
        CatalogError, UnsupportedFeatureError: as ``read_inlined``.
    """
    end = table.snapshot.id
    found = _rows(connection, catalog, table, lambda rows: rows.c.begin_snapshot <= end)
    return tuple(part for part in found if part.rows)


def inlined_ended_since(
    connection: Connection, catalog: Catalog, table: TableSnapshot
) -> tuple[InlinedRows, ...]:
    """Return the rows that the snapshot shows and a later one does not.

    Raises:
        CatalogError, UnsupportedFeatureError: as ``read_inlined``.
    """
    at = table.snapshot.id
    found = _rows(
        connection,
        catalog,
        table,
        lambda rows: (rows.c.begin_snapshot <= at) & (rows.c.end_snapshot > at),
    )
    return tuple(part for part in found if part.rows)


def _rows(
    connection: Connection,
    catalog: Catalog,
    table: TableSnapshot,
    condition: Callable[[Table], ColumnElement[bool]],
) -> Iterator[InlinedRows]:
    for version in layouts(connection, catalog.tables, table.table_id):
        schema = layout_schema(connection, catalog.tables, table.table_id, version)
        inlined = inlined_table(schema, table.table_id, version, catalog.tables.metadata_schema)
        if not catalog.dialect.has_table(connection, inlined.name, inlined.schema):
            continue  # dropped by a client that left the registration behind
        query = _query(connection, catalog, table, inlined, schema)
        found = connection.execute(query.where(condition(inlined)).order_by(inlined.c.row_id))
        yield _read_rows(catalog, inlined, schema, found)


def inlined_batches(
    connection: Connection,
    catalog: Catalog,
    table: TableSnapshot,
    version: int,
    condition: Callable[[Table], ColumnElement[bool]],
) -> Iterator[InlinedRows]:
    """Yield rows of one inlined table, some of them at a time, by row id and first snapshot.

    Raises:
        CatalogError, UnsupportedFeatureError: as ``read_inlined``.
    """
    schema = layout_schema(connection, catalog.tables, table.table_id, version)
    inlined = inlined_table(schema, table.table_id, version, catalog.tables.metadata_schema)
    query = _query(connection, catalog, table, inlined, schema).where(condition(inlined))
    ordered = query.order_by(inlined.c.row_id, inlined.c.begin_snapshot)
    for part in streamed_parts(connection, ordered, _ROWS_AT_ONCE):
        yield _read_rows(catalog, inlined, schema, part)


_ROWS_AT_ONCE = 20_000


def _query(
    connection: Connection, catalog: Catalog, table: TableSnapshot, inlined: Table, schema: TableSchema
) -> Select[Any]:
    dialect_name = catalog.dialect.engine.dialect.name
    if dialect_name not in READABLE_DIALECTS:
        raise UnsupportedFeatureError(
            f"{table.name} at snapshot {table.snapshot.id} has rows or deletes inlined in the catalog, "
            f"which this release cannot read from {dialect_name}. Flush them with DuckDB, or read the "
            "table there."
        )
    _check_columns(connection, catalog, inlined)
    return select(*(_as_texts(inlined, schema) if dialect_name == "duckdb" else inlined.c))


def _read_rows(
    catalog: Catalog, inlined: Table, schema: TableSchema, found: Iterable[Row[Any]]
) -> InlinedRows:
    names = inlined.c.keys()
    rows = tuple(dict(zip(names, row, strict=True)) for row in found)
    if catalog.dialect.engine.dialect.name == "duckdb":
        rows = tuple(_with_literals(row, schema) for row in rows)
    return InlinedRows(inlined.name, schema, rows)


def _as_texts(inlined: Table, schema: TableSchema) -> list[ColumnElement[Any]]:
    """Return what to select of columns that have DuckDB's own types: its texts, as Python's end sooner."""
    kept = [column for column in inlined.c if column.name not in schema.names]
    own = [inlined.c[column.name] for column in schema.columns]
    return [
        *kept,
        *(
            type_coerce(cell, LargeBinary if column.type == ScalarType("blob") else NullType())
            if column.type in _BYTES
            else cast(type_coerce(cell, NullType()), VARCHAR)
            for column, cell in zip(schema.columns, own, strict=True)
        ),
    ]


_BYTES = (ScalarType("blob"), ScalarType("varchar"))


def _with_literals(row: Mapping[str, Any], schema: TableSchema) -> dict[str, Any]:
    """Return a row whose nested values are texts as the other databases hold them."""
    cells = dict(row)
    for column in schema.columns:
        if column.children and cells[column.name] is not None:
            value = parse_cast(column.type, cells[column.name])
            cells[column.name] = format_literal(column.type, value)
    return cells


def missing_row_ids(
    connection: Connection, catalog: Catalog, table: TableSnapshot, row_ids: Collection[int]
) -> list[int]:
    """Return those of the ids, ascending, that no row in the catalog has at the table's snapshot."""
    missing = set(row_ids)
    for version in layouts(connection, catalog.tables, table.table_id) if missing else ():
        schema = catalog.tables.metadata_schema
        rows = inlined_table(TableSchema(()), table.table_id, version, schema)
        if catalog.dialect.has_table(connection, rows.name, schema):
            for ids in in_parts(row_ids):
                query = select(rows.c.row_id).where(
                    read.visible(rows, table.snapshot.id), rows.c.row_id.in_(ids)
                )
                missing.difference_update(connection.execute(query).scalars())
    return sorted(missing)


def layout_schema(connection: Connection, tables: CatalogTables, table_id: int, version: int) -> TableSchema:
    """Return the columns that a table had in a schema version of the lake."""
    begin = layout_begin(connection, tables, table_id, version)
    return read.columns(connection, tables, begin, table_id)


def layout_begin(connection: Connection, tables: CatalogTables, table_id: int, version: int) -> int:
    """Return the snapshot that made of a table what it was in a schema version; -1: it is not known."""
    if "schema_versions" not in tables:  # before 0.3: a schema version begins with its first snapshot
        snapshot = tables["snapshot"]
        first = select(func.min(snapshot.c.snapshot_id)).where(snapshot.c.schema_version == version)
        return connection.execute(first).scalar_one() or 0
    versions = tables["schema_versions"]
    newest = select(func.max(versions.c.begin_snapshot)).where(versions.c.schema_version <= version)
    if "table_id" in versions.c:
        newest = newest.where(versions.c.table_id == table_id)
    begin = connection.execute(newest).scalar_one()
    return -1 if begin is None else begin


def _check_columns(connection: Connection, catalog: Catalog, inlined: Table) -> None:
    """Refuse to guess what columns mean; SQLite takes an unknown quoted name for a text."""
    found = catalog.dialect.column_names(connection, inlined.name, inlined.schema)
    if [fold(name) for name in found] != [fold(column.name) for column in inlined.c]:
        raise CatalogError(
            f"{inlined.name} has the columns {', '.join(found)}, but the catalog says of its schema version "
            f"{', '.join(inlined.c.keys())}. Flush the table's inlined data with DuckDB, then read again."
        )


def inlined_delete_marks(
    connection: Connection, catalog: Catalog, table_id: int, snapshot_id: int
) -> dict[DataFileId, list[int]]:
    """Return the positions in data files that inlined deletes leave out at a snapshot, ascending."""
    found = inlined_delete_snapshots(connection, catalog, table_id, snapshot_id)
    return {file_id: sorted(deleted) for file_id, deleted in found.items()}


def inlined_delete_snapshots(
    connection: Connection, catalog: Catalog, table_id: int, snapshot_id: int
) -> dict[DataFileId, dict[int, int]]:
    """Return those positions with the ids of the snapshots that deleted them."""
    marks = inlined_delete_table(table_id, catalog.tables.metadata_schema)
    if not catalog.dialect.has_table(connection, marks.name, marks.schema):
        return {}
    query = (
        select(marks.c.file_id, marks.c.row_id, func.min(marks.c.begin_snapshot).label("begin_snapshot"))
        .where(marks.c.begin_snapshot <= snapshot_id)
        .group_by(marks.c.file_id, marks.c.row_id)
    )
    found: dict[DataFileId, dict[int, int]] = {}
    for row in connection.execute(query):
        found.setdefault(DataFileId(row.file_id), {})[row.row_id] = row.begin_snapshot
    return found
