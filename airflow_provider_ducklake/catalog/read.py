"""Read the catalog as of one snapshot: a few statements each, whatever the number of files.

Statements name their columns, so extra columns of newer catalogs do no harm.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    and_,
    bindparam,
    func,
    or_,
    select,
)

from airflow_provider_ducklake.catalog.questions import Question, in_parts, one_of, values_of
from airflow_provider_ducklake.errors import SnapshotNotFoundError
from airflow_provider_ducklake.spec.files import LiveDataFile, LiveDeleteFile
from airflow_provider_ducklake.spec.identifiers import QualifiedName, fold
from airflow_provider_ducklake.spec.ids import (
    ColumnId,
    DataFileId,
    DeleteFileId,
    MacroId,
    PartitionId,
    SchemaId,
    SnapshotId,
    SortId,
    TableId,
    ViewId,
)
from airflow_provider_ducklake.spec.options import OptionRow
from airflow_provider_ducklake.spec.partitioning import PartitionField, PartitionSpec, Transform
from airflow_provider_ducklake.spec.paths import CatalogPath
from airflow_provider_ducklake.spec.schema import Column, Default, TableSchema, assemble
from airflow_provider_ducklake.spec.snapshots import Snapshot
from airflow_provider_ducklake.spec.sorting import SortField, SortSpec
from airflow_provider_ducklake.spec.stats import ColumnStats, TableColumnStats, TableStats
from airflow_provider_ducklake.spec.types import ScalarType
from airflow_provider_ducklake.transaction.changes_made import ChangeRecord, parse_changes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from airflow_provider_ducklake.catalog.tables import CatalogTables


def visible(table: Table, at: int) -> ColumnElement[bool]:
    """Return the condition that a versioned row is visible at a snapshot."""
    end = table.c.end_snapshot
    return and_(table.c.begin_snapshot <= at, or_(end.is_(None), end > at))


def head(connection: Connection, tables: CatalogTables) -> Snapshot:
    """Return the newest snapshot."""
    return which_head(tables).ask(connection)


@lru_cache
def which_head(tables: CatalogTables) -> Question[Snapshot]:
    """Ask for the newest snapshot."""
    snapshot = tables["snapshot"]
    query = select(snapshot).order_by(snapshot.c.snapshot_id.desc()).limit(1)
    return Question(query, lambda rows: _snapshot(rows[0]))


def snapshot_by_id(connection: Connection, tables: CatalogTables, version: int) -> Snapshot:
    """Return the snapshot with that id.

    Raises:
        SnapshotNotFoundError: it expired, or lies in the future.
    """
    snapshot = tables["snapshot"]
    row = connection.execute(select(snapshot).where(snapshot.c.snapshot_id == version)).one_or_none()
    if row is None:
        raise _not_found(connection, tables, f"version {version}")
    return _snapshot(row)


def snapshot_by_time(connection: Connection, tables: CatalogTables, timestamp: datetime) -> Snapshot:
    """Return the newest snapshot at or before an aware time; at equal times the highest id.

    Raises:
        SnapshotNotFoundError: the oldest snapshot is younger.
    """
    found = [one for one in _snapshots(connection, tables) if one.time <= timestamp]
    if not found:
        raise _not_found(connection, tables, f"timestamp {timestamp.isoformat()}")
    return max(found, key=lambda one: (one.time, one.id))


def _not_found(connection: Connection, tables: CatalogTables, wanted: str) -> SnapshotNotFoundError:
    ids = tables["snapshot"].c.snapshot_id
    oldest, newest = connection.execute(select(func.min(ids), func.max(ids))).one()
    return SnapshotNotFoundError(wanted, oldest, newest)


def _snapshots(connection: Connection, tables: CatalogTables) -> list[Snapshot]:
    snapshot = tables["snapshot"]
    return [_snapshot(row) for row in connection.execute(select(snapshot).order_by(snapshot.c.snapshot_id))]


def _snapshot(row: Row[Any]) -> Snapshot:
    return Snapshot(
        SnapshotId(row.snapshot_id),
        row.schema_version,
        row.next_catalog_id,
        row.next_file_id,
        row.snapshot_time,
    )


@dataclass(frozen=True, slots=True)
class RecordedSnapshot:
    """A snapshot, what its author said and what it changed; ``extra`` is ``commit_extra_info``."""

    snapshot: Snapshot
    changes: tuple[ChangeRecord, ...]
    author: str | None
    message: str | None
    extra: str | None

    @property
    def id(self) -> SnapshotId:
        """Its snapshot id."""
        return self.snapshot.id

    @property
    def time(self) -> datetime:
        """Its aware UTC time."""
        return self.snapshot.time


def recorded_snapshots(connection: Connection, tables: CatalogTables) -> list[RecordedSnapshot]:
    """Return all snapshots, oldest first."""
    return _recorded(connection.execute(_with_changes(tables)).all())


def which_newer(tables: CatalogTables, than: int) -> Question[list[RecordedSnapshot]]:
    """Ask for the snapshots newer than one, oldest first."""
    return Question(_newer(tables), _recorded, {"after": than})


@lru_cache
def _newer(tables: CatalogTables) -> Select[Any]:
    ids = tables["snapshot"].c.snapshot_id
    return _with_changes(tables).where(ids > bindparam("after", type_=BigInteger))


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a lake is: its newest snapshot, those after the one asked about, and its server's time."""

    head: Snapshot
    newer: list[RecordedSnapshot]
    server_time: datetime | None


