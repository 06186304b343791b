"""Count the rows of a table from the catalog, and find the files that must be read for the rest.

The counts of files and delete files are exact. What they do not say: which rows of a file came later than the
snapshot, which of its deletes did, and whether a delete file and the catalog delete the same row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, and_, case, func, null, or_, select

from airflow_provider_ducklake.catalog.reports.table_info import inlined_row_counts
from airflow_provider_ducklake.catalog.snapshot import read_files
from airflow_provider_ducklake.catalog.snapshot.inlined_read import inlined_delete_marks
from airflow_provider_ducklake.catalog.snapshot.inlined_tables import inlined_delete_table
from airflow_provider_ducklake.catalog.snapshot.read import visible
from airflow_provider_ducklake.planning.reading.scan import ScanPlan

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, FromClause, Select, Subquery, Table

    from airflow_provider_ducklake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.spec.files import LiveDataFile
    from airflow_provider_ducklake.spec.snapshots import TableSnapshot


def count_rows(connection: Connection, catalog: Catalog, table: TableSnapshot) -> tuple[int, ScanPlan]:
    """Return the number of rows that the catalog knows, and the plan for reading those that it does not."""
    at, table_id = table.snapshot.id, table.table_id
    marks = _marks(connection, catalog, table)
    judged = _judged(catalog, table, marks)
    known, doubtful_count = judged.count(connection)
    if marks is not None:
        known -= _marked_rows(connection, judged, marks, at)
    known += inlined_row_counts(connection, catalog, {table.table_id}, table.snapshot.id).get(
        table.table_id, 0
    )
    files: tuple[LiveDataFile, ...] = ()
    if doubtful_count:
        only = catalog.tables["data_file"].c.data_file_id.in_(judged.ids(judged.is_doubtful))
        files = read_files.data_files(connection, catalog, table, only=only, stats_of=())
    deletes = {}
    if files and marks is not None:
        deletes = inlined_delete_marks(connection, catalog, table_id, at)
    return known, ScanPlan(replace(table, files=files), files, (), (), deletes)


def _marks(connection: Connection, catalog: Catalog, table: TableSnapshot) -> Table | None:
    marks = inlined_delete_table(table.table_id, catalog.tables.metadata_schema)
    return marks if catalog.dialect.has_table(connection, marks.name, marks.schema) else None


@dataclass(frozen=True, slots=True)
class _Judged:
    """The live data files of a table, with what deletes from them.

    ``left`` is how many rows of a file the catalog says are left; where ``is_doubtful``, never NULL, only the
    file itself knows. It joins: an ``IN (SELECT …)`` below ``OR`` or ``NOT`` PostgreSQL asks for every file.
    """

    files: FromClause
    id: ColumnElement[int]
    is_live: ColumnElement[bool]
    left: ColumnElement[int]
    is_doubtful: ColumnElement[bool]

    def count(self, connection: Connection) -> tuple[int, int]:
        """Return the number of rows of the files that are certain, and the number of doubtful files."""
        rows = func.sum(case((self.is_doubtful, 0), else_=self.left), type_=BigInteger())
        doubtful = func.sum(case((self.is_doubtful, 1), else_=0), type_=BigInteger())
        query = select(rows, doubtful).select_from(self.files).where(self.is_live)
        known, count = connection.execute(query).one()
        return int(known or 0), int(count or 0)

    def ids(self, which: ColumnElement[bool]) -> Select[Any]:
        """Return the query for the ids of some of the files."""
        return select(self.id).select_from(self.files).where(self.is_live, which)


def _judged(catalog: Catalog, table: TableSnapshot, marks: Table | None) -> _Judged:
    at = table.snapshot.id
    file = catalog.tables["data_file"].alias("judged")
    deletes = _deletes_by_file(catalog, table)
    joined: FromClause = file.outerjoin(deletes, deletes.c.data_file_id == file.c.data_file_id)
    count = func.coalesce(deletes.c.count, 0)
    conditions: list[ColumnElement[bool]] = [count > 1]
    if "partial_max" in file.c:
        # a flush does not say of which snapshots its deletes are, only of which its rows
        conditions += [
            func.coalesce(file.c.partial_max, -1) > at,
            func.coalesce(deletes.c.partial_max, -1) > at,
            and_(file.c.partial_max.is_not(None), func.coalesce(deletes.c.unsaid, 0) > 0),
        ]
    if "partial_file_info" in file.c:
        conditions.append(file.c.partial_file_info.is_not(None))
    if marks is not None:
        marked = select(marks.c.file_id).distinct().where(marks.c.begin_snapshot <= at).subquery("marked")
        joined = joined.outerjoin(marked, marked.c.file_id == file.c.data_file_id)
        conditions.append(and_(count > 0, marked.c.file_id.is_not(None)))
    return _Judged(
        joined,
        file.c.data_file_id,
        and_(file.c.table_id == table.table_id, visible(file, at)),
        file.c.record_count - func.coalesce(deletes.c.rows, 0),
        or_(*conditions),
    )


def _deletes_by_file(catalog: Catalog, table: TableSnapshot) -> Subquery:
    """Return, by data file, its delete files: how many, of how many rows, how many do not say of whom."""
    delete = catalog.tables["delete_file"]
    partial = delete.c.partial_max if "partial_max" in delete.c else null()
    query = select(
        delete.c.data_file_id,
        func.count().label("count"),
        func.sum(delete.c.delete_count).label("rows"),
        func.coalesce(func.max(partial), -1).label("partial_max"),
        (func.count() - func.count(partial)).label("unsaid"),
    )
    query = query.where(delete.c.table_id == table.table_id, visible(delete, table.snapshot.id))
    return query.group_by(delete.c.data_file_id).subquery("deletes")


def _marked_rows(connection: Connection, judged: _Judged, marks: Table, at: int) -> int:
    """Return the number of rows of the files that are certain which are deleted in the catalog."""
    rows = select(marks.c.file_id, marks.c.row_id).where(
        marks.c.begin_snapshot <= at, marks.c.file_id.in_(judged.ids(~judged.is_doubtful))
    )
    return connection.execute(select(func.count()).select_from(rows.distinct().subquery())).scalar_one()
