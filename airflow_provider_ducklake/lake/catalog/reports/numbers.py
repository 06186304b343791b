"""Report numbers of tables from the catalog: files and sizes, rows, bounds of columns; and a lake's clients.

The counts of files and delete files are exact. What they do not say: which rows of a file came later than the
snapshot, which of its deletes did, and whether a delete file and the catalog delete the same row. Files with
such rows must be read to count them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ...errors import StorageError, UnsupportedFeatureError
from ...format.names.paths import CatalogPath
from ...format.schema import Column, TableSchema
from ...planning.reading.pruning import Bounds, ColumnHistory, InexactError, bounds_of_files, exact, widened
from ...planning.reading.scan import InlinedRows, ScanPlan
from ..database.connect import asked
from ..database.tables import CatalogTables, maybe
from ..snapshot import read, read_files
from ..snapshot.inlined_read import inlined_delete_marks, read_inlined
from ..snapshot.inlined_tables import bare_table, inlined_delete_table
from ..snapshot.read import Place, table_folders, visible
from ..snapshot.read_files import file_key

if TYPE_CHECKING:
    import pyarrow as pa

    from ...format.files import FileKey, LiveDataFile, LiveDeleteFile
    from ...format.names.identifiers import QualifiedName
    from ...format.snapshots import TableSnapshot
    from ...storage.files.filesystem import Location
    from ..dialects.dialect import Catalog


# Information about tables and their files from the catalog alone, as the reference lists it.


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A row of ``ducklake_table_info``, with the schema's name and the number of rows kept in the catalog.

    Sizes are bytes; inlined deletes are not counted.
    """

    schema_name: str
    table_name: str
    schema_id: int
    table_id: int
    table_uuid: str
    file_count: int
    file_size_bytes: int
    delete_file_count: int
    delete_file_size_bytes: int
    inlined_row_count: int


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A row of ``ducklake_list_files``: absolute paths, sizes in bytes; keys do not show."""

    data_file: str
    data_file_size_bytes: int
    data_file_footer_size: int | None
    data_file_encryption_key: FileKey | None
    delete_file: str | None
    delete_file_size_bytes: int | None
    delete_file_footer_size: int | None
    delete_file_encryption_key: FileKey | None


def table_infos(
    connection: sa.Connection, catalog: Catalog, at: int, name: QualifiedName | None = None
) -> list[TableInfo]:
    """Describe the tables at a snapshot, or the one of that name, sorted by name."""
    rows = read.table_rows(connection, catalog.tables, at, name)
    ids = {row.id for row in rows}
    only = None if name is None else ids
    data, deletes = (_files(connection, catalog, one, at, only) for one in ("data_file", "delete_file"))
    inlined = inlined_row_counts(connection, catalog, ids, at)
    return [
        TableInfo(
            str(row.schema.name) if row.schema.parent is not None else row.schema.name.name,
            row.name,
            row.schema.id,
            row.id,
            row.uuid,
            *data.get(row.id, (0, 0)),
            *deletes.get(row.id, (0, 0)),
            inlined.get(row.id, 0),
        )
        for row in rows
    ]


def _files(
    connection: sa.Connection, catalog: Catalog, kind: str, at: int, only: Collection[int] | None
) -> dict[int, tuple[int, int]]:
    """Return the number and size of the visible files of each of the tables (None: of all) that has any."""
    file = catalog.tables[kind]
    size = sa.func.sum(file.c.file_size_bytes, type_=file.c.file_size_bytes.type)
    query = (
        sa.select(file.c.table_id, sa.func.count(), size)
        .where(read.visible(file, at))
        .group_by(file.c.table_id)
    )
    if only is not None:
        query = query.where(file.c.table_id.in_(only))
    return {table_id: (count, int(size or 0)) for table_id, count, size in connection.execute(query)}


def inlined_row_counts(
    connection: sa.Connection, catalog: Catalog, table_ids: Collection[int], at: int
) -> dict[int, int]:
    """Return the number of rows in the catalog at a snapshot of each of the tables that has any."""
    registry, schema = catalog.tables["inlined_data_tables"], catalog.tables.metadata_schema
    registered = connection.execute(sa.select(registry.c.table_id, registry.c.table_name).distinct()).all()
    existing = catalog.dialect.table_names(connection, schema) if registered else set()
    counts = []
    for table_id, name in registered:
        if table_id in table_ids and name in existing:
            rows = bare_table(name, catalog.tables)
            is_live = sa.or_(rows.c.end_snapshot.is_(None), rows.c.end_snapshot > at)
            count = sa.select(sa.literal(table_id).label("table_id"), sa.func.count().label("number"))
            counts.append(count.select_from(rows).where(rows.c.begin_snapshot <= at, is_live))
    found: dict[int, int] = {}
    for row in asked(connection, counts):
        found[row.table_id] = found.get(row.table_id, 0) + row.number
    return found


def listed_files(found: TableSnapshot) -> list[ListedFile]:
    """Return the files of a table that was loaded with them."""
    return [_listed(file, file.delete_file) for file in found.files or ()]


def _listed(file: LiveDataFile, delete: LiveDeleteFile | None) -> ListedFile:
    return ListedFile(
        data_file=file.path,
        data_file_size_bytes=file.file_size_bytes,
        data_file_footer_size=file.footer_size,
        data_file_encryption_key=file.encryption_key,
        delete_file=delete.path if delete is not None else None,
        delete_file_size_bytes=delete.file_size_bytes if delete is not None else None,
        delete_file_footer_size=delete.footer_size if delete is not None else None,
        delete_file_encryption_key=delete.encryption_key if delete is not None else None,
    )


def count_rows(connection: sa.Connection, catalog: Catalog, table: TableSnapshot) -> tuple[int, ScanPlan]:
    """Count the rows that the catalog can count, and plan the read of the others."""
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


def _marks(connection: sa.Connection, catalog: Catalog, table: TableSnapshot) -> sa.Table | None:
    marks = inlined_delete_table(table.table_id, catalog.tables.metadata_schema)
    return marks if catalog.dialect.has_table(connection, marks.name, marks.schema) else None


def _doubtful(catalog: Catalog, table: TableSnapshot, marks: sa.Table | None) -> sa.ColumnElement[bool]:
    """Return the condition on data files whose number of rows only the files themselves can give."""
    file, deletes, at = catalog.tables["data_file"], catalog.tables["delete_file"].alias(), table.snapshot.id
    deleted_from = sa.select(deletes.c.data_file_id).where(
        deletes.c.table_id == table.table_id, visible(deletes, at)
    )

    def is_in(files: sa.Select[Any]) -> sa.ColumnElement[bool]:
        return file.c.data_file_id.in_(files)

    several = deleted_from.group_by(deletes.c.data_file_id).having(sa.func.count() > 1)
    conditions: list[sa.ColumnElement[bool]] = [is_in(several)]
    # a flush records the snapshots of its rows, and not those of its deletes
    unsaid = is_in(deleted_from.where(deletes.c.partial_max.is_(None)))
    conditions += [
        sa.and_(file.c.partial_max.is_not(None), file.c.partial_max > at),  # never NULL: it is negated
        is_in(deleted_from.where(deletes.c.partial_max > at)),
        sa.and_(file.c.partial_max.is_not(None), unsaid),
    ]
    if marks is not None:
        marked = sa.select(marks.c.file_id).where(marks.c.begin_snapshot <= at)
        conditions.append(sa.and_(is_in(deleted_from), is_in(marked)))
    return sa.or_(sa.false(), *conditions)


def _rows_in_files(
    connection: sa.Connection, catalog: Catalog, table: TableSnapshot, doubtful: sa.ColumnElement[bool]
) -> int:
    """Return the number of rows of all files but the doubtful ones, less those in their delete files."""
    file, deletes, at = catalog.tables["data_file"], catalog.tables["delete_file"], table.snapshot.id
    deleted = sa.and_(deletes.c.data_file_id == file.c.data_file_id, visible(deletes, at))
    left = file.c.record_count - sa.func.coalesce(deletes.c.delete_count, 0)
    query = (
        sa.select(maybe(sa.func.sum(left, type_=file.c.record_count.type)))
        .select_from(file.outerjoin(deletes, deleted))
        .where(file.c.table_id == table.table_id, visible(file, at), ~doubtful)
    )
    return int(connection.execute(query).scalar() or 0)


def _marked_rows(
    connection: sa.Connection,
    catalog: Catalog,
    table: TableSnapshot,
    marks: sa.Table | None,
    doubtful: sa.ColumnElement[bool],
) -> int:
    """Return the number of rows of the other files that are deleted in the catalog."""
    if marks is None:
        return 0
    file, at = catalog.tables["data_file"], table.snapshot.id
    certain = sa.select(file.c.data_file_id).where(
        file.c.table_id == table.table_id, visible(file, at), ~doubtful
    )
    rows = sa.select(marks.c.file_id, marks.c.row_id).where(
        marks.c.begin_snapshot <= at, marks.c.file_id.in_(certain)
    )
    return connection.execute(sa.select(sa.func.count()).select_from(rows.distinct().subquery())).scalar_one()


# The smallest and largest value of a column, if the catalog has them exactly.


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """The least and the greatest value of a column, of its Arrow type; null scalars where it has no value."""

    min: pa.Scalar
    max: pa.Scalar


def column_bounds(
    connection: sa.Connection, catalog: Catalog, table: TableSnapshot, name: str
) -> ColumnBounds | None:
    """Return the bounds of a top-level column; None where the catalog does not say them exactly."""
    from ...storage.arrow.arrow_types import from_physical

    column = table.schema.find(name, str(table.name))
    try:
        found = _bounds(connection, catalog, table, column)
    except InexactError:
        return None
    low, high = from_physical(column.type, found if found is not None else [None, None])
    return ColumnBounds(low, high)


def _bounds(connection: sa.Connection, catalog: Catalog, table: TableSnapshot, column: Column) -> Bounds:
    at = table.snapshot.id
    history = _history(connection, catalog, table, column)
    files = read_files.data_files(connection, catalog, table, stats_of=(column.id,))
    found = bounds_of_files(history, files, at)
    marked = inlined_delete_marks(connection, catalog, table.table_id, at)
    if any(file.id in marked for file in files):
        raise InexactError
    inlined = read_inlined(connection, catalog, table)
    return widened(found, _inlined_bounds(inlined, column))


def _history(
    connection: sa.Connection, catalog: Catalog, table: TableSnapshot, column: Column
) -> ColumnHistory:
    rows = catalog.tables["column"]
    query = (
        sa.select(rows.c.column_type, sa.func.min(rows.c.begin_snapshot).label("since"))
        .where(rows.c.table_id == table.table_id, rows.c.column_id == column.id)
        .where(rows.c.begin_snapshot <= table.snapshot.id)
        .group_by(rows.c.column_type)
    )
    found = connection.execute(query).all()
    return ColumnHistory(column, min(row.since for row in found), frozenset(row.column_type for row in found))


def _inlined_bounds(parts: Sequence[InlinedRows], column: Column) -> Bounds:
    from ...storage.arrow.arrow_types import values_of
    from ...storage.rows.inlined_values import inlined_in_schema

    rows = inlined_in_schema(parts, TableSchema((column,)))
    found: Bounds = None
    for value in values_of(rows.column(0), column.type):
        if value is not None:
            found = widened(found, exact(value, value))
    return found


# Which clients wrote a lake, as far as they left their names.
#
# DuckDB leaves its name where it made the catalog and in the footers of its files, and none in snapshots.


_SIGNATURES = {'%"airflow"%': "airflow_provider_ducklake", "%ducklakepy%": "ducklakepy"}


@dataclass(frozen=True, slots=True)
class LakeClient:
    """A client that wrote to a lake: the name that it recorded, and where it is recorded.

    ``snapshot_id`` is the newest snapshot where it was found.
    """

    name: str
    where: str
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A data file, and the snapshot that it came with."""

    path: str
    snapshot_id: int
    encryption_key: FileKey | None = None


