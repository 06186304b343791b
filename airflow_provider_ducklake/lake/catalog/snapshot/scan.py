"""Find what to read of a table: on PostgreSQL in four round trips, the last only for files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, Select, and_, select

from ...errors import NotFoundError, SchemaNotFoundError, TableNotFoundError, UnsupportedFeatureError
from ...format.names.identifiers import QualifiedName, near
from ...format.partitioning import PartitionField, PartitionSpec, Transform
from ...format.snapshots import ColumnId, PartitionId, Snapshot, SortId, TableSnapshot
from ...format.sorting import SortField, SortSpec
from ...planning.reading.predicates import Predicate, column_ids
from ...planning.reading.scan import ScanPlan, plan_scan
from ..database.connect import AT, OF_TABLE, Question
from ..database.tables import CatalogTables, maybe
from . import read, read_files
from .inlined_read import Inlined, InlinedDeletes, filled, has_inlined_data, inlined_query, positions
from .read import visible
from .read_files import WantedFiles
from .read_layouts import columns_query, is_visible
from .read_snapshots import Moment, chosen, snapshot_query
from .read_statistics import files_that_may_match

if TYPE_CHECKING:
    from ...format.files import LiveDataFile
    from ...planning.writing.staged import StagedWrite
    from ..dialects.dialect import Catalog


# A table as one snapshot holds it: its columns, how its rows are partitioned and sorted, its options.


def find_table(
    connection: Connection, tables: CatalogTables, snapshot: Snapshot, name: QualifiedName
) -> read.TableRow:
    """Return the row of a table."""
    rows = read.table_rows(connection, tables, snapshot.id, name)
    if not rows:
        raise _why_no_table(connection, tables, snapshot, name)
    return rows[0]


def _why_no_table(
    connection: Connection, tables: CatalogTables, snapshot: Snapshot, name: QualifiedName
) -> NotFoundError:
    like_it = near_tables(connection, tables, snapshot.id, name)
    if read.find_schema(connection, tables, snapshot.id, name.schema) is None:
        return SchemaNotFoundError(str(name.schema), snapshot.id, like_it)
    return TableNotFoundError(str(name), snapshot.id, like_it)


def near_tables(
    connection: Connection, tables: CatalogTables, at: int, name: QualifiedName
) -> tuple[str, ...]:
    """Return the tables that a user may have meant by a name that no table has."""
    return near(name, (row.qualified for row in read.table_rows(connection, tables, at)))


def find_table_snapshot(
    catalog: Catalog, name: QualifiedName, at: Moment, *, with_files: bool
) -> TableSnapshot:
    """Return a table as ``load_table`` does, in a transaction of its own: two round trips to PostgreSQL."""
    with _table_row(catalog, name, at) as (connection, snapshot, row, answers):
        assert row is not None
        asked = definition_query(catalog, snapshot.id, row.id)
        definition = {**answers, **catalog.dialect.ask(connection, asked, is_last=not with_files)}
        found = table_of(catalog, snapshot, row, definition)
        return _with_files(connection, catalog, found) if with_files else found


def load_table(
    connection: Connection, catalog: Catalog, snapshot: Snapshot, name: QualifiedName, *, with_files: bool
) -> TableSnapshot:
    """Return the table with its columns, partitioning, sort keys and options, and with its files if asked."""
    row = find_table(connection, catalog.tables, snapshot, name)
    questions = {
        **definition_query(catalog, snapshot.id, row.id),
        "options": read.options_query(catalog.tables),
    }
    found = table_of(catalog, snapshot, row, catalog.dialect.ask(connection, questions))
    return _with_files(connection, catalog, found) if with_files else found


def _with_files(connection: Connection, catalog: Catalog, table: TableSnapshot) -> TableSnapshot:
    files = read_files.data_files(connection, catalog, table)
    return replace(table, files=files, has_inlined_data=has_inlined_data(connection, catalog, table))


def definition_query(catalog: Catalog, at: int, table_id: int) -> dict[str, Question[Any]]:
    """Ask what a table was at a snapshot, for ``table_of``."""
    tables = catalog.tables
    return {
        "columns": columns_query(tables, table_id),
        "partitionings": partitionings_query(tables, table_id),
        **sort_query(tables, at, table_id),
    }


def table_of(
    catalog: Catalog, snapshot: Snapshot, row: read.TableRow, answers: Mapping[str, Any]
) -> TableSnapshot:
    """Return the table, without files, of its row, ``definition_query`` and the ``options`` of the lake."""
    columns = answers["columns"]
    return TableSnapshot(
        snapshot=snapshot,
        table_id=row.id,
        table_uuid=row.uuid,
        schema_id=row.schema.id,
        name=row.qualified,
        schema=columns.at(snapshot.id),
        root=row.root(catalog.data_path),
        partition_spec=answers["partitionings"].at(snapshot.id),
        sort_spec=answers.get("sort"),
        options=catalog.options(answers["options"], row.schema.id, row.id),
    )


def partition_specs(
    connection: Connection, tables: CatalogTables, table_id: int
) -> dict[PartitionId, PartitionSpec]:
    """Read every partitioning that a table ever had; those with unsupported transforms are left out."""
    return partitionings_query(tables, table_id).ask(connection).known()


def partitionings_query(tables: CatalogTables, table_id: int) -> Question[Partitionings]:
    """Return the query for every partitioning that a table ever had."""
    return Question(_keys(tables), Partitionings, {"table": table_id})


@lru_cache
def _keys(tables: CatalogTables) -> Select[Any]:
    info, key = tables["partition_info"], tables["partition_column"]
    of_info = and_(key.c.partition_id == info.c.partition_id, key.c.table_id == info.c.table_id)
    return (
        select(key, maybe(info.c.begin_snapshot).label("begin_snapshot"), info.c.end_snapshot)
        .join_from(key, info, of_info, isouter=True)  # keys may be left of one that expired
        .where(key.c.table_id == OF_TABLE)
        .order_by(key.c.partition_id, key.c.partition_key_index)
    )


@dataclass(frozen=True, slots=True)
class Partitionings:
    """The keys of every partitioning that a table ever had."""

    rows: Sequence[Row[Any]]

    def at(self, at: int) -> PartitionSpec | None:
        """Return the partitioning at a snapshot; None if there was none."""
        keys = [row for row in self.rows if row.begin_snapshot is not None and is_visible(row, at)]
        return _partitioning(keys) if keys else None

    def known(self) -> dict[PartitionId, PartitionSpec]:
        """Return all by id, except those with unsupported transforms."""
        specs: dict[PartitionId, PartitionSpec] = {}
        for partition_id, keys in groupby(self.rows, key=lambda row: PartitionId(row.partition_id)):
            with suppress(UnsupportedFeatureError):
                specs[partition_id] = _partitioning(keys)
        return specs


def _partitioning(rows: Iterable[Row[Any]]) -> PartitionSpec:
    keys = list(rows)
    fields = (PartitionField(ColumnId(key.column_id), Transform.parse(key.transform)) for key in keys)
    return PartitionSpec(tuple(fields), PartitionId(keys[0].partition_id))


def sort_query(tables: CatalogTables, at: int, table_id: int) -> dict[str, Question[SortSpec | None]]:
    """Return the query for the sort keys of a table at a snapshot, by ``sort``."""
    return {"sort": Question(_sort_keys(tables), _sort_spec, {"table": table_id, "at": at})}


@lru_cache
def _sort_keys(tables: CatalogTables) -> Select[Any]:
    info, key = tables["sort_info"], tables["sort_expression"]
    return (
        select(info.c.sort_id, key.c.expression, key.c.dialect, key.c.sort_direction, key.c.null_order)
        .join(key, and_(key.c.sort_id == info.c.sort_id, key.c.table_id == info.c.table_id))
        .where(visible(info, AT), info.c.table_id == OF_TABLE)
        .order_by(key.c.sort_key_index)
    )


def _sort_spec(rows: Sequence[Row[Any]]) -> SortSpec | None:
    if not rows:
        return None
    fields = tuple(SortField(row.expression, row.dialect, row.sort_direction, row.null_order) for row in rows)
    return SortSpec(fields, SortId(rows[0].sort_id))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to read of a table: its columns (None: all), and the rows for which a condition is true.

    The files get the statistics of the columns that ``where`` and ``stats_of`` name.
    """

    columns: Sequence[str] | None = None
    where: str | None = None
    stats_of: Sequence[str] = ()


