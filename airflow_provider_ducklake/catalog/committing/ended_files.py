"""Data files that end although rows of theirs are marked as deleted: the marks become a delete file first.

*Source:* of a file that ends while it has marks, the reference's change feed says that all its rows go then,
also those that went before; with the delete file that a flush makes of the marks it does not (observed on
1.5.5). It never ends such a file itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from airflow_provider_ducklake.catalog.database.questions import in_parts
from airflow_provider_ducklake.catalog.snapshot import read
from airflow_provider_ducklake.catalog.snapshot.inlined_read import inlined_delete_snapshots
from airflow_provider_ducklake.catalog.snapshot.read_files import WantedFiles
from airflow_provider_ducklake.errors import TransactionConflictError
from airflow_provider_ducklake.transaction.changes import (
    AddDeletes,
    EndFiles,
    Positions,
    RewriteDeletes,
    Truncate,
    UnwrittenDeletes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from airflow_provider_ducklake.catalog.committing.planned import Stage
    from airflow_provider_ducklake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.spec.files import LiveDataFile
    from airflow_provider_ducklake.spec.ids import DataFileId, SnapshotId


Ending: TypeAlias = EndFiles | Truncate | RewriteDeletes


def with_marks_in_files(catalog: Catalog, stage: Stage) -> Stage:
    """Return a stage that writes the marks of the files that it ends."""
    ending = [change for change in stage.changes if isinstance(change, EndFiles | Truncate | RewriteDeletes)]
    if not ending:
        return stage
    with catalog.dialect.reading() as connection:
        folds = [fold for change in ending for fold in _folds(connection, catalog, stage.base, change)]
    return replace(stage, changes=(*stage.changes, *folds)) if folds else stage


def _folds(
    connection: Connection, catalog: Catalog, base: SnapshotId, change: Ending
) -> Iterator[AddDeletes]:
    marks = inlined_delete_snapshots(connection, catalog, change.table_id, base)
    ids = list(marks) if isinstance(change, Truncate) else [one for one in change.file_ids if one in marks]
    if not ids:
        return
    root, files = _files(connection, catalog, base, change, ids)
    if files:
        written = tuple(
            UnwrittenDeletes(file.id, file.path, root, Positions(b""), file.delete_file, marks[file.id])
            for file in files
        )
        folded = tuple(file.id for file in files)
        is_rewrite = isinstance(change, RewriteDeletes)
        yield AddDeletes(change.table_id, change.name, written, folded, of_rewrite=is_rewrite)


def _files(
    connection: Connection,
    catalog: Catalog,
    base: SnapshotId,
    change: Ending,
    ids: list[DataFileId],
) -> tuple[str, list[LiveDataFile]]:
    """Return the table's directory, and those of the files that it has at the snapshot.

    Raises:
        TransactionConflictError: it has no such table any more.
    """
    tables = catalog.tables
    rows = read.table_rows(connection, tables, base)
    row = next((one for one in rows if one.id == change.table_id), None)  # another may have its name by now
    if row is None:
        raise TransactionConflictError("end files of it", "dropped it", str(change.name), base)
    root = row.root(catalog.data_path)
    file_id = tables["data_file"].c.data_file_id
    found = [
        file
        for part in in_parts(ids)
        for file in WantedFiles(tables, base, change.table_id, root, file_id.in_(part), ()).ask(
            connection, catalog
        )
    ]
    return root, found
