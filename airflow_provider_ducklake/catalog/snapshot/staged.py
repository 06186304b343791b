"""A table as it would be with writes that are staged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.catalog.snapshot.table_snapshot import load_table
from airflow_provider_ducklake.errors import TableNotFoundError
from airflow_provider_ducklake.planning.writing.staged import with_staged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from airflow_provider_ducklake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.planning.writing.staged import StagedWrite
    from airflow_provider_ducklake.spec.names.identifiers import QualifiedName
    from airflow_provider_ducklake.spec.snapshots import (
        Snapshot,
        TableSnapshot,
    )


def table_to_read(
    connection: Connection,
    catalog: Catalog,
    snapshot: Snapshot,
    name: QualifiedName,
    staged: Sequence[StagedWrite],
) -> TableSnapshot:
    """Return a table without its own files, with those that staged writes would add or create it with.

    Raises:
        SchemaNotFoundError, TableNotFoundError: it did not exist at that snapshot, and no write creates it.
        InvalidInputError, TransactionConflictError: the writes could not be committed to it.
    """
    table: TableSnapshot | None
    try:
        table = load_table(connection, catalog, snapshot, name, with_files=False)
    except TableNotFoundError:
        table = None
    table, files = with_staged(table, name, staged)
    if table is None:
        raise TableNotFoundError(str(name), snapshot.id)
    return replace(table, files=files)
