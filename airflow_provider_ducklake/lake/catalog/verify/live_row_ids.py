"""Check that each live row of a table has a unique row id, also if its file stores the id."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import select

from airflow_provider_ducklake.lake.catalog.snapshot import read, read_files, read_snapshots
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_read import inlined_delete_marks, inlined_of
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_tables import bare_table
from airflow_provider_ducklake.lake.catalog.snapshot.table_snapshot import load_table
from airflow_provider_ducklake.lake.catalog.verify.file_rows import TRANSACTION_LOCAL
from airflow_provider_ducklake.lake.errors import DuckLakeError
from airflow_provider_ducklake.lake.planning.reading.scan import ScanPlan
from airflow_provider_ducklake.lake.planning.upkeep.findings import Finding, FindingCode
from airflow_provider_ducklake.lake.spec.log_lines import logger

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.lake.catalog.snapshot.read import TableRow
    from airflow_provider_ducklake.lake.catalog.verify.contents import Locate, Reading
    from airflow_provider_ducklake.lake.storage.moving.compact import SharedRowIds

log = logger(__name__)

_OF_COLUMNS = frozenset(
    {
        FindingCode.NO_COLUMNS,
        FindingCode.TYPE_UNKNOWN,
        FindingCode.PARENT_MISSING,
        FindingCode.CHILDREN_WRONG,
        FindingCode.DEFAULT_UNREADABLE,
    }
)


def check_live_row_ids(
    catalog: Catalog, reading: Reading, locate: Locate, only: Collection[int] | None, found: Iterable[Finding]
) -> Iterator[Finding]:
    """Yield the tables in which several live rows have one id; the catalog is closed while files are read.

    Tables of which it was ``found`` that their columns make no sense cannot be read.
    """
    from airflow_provider_ducklake.lake.storage.moving.compact import shared_row_ids  # noqa: PLC0415 - heavy

    with reading() as connection:
        rows = read.table_rows(connection, catalog.tables, read_snapshots.head(connection, catalog.tables).id)
    unreadable = {one.objects.get("table_id") for one in found if one.code in _OF_COLUMNS}
    for row in rows:
        if row.id in unreadable or (only is not None and row.id not in only):
            continue
        try:
            with reading() as connection:
                plan, in_catalog = _live(connection, catalog, row)
        except DuckLakeError as error:  # dropped meanwhile, or a finding of its own
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
        FindingCode.ROW_ID_TWICE,
        f"{shared.count} row ids of {row.qualified}, the first of them {shared.row_id}, belong to several "
        f"live rows, in {', '.join(where)}.",
        {"table_id": row.id, "row_id": shared.row_id, "count": shared.count},
    )
