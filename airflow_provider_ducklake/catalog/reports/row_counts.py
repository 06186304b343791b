"""Count the rows of a table from the catalog, and find the files that must be read for the rest.

The counts of files and delete files are exact. What they do not say: which rows of a file came later than the
snapshot, which of its deletes did, and whether a delete file and the catalog delete the same row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy import and_, func, null, or_, select

from airflow_provider_ducklake.catalog.database.column_types import maybe
from airflow_provider_ducklake.catalog.reports.table_info import inlined_row_counts
from airflow_provider_ducklake.catalog.snapshot import read_files
from airflow_provider_ducklake.catalog.snapshot.inlined_read import inlined_delete_marks
from airflow_provider_ducklake.catalog.snapshot.inlined_tables import inlined_delete_table
from airflow_provider_ducklake.catalog.snapshot.read import visible
from airflow_provider_ducklake.planning.reading.scan import ScanPlan

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, FromClause, Table

    from airflow_provider_ducklake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.spec.snapshots import TableSnapshot


def count_rows(connection: Connection, catalog: Catalog, table: TableSnapshot) -> tuple[int, ScanPlan]:
    """Return the number of rows that the catalog knows, and the plan for reading those that it does not."""
    at, table_id = table.snapshot.id, table.table_id
    marks = _marks(connection, catalog, table)
    judged = _judged(catalog, table, marks)
    known = _rows_in_files(connection, catalog, table, judged.certain)
    known -= _marked_rows(connection, catalog, table, marks, judged.certain)
    known += inlined_row_counts(connection, catalog, {table.table_id}, table.snapshot.id).get(
        table.table_id, 0
    )
    files = read_files.data_files(connection, catalog, table, only=judged.doubtful, stats_of=())
    deletes = {}
    if files and marks is not None:
        deletes = inlined_delete_marks(connection, catalog, table_id, at)
    return known, ScanPlan(replace(table, files=files), files, (), (), deletes)


def _marks(connection: Connection, catalog: Catalog, table: TableSnapshot) -> Table | None:
    marks = inlined_delete_table(table.table_id, catalog.tables.metadata_schema)
    return marks if catalog.dialect.has_table(connection, marks.name, marks.schema) else None


@dataclass(frozen=True, slots=True)
class _Judged:
    """Two conditions on data files: of some only the files themselves know the number of rows.

    Each is one ``IN`` of a query that joins; a ``NOT`` or ``OR`` of them PostgreSQL evaluates file by file.
    """

    doubtful: ColumnElement[bool]
    certain: ColumnElement[bool]


def _judged(catalog: Catalog, table: TableSnapshot, marks: Table | None) -> _Judged:
    file, delete, at = (
        catalog.tables["data_file"].alias("judged"),
        catalog.tables["delete_file"],
        table.snapshot.id,
    )
    has_partial = "partial_max" in file.c
    partial = delete.c.partial_max if has_partial else null()
    of_file = (
        select(
            delete.c.data_file_id,
            func.count().label("count"),
            func.coalesce(func.max(partial), -1).label("partial_max"),
            (func.count() - func.count(partial)).label("unsaid"),
        )
        .where(delete.c.table_id == table.table_id, visible(delete, at))
        .group_by(delete.c.data_file_id)
        .subquery("deletes")
    )
    joined: FromClause = file.outerjoin(of_file, of_file.c.data_file_id == file.c.data_file_id)
    count, unsaid = func.coalesce(of_file.c.count, 0), func.coalesce(of_file.c.unsaid, 0)
    conditions: list[ColumnElement[bool]] = [count > 1]
    if has_partial:
        # a flush does not say of which snapshots its deletes are, only of which its rows
        conditions += [
            func.coalesce(file.c.partial_max, -1) > at,
            func.coalesce(of_file.c.partial_max, -1) > at,
            and_(file.c.partial_max.is_not(None), unsaid > 0),
        ]
    if "partial_file_info" in file.c:
        conditions.append(file.c.partial_file_info.is_not(None))
    if marks is not None:
        marked = select(marks.c.file_id).distinct().where(marks.c.begin_snapshot <= at).subquery("marked")
        joined = joined.outerjoin(marked, marked.c.file_id == file.c.data_file_id)
        conditions.append(and_(count > 0, marked.c.file_id.is_not(None)))
    is_doubtful = or_(*conditions)
    ids = select(file.c.data_file_id).select_from(joined).where(file.c.table_id == table.table_id)
    file_id = catalog.tables["data_file"].c.data_file_id
    return _Judged(file_id.in_(ids.where(is_doubtful)), file_id.in_(ids.where(~is_doubtful)))


def _rows_in_files(
    connection: Connection, catalog: Catalog, table: TableSnapshot, is_certain: ColumnElement[bool]
) -> int:
    """Return the number of rows of all files that are certain, less those in their delete files."""
    file, deletes, at = catalog.tables["data_file"], catalog.tables["delete_file"], table.snapshot.id
    deleted = and_(deletes.c.data_file_id == file.c.data_file_id, visible(deletes, at))
    left = file.c.record_count - func.coalesce(deletes.c.delete_count, 0)
    query = (
        select(maybe(func.sum(left, type_=file.c.record_count.type)))
        .select_from(file.outerjoin(deletes, deleted))
        .where(file.c.table_id == table.table_id, visible(file, at), is_certain)
    )
    return int(connection.execute(query).scalar() or 0)


def _marked_rows(
    connection: Connection,
    catalog: Catalog,
    table: TableSnapshot,
    marks: Table | None,
    is_certain: ColumnElement[bool],
) -> int:
    """Return the number of rows of those files that are deleted in the catalog."""
    if marks is None:
        return 0
    file, at = catalog.tables["data_file"], table.snapshot.id
    certain = select(file.c.data_file_id).where(
        file.c.table_id == table.table_id, visible(file, at), is_certain
    )
    rows = select(marks.c.file_id, marks.c.row_id).where(
        marks.c.begin_snapshot <= at, marks.c.file_id.in_(certain)
    )
    return connection.execute(select(func.count()).select_from(rows.distinct().subquery())).scalar_one()