def which_progress(
    tables: CatalogTables, since: int, clock: ColumnElement[datetime] | None
) -> Question[Progress]:
    """Ask what came after a snapshot; ``clock`` is the server's, where it has one."""

    def progress(rows: Sequence[Row[Any]]) -> Progress:
        newer = _recorded(row for row in rows if row.snapshot_id > since)
        return Progress(_snapshot(rows[-1]), newer, None if clock is None else rows[-1].now)

    return Question(_progress(tables, clock), progress, {"since": since})


@lru_cache
def _progress(tables: CatalogTables, clock: ColumnElement[datetime] | None) -> Select[Any]:
    ids = tables["snapshot"].c.snapshot_id
    query = _with_changes(tables).where(ids >= bindparam("since", type_=BigInteger))
    return query if clock is None else query.add_columns(clock.label("now"))


def _with_changes(tables: CatalogTables) -> Select[Any]:
    snapshot, changes = tables["snapshot"], tables["snapshot_changes"]
    return (
        select(
            snapshot,
            changes.c.changes_made,
            changes.c.author,
            changes.c.commit_message,
            changes.c.commit_extra_info,
        )
        .outerjoin(changes, snapshot.c.snapshot_id == changes.c.snapshot_id)
        .order_by(snapshot.c.snapshot_id)
    )


def _recorded(rows: Iterable[Row[Any]]) -> list[RecordedSnapshot]:
    return [
        RecordedSnapshot(
            _snapshot(row),
            parse_changes(row.changes_made),
            row.author,
            row.commit_message,
            row.commit_extra_info,
        )
        for row in rows
    ]


@dataclass(frozen=True, slots=True)
class SchemaRow:
    """A schema as the catalog holds it."""

    id: SchemaId
    name: str
    path: CatalogPath


@dataclass(frozen=True, slots=True)
class TableRow:
    """A table (or, with ``is_view``, a view) as the catalog holds it."""

    id: TableId
    uuid: str
    schema: SchemaRow
    name: str
    path: CatalogPath
    begin_snapshot: SnapshotId
    is_view: bool = False

    @property
    def qualified(self) -> QualifiedName:
        """Its full name."""
        return QualifiedName(self.schema.name, self.name)


def schemas(connection: Connection, tables: CatalogTables, at: int) -> list[SchemaRow]:
    """Return the schemas visible at a snapshot, by id."""
    schema = tables["schema"]
    rows = connection.execute(select(schema).where(visible(schema, at)).order_by(schema.c.schema_id))
    return [
        SchemaRow(SchemaId(row.schema_id), row.schema_name, CatalogPath(row.path, row.path_is_relative))
        for row in rows
    ]


