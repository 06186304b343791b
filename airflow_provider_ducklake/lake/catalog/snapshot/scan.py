"""Find what to read of a table: on PostgreSQL in four round trips, the last only for files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.lake.catalog.snapshot import read
from airflow_provider_ducklake.lake.catalog.snapshot.file_conditions import may_match
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_read import (
    Inlined,
    filled,
    positions,
    which_inlined,
)
from airflow_provider_ducklake.lake.catalog.snapshot.read_files import WantedFiles
from airflow_provider_ducklake.lake.catalog.snapshot.read_snapshots import chosen, which_snapshot
from airflow_provider_ducklake.lake.catalog.snapshot.table_snapshot import (
    only_table,
    table_of,
    which_definition,
)
from airflow_provider_ducklake.lake.errors import SchemaNotFoundError, TableNotFoundError
from airflow_provider_ducklake.lake.planning.reading.predicates import column_ids
from airflow_provider_ducklake.lake.planning.reading.scan import ScanPlan, plan_scan
from airflow_provider_ducklake.lake.planning.writing.staged import with_staged
from airflow_provider_ducklake.lake.sql.predicate import read_predicate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.database.questions import Question
    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.lake.catalog.snapshot.inlined_read import InlinedDeletes
    from airflow_provider_ducklake.lake.catalog.snapshot.read_snapshots import Moment
    from airflow_provider_ducklake.lake.planning.reading.predicates import Predicate
    from airflow_provider_ducklake.lake.planning.writing.staged import StagedWrite
    from airflow_provider_ducklake.lake.spec.files import LiveDataFile
    from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName
    from airflow_provider_ducklake.lake.spec.snapshots import Snapshot, TableSnapshot


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of a table is wanted: its columns (None: all), and the rows for which a condition is true.

    The files get the statistics of the columns that ``where`` and ``stats_of`` name.
    """

    columns: Sequence[str] | None = None
    where: str | None = None
    stats_of: Sequence[str] = ()


def find_scan(
    catalog: Catalog, name: QualifiedName, at: Moment, wanted: Wanted, staged: Sequence[StagedWrite] = ()
) -> ScanPlan:
    """Return the plan for reading a table, with the files that staged writes would add or create it with.

    Raises:
        SchemaNotFoundError, TableNotFoundError: it did not exist at that snapshot, and no write creates it.
        InvalidPredicateError, ColumnNotFoundError: the filter cannot be read; no file was looked up for it.
        InvalidInputError, TransactionConflictError: the writes could not be committed to it.
    """
    tables = catalog.tables
    first: dict[str, Question[Any]] = {
        "snapshots": which_snapshot(catalog, at),
        "rows": read.which_tables(tables, None if isinstance(at, datetime) else at, name),
        "options": read.which_options(tables),
    }
    with catalog.dialect.reading_after(first) as (connection, answers):
        snapshot = chosen(connection, tables, at, answers["snapshots"])
        rows = answers["rows"]
        if isinstance(at, datetime):
            rows = read.table_rows(connection, tables, snapshot.id, name)
        row = _row(connection, tables, snapshot, name, rows, is_needed=not staged)
        asked = _which(catalog, snapshot.id, _NO_TABLE if row is None else row.id)
        definition = {**answers, **catalog.dialect.ask(connection, asked)}
        found = None if row is None else table_of(catalog, snapshot, row, definition)
        table, files = with_staged(found, name, staged)
        if table is None:
            raise TableNotFoundError(str(name), snapshot.id)
        return _scan(connection, catalog, table, files, definition, wanted, is_last=True)


_NO_TABLE = -1


def _row(  # noqa: PLR0913 - the last says when it raises
    connection: Connection,
    tables: CatalogTables,
    snapshot: Snapshot,
    name: QualifiedName,
    rows: Sequence[read.TableRow],
    *,
    is_needed: bool,
) -> read.TableRow | None:
    try:
        return only_table(connection, tables, snapshot, name, rows)
    except (SchemaNotFoundError, TableNotFoundError):
        if is_needed:
            raise
        return None


def find_files(
    connection: Connection, catalog: Catalog, table: TableSnapshot, where: str
) -> tuple[LiveDataFile, ...]:
    """Return the files of a table that may hold a row for which a condition is true.

    Raises:
        InvalidPredicateError, ColumnNotFoundError: the filter cannot be read; no file was looked up for it.
    """
    answers = catalog.dialect.ask(connection, _which(catalog, table.snapshot.id, table.table_id))
    return _scan(connection, catalog, table, (), answers, Wanted((), where)).files


def _which(catalog: Catalog, at: int, table_id: int) -> dict[str, Question[Any]]:
    return which_definition(catalog, at, table_id) | which_inlined(catalog, table_id)


def _scan(  # noqa: PLR0913, PLR0917 - the last has a default
    connection: Connection,
    catalog: Catalog,
    table: TableSnapshot,
    staged: Sequence[LiveDataFile],
    answers: Mapping[str, Any],
    wanted: Wanted,
    *,
    is_last: bool = False,
) -> ScanPlan:
    predicate = None if wanted.where is None else read_predicate(wanted.where, table.schema, str(table.name))
    of_files = _wanted_files(catalog, table, predicate, wanted.stats_of)
    inlined, at = Inlined.of(catalog, table, answers), table.snapshot.id
    which_rows = inlined.which_rows(lambda rows: read.visible(rows, at))
    which_deletes = inlined.which_deletes()
    held = catalog.dialect.ask(connection, {"files": of_files.which_rows(), **which_rows, **which_deletes})
    parts = catalog.dialect.ask(connection, of_files.which_parts(held["files"]), is_last=is_last)
    rows = filled(held[one] for one in which_rows)
    deletes: InlinedDeletes = next((held[one] for one in which_deletes), {})
    files = (*of_files.files(held["files"], parts), *staged)
    return plan_scan(
        replace(table, files=files, has_inlined_data=bool(rows or deletes)),
        None if wanted.columns is None else tuple(wanted.columns),
        rows,
        positions(deletes),
        where=predicate,
        partition_specs={} if predicate is None else answers["partitionings"].known(),
        columns_since=answers["columns"].since(at),
    )


def _wanted_files(
    catalog: Catalog, table: TableSnapshot, where: Predicate | None, stats_of: Sequence[str]
) -> WantedFiles:
    """Return which files are asked for: all but those that the catalog can exclude by a filter."""
    only = None if where is None else may_match(where, table.table_id, table.schema, catalog)
    columns = {table.schema.find(name, str(table.name)).id for name in stats_of}
    return WantedFiles.of(catalog, table, only, columns | set(() if where is None else column_ids(where)))
