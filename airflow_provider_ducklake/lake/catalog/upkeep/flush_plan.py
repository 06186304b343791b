"""Read the inlined rows and deletes of tables that are to be flushed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlalchemy import and_, exists, func, literal, or_, select, table, union_all

from airflow_provider_ducklake.lake.catalog.database.questions import in_parts
from airflow_provider_ducklake.lake.catalog.snapshot import read, read_files
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_read import (
    inlined_batches,
    inlined_delete_snapshots,
    inlined_of,
)
from airflow_provider_ducklake.lake.catalog.snapshot.read_layouts import rows_of_layout
from airflow_provider_ducklake.lake.catalog.snapshot.table_snapshot import which_partitionings
from airflow_provider_ducklake.lake.planning.upkeep.compaction import FlushPlan, LayoutToFlush

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import ColumnElement, Connection, Table

    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.lake.planning.reading.scan import InlinedRows
    from airflow_provider_ducklake.lake.spec.files import LiveDataFile
    from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName, SchemaPath
    from airflow_provider_ducklake.lake.spec.snapshots import DataFileId, Snapshot, TableSnapshot

_TABLES_AT_ONCE = 200
_DYNAMIC = re.compile(r"ducklake_inlined_(?:data_(\d{1,19})_\d{1,19}|delete_(\d{1,19}))\Z")


def tables_with_inlined_data(
    connection: Connection, catalog: Catalog, snapshot: Snapshot, schema: SchemaPath | None
) -> list[QualifiedName]:
    """Return the names of the tables, of a schema or of all, of which the catalog holds rows or deletes."""
    metadata_schema = catalog.tables.metadata_schema
    asked = []
    for name in sorted(catalog.dialect.table_names(connection, metadata_schema)):
        if found := _DYNAMIC.match(name):
            rows = table(name, schema=metadata_schema)
            has_rows = exists(select(literal(1)).select_from(rows))
            asked.append(select(literal(int(found[1] or found[2])).label("table_id")).where(has_rows))
    filled = {
        table_id
        for part in in_parts(asked, _TABLES_AT_ONCE)
        for table_id in connection.execute(union_all(*part)).scalars()
    }
    return [
        row.qualified
        for row in read.table_rows(connection, catalog.tables, snapshot.id)
        if row.id in filled and (schema is None or row.schema.name.folded == schema.folded)
    ]


def find_flush(connection: Connection, catalog: Catalog, found: TableSnapshot) -> FlushPlan:
    """Return what is to be flushed of a table: all of its snapshot and before."""
    marks = inlined_delete_snapshots(connection, catalog, found.table_id, found.snapshot.id)
    files = tuple(_files(connection, catalog, found, marks))
    return FlushPlan(found, tuple(_layouts(connection, catalog, found)), files, marks)


def _layouts(connection: Connection, catalog: Catalog, found: TableSnapshot) -> Iterator[LayoutToFlush]:
    inlined = inlined_of(connection, catalog, found)
    partitionings = which_partitionings(catalog.tables, found.table_id).ask(connection)
    for layout in inlined.layouts:
        rows = rows_of_layout(connection, catalog, found.table_id, layout.schema_version, found.snapshot.id)
        if rows is not None:
            spec = partitionings.at(layout.begin, inlined.columns)
            yield LayoutToFlush(rows.upto, inlined.columns.at(layout.begin), spec)


def _files(
    connection: Connection,
    catalog: Catalog,
    found: TableSnapshot,
    marks: Mapping[DataFileId, Mapping[int, int]],
) -> Iterator[LiveDataFile]:
    """Yield the live data files that have marks.

    Those of files that ended stay as they are until these expire, and so do those of a file with two delete
    files, which is for ``Lake.repair`` to mend.
    """
    file_id = catalog.tables["data_file"].c.data_file_id
    for part in in_parts(marks):
        only = file_id.in_(part)
        for file in read_files.data_files(connection, catalog, found, only=only, stats_of=()):
            if not file.older_delete_files:
                yield file


def rows_to_flush(
    connection: Connection, catalog: Catalog, found: TableSnapshot, schema_version: int
) -> Iterator[InlinedRows]:
    """Yield the rows of an inlined table but those that had ended before the oldest snapshot there is.

    Those are of no snapshot, and of no change between two of them.
    """
    ids = catalog.tables["snapshot"].c.snapshot_id
    oldest = connection.execute(select(func.min(ids))).scalar_one()

    def is_known(rows: Table) -> ColumnElement[bool]:
        ended = rows.c.end_snapshot
        return and_(rows.c.begin_snapshot <= found.snapshot.id, or_(ended.is_(None), ended >= oldest))

    yield from inlined_batches(connection, catalog, found, schema_version, is_known)