def find_schema(connection: Connection, tables: CatalogTables, at: int, name: str) -> SchemaRow | None:
    """Return the schema of that name; letter case is ignored."""
    return next((row for row in schemas(connection, tables, at) if fold(row.name) == fold(name)), None)


def table_rows(
    connection: Connection, tables: CatalogTables, at: int, name: QualifiedName | None = None
) -> list[TableRow]:
    """Return the tables at a snapshot, by schema and name; with ``name`` only those that it can mean."""
    table = tables["table"]
    by_id = {schema.id: schema for schema in schemas(connection, tables, at)}
    query = select(table).where(visible(table, at))
    if name is not None:
        query = (
            query.where(func.lower(table.c.table_name) == name.name.lower()) if name.name.isascii() else query
        )
    found = [
        TableRow(
            TableId(row.table_id),
            str(row.table_uuid),
            by_id[row.schema_id],
            row.table_name,
            CatalogPath(row.path, row.path_is_relative),
            SnapshotId(row.begin_snapshot),
        )
        for row in connection.execute(query)
        if row.schema_id in by_id
    ]
    if name is not None:
        found = [row for row in found if _same_name(row.qualified, name)]
    return sorted(found, key=lambda row: row.qualified)


def _same_name(left: QualifiedName, right: QualifiedName) -> bool:
    return fold(left.schema) == fold(right.schema) and fold(left.name) == fold(right.name)


def view_names(
    connection: Connection, tables: CatalogTables, at: int, schema_id: SchemaId
) -> list[tuple[ViewId, str]]:
    """Return (id, name) of the views of a schema."""
    view = tables["view"]
    rows = connection.execute(
        select(view.c.view_id, view.c.view_name).where(visible(view, at), view.c.schema_id == schema_id)
    )
    return [(ViewId(row.view_id), row.view_name) for row in rows]


@dataclass(frozen=True, slots=True)
class MacroRow:
    """A macro as the catalog holds it."""

    id: MacroId
    name: str
    is_table_macro: bool


def macros(connection: Connection, tables: CatalogTables, at: int, schema_id: SchemaId) -> list[MacroRow]:
    """Return the macros of a schema."""
    macro, implementation = tables["macro"], tables["macro_impl"]
    rows = connection.execute(
        select(macro.c.macro_id, macro.c.macro_name, func.min(implementation.c.type).label("type"))
        .outerjoin(implementation, implementation.c.macro_id == macro.c.macro_id)
        .where(visible(macro, at), macro.c.schema_id == schema_id)
        .group_by(macro.c.macro_id, macro.c.macro_name)
        .order_by(macro.c.macro_id)
    )
    return [MacroRow(MacroId(row.macro_id), row.macro_name, row.type == "table") for row in rows]


def next_column_id(connection: Connection, tables: CatalogTables, table_id: int) -> int:
    """Return a column id that the table never had."""
    column = tables["column"]
    largest = connection.execute(select(func.max(column.c.column_id)).where(column.c.table_id == table_id))
    return (largest.scalar() or 0) + 1


def columns(connection: Connection, tables: CatalogTables, at: int, table_id: int) -> TableSchema:
    """Return the columns of a table at a snapshot."""
    column = tables["column"]
    rows = connection.execute(
        select(column)
        .where(visible(column, at), column.c.table_id == table_id)
        .order_by(column.c.column_order, column.c.column_id)
    )
    return assemble((_column(row), row.parent_column, row.column_type) for row in rows)


def _column(row: Row[Any]) -> Column:
    values = row._mapping  # noqa: SLF001 - SQLAlchemy's public name for a row as a mapping
    default = Default(
        row.default_value,
        values.get("default_value_type", "literal"),
        values.get("default_value_dialect", "duckdb"),
    )
    return Column(
        ColumnId(row.column_id),
        row.column_name,
        ScalarType("unknown"),
        nullable=row.nulls_allowed,
        initial_default=row.initial_default,
        default=default,
    )