def find_scan(
    catalog: Catalog,
    name: QualifiedName,
    at: Moment,
    wanted: Wanted | Callable[[TableSnapshot], Wanted],
    staged: Sequence[StagedWrite] = (),
) -> ScanPlan:
    """Return the plan for reading a table, with the files that staged writes would add or create it with.

    What is ``wanted`` may depend on the table as it is found.
    """
    with _table_row(catalog, name, at, is_needed=not staged) as (connection, snapshot, row, answers):
        asked = _which(catalog, snapshot.id, _NO_TABLE if row is None else row.id)
        definition = {**answers, **catalog.dialect.ask(connection, asked)}
        found = None if row is None else table_of(catalog, snapshot, row, definition)
        table = found
        files: tuple[LiveDataFile, ...] = ()
        if staged:
            from ...planning.writing.staged import with_staged

            table, files = with_staged(found, name, staged)
        if table is None:
            raise TableNotFoundError(str(name), snapshot.id)
        what = wanted if isinstance(wanted, Wanted) else wanted(table)
        return _scan(connection, catalog, table, files, definition, what, is_last=True)


_NO_TABLE = -1


@contextmanager
def _table_row(
    catalog: Catalog, name: QualifiedName, at: Moment, *, is_needed: bool = True
) -> Iterator[tuple[Connection, Snapshot, read.TableRow | None, dict[str, Any]]]:
    """Find a snapshot and a table's row in it, in the round trip that begins a transaction.

    The ``options`` of the lake are among the answers. Without the table it raises, if that ``is_needed``.
    """
    tables = catalog.tables
    first: dict[str, Question[Any]] = {
        "snapshots": snapshot_query(catalog, at),
        "rows": read.tables_query(tables, None if isinstance(at, datetime) else at, name),
        "options": read.options_query(tables),
    }
    with catalog.dialect.reading_after(first) as (connection, answers):
        snapshot = chosen(connection, tables, at, answers["snapshots"])
        rows = answers["rows"]
        if isinstance(at, datetime):
            rows = read.table_rows(connection, tables, snapshot.id, name)
        row = rows[0] if rows else None
        if row is None and is_needed:
            raise _why_no_table(connection, tables, snapshot, name)
        yield connection, snapshot, row, answers