def clients_in_catalog(connection: sa.Connection, tables: CatalogTables) -> list[LakeClient]:
    """Return who made the catalog, and who left a name in snapshots."""
    metadata, changes = tables["metadata"], tables["snapshot_changes"]
    made = connection.execute(sa.select(metadata.c.value).where(metadata.c.key == "created_by")).scalars()
    found = [LakeClient(name, "made the catalog", 0) for name in made]
    if "commit_extra_info" not in changes.c:
        return found
    signed = [
        (changes.c.commit_extra_info.like(like), sa.literal(name)) for like, name in _SIGNATURES.items()
    ]
    name = sa.case(*signed, else_=sa.null()).label("name")
    rows = connection.execute(
        sa.select(name, sa.func.max(changes.c.snapshot_id))
        .where(changes.c.commit_extra_info.is_not(None))
        .group_by(name)
    )
    found += [LakeClient(one, "committed snapshots", at) for one, at in rows if one is not None]
    return found


def newest_files(connection: sa.Connection, catalog: Catalog, count: int) -> list[WrittenFile]:
    """Return the newest data files that clients of the lake wrote: none that was added from elsewhere."""
    file = catalog.tables["data_file"]
    query = sa.select(
        file.c.table_id, file.c.begin_snapshot, file.c.path, file.c.path_is_relative, file.c.encryption_key
    )
    if "mapping_id" in file.c:  # a migration asks 0.1, too
        query = query.where(file.c.mapping_id.is_(None))
    rows = connection.execute(query.order_by(file.c.data_file_id.desc()).limit(count)).all()
    folders = table_folders(connection, catalog.tables)
    return [
        WrittenFile(
            Place(CatalogPath(row.path, row.path_is_relative), folders[row.table_id]).full(catalog.data_path),
            row.begin_snapshot,
            file_key(row.encryption_key),
        )
        for row in rows
        if row.table_id in folders
    ]


def clients_of_files(files: Iterable[WrittenFile], locate: Callable[[str], Location]) -> list[LakeClient]:
    """Return who wrote files, by their footers; one that cannot be read says nothing."""
    from ...storage.files.parallel import in_threads
    from ...storage.parquet.footer import read_metadata

    def writer(file: WrittenFile) -> tuple[str | None, int]:
        try:
            location = locate(file.path).with_key(file.encryption_key)
            return read_metadata(location)[0].created_by, file.snapshot_id
        except (StorageError, UnsupportedFeatureError):
            return None, file.snapshot_id

    newest: dict[str, int] = {}
    for name, snapshot_id in in_threads(writer, files):
        if name:
            newest[name] = max(snapshot_id, newest.get(name, 0))
    return [LakeClient(name, "wrote data files", snapshot_id) for name, snapshot_id in newest.items()]
