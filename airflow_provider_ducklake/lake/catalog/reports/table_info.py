"""Information about tables and their files from the catalog alone, as the reference lists it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, literal, or_, select

from airflow_provider_ducklake.lake.catalog.database.questions import asked
from airflow_provider_ducklake.lake.catalog.snapshot import read
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_tables import bare_table

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.lake.spec.files import FileKey, LiveDataFile, LiveDeleteFile
    from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName
    from airflow_provider_ducklake.lake.spec.snapshots import TableSnapshot


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
    connection: Connection, catalog: Catalog, at: int, name: QualifiedName | None = None
) -> list[TableInfo]:
    """Return what is known of the tables at a snapshot, or of the one of that name, sorted by name."""
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
    connection: Connection, catalog: Catalog, kind: str, at: int, only: Collection[int] | None
) -> dict[int, tuple[int, int]]:
    """Return the number and size of the visible files of each of the tables (None: of all) that has any."""
    file = catalog.tables[kind]
    size = func.sum(file.c.file_size_bytes, type_=file.c.file_size_bytes.type)
    query = (
        select(file.c.table_id, func.count(), size).where(read.visible(file, at)).group_by(file.c.table_id)
    )
    if only is not None:
        query = query.where(file.c.table_id.in_(only))
    return {table_id: (count, int(size or 0)) for table_id, count, size in connection.execute(query)}


def inlined_row_counts(
    connection: Connection, catalog: Catalog, table_ids: Collection[int], at: int
) -> dict[int, int]:
    """Return the number of rows in the catalog at a snapshot of each of the tables that has any."""
    registry, schema = catalog.tables["inlined_data_tables"], catalog.tables.metadata_schema
    registered = connection.execute(select(registry.c.table_id, registry.c.table_name).distinct()).all()
    existing = catalog.dialect.table_names(connection, schema) if registered else set()
    counts = []
    for table_id, name in registered:
        if table_id in table_ids and name in existing:
            rows = bare_table(name, catalog.tables)
            is_live = or_(rows.c.end_snapshot.is_(None), rows.c.end_snapshot > at)
            count = select(literal(table_id).label("table_id"), func.count().label("number"))
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