def find_files(
    connection: Connection, catalog: Catalog, table: TableSnapshot, where: str
) -> tuple[LiveDataFile, ...]:
    """Return the files of a table that may hold a row for which a condition is true."""
    answers = catalog.dialect.ask(connection, _which(catalog, table.snapshot.id, table.table_id))
    return _scan(connection, catalog, table, (), answers, Wanted((), where)).files


def _which(catalog: Catalog, at: int, table_id: int) -> dict[str, Question[Any]]:
    return definition_query(catalog, at, table_id) | inlined_query(catalog, table_id)


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
    predicate = None
    if wanted.where is not None:
        from ...sql.predicate import read_predicate

        predicate = read_predicate(wanted.where, table.schema, str(table.name))
    of_files = _wanted_files(catalog, table, predicate, wanted.stats_of)
    inlined, at = Inlined.of(catalog, table, answers), table.snapshot.id
    rows_query = inlined.rows_query(lambda rows: read.visible(rows, at))
    deletes_query = inlined.deletes_query()
    held = catalog.dialect.ask(connection, {"files": of_files.rows_query(), **rows_query, **deletes_query})
    parts = catalog.dialect.ask(connection, of_files.parts_query(held["files"]), is_last=is_last)
    rows = filled(held[one] for one in rows_query)
    deletes: InlinedDeletes = next((held[one] for one in deletes_query), {})
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
    """Select the data files to read: all except those that the catalog can exclude by a filter."""
    only = None if where is None else files_that_may_match(where, table.table_id, table.schema, catalog)
    columns = {table.schema.find(name, str(table.name)).id for name in stats_of}
    return WantedFiles.of(catalog, table, only, columns | set(() if where is None else column_ids(where)))
