"""Check that files do not use the same row ids."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, or_, select

from airflow_provider_ducklake.catalog.snapshot.inlined_read import inlined_delete_marks
from airflow_provider_ducklake.catalog.verify.file_rows import TRANSACTION_LOCAL
from airflow_provider_ducklake.catalog.verify.paths import full_paths
from airflow_provider_ducklake.errors import StorageError, UnsupportedFeatureError
from airflow_provider_ducklake.planning.upkeep.findings import Finding, FindingCode
from airflow_provider_ducklake.spec.ids import TableId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from airflow_provider_ducklake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.catalog.verify.contents import Locate
    from airflow_provider_ducklake.catalog.verify.look import Look


@dataclass(frozen=True, slots=True)
class NumberedFile:
    """A live data file and the row ids that it has if it stores none: from ``start`` to before ``end``.

    So many of its rows are ``deleted``.
    """

    id: int
    table_id: int
    table: str
    path: str
    start: int
    end: int
    deleted: int


def numbered_twice(look: Look, catalog: Catalog) -> list[NumberedFile]:
    """Return the live files whose numbers others have too, by table and first number.

    Flushed files are among them: the catalog does not say that they store ids.
    """
    file = look.tables["data_file"]
    start, end = file.c.row_id_start, file.c.row_id_start + file.c.record_count
    order: dict[str, Any] = {"partition_by": file.c.table_id, "order_by": (start, file.c.data_file_id)}
    rows = (
        select(
            file.c.data_file_id,
            file.c.table_id,
            start.label("first"),
            end.label("behind"),
            func.max(end).over(**order, rows=(None, -1)).label("before"),
            func.min(start).over(**order, rows=(1, None)).label("after"),
        )
        .where(
            file.c.end_snapshot.is_(None),
            start < TRANSACTION_LOCAL,
            file.c.record_count > 0,
            look.chosen(file.c.table_id),
        )
        .subquery()
    )
    paths = full_paths(look)
    query = (
        select(rows, paths.c.path)
        .join(paths, (paths.c.id == rows.c.data_file_id) & (paths.c.kind == "data_file"))
        .where(or_(rows.c.before > rows.c.first, rows.c.after < rows.c.behind))
        .order_by(rows.c.table_id, rows.c.first, rows.c.data_file_id)
    )
    found = list(look.all(query))
    lost = _deleted_rows(look, catalog, {row.table_id for row in found})
    return [
        NumberedFile(
            row.data_file_id,
            row.table_id,
            look.table(row.table_id),
            row.path,
            row.first,
            row.behind,
            lost[row.data_file_id],
        )
        for row in found
    ]


def _deleted_rows(look: Look, catalog: Catalog, tables: Iterable[int]) -> Counter[int]:
    """Return how many rows each data file of the tables has lost."""
    deletes = look.tables["delete_file"]
    found: Counter[int] = Counter()
    for table_id in tables:
        query = select(deletes.c.data_file_id, deletes.c.delete_count).where(
            deletes.c.table_id == table_id, deletes.c.end_snapshot.is_(None)
        )
        found.update({row.data_file_id: row.delete_count or 0 for row in look.all(query)})
        marks = inlined_delete_marks(look.connection, catalog, TableId(table_id), look.head.id)
        found.update({file_id: len(places) for file_id, places in marks.items()})
    return found


def check_row_ids(files: Iterable[NumberedFile], locate: Locate) -> Iterator[Finding]:
    """Yield the files that number rows as another does, after looking into them for stored ids."""
    from airflow_provider_ducklake.storage.files.parallel import in_threads  # noqa: PLC0415 - heavy
    from airflow_provider_ducklake.storage.moving.verify_files import stores_row_ids  # noqa: PLC0415

    def numbers(file: NumberedFile) -> NumberedFile | None:
        try:
            return None if stores_row_ids(locate(file.path)) else file
        except (StorageError, UnsupportedFeatureError):
            return None  # a finding of its own

    numbered = [file for file in in_threads(numbers, files) if file is not None]
    for _, of_table in groupby(numbered, key=lambda file: file.table_id):
        yield from _overlaps(of_table)


def _overlaps(files: Iterator[NumberedFile]) -> Iterator[Finding]:
    farthest = next(files)
    for file in files:
        shared = min(file.end, farthest.end) - file.start
        if shared > max(0, file.deleted, farthest.deleted):  # others may have the deleted rows
            yield Finding(
                FindingCode.ROW_IDS_OVERLAP,
                f"Data files {farthest.id} and {file.id} of {file.table} both have rows from {file.start} to "
                f"{min(file.end, farthest.end) - 1}.",
                {"table_id": file.table_id, "first_id": farthest.id, "last_id": file.id},
            )
        farthest = max(farthest, file, key=lambda one: one.end)