def partition_spec(
    connection: Connection, tables: CatalogTables, at: int, table_id: int
) -> PartitionSpec | None:
    """Return the partitioning of a table at a snapshot; None if it has none."""
    info, key = tables["partition_info"], tables["partition_column"]
    rows = connection.execute(
        select(info.c.partition_id, key.c.column_id, key.c.transform)
        .join(key, and_(key.c.partition_id == info.c.partition_id, key.c.table_id == info.c.table_id))
        .where(visible(info, at), info.c.table_id == table_id)
        .order_by(key.c.partition_key_index)
    ).all()
    if not rows:
        return None
    fields = tuple(PartitionField(ColumnId(row.column_id), Transform.parse(row.transform)) for row in rows)
    return PartitionSpec(fields, PartitionId(rows[0].partition_id))


def sort_spec(connection: Connection, tables: CatalogTables, at: int, table_id: int) -> SortSpec | None:
    """Return the sort keys of a table at a snapshot; None if it has none."""
    info, key = tables["sort_info"], tables["sort_expression"]
    rows = connection.execute(
        select(info.c.sort_id, key.c.expression, key.c.dialect, key.c.sort_direction, key.c.null_order)
        .join(key, and_(key.c.sort_id == info.c.sort_id, key.c.table_id == info.c.table_id))
        .where(visible(info, at), info.c.table_id == table_id)
        .order_by(key.c.sort_key_index)
    ).all()
    if not rows:
        return None
    fields = tuple(SortField(row.expression, row.dialect, row.sort_direction, row.null_order) for row in rows)
    return SortSpec(fields, SortId(rows[0].sort_id))


def stored_versions(connection: Connection, tables: CatalogTables) -> list[str]:
    """Return the catalog's version, from columns that every version has; not one means no lake."""
    metadata = tables["metadata"]
    return list(connection.execute(select(metadata.c.value).where(metadata.c.key == "version")).scalars())


def option_rows(connection: Connection, tables: CatalogTables) -> list[OptionRow]:
    """Return every stored option."""
    return which_options(tables).ask(connection)


@lru_cache
def which_options(tables: CatalogTables) -> Question[list[OptionRow]]:
    """Ask for every stored option."""
    return Question(
        select(tables["metadata"]),
        lambda rows: [OptionRow(row.key, row.value, row.scope, row.scope_id) for row in rows],
    )


def data_files(
    connection: Connection, tables: CatalogTables, at: int, table_id: int, root: str
) -> tuple[LiveDataFile, ...]:
    """Return a table's data files at a snapshot with delete files, statistics and partition values."""
    file = tables["data_file"]
    rows = connection.execute(
        select(file).where(visible(file, at), file.c.table_id == table_id).order_by(file.c.data_file_id)
    ).all()
    deletes = _delete_files(connection, tables, at, table_id, root)
    stats = _file_stats(connection, tables, at, table_id)
    values = _partition_values(connection, tables, at, table_id)
    return tuple(
        LiveDataFile(
            id=DataFileId(row.data_file_id),
            path=CatalogPath(row.path, row.path_is_relative).below(root),
            record_count=row.record_count,
            file_size_bytes=row.file_size_bytes,
            footer_size=row.footer_size,
            row_id_start=row.row_id_start,
            begin_snapshot=SnapshotId(row.begin_snapshot),
            partition_id=row.partition_id,
            mapping_id=row.mapping_id,
            partial_max=row.partial_max,
            delete_file=deletes.get(row.data_file_id),
            column_stats=stats.get(row.data_file_id, {}),
            partition_values=tuple(values.get(row.data_file_id, ())),
        )
        for row in rows
    )


def _delete_files(
    connection: Connection, tables: CatalogTables, at: int, table_id: int, root: str
) -> dict[int, LiveDeleteFile]:
    delete = tables["delete_file"]
    rows = connection.execute(select(delete).where(visible(delete, at), delete.c.table_id == table_id))
    return {
        row.data_file_id: LiveDeleteFile(
            DeleteFileId(row.delete_file_id),
            CatalogPath(row.path, row.path_is_relative).below(root),
            row.format,
            row.delete_count,
            row.file_size_bytes,
            SnapshotId(row.begin_snapshot),
            row.partial_max,
        )
        for row in rows
    }


