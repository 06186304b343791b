"""The mark that a lake leaves below its data path to show other lakes that the files are its own.

The mark is named by the lake and holds a token, new each time, which the catalog knows as well: a copy of
the catalog, or a backup of it, does not know the newest. The tokens are in a table of our own.
"""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, MetaData, String, Table, select

from airflow_provider_ducklake.lake.catalog.database.column_types import TABLE_OPTIONS, CatalogTimestamp
from airflow_provider_ducklake.lake.catalog.database.questions import in_parts
from airflow_provider_ducklake.lake.catalog.dialects.retry import DEFAULT_RETRY, with_retries
from airflow_provider_ducklake.lake.catalog.ledger.own_tables import ensure_table
from airflow_provider_ducklake.lake.errors import SharedDataPathError, UntrustedValueError
from airflow_provider_ducklake.lake.planning.upkeep.files import MARK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog

NAME = "airflow_ducklake_mark"
_KEPT = timedelta(days=7)
_LENGTH = 36
_MOST_BYTES = 2**16  # of a mark, which has about a hundred


def mark_table(metadata_schema: str | None) -> Table:
    """Return the table of tokens; all rows have the lake's own id."""
    return Table(
        NAME,
        MetaData(schema=metadata_schema),
        Column("token", String(_LENGTH), primary_key=True),
        Column("lake_id", String(_LENGTH), nullable=False),
        Column("written_at", CatalogTimestamp, nullable=False),
        **TABLE_OPTIONS,
    )


def mark_names(connection: Connection, catalog: Catalog) -> frozenset[str]:
    """Return how the lake's mark is called; none where it never left one."""
    return frozenset(MARK + lake_id for _, lake_id in _tokens(connection, catalog))


def leave_mark(catalog: Catalog, storage_options: Mapping[str, Any]) -> str:
    """Look at the mark below the data path, write a new token there, and return the mark's name.

    Raises:
        SharedDataPathError: another catalog, a copy of this one or an older state of it, wrote the token.
        StorageError: it cannot be read or written.
    """
    from airflow_provider_ducklake.lake.storage.files.filesystem import write_bytes  # noqa: PLC0415 - heavy

    table = mark_table(catalog.tables.metadata_schema)
    ensure_table(catalog, table)
    with catalog.dialect.reading() as connection:
        name = next(iter(mark_names(connection, catalog)), None)
    if name is not None:
        check_mark(catalog, name, storage_options)
    lake_id, token = _add_token(catalog, table)
    document = json.dumps({"lake": lake_id, "token": token}).encode()
    write_bytes(f"{catalog.data_path}{MARK}{lake_id}", document, storage_options)
    return MARK + lake_id


def check_mark(catalog: Catalog, name: str, storage_options: Mapping[str, Any]) -> None:
    """Look whether the mark, if there is one, holds a token that the catalog knows.

    Raises:
        SharedDataPathError: it does not.
        StorageError: it cannot be read, or is far longer than a mark.
    """
    from airflow_provider_ducklake.lake.storage.files.filesystem import exists, read_bytes  # noqa: PLC0415 - heavy

    path = catalog.data_path + name
    if not exists(path, storage_options):
        return
    try:
        token = str(json.loads(read_bytes(path, storage_options, limit=_MOST_BYTES))["token"])
    except (ValueError, KeyError, TypeError, RecursionError):
        token = ""
    with catalog.dialect.reading() as connection:
        known = {known for known, _ in _tokens(connection, catalog)}
    if token not in known:
        raise SharedDataPathError(
            catalog.data_path,
            f"{path} was written by a copy of this catalog, or by a newer state of it. If no such copy is "
            "in use any more, remove that file and run this again.",
        )


def _tokens(connection: Connection, catalog: Catalog) -> list[tuple[str, str]]:
    table = mark_table(catalog.tables.metadata_schema)
    if not catalog.dialect.has_table(connection, NAME, table.schema):
        return []
    return [(row.token, _checked(row.lake_id)) for row in connection.execute(select(table))]


def _checked(lake_id: str) -> str:
    """Return an id that a file is named by.

    Raises:
        UntrustedValueError: it is none that we gave.
    """
    try:
        return str(uuid.UUID(lake_id))
    except ValueError:
        raise UntrustedValueError(NAME, lake_id, "is not the id of a lake") from None


def _add_token(catalog: Catalog, table: Table) -> tuple[str, str]:
    """Note a new token before it is written, and forget those of last week."""
    token = str(uuid.uuid4())

    def attempt() -> str:
        with catalog.dialect.writing() as connection:
            now = catalog.dialect.server_time(connection)
            rows = connection.execute(select(table)).all()
            lake_id = _checked(rows[0].lake_id) if rows else str(uuid.uuid4())
            connection.execute(table.insert(), {"token": token, "lake_id": lake_id, "written_at": now})
            newest = max((row.written_at for row in rows), default=now)
            old = [row.token for row in rows if row.written_at < min(now - _KEPT, newest)]
            for part in in_parts(old):
                connection.execute(table.delete().where(table.c.token.in_(part)))
            connection.commit()
        return lake_id

    return with_retries(catalog.dialect, DEFAULT_RETRY, attempt)[0], token
