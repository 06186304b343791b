"""Read the catalog as of one snapshot: a few statements each, whatever the number of files.

Statements name their columns, so extra columns of newer catalogs do no harm.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Row,
    Select,
    Table,
    and_,
    func,
    null,
    or_,
    select,
)

from airflow_provider_ducklake.catalog.database.questions import Question
from airflow_provider_ducklake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.spec.ids import (
    ColumnId,
    MacroId,
    PartitionId,
    SchemaId,
    SnapshotId,
    SortId,
    TableId,
    ViewId,
)
from airflow_provider_ducklake.spec.names.identifiers import QualifiedName, fold
from airflow_provider_ducklake.spec.names.paths import CatalogPath
from airflow_provider_ducklake.spec.options import OptionRow
from airflow_provider_ducklake.spec.partitioning import PartitionField, PartitionSpec, Transform
from airflow_provider_ducklake.spec.schema import Column, Default, TableSchema, assemble
from airflow_provider_ducklake.spec.sorting import SortField, SortSpec
from airflow_provider_ducklake.spec.types.ducklake_types import ScalarType
from airflow_provider_ducklake.spec.versions import SpecVersion
from airflow_provider_ducklake.spec.views import ViewDefinition, parse_aliases

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_ducklake.catalog.database.tables import CatalogTables


def visible(table: FromClause, at: int) -> ColumnElement[bool]:
    """Return the condition that a versioned row is visible at a snapshot."""
    end = table.c.end_snapshot
    return and_(table.c.begin_snapshot <= at, or_(end.is_(None), end > at))


def select_all(table: Table, *since: str) -> Select[Any]:
    """Return the query for all columns of a table, NULL for those named that its version does not have."""
    return select(table, *(null().label(name) for name in since if name not in table.c))


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

    def root(self, data_path: str) -> str:
        """Return its directory, which ends in ``/``.

        Raises:
            UntrustedValueError: the directory leads elsewhere than it says.
        """
        above = self.schema.path.below(data_path, f"Schema {self.schema.name}")
        return self.path.below(above, f"Table {self.qualified}")


_FOLDER = ("path", "path_is_relative")  # since 0.2: before, all files lie in the data path itself


def schemas(connection: Connection, tables: CatalogTables, at: int) -> list[SchemaRow]:
    """Return the schemas visible at a snapshot, by id."""
    schema = tables["schema"]
    query = select_all(schema, *_FOLDER).where(visible(schema, at))
    rows = connection.execute(query.order_by(schema.c.schema_id))
    return [
        SchemaRow(SchemaId(row.schema_id), row.schema_name, CatalogPath(row.path, row.path_is_relative))
        for row in rows
    ]


def first_schema_uuid(connection: Connection, tables: CatalogTables) -> str:
    """Return the uuid of the lake's oldest schema, which is its alone."""
    schema = tables["schema"]
    oldest = select(schema.c.schema_uuid).order_by(schema.c.schema_id).limit(1)
    return str(connection.execute(oldest).scalar_one())


def find_schema(connection: Connection, tables: CatalogTables, at: int, name: str) -> SchemaRow | None:
    """Return the schema of that name; letter case is ignored."""
    return next((row for row in schemas(connection, tables, at) if fold(row.name) == fold(name)), None)


def table_rows(
    connection: Connection, tables: CatalogTables, at: int, name: QualifiedName | None = None
) -> list[TableRow]:
    """Return the tables at a snapshot, by schema and name; with ``name`` only those that it can mean."""
    table = tables["table"]
    by_id = {schema.id: schema for schema in schemas(connection, tables, at)}
    query = select_all(table, *_FOLDER).where(visible(table, at))
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


def find_view(
    connection: Connection, tables: CatalogTables, at: int, name: QualifiedName
) -> tuple[QualifiedName, ViewDefinition] | None:
    """Return a view by name, as it is spelled, with its definition; None if there is none."""
    view, schema = tables["view"], tables["schema"]
    rows = connection.execute(
        select(view, schema.c.schema_name)
        .join(schema, schema.c.schema_id == view.c.schema_id)
        .where(visible(view, at), visible(schema, at))
    )
    for row in rows:
        found = QualifiedName(row.schema_name, row.view_name)
        if found.folded == name.folded:
            return found, ViewDefinition(row.sql, row.dialect, parse_aliases(row.column_aliases))
    return None


@dataclass(frozen=True, slots=True)
class MacroRow:
    """A macro as the catalog holds it."""

    id: MacroId
    name: str
    is_table_macro: bool


def macros(connection: Connection, tables: CatalogTables, at: int, schema_id: SchemaId) -> list[MacroRow]:
    """Return the macros of a schema; there are none before 0.4."""
    if "macro" not in tables:
        return []
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
    return schema_of(rows)


def schema_of(rows: Iterable[Row[Any]]) -> TableSchema:
    """Return the columns that rows of ``ducklake_column`` make, in their order."""
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
        select(info.c.partition_id, info.c.begin_snapshot, key.c.column_id, key.c.transform)
        .join(key, and_(key.c.partition_id == info.c.partition_id, key.c.table_id == info.c.table_id))
        .where(visible(info, at), info.c.table_id == table_id)
        .order_by(key.c.partition_key_index)
    ).all()
    if not rows:
        return None
    ids = _ids_of_ordinals(connection, tables, table_id, rows[0].begin_snapshot)
    fields = (
        PartitionField(ids.get(row.column_id, ColumnId(row.column_id)), Transform.parse(row.transform))
        for row in rows
    )
    return PartitionSpec(tuple(fields), PartitionId(rows[0].partition_id))


def _ids_of_ordinals(
    connection: Connection, tables: CatalogTables, table_id: int, at: int
) -> dict[int, ColumnId]:
    """Return the columns that 0.1 names by their place among the top-level ones, from 0; else nothing."""
    if tables.version is not SpecVersion.V0_1:
        return {}
    return {place: one.id for place, one in enumerate(columns(connection, tables, at, table_id).columns)}


def partition_specs(
    connection: Connection, tables: CatalogTables, table_id: int
) -> dict[PartitionId, PartitionSpec]:
    """Return every partitioning that a table ever had; those with transforms we do not know are left out."""
    if tables.version is SpecVersion.V0_1:
        return {}  # its keys are ordinals, as they were when each began: the bounds of columns say enough
    key = tables["partition_column"]
    rows = connection.execute(
        select(key.c.partition_id, key.c.column_id, key.c.transform)
        .where(key.c.table_id == table_id)
        .order_by(key.c.partition_id, key.c.partition_key_index)
    ).all()
    specs: dict[PartitionId, PartitionSpec] = {}
    for partition_id, keys in groupby(rows, key=lambda row: PartitionId(row.partition_id)):
        with suppress(UnsupportedFeatureError):
            fields = (PartitionField(ColumnId(one.column_id), Transform.parse(one.transform)) for one in keys)
            specs[partition_id] = PartitionSpec(tuple(fields), partition_id)
    return specs


def sort_spec(connection: Connection, tables: CatalogTables, at: int, table_id: int) -> SortSpec | None:
    """Return the sort keys of a table at a snapshot; None if it has none, as always before 0.4."""
    if "sort_info" not in tables:
        return None
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
        select_all(tables["metadata"], "scope", "scope_id"),
        lambda rows: [OptionRow(row.key, row.value, row.scope, row.scope_id) for row in rows],
    )
