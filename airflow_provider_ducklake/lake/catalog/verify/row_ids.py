"""Check that files do not use the same row ids."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, func, or_, select

from ...errors import DuckLakeError, StorageError, UnsupportedFeatureError
from ...format.log_lines import logger
from ...format.snapshots import DataFileId, TableId
from ...planning.reading.scan import ScanPlan
from ...planning.upkeep.findings import Finding
from ...planning.upkeep.findings import FindingCode as Code
from ..snapshot import read, read_files, read_snapshots
from ..snapshot.inlined_read import inlined_delete_marks, inlined_of
from ..snapshot.inlined_tables import bare_table
from ..snapshot.read import TableRow
from ..snapshot.read_files import file_key, live_delete_file
from ..snapshot.scan import load_table
from .files import TRANSACTION_LOCAL, full_paths, table_roots

if TYPE_CHECKING:
    from ...format.files import FileKey, LiveDeleteFile
    from ...storage.moving.compact import SharedRowIds
    from ..dialects.dialect import Catalog
    from .contents import Locate, Reading
    from .scope import VerificationScope


@dataclass(frozen=True, slots=True)
class NumberedFile:
    """A live data file and the row ids that it has if it stores none: from ``start`` to before ``end``.

    The positions ``marks`` and those in ``deletes`` are of rows that are deleted.
    """

    id: int
    table_id: int
    table: str
    path: str
    start: int
    end: int
    marks: Sequence[int]
    deletes: Sequence[LiveDeleteFile]
    encryption_key: FileKey | None = None


def numbered_twice(scope: VerificationScope) -> list[NumberedFile]:
    """Return the live files whose numbers others have too, by table and first number.

    Flushed files are among them: the catalog does not say that they store ids.
    """
    file = scope.tables["data_file"]
    start, end = file.c.row_id_start, file.c.row_id_start + file.c.record_count
    order: dict[str, Any] = {"partition_by": file.c.table_id, "order_by": (start, file.c.data_file_id)}
    rows = (
        select(
            file.c.data_file_id,
            file.c.table_id,
            file.c.encryption_key,
            start.label("first"),
            end.label("behind"),
            func.max(end).over(**order, rows=(None, -1)).label("before"),
            func.lead(start).over(**order).label("after"),  # the least of all that follow, by the order
        )
        .where(
            file.c.end_snapshot.is_(None),
            start < TRANSACTION_LOCAL,
            file.c.record_count > 0,
            file.c.record_count < TRANSACTION_LOCAL,  # the others are a finding of their own
            scope.chosen(file.c.table_id),
        )
        .subquery()
    )
    paths = full_paths(scope)
    query = (
        select(rows, paths.c.path)
        .join(paths, (paths.c.id == rows.c.data_file_id) & (paths.c.kind == "data_file"))
        .where(or_(rows.c.before > rows.c.first, rows.c.after < rows.c.behind))
        .order_by(rows.c.table_id, rows.c.first, rows.c.data_file_id)
    )
    found = list(scope.all(query))
    marks: dict[DataFileId, list[int]] = {}
    deletes: dict[int, list[LiveDeleteFile]] = {}
    for table_id in {row.table_id for row in found}:
        marks.update(inlined_delete_marks(scope.connection, scope.catalog, TableId(table_id), scope.head.id))
        deletes.update(_delete_files(scope, table_id))
    return [
        NumberedFile(
            row.data_file_id,
            row.table_id,
            scope.table(row.table_id),
            row.path,
            row.first,
            row.behind,
            marks.get(row.data_file_id, ()),
            deletes.get(row.data_file_id, ()),
            file_key(row.encryption_key),
        )
        for row in found
    ]


def _delete_files(scope: VerificationScope, table_id: int) -> dict[int, list[LiveDeleteFile]]:
    """Return the live delete files of a table's data files."""
    file, roots = scope.tables["delete_file"], table_roots(scope).subquery()
    root = select(roots.c.root).where(roots.c.table_id == table_id)
    directory = scope.connection.execute(root).scalar_one_or_none() or ""
    query = select(file).where(file.c.table_id == table_id, file.c.end_snapshot.is_(None))
    found: dict[int, list[LiveDeleteFile]] = {}
    for row in scope.all(query):
        found.setdefault(row.data_file_id, []).append(live_delete_file(row, directory))
    return found


