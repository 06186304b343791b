"""Put together a table as one snapshot holds it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.catalog.snapshot import read, read_files
from airflow_provider_ducklake.catalog.snapshot.column_versions import which_columns
from airflow_provider_ducklake.catalog.snapshot.inlined_read import has_inlined_data
from airflow_provider_ducklake.catalog.snapshot.read_keys import which_partitionings, which_sort
from airflow_provider_ducklake.errors import SchemaNotFoundError, TableNotFoundError
from airflow_provider_ducklake.spec.options import Options
from airflow_provider_ducklake.spec.snapshots import Snapshot, TableSnapshot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from airflow_provider_ducklake.catalog.database.questions import Question
    from airflow_provider_ducklake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.spec.names.identifiers import QualifiedName


def find_table(
    connection: Connection, tables: CatalogTables, snapshot: Snapshot, name: QualifiedName
) -> read.TableRow:
    """Return the row of a table.

    Raises:
        SchemaNotFoundError, TableNotFoundError: it did not exist at that snapshot.
    """
    rows = read.table_rows(connection, tables, snapshot.id, name)
    return only_table(connection, tables, snapshot, name, rows)


def only_table(
    connection: Connection,
    tables: CatalogTables,
    snapshot: Snapshot,
    name: QualifiedName,
    rows: Sequence[read.TableRow],
) -> read.TableRow:
    """Return the one of the rows, which those of the name are; raises as ``find_table``."""
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
    """Return the table with its columns, partitioning, sort keys and options, and with its files if asked.

    Raises:
        SchemaNotFoundError, TableNotFoundError: as ``find_table``.
    """
    row = find_table(connection, catalog.tables, snapshot, name)
    questions = {
        **which_definition(catalog, snapshot.id, row.id),
        "options": read.which_options(catalog.tables),
    }
    found = table_of(catalog, snapshot, row, catalog.dialect.ask(connection, questions))
    if not with_files:
        return found
    files = read_files.data_files(connection, catalog, found)
    return replace(found, files=files, has_inlined_data=has_inlined_data(connection, catalog, found))


def which_definition(catalog: Catalog, at: int, table_id: int) -> dict[str, Question[Any]]:
    """Ask what a table was at a snapshot, for ``table_of``."""
    tables = catalog.tables
    return {
        "columns": which_columns(tables, table_id),
        "partitionings": which_partitionings(tables, table_id),
        **which_sort(tables, at, table_id),
    }


def table_of(
    catalog: Catalog, snapshot: Snapshot, row: read.TableRow, answers: Mapping[str, Any]
) -> TableSnapshot:
    """Return the table, without files, of its row, ``which_definition`` and the ``options`` of the lake."""
    columns = answers["columns"]
    return TableSnapshot(
        snapshot=snapshot,
        table_id=row.id,
        table_uuid=row.uuid,
        schema_id=row.schema.id,
        name=row.qualified,
        schema=columns.at(snapshot.id),
        root=row.root(catalog.data_path),
        partition_spec=answers["partitionings"].at(snapshot.id, columns),
        sort_spec=answers.get("sort"),
        options=Options.effective(answers["options"], row.schema.id, row.id),
    )
