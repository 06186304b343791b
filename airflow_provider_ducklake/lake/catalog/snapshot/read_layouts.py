"""The columns of a table at any snapshot, and the columns of its tables for inlined rows.

The registry of inlined tables has a catalog table for each layout that a table had while rows came in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ...errors import CatalogError
from ...format.names.identifiers import fold
from ...format.schema import Column, Default, TableSchema, assemble
from ...format.snapshots import ColumnId, SnapshotId, TableId
from ...format.types.ducklake_types import ScalarType, keeps_partition_values, parse_type
from ...transaction.changes import FlushedLayout
from ..database.connect import OF_TABLE, Question, one_of, values_of
from ..database.tables import CatalogTables, maybe
from .inlined_tables import bare_table, inlined_table_name

if TYPE_CHECKING:
    from ..dialects.dialect import Catalog


@dataclass(frozen=True, slots=True)
class RegisteredLayout:
    """A registered table for inlined rows: it has the columns of its table at snapshot ``begin``.

    ``begin`` is -1 if that snapshot is unknown.
    """

    table_id: int
    schema_version: int
    begin: int

    @property
    def name(self) -> str:
        """The name of the catalog table."""
        return inlined_table_name(self.table_id, self.schema_version)


def layouts_query(tables: CatalogTables, table_id: int) -> Question[list[RegisteredLayout]]:
    """Return the query for the registered tables of a table's inlined rows, oldest first."""

    def read(rows: Sequence[sa.Row[Any]]) -> list[RegisteredLayout]:
        found = {row.schema_version: -1 if row.begin is None else row.begin for row in rows}
        return [RegisteredLayout(table_id, version, begin) for version, begin in found.items()]

    return Question(_layouts(tables), read, {"table": table_id})


@lru_cache
def _layouts(tables: CatalogTables) -> sa.Select[Any]:
    registry = tables["inlined_data_tables"]
    begin = _begin(tables, registry.c.schema_version).label("begin")
    query = sa.select(registry.c.schema_version, begin).where(registry.c.table_id == OF_TABLE)
    return query.order_by(registry.c.schema_version)


def _begin(tables: CatalogTables, version: sa.ColumnElement[int]) -> sa.ScalarSelect[int]:
    """Return the snapshot that made of a table what it was in a schema version."""
    if "schema_versions" not in tables:  # before 0.3: a schema version begins with its first snapshot
        snapshot = tables["snapshot"]
        first = sa.select(sa.func.coalesce(sa.func.min(snapshot.c.snapshot_id), 0))
        return first.where(snapshot.c.schema_version == version).scalar_subquery()
    versions = tables["schema_versions"]
    newest = sa.select(maybe(sa.func.max(versions.c.begin_snapshot))).where(
        versions.c.schema_version <= version
    )
    if "table_id" in versions.c:
        newest = newest.where(versions.c.table_id == OF_TABLE)
    return newest.scalar_subquery()


def layout_begin(connection: sa.Connection, tables: CatalogTables, table_id: int, version: int) -> int:
    """Return the snapshot at which a table's schema version began; -1: unknown."""
    query = sa.select(_begin(tables, sa.literal(version, sa.BigInteger)).label("begin"))
    found: int | None = connection.execute(query, {"table": table_id}).scalar()
    return -1 if found is None else found


def layout_schema(
    connection: sa.Connection, tables: CatalogTables, table_id: int, version: int
) -> TableSchema:
    """Return the columns that a table had in a schema version of the lake."""
    begin = layout_begin(connection, tables, table_id, version)
    return columns_query(tables, table_id).ask(connection).at(begin)


def newest_layouts_query(tables: CatalogTables, table_ids: Collection[int]) -> Question[dict[TableId, int]]:
    """Return the query for the schema versions of the newest registered inlined tables."""
    return Question(
        _newest_layouts(tables, len(table_ids)),
        lambda rows: {TableId(row.table_id): row.newest for row in rows},
        values_of(table_ids),
    )


@lru_cache
def _newest_layouts(tables: CatalogTables, count: int) -> sa.Select[Any]:
    registry = tables["inlined_data_tables"]
    return (
        sa.select(registry.c.table_id, sa.func.max(registry.c.schema_version).label("newest"))
        .where(one_of(registry.c.table_id, count))
        .group_by(registry.c.table_id)
    )


@dataclass(frozen=True, slots=True)
class LayoutRows:
    """The rows of an inlined table up to a snapshot, and how many came after it."""

    upto: FlushedLayout
    newer_count: int


def rows_of_layout(
    connection: sa.Connection, catalog: Catalog, table_id: int, schema_version: int, at: int
) -> LayoutRows | None:
    """Count the rows of an inlined table, by those up to ``at`` and later ones; None: it is gone."""
    rows = bare_table(inlined_table_name(table_id, schema_version), catalog.tables)
    if not catalog.dialect.has_table(connection, rows.name, rows.schema):
        return None
    is_old = rows.c.begin_snapshot <= at
    query = sa.select(
        _number(is_old).label("old"),
        _number(sa.and_(is_old, rows.c.end_snapshot.is_not(None))).label("ended"),
        sa.func.count().label("all"),
    ).select_from(rows)
    found = connection.execute(query).one()
    upto = FlushedLayout(schema_version, found.old, found.ended)
    return LayoutRows(upto, found.all - found.old)