def check_row_ids(files: Iterable[NumberedFile], locate: Locate) -> Iterator[Finding]:
    """Yield the files that number rows as another does, after looking into them for stored ids."""
    from ...storage.files.parallel import in_threads
    from ...storage.moving.verify_files import stores_row_ids

    def numbers(file: NumberedFile) -> NumberedFile | None:
        try:
            return None if stores_row_ids(locate(file.path).with_key(file.encryption_key)) else file
        except (StorageError, UnsupportedFeatureError):
            return None  # a finding of its own

    numbered = [file for file in in_threads(numbers, files) if file is not None]
    for _, of_table in groupby(numbered, key=lambda file: file.table_id):
        yield from _overlaps(of_table, locate)


def _overlaps(files: Iterable[NumberedFile], locate: Locate) -> Iterator[Finding]:
    """Yield each file that shares a live row's number with one before it, by their first numbers."""
    before: list[NumberedFile] = []
    for file in files:
        before = [one for one in before if one.end > file.start]
        other = next((one for one in before if _share_a_live_row(one, file, locate)), None)
        if other is not None:
            yield Finding(
                Code.ROW_IDS_OVERLAP,
                f"Data files {other.id} and {file.id} of {file.table} both have rows from {file.start} to "
                f"{min(file.end, other.end) - 1}.",
                {"table_id": file.table_id, "first_id": other.id, "last_id": file.id},
            )
        before.append(file)


def _share_a_live_row(one: NumberedFile, other: NumberedFile, locate: Locate) -> bool:
    """Return True if a row id of both is deleted in neither; an updated row may keep its id in a new file."""
    first, end = max(one.start, other.start), min(one.end, other.end)
    try:
        gone = _deleted(one, first, end, locate) | _deleted(other, first, end, locate)
    except (StorageError, UnsupportedFeatureError):
        return False  # a finding of its own
    return len(gone) < end - first


def _deleted(file: NumberedFile, first: int, end: int, locate: Locate) -> set[int]:
    """Return the numbers in a range that are those of a file's deleted rows."""
    from ...storage.deletes.deletes import deleted_rows

    found = set(file.marks)
    for one in file.deletes:
        location = locate(one.path).with_key(one.encryption_key)
        rows = deleted_rows(location, one.format, one.begin_snapshot, file.end - file.start)
        found.update(rows["pos"].to_pylist())
    return {file.start + position for position in found if first <= file.start + position < end}


# Check that each live row of a table has a unique row id, also if its file stores the id.


log = logger(__name__)


def check_live_row_ids(
    catalog: Catalog, reading: Reading, locate: Locate, only: Collection[int] | None, found: Iterable[Finding]
) -> Iterator[Finding]:
    """Yield the tables in which several live rows have one id; the catalog is closed while files are read.

    Tables of which it was ``found`` that their columns make no sense cannot be read.
    """
    from ...storage.moving.compact import shared_row_ids

    with reading() as connection:
        rows = read.table_rows(connection, catalog.tables, read_snapshots.head(connection, catalog.tables).id)
    unreadable = {one.objects.get("table_id") for one in found if one.code is Code.COLUMNS_UNREADABLE}
    for row in rows:
        if row.id in unreadable or (only is not None and row.id not in only):
            continue
        try:
            with reading() as connection:
                plan, in_catalog = _live(connection, catalog, row)
        except DuckLakeError as error:  # dropped in the meantime, or a finding of its own
            log.info("The row ids of %s are not checked: %s", row.qualified, error)
            continue
        for shared in shared_row_ids(plan, in_catalog, locate, below=TRANSACTION_LOCAL):
            yield _finding(row, shared)


def _live(connection: Connection, catalog: Catalog, row: TableRow) -> tuple[ScanPlan, list[int]]:
    """Return a table's live files with the deletes in them, and the ids of its live rows in the catalog."""
    head = read_snapshots.head(connection, catalog.tables)
    found = load_table(connection, catalog, head, row.qualified, with_files=False)
    found = replace(found, files=read_files.data_files(connection, catalog, found, stats_of=()))
    marks = inlined_delete_marks(connection, catalog, found.table_id, head.id)
    ids: list[int] = []
    for layout in inlined_of(connection, catalog, found).layouts:
        inlined = bare_table(layout.name, catalog.tables)
        ids += connection.execute(select(inlined.c.row_id).where(read.visible(inlined, None))).scalars()
    return ScanPlan(found, found.files or (), (), inlined_deletes=marks), ids


def _finding(row: TableRow, shared: SharedRowIds) -> Finding:
    where = [f"data file {one}" for one in shared.file_ids] + ["the catalog"] * shared.in_catalog
    return Finding(
        Code.ROW_ID_TWICE,
        f"{shared.count} row ids of {row.qualified}, the first of them {shared.row_id}, belong to several "
        f"live rows, in {', '.join(where)}.",
        {"table_id": row.id, "row_id": shared.row_id, "count": shared.count},
    )
