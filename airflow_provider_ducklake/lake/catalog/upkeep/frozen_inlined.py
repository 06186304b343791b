"""The rows and deletes that a snapshot has in the catalog, as the tables of a frozen catalog hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from airflow_provider_ducklake.lake.catalog.dialects.sqlite import SqliteDialect
from airflow_provider_ducklake.lake.catalog.snapshot import read
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_read import inlined_of
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_tables import (
    BEGIN_SNAPSHOT,
    END_SNAPSHOT,
    ROW_ID,
    cell_key,
    inlined_delete_name,
    inlined_delete_table,
    inlined_table,
)
from airflow_provider_ducklake.lake.catalog.snapshot.table_snapshot import load_table
from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.planning.reading import scan
from airflow_provider_ducklake.lake.spec.tags import ExportFormat
from airflow_provider_ducklake.lake.spec.types.ducklake_types import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sqlalchemy import Connection, Table

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.lake.catalog.upkeep.frozen_rows import FrozenRows
    from airflow_provider_ducklake.lake.planning.reading.scan import InlinedRows
    from airflow_provider_ducklake.lake.spec.files import InlinedForm
    from airflow_provider_ducklake.lake.spec.schema import TableSchema
    from airflow_provider_ducklake.lake.spec.snapshots import Snapshot, TableSnapshot

_DELETES = "ducklake_inlined_delete_%"


@dataclass(frozen=True, slots=True)
class FrozenInlined:
    """A table of rows that are inlined, or of deletes: ``schema_version`` None."""

    table: Table
    rows: list[dict[str, Any]]
    table_id: int
    schema_version: int | None = None


def frozen_inlined(
    connection: Connection,
    catalog: Catalog,
    snapshot: Snapshot,
    tables: CatalogTables,
    format_: ExportFormat,
) -> Iterator[FrozenInlined]:
    """Yield the inlined rows that the snapshot shows, in the form of the frozen catalog's database.

    Raises:
        UnsupportedFeatureError: this release cannot read them from the catalog's database, or a value cannot
            be stored in the other.
    """
    registry = catalog.tables["inlined_data_tables"]
    registered = set(connection.execute(select(registry.c.table_id)).scalars())
    for row in read.table_rows(connection, catalog.tables, snapshot.id) if registered else ():
        if row.id not in registered:
            continue
        table = load_table(connection, catalog, snapshot, row.qualified, with_files=False)
        for part in _parts(connection, catalog, table):
            cells = _cells(part, str(table.name), catalog.dialect.inlined_form, format_)
            yield _frozen(part, cells, row.id, tables)


def _parts(connection: Connection, catalog: Catalog, table: TableSnapshot) -> Iterator[InlinedRows]:
    """Yield the rows of each inlined table that has any, and the newest one in any case."""
    at, inlined = table.snapshot.id, inlined_of(connection, catalog, table)
    asked = inlined.which_rows(lambda rows: read.visible(rows, at))
    found = catalog.dialect.ask(connection, asked)
    layouts = [one for one in inlined.layouts if one.begin <= at]
    newest = max((one.schema_version for one in layouts), default=None)
    for layout in layouts:
        part = found[layout.name]
        if part.rows or layout.schema_version == newest:
            yield part


def _cells(
    part: InlinedRows, name: str, form: InlinedForm | None, format_: ExportFormat
) -> list[dict[str, Any]]:
    """Return the cells as SQLite has them; DuckDB casts those texts to types of its own, as it reads SQLite.

    Raises:
        UnsupportedFeatureError: says of which table, and what to do.
    """
    from airflow_provider_ducklake.lake.storage.rows.inlined_values import cells_again  # noqa: PLC0415 - heavy

    try:
        if format_ is ExportFormat.DUCKDB:
            _refuse_variants(part.schema)
        return cells_again(part.rows, part.schema, form, SqliteDialect.inlined_form)
    except UnsupportedFeatureError as error:
        raise UnsupportedFeatureError(
            f"Inlined rows of {name} cannot be exported: {error} Flush the table's inlined data first."
        ) from error


def _refuse_variants(schema: TableSchema) -> None:
    for column in schema.walk():
        if column.type.facts.kind is Kind.VARIANT:
            raise UnsupportedFeatureError(f"Column {column.name} is a VARIANT.")


def _frozen(
    part: InlinedRows, cells: Iterable[Mapping[str, Any]], table_id: int, tables: CatalogTables
) -> FrozenInlined:
    version = int(part.table_name.rpartition("_")[2])
    rows = [
        {
            ROW_ID: row[scan.ROW_ID],
            BEGIN_SNAPSHOT: row[scan.BEGIN_SNAPSHOT],
            END_SNAPSHOT: None,
            **{cell_key(column): value for column, value in found.items()},
        }
        for row, found in zip(part.rows, cells, strict=True)
    ]
    return FrozenInlined(inlined_table(part.schema, table_id, version, tables), rows, table_id, version)


def frozen_deletes(
    connection: Connection, catalog: Catalog, frozen: FrozenRows, tables: CatalogTables
) -> Iterator[FrozenInlined]:
    """Yield the inlined deletes in force at the snapshot, of files that it shows."""
    schema = catalog.tables.metadata_schema
    found = catalog.dialect.which_columns((_DELETES,), schema).ask(connection)
    if not found:
        return
    for table_id in connection.execute(frozen.live_tables()).scalars().all():
        if inlined_delete_name(table_id) not in found:
            continue
        deletes = inlined_delete_table(table_id, schema)
        query = select(deletes).where(
            deletes.c.begin_snapshot <= frozen.at, deletes.c.file_id.in_(frozen.live_files())
        )
        rows = [dict(row._mapping) for row in connection.execute(query)]  # noqa: SLF001 - its public name
        if rows:
            yield FrozenInlined(inlined_delete_table(table_id, tables.metadata_schema), rows, table_id)
