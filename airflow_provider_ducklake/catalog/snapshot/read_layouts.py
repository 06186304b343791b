"""Catalog tables for inlined rows, as the registry has them: one for each layout of columns a table had."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, and_, case, func, literal, select

from airflow_provider_ducklake.catalog.database.questions import OF_TABLE, Question, one_of, values_of
from airflow_provider_ducklake.catalog.snapshot.column_versions import which_columns
from airflow_provider_ducklake.catalog.snapshot.inlined_tables import (
    bare_table,
    inlined_table_name,
)
from airflow_provider_ducklake.spec.ids import TableId
from airflow_provider_ducklake.transaction.changes import FlushedLayout

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import ColumnElement, Connection, Row, ScalarSelect, Select

    from airflow_provider_ducklake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.spec.schema import TableSchema


@dataclass(frozen=True, slots=True)
class Layout:
    """A registered table for inlined rows: it has the columns of its table at snapshot ``begin``.

    ``begin`` is -1 where it is not known which snapshot that is.
    """

    table_id: int
    schema_version: int
    begin: int

    @property
    def name(self) -> str:
        """The name of the catalog table."""
        return inlined_table_name(self.table_id, self.schema_version)


def which_layouts(tables: CatalogTables, table_id: int) -> Question[list[Layout]]:
    """Ask for the registered tables of a table's inlined rows, oldest first."""

    def read(rows: Sequence[Row[Any]]) -> list[Layout]:
        found = {row.schema_version: -1 if row.begin is None else row.begin for row in rows}
        return [Layout(table_id, version, begin) for version, begin in found.items()]

    return Question(_layouts(tables), read, {"table": table_id})


@lru_cache
def _layouts(tables: CatalogTables) -> Select[Any]:
    registry = tables["inlined_data_tables"]
    begin = _begin(tables, registry.c.schema_version).label("begin")
    query = select(registry.c.schema_version, begin).where(registry.c.table_id == OF_TABLE)
    return query.order_by(registry.c.schema_version)


def _begin(tables: CatalogTables, version: ColumnElement[int]) -> ScalarSelect[int]:
    """Return the snapshot that made of a table what it was in a schema version."""
    if "schema_versions" not in tables:  # before 0.3: a schema version begins with its first snapshot
        snapshot = tables["snapshot"]
        first = select(func.coalesce(func.min(snapshot.c.snapshot_id), 0))
        return first.where(snapshot.c.schema_version == version).scalar_subquery()
    versions = tables["schema_versions"]
    newest = select(func.max(versions.c.begin_snapshot)).where(versions.c.schema_version <= version)
    if "table_id" in versions.c:
        newest = newest.where(versions.c.table_id == OF_TABLE)
    return newest.scalar_subquery()


def layout_begin(connection: Connection, tables: CatalogTables, table_id: int, version: int) -> int:
    """Return the snapshot that made of a table what it was in a schema version; -1: it is not known."""
    query = select(_begin(tables, literal(version, BigInteger)).label("begin"))
    found: int | None = connection.execute(query, {"table": table_id}).scalar()
    return -1 if found is None else found


def layout_schema(connection: Connection, tables: CatalogTables, table_id: int, version: int) -> TableSchema:
    """Return the columns that a table had in a schema version of the lake."""
    begin = layout_begin(connection, tables, table_id, version)
    return which_columns(tables, table_id).ask(connection).at(begin)


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
class LayoutRows:
    """The rows of an inlined table up to a snapshot, and how many came after it."""

    upto: FlushedLayout
    newer_count: int


def rows_of_layout(
    connection: Connection, catalog: Catalog, table_id: int, schema_version: int, at: int
) -> LayoutRows | None:
    """Return how many rows an inlined table has; None: it is gone."""
    rows = bare_table(inlined_table_name(table_id, schema_version), catalog.tables)
    if not catalog.dialect.has_table(connection, rows.name, rows.schema):
        return None
    is_old = rows.c.begin_snapshot <= at
    query = select(
        _number(is_old).label("old"),
        _number(and_(is_old, rows.c.end_snapshot.is_not(None))).label("ended"),
        func.count().label("all"),
    ).select_from(rows)
    found = connection.execute(query).one()
    upto = FlushedLayout(schema_version, found.old, found.ended)
    return LayoutRows(upto, found.all - found.old)


def _number(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.count(case((condition, 1)))