def _live_file_ids(tables: CatalogTables, at: int, table_id: int) -> Any:  # noqa: ANN401 - a subquery
    file = tables["data_file"]
    return select(file.c.data_file_id).where(visible(file, at), file.c.table_id == table_id)


def _file_stats(
    connection: Connection, tables: CatalogTables, at: int, table_id: int
) -> dict[int, dict[ColumnId, ColumnStats]]:
    stats = tables["file_column_stats"]
    rows = connection.execute(
        select(stats).where(
            stats.c.table_id == table_id, stats.c.data_file_id.in_(_live_file_ids(tables, at, table_id))
        )
    )
    found: dict[int, dict[ColumnId, ColumnStats]] = {}
    for row in rows:
        found.setdefault(row.data_file_id, {})[ColumnId(row.column_id)] = ColumnStats(
            ColumnId(row.column_id),
            row.value_count,
            row.null_count,
            row.min_value,
            row.max_value,
            row.contains_nan,
            row.column_size_bytes,
            extra_stats=row.extra_stats,
        )
    return found


def _partition_values(
    connection: Connection, tables: CatalogTables, at: int, table_id: int
) -> dict[int, list[str | None]]:
    value = tables["file_partition_value"]
    rows = connection.execute(
        select(value)
        .where(value.c.table_id == table_id, value.c.data_file_id.in_(_live_file_ids(tables, at, table_id)))
        .order_by(value.c.data_file_id, value.c.partition_key_index)
    )
    found: dict[int, list[str | None]] = {}
    for row in rows:
        found.setdefault(row.data_file_id, []).append(row.partition_value)
    return found


def inlined_tables(connection: Connection, tables: CatalogTables, table_id: int) -> list[str]:
    """Return the names of the registered inlined-data tables of a table, oldest layout first."""
    registry = tables["inlined_data_tables"]
    rows = connection.execute(
        select(registry.c.table_name)
        .where(registry.c.table_id == table_id)
        .order_by(registry.c.schema_version)
    )
    return list(rows.scalars())


def live_targets(
    connection: Connection, tables: CatalogTables, file_ids: Collection[int]
) -> dict[DataFileId, DeleteFileId | None]:
    """Return those of the data files that are live, each with the id of its live delete file."""
    file, deletes = tables["data_file"], tables["delete_file"]
    query = (
        select(file.c.data_file_id, deletes.c.delete_file_id)
        .outerjoin(
            deletes, and_(deletes.c.data_file_id == file.c.data_file_id, deletes.c.end_snapshot.is_(None))
        )
        .where(file.c.end_snapshot.is_(None))
    )
    return {
        DataFileId(row.data_file_id): None if row.delete_file_id is None else DeleteFileId(row.delete_file_id)
        for ids in in_parts(file_ids)
        for row in connection.execute(query.where(file.c.data_file_id.in_(ids)))
    }


def delete_file_paths(
    connection: Connection, tables: CatalogTables, table_id: int, delete_file_ids: Collection[int]
) -> dict[DeleteFileId, str]:
    """Return the paths of delete files as the schedule of deletions has them: below the data path."""
    if not delete_file_ids:
        return {}
    table, schema, deletes = tables["table"], tables["schema"], tables["delete_file"]
    places = connection.execute(
        select(table.c.path, table.c.path_is_relative, schema.c.path, schema.c.path_is_relative)
        .join(schema, schema.c.schema_id == table.c.schema_id)
        .where(table.c.table_id == table_id, table.c.end_snapshot.is_(None), schema.c.end_snapshot.is_(None))
    ).one()
    root = CatalogPath(places[0], places[1]).below(CatalogPath(places[2], places[3]).below(""))
    query = select(deletes.c.delete_file_id, deletes.c.path, deletes.c.path_is_relative)
    return {
        DeleteFileId(row.delete_file_id): CatalogPath(row.path, row.path_is_relative).below(root)
        for ids in in_parts(delete_file_ids)
        for row in connection.execute(query.where(deletes.c.delete_file_id.in_(ids)))
    }


