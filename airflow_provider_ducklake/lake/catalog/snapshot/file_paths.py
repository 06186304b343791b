"""The full paths of all files that a lake names, however its rows spell them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Text, func, or_, select, type_coerce, union_all

from airflow_provider_ducklake.lake.catalog.database.questions import streamed
from airflow_provider_ducklake.lake.catalog.snapshot.read_snapshots import check_version
from airflow_provider_ducklake.lake.errors import UntrustedValueError
from airflow_provider_ducklake.lake.spec.names.paths import MAX_LENGTH, CatalogPath

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sqlalchemy import ColumnElement, Connection

    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog


def table_directories(
    connection: Connection, catalog: Catalog, table_ids: Collection[int] | None = None
) -> dict[int, set[str]]:
    """Return the directories that each table, or each of those, has had: full paths that end in ``/``."""
    table, schema = catalog.tables["table"], catalog.tables["schema"]
    query = select(
        table.c.table_id, table.c.path, table.c.path_is_relative, schema.c.path, schema.c.path_is_relative
    ).join(schema, schema.c.schema_id == table.c.schema_id)
    if table_ids is not None:
        query = query.where(table.c.table_id.in_(table_ids))
    roots: dict[int, set[str]] = {}
    for table_id, path, is_relative, above, above_is_relative in connection.execute(query.distinct()):
        parent = CatalogPath(above, above_is_relative).spelled_below(catalog.data_path)
        roots.setdefault(table_id, set()).add(CatalogPath(path, is_relative).spelled_below(parent))
    return roots


def named_files(connection: Connection, catalog: Catalog, since: int = 0) -> Iterator[tuple[str, bool]]:
    """Yield the path of each data file and delete file of any snapshot, and whether it is a full one.

    It is none where the table of a file is unknown. ``since``: only those with that file id or a higher one.

    Raises:
        CatalogMigratedError: the lake was migrated since it was opened.
        UntrustedValueError: one is not a string.
    """
    check_version(connection, catalog.tables)
    roots = table_directories(connection, catalog)
    data, deletes = catalog.tables["data_file"], catalog.tables["delete_file"]
    query = union_all(
        *(
            select(one.c.table_id, _as_it_is(one.c.path), one.c.path_is_relative).where(file_id >= since)
            for one, file_id in ((data, data.c.data_file_id), (deletes, deletes.c.delete_file_id))
        )
    )
    for table_id, path, is_relative in streamed(connection, query):
        if not isinstance(path, str):
            raise _not_a_string("data_file or ducklake_delete_file", path)
        if not is_relative:
            yield path, True
        elif table_id not in roots:
            yield path, False
        else:
            yield from ((root + path, True) for root in roots[table_id])


def scheduled_files(connection: Connection, catalog: Catalog) -> Iterator[str]:
    """Yield the full path of each file that waits for its deletion.

    Raises:
        UntrustedValueError: one is not a string; SQLite keeps whatever it is given.
    """
    file = catalog.tables["files_scheduled_for_deletion"]
    query = select(_as_it_is(file.c.path), file.c.path_is_relative)
    for path, is_relative in streamed(connection, query):
        if isinstance(path, bytes):
            raise _not_a_string("files_scheduled_for_deletion", path)
        yield CatalogPath(path, is_relative).spelled_below(catalog.data_path)


def _as_it_is(path: ColumnElement[str]) -> ColumnElement[str]:
    """Return a path that is read whatever SQLite keeps there, for an error that says what to do."""
    return type_coerce(path, Text)


def _not_a_string(kind: str, path: object) -> UntrustedValueError:
    problem = "is not a string; correct path in that row"
    return UntrustedValueError(f"A row of ducklake_{kind}", repr(path), problem)


def may_mislead(path: ColumnElement[str]) -> ColumnElement[bool]:
    """Return what holds for all paths that ``spec.paths.misleading`` speaks of, and for few others."""
    encoded = (path.contains(start, autoescape=True) for start in ("%2", "%%"))
    return or_(path.like("%..%"), *encoded, func.length(path) > MAX_LENGTH)