def _number(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    return sa.func.count(sa.case((condition, 1)))


def columns_query(tables: CatalogTables, table_id: int) -> Question[ColumnVersions]:
    """Return the query for every column that a table ever had."""
    return Question(_columns(tables), ColumnVersions, {"table": table_id})


@lru_cache
def _columns(tables: CatalogTables) -> sa.Select[Any]:
    column = tables["column"]
    return (
        sa.select(column)
        .where(column.c.table_id == OF_TABLE)
        .order_by(column.c.column_order, column.c.column_id)
    )


@dataclass(frozen=True, slots=True)
class ColumnVersions:
    """The rows of ``ducklake_column`` of a table, in the columns' order."""

    rows: Sequence[sa.Row[Any]]

    def at(self, at: int) -> TableSchema:
        """Return the columns at a snapshot."""
        return schema_of(row for row in self.rows if is_visible(row, at))

    def changes(self) -> frozenset[SnapshotId]:
        """Return the snapshots that changed the columns."""
        bounds = {one for row in self.rows for one in (row.begin_snapshot, row.end_snapshot)}
        return frozenset(SnapshotId(one) for one in bounds if one is not None)

    def bucketed_since(self, column: Column) -> SnapshotId:
        """Return the snapshot from which on writers compute a column's buckets as for its current type."""
        others = (
            row.end_snapshot
            for row in self.rows
            if row.column_id == column.id
            and not keeps_partition_values(parse_type(row.column_type), column.type)
        )
        return SnapshotId(max((one for one in others if one is not None), default=0))

    def since(self, at: int) -> dict[ColumnId, SnapshotId]:
        """Return the snapshot that gave each column and nested field the name and type it has at a snapshot.

        A column that came back after it had gone is as old as that: files between lack it. One that ends and
        begins again without any difference is as well: a restored table may have files from before the column
        was as it is, in snapshots since (``planning.upkeep.restore.outdated_columns``).
        """
        known: dict[ColumnId, sa.Row[Any]] = {}
        since: dict[ColumnId, SnapshotId] = {}
        for row in sorted(self.rows, key=lambda row: row.begin_snapshot):
            if row.begin_snapshot > at:
                break
            before = known.get(row.column_id)
            if before is None or not _goes_on(before, row):
                since[row.column_id] = SnapshotId(row.begin_snapshot)
            known[row.column_id] = row
        return since


_NAME_AND_TYPE = ("column_name", "column_type")
_LIFE = ("begin_snapshot", "end_snapshot")


def _goes_on(before: sa.Row[Any], row: sa.Row[Any]) -> bool:
    """Return True if the second row continues a column of the first without a change of name or type."""
    differs = _differences(before, row)
    return before.end_snapshot == row.begin_snapshot and bool(differs) and differs.isdisjoint(_NAME_AND_TYPE)


def _differences(one: sa.Row[Any], other: sa.Row[Any]) -> set[str]:
    """Return the columns, but for their lifetimes, in which two rows differ."""
    pairs = zip(one._fields, one, other, strict=True)
    return {name for name, old, new in pairs if name not in _LIFE and old != new}


def is_visible(row: sa.Row[Any], at: int) -> bool:
    """Return True if a versioned row is visible at a snapshot."""
    return row.begin_snapshot <= at and (row.end_snapshot is None or row.end_snapshot > at)


def schema_of(rows: Iterable[sa.Row[Any]]) -> TableSchema:
    """Return the columns that rows of ``ducklake_column`` make, in their order."""
    newest = _newest_of_each(rows)
    _check_names(newest)
    return assemble((_column(row), row.parent_column, row.column_type) for row in newest)


def _newest_of_each(rows: Iterable[sa.Row[Any]]) -> list[sa.Row[Any]]:
    """Return one row of each column: where several are there at once, the one that began last.

    DuckDB 1.4.0 and 1.4.1 set the end of all rows of a column whenever they change it: the older rows last
    too long.
    """
    found: dict[int, sa.Row[Any]] = {}
    for row in rows:
        other = found.get(row.column_id)
        if other is None or other.begin_snapshot < row.begin_snapshot:
            found[row.column_id] = row
        elif other.begin_snapshot == row.begin_snapshot and _differences(other, row):
            raise CatalogError(
                f"ducklake_column says two things of column {row.column_id} ({row.column_name}) of table "
                f"{row.table_id} since snapshot {row.begin_snapshot}. End or correct one of the rows in the "
                "catalog; lake.verify() names them (column-twice)."
            )
    return sorted(found.values(), key=lambda row: (row.column_order, row.column_id))


def _check_names(rows: Sequence[sa.Row[Any]]) -> None:
    named: dict[tuple[int | None, str], sa.Row[Any]] = {}
    for row in rows:
        other = named.setdefault((row.parent_column, fold(row.column_name)), row)
        if other is not row:
            raise CatalogError(
                f"Two columns of table {row.table_id} are called {row.column_name} in ducklake_column, with "
                f"the ids {other.column_id} and {row.column_id}. Rename or end one of them in the catalog; "
                "lake.verify() names them (name-twice)."
            )


def _column(row: sa.Row[Any]) -> Column:
    default = Default(
        row.default_value,
        getattr(row, "default_value_type", "literal"),
        getattr(row, "default_value_dialect", "duckdb"),
    )
    return Column(
        ColumnId(row.column_id),
        row.column_name,
        _UNKNOWN,
        nullable=row.nulls_allowed,
        initial_default=row.initial_default,
        default=default,
    )


_UNKNOWN = ScalarType("unknown")  # until the text is read with those of its fields
