"""Plan the reading of a table from what the catalog says of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.catalog.snapshot import read
from airflow_provider_ducklake.catalog.snapshot.inlined_read import inlined_delete_marks, read_inlined
from airflow_provider_ducklake.catalog.snapshot.read_column_ages import columns_since
from airflow_provider_ducklake.catalog.snapshot.table_snapshot import with_files_to_read
from airflow_provider_ducklake.planning.reading.scan import ScanPlan, plan_scan
from airflow_provider_ducklake.sql.predicate import read_predicate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from airflow_provider_ducklake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.spec.snapshots import TableSnapshot


def plan_table(  # noqa: PLR0913 - the last has a default
    connection: Connection,
    catalog: Catalog,
    table: TableSnapshot,
    columns: tuple[str, ...] | None,
    where: str | None,
    *,
    stats_of: Sequence[str] = (),
) -> ScanPlan:
    """Return the plan for reading a table, whose ``files`` are those that it does not have yet.

    The files get the statistics of the columns that ``where`` and ``stats_of`` name.

    Raises:
        InvalidPredicateError, ColumnNotFoundError: the filter cannot be read; nothing was looked up for it.
    """
    tables, table_id = catalog.tables, table.table_id
    predicate = None if where is None else read_predicate(where, table.schema, str(table.name))
    wanted = [table.schema.find(name, str(table.name)).id for name in stats_of]
    live = with_files_to_read(connection, catalog, table, predicate, wanted)
    live = replace(live, files=(*(live.files or ()), *(table.files or ())))
    rows = read_inlined(connection, catalog, live)
    deletes = inlined_delete_marks(connection, catalog, table_id, table.snapshot.id)
    specs = {} if predicate is None else read.partition_specs(connection, tables, table_id)
    return plan_scan(
        live,
        columns,
        rows,
        deletes,
        where=predicate,
        partition_specs=specs,
        columns_since=columns_since(connection, tables, table.snapshot.id, table_id),
    )