def layouts(connection: Connection, tables: CatalogTables, table_id: int) -> list[int]:
    """Return the schema versions that a table has registered inlined tables for, oldest first."""
    registry = tables["inlined_data_tables"]
    query = select(registry.c.schema_version).where(registry.c.table_id == table_id)
    return list(connection.execute(query.distinct().order_by(registry.c.schema_version)).scalars())


def tables_with_live_files(
    connection: Connection, tables: CatalogTables, table_ids: Collection[int]
) -> frozenset[TableId]:
    """Return those of the tables that have a live data file."""
    if not table_ids:
        return frozenset()
    file = tables["data_file"]
    rows = connection.execute(
        select(file.c.table_id)
        .where(file.c.table_id.in_(table_ids), file.c.end_snapshot.is_(None))
        .distinct()
    )
    return frozenset(TableId(table_id) for table_id in rows.scalars())


def which_newest_layouts(tables: CatalogTables, table_ids: Collection[int]) -> Question[dict[TableId, int]]:
    """Ask for the schema version of the newest registered inlined table of those tables that have one."""
    return Question(
        _newest_layouts(tables, len(table_ids)),
        lambda rows: {TableId(row.table_id): row.newest for row in rows},
        values_of(table_ids),
    )


@lru_cache
def _newest_layouts(tables: CatalogTables, count: int) -> Select[Any]:
    registry = tables["inlined_data_tables"]
    return (
        select(registry.c.table_id, func.max(registry.c.schema_version).label("newest"))
        .where(one_of(registry.c.table_id, count))
        .group_by(registry.c.table_id)
    )


@dataclass(frozen=True, slots=True)
class Statistics:
    """The cumulative statistics of some tables: of those that have any, and of their columns."""

    tables: dict[TableId, TableStats]
    columns: dict[TableId, dict[ColumnId, TableColumnStats]]


def which_statistics(tables: CatalogTables, table_ids: Collection[int]) -> Question[Statistics]:
    """Ask for the cumulative statistics of tables."""
    return Question(_statistics_of(tables, len(table_ids)), _statistics, values_of(table_ids))


@lru_cache
def _statistics_of(tables: CatalogTables, count: int) -> Select[Any]:
    """Return the query for the statistics of ``count`` tables, a row for each column."""
    table, column = tables["table_stats"], tables["table_column_stats"]
    others = [one for one in column.c if one.key != "table_id"]
    return (
        select(table, *others)
        .outerjoin(column, column.c.table_id == table.c.table_id)
        .where(one_of(table.c.table_id, count))
    )


def _statistics(rows: Iterable[Row[Any]]) -> Statistics:
    found = Statistics({}, {})
    for row in rows:
        table_id = TableId(row.table_id)
        found.tables[table_id] = TableStats(row.record_count, row.next_row_id, row.file_size_bytes or 0)
        columns = found.columns.setdefault(table_id, {})
        if row.column_id is not None:
            columns[ColumnId(row.column_id)] = TableColumnStats(
                ColumnId(row.column_id),
                contains_null=row.contains_null is not False,
                contains_nan=row.contains_nan,
                min_value=row.min_value,
                max_value=row.max_value,
                extra_stats=row.extra_stats,
            )
    return found


def columns_with_unbounded_values(
    connection: Connection, tables: CatalogTables, columns: Mapping[TableId, Iterable[ColumnId]]
) -> set[tuple[TableId, ColumnId]]:
    """Return the columns that not every data file says to be without values: there NULL means *unknown*."""
    file, stats = tables["data_file"], tables["file_column_stats"]
    found: set[tuple[TableId, ColumnId]] = set()
    for table_id, column_ids in columns.items():
        files = select(func.count()).where(file.c.table_id == table_id)
        without_values = (
            select(stats.c.column_id, func.count().label("files"))
            .where(stats.c.table_id == table_id, stats.c.value_count == 0)
            .group_by(stats.c.column_id)
        )
        all_files = connection.execute(files).scalar_one()
        empty = {row.column_id: row.files for row in connection.execute(without_values)}
        found.update((table_id, one) for one in column_ids if empty.get(one, 0) != all_files)
    return found
