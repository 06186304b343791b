"""Count the rows of a table from the catalog, and find the files that must be read for the rest.

The counts of files and delete files are exact. What they do not say: which rows of a file came later than the
snapshot, which of its deletes did, and whether a delete file and the catalog delete the same row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, false, func, or_, select

from airflow_provider_ducklake.lake.catalog.database.column_types import maybe
from airflow_provider_ducklake.lake.catalog.reports.table_info import inlined_row_counts
from airflow_provider_ducklake.lake.catalog.snapshot import read_files
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_read import inlined_delete_marks
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_tables import inlined_delete_table
from airflow_provider_ducklake.lake.catalog.snapshot.read import visible
from airflow_provider_ducklake.lake.planning.reading.scan import ScanPlan

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Select, Table

    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.lake.spec.snapshots import TableSnapshot


def count_rows(connection: Connection, catalog: Catalog, table: TableSnapshot) -> tuple[int, ScanPlan]:
    """Return the number of rows that the catalog knows, and the plan for reading those that it does not."""
    at, table_id = table.snapshot.id, table.table_id
    marks = _marks(connection, catalog, table)
    doubtful = _doubtful(catalog, table, marks)
    known = _rows_in_files(connection, catalog, table, doubtful)
    known -= _marked_rows(connection, catalog, table, marks, doubtful)
    known += inlined_row_counts(connection, catalog, {table.table_id}, table.snapshot.id).get(
        table.table_id, 0
    )
    files = read_files.data_files(connection, catalog, table, only=doubtful, stats_of=())
    deletes = {}
    if files and marks is not None:
        deletes = inlined_delete_marks(connection, catalog, table_id, at)
    return known, ScanPlan(replace(table, files=files), files, (), (), deletes)


def _marks(connection: Connection, catalog: Catalog, table: TableSnapshot) -> Table | None:
    marks = inlined_delete_table(table.table_id, catalog.tables.metadata_schema)
    return marks if catalog.dialect.has_table(connection, marks.name, marks.schema) else None


def _doubtful(catalog: Catalog, table: TableSnapshot, marks: Table | None) -> ColumnElement[bool]:
    """Return the condition on data files whose number of rows only they themselves know."""
    file, deletes, at = catalog.tables["data_file"], catalog.tables["delete_file"].alias(), table.snapshot.id
    deleted_from = select(deletes.c.data_file_id).where(
        deletes.c.table_id == table.table_id, visible(deletes, at)
    )

    def is_in(files: Select[Any]) -> ColumnElement[bool]:
        return file.c.data_file_id.in_(files)

    several = deleted_from.group_by(deletes.c.data_file_id).having(func.count() > 1)
    conditions: list[ColumnElement[bool]] = [is_in(several)]
    if "partial_max" in file.c:
        # a flush does not say of which snapshots its deletes are, only of which its rows
        unsaid = is_in(deleted_from.where(deletes.c.partial_max.is_(None)))
        conditions += [
            and_(file.c.partial_max.is_not(None), file.c.partial_max > at),  # never NULL: it is negated
            is_in(deleted_from.where(deletes.c.partial_max > at)),
            and_(file.c.partial_max.is_not(None), unsaid),
        ]
    if "partial_file_info" in file.c:
        conditions.append(file.c.partial_file_info.is_not(None))
    if marks is not None:
        marked = select(marks.c.file_id).where(marks.c.begin_snapshot <= at)
        conditions.append(and_(is_in(deleted_from), is_in(marked)))
    return or_(false(), *conditions)


def _rows_in_files(
    connection: Connection, catalog: Catalog, table: TableSnapshot, doubtful: ColumnElement[bool]
) -> int:
    """Return the number of rows of all files but the doubtful ones, less those in their delete files."""
    file, deletes, at = catalog.tables["data_file"], catalog.tables["delete_file"], table.snapshot.id
    deleted = and_(deletes.c.data_file_id == file.c.data_file_id, visible(deletes, at))
    left = file.c.record_count - func.coalesce(deletes.c.delete_count, 0)
    query = (
        select(maybe(func.sum(left, type_=file.c.record_count.type)))
        .select_from(file.outerjoin(deletes, deleted))
        .where(file.c.table_id == table.table_id, visible(file, at), ~doubtful)
    )
    return int(connection.execute(query).scalar() or 0)


def _marked_rows(
    connection: Connection,
    catalog: Catalog,
    table: TableSnapshot,
    marks: Table | None,
    doubtful: ColumnElement[bool],
) -> int:
    """Return the number of rows of the other files that are deleted in the catalog."""
    if marks is None:
        return 0
    file, at = catalog.tables["data_file"], table.snapshot.id
    certain = select(file.c.data_file_id).where(
        file.c.table_id == table.table_id, visible(file, at), ~doubtful
    )
    rows = select(marks.c.file_id, marks.c.row_id).where(
        marks.c.begin_snapshot <= at, marks.c.file_id.in_(certain)
    )
    return connection.execute(select(func.count()).select_from(rows.distinct().subquery())).scalar_one()
