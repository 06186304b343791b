"""Read the catalog as of one snapshot: a few statements each, whatever the number of files.

Statements name their columns, so extra columns of newer catalogs do no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from uuid6 import uuid7

from ...errors import CounterBehindError
from ...format.names.identifiers import QualifiedName, SchemaPath, schema_paths
from ...format.names.paths import CatalogPath
from ...format.options import OptionRow
from ...format.snapshots import MacroId, SchemaId, Snapshot, SnapshotId, TableId, ViewId
from ...format.tags import (
    TABLE,
    MacroDefinition,
    MacroOverload,
    MacroParameter,
    ViewDefinition,
    parse_aliases,
)
from ...format.versions import NEWEST, SpecVersion
from ..database.connect import AT, Question
from ..database.tables import CatalogTables, catalog_tables, check_filled, format_names, maybe

if TYPE_CHECKING:
    from ..dialects.dialect import CatalogDialect


def visible(table: sa.FromClause, at: int | sa.BindParameter[int] | None) -> sa.ColumnElement[bool]:
    """Return the condition that a versioned row is visible at a snapshot; None: at the newest."""
    end = table.c.end_snapshot
    if at is None:
        return end.is_(None)
    return sa.and_(table.c.begin_snapshot <= at, sa.or_(end.is_(None), end > at))


def select_all(table: sa.Table, *since: str) -> sa.Select[Any]:
    """Return the query for all columns of a table, NULL for those named that its version does not have."""
    return sa.select(table, *(sa.null().label(name) for name in since if name not in table.c))


@dataclass(frozen=True, slots=True)
class SchemaRow:
    """A schema as the catalog holds it; ``parent`` is the one that it lies in."""

    id: SchemaId
    name: SchemaPath
    path: CatalogPath
    parent: SchemaId | None = None


@dataclass(frozen=True, slots=True)
class TableRow:
    """A table as the catalog holds it."""

    id: TableId
    uuid: str
    schema: SchemaRow
    name: str
    path: CatalogPath
    begin_snapshot: SnapshotId

    @property
    def qualified(self) -> QualifiedName:
        """Its full name."""
        return QualifiedName(self.schema.name, self.name)

    def root(self, data_path: str) -> str:
        """Return its directory, which ends in ``/``."""
        above = self.schema.path.below(data_path, f"Schema {self.schema.name}")
        return self.path.below(above, f"Table {self.qualified}")


_OF_SCHEMA = ("schema_id", "schema_name", "path", "path_is_relative", "parent_schema_id")
_PARENT = "parent_schema_id"  # since 1.1: before, no schema lies in another one


def schemas(connection: sa.Connection, tables: CatalogTables, at: int) -> list[SchemaRow]:
    """Return the schemas visible at a snapshot, by id."""
    schema = tables["schema"]
    query = select_all(schema, _PARENT).where(visible(schema, at))
    rows = connection.execute(query.order_by(schema.c.schema_id)).all()
    return list(_schema_rows(rows, prefix="").values())


def _schema_rows(rows: Iterable[sa.Row[Any]], prefix: str) -> dict[int, SchemaRow]:
    """Return the schemas that rows name in columns with that prefix, but for those of a dropped schema."""
    found: dict[int, SchemaRow] = {}
    for row in rows:
        id_, name, path, is_relative, parent = (getattr(row, f"{prefix}{one}") for one in _OF_SCHEMA)
        found[id_] = SchemaRow(id_, SchemaPath((name,)), CatalogPath(path, is_relative), parent)
    paths = schema_paths((one.id, one.parent, one.name.name) for one in found.values())
    return {id_: replace(found[id_], name=path) for id_, path in paths.items()}


def all_schema_paths(connection: sa.Connection, tables: CatalogTables) -> dict[int, SchemaPath]:
    """Return the full names of all schemas, of whatever snapshot, by id."""
    return schema_paths(all_schema_parents(connection, tables))


def all_schema_parents(connection: sa.Connection, tables: CatalogTables) -> list[tuple[int, int | None, str]]:
    """Return all schemas, of whatever snapshot, oldest first: id, the schema in which it lies, and name."""
    schema = tables["schema"]
    rows = connection.execute(select_all(schema, _PARENT).order_by(schema.c.begin_snapshot))
    return [(row.schema_id, row.parent_schema_id, row.schema_name) for row in rows]


def first_schema_uuid(connection: sa.Connection, tables: CatalogTables) -> str:
    """Return the uuid of the lake's oldest schema, which is its alone."""
    schema = tables["schema"]
    oldest = sa.select(schema.c.schema_uuid).order_by(schema.c.schema_id).limit(1)
    return str(connection.execute(oldest).scalar_one())


def find_schema(
    connection: sa.Connection, tables: CatalogTables, at: int, name: SchemaPath
) -> SchemaRow | None:
    """Return the schema of that name; letter case is ignored."""
    rows = schemas(connection, tables, at)
    return next((row for row in rows if row.name.folded == name.folded), None)


def table_rows(
    connection: sa.Connection, tables: CatalogTables, at: int, name: QualifiedName | None = None
) -> list[TableRow]:
    """Return the tables at a snapshot, by schema and name; with ``name`` only those that it can mean."""
    return tables_query(tables, at, name).ask(connection)


def tables_query(
    tables: CatalogTables, at: int | None, name: QualifiedName | None = None
) -> Question[list[TableRow]]:
    """Return the query for the tables at a snapshot (None: the newest) by schema and name: ``table_rows``."""

    def read(rows: Sequence[sa.Row[Any]]) -> list[TableRow]:
        found = _table_rows(rows, tables["table"])
        meant = (row for row in found if name is None or row.qualified.folded == name.folded)
        return sorted(meant, key=lambda row: row.qualified)

    parameters: dict[str, Any] = {} if at is None else {"at": at}
    if name is not None and name.name.isascii():  # which the database folds as we do
        parameters["name"] = name.name.lower()
    return Question(_tables_at(tables, *parameters), read, parameters)


@lru_cache
def _tables_at(tables: CatalogTables, *parameters: str) -> sa.Select[Any]:
    """Return the query for tables with their schemas; where schemas are nested, for all schemas besides."""
    table, schema = tables["table"], tables["schema"]
    at = AT if "at" in parameters else None
    of_schema = select_all(schema, _PARENT).selected_columns
    meant = sa.and_(schema.c.schema_id == table.c.schema_id, visible(table, at))
    if "name" in parameters:
        meant &= sa.func.lower(table.c.table_name) == sa.bindparam("name", type_=sa.String())
    return (
        sa.select(*(maybe(one).label(one.name) for one in table.c))
        .add_columns(*(one.label(f"of_{one.name}") for one in of_schema))
        .select_from(schema.join(table, meant, isouter=_PARENT in schema.c))
        .where(visible(schema, at))
    )


def _table_rows(rows: Sequence[sa.Row[Any]], table: sa.Table) -> Iterator[TableRow]:
    schemas = _schema_rows(rows, prefix="of_")
    for row in rows:
        if row.table_id is None:
            continue
        check_filled(table, row)
        if row.schema_id in schemas:
            yield _table_row(row, schemas[row.schema_id])


def _table_row(row: sa.Row[Any], schema: SchemaRow) -> TableRow:
    return TableRow(
        TableId(row.table_id),
        str(row.table_uuid),
        schema,
        row.table_name,
        CatalogPath(row.path, row.path_is_relative),
        SnapshotId(row.begin_snapshot),
    )


def view_names(
    connection: sa.Connection, tables: CatalogTables, at: int, schema_id: SchemaId
) -> list[tuple[ViewId, str]]:
    """Return (id, name) of the views of a schema."""
    view = tables["view"]
    rows = connection.execute(
        sa.select(view.c.view_id, view.c.view_name).where(visible(view, at), view.c.schema_id == schema_id)
    )
    return [(ViewId(row.view_id), row.view_name) for row in rows]


def find_view(
    connection: sa.Connection, tables: CatalogTables, at: int, name: QualifiedName
) -> tuple[QualifiedName, ViewDefinition] | None:
    """Return a view by name, as it is spelled, with its definition; None if there is none."""
    view = tables["view"]
    paths = {one.id: one.name for one in schemas(connection, tables, at)}
    for row in connection.execute(sa.select(view).where(visible(view, at))):
        if row.schema_id in paths:
            found = QualifiedName(paths[row.schema_id], row.view_name)
            if found.folded == name.folded:
                return found, ViewDefinition(row.sql, row.dialect, parse_aliases(row.column_aliases))
    return None


def view_comments(
    connection: sa.Connection, tables: CatalogTables, at: int, view_id: int
) -> dict[str, str | None]:
    """Return the comments of a view's columns by their names in the query; None: it was taken away."""
    if "view_column_tag" not in tables:
        return {}
    tag = tables["view_column_tag"]
    query = sa.select(tag).where(tag.c.view_id == view_id, tag.c.key == "comment", visible(tag, at))
    return {row.column_name: row.value for row in connection.execute(query)}


@dataclass(frozen=True, slots=True)
class MacroRow:
    """A macro as the catalog holds it."""

    id: MacroId
    name: str
    is_table_macro: bool


def macros(connection: sa.Connection, tables: CatalogTables, at: int, schema_id: SchemaId) -> list[MacroRow]:
    """Return the macros of a schema."""
    macro, implementation = tables["macro"], tables["macro_impl"]
    rows = connection.execute(
        sa.select(macro.c.macro_id, macro.c.macro_name, sa.func.min(implementation.c.type).label("type"))
        .outerjoin(implementation, implementation.c.macro_id == macro.c.macro_id)
        .where(visible(macro, at), macro.c.schema_id == schema_id)
        .group_by(macro.c.macro_id, macro.c.macro_name)
        .order_by(macro.c.macro_id)
    )
    return [MacroRow(MacroId(row.macro_id), row.macro_name, row.type == "table") for row in rows]


def macro_definitions(
    connection: sa.Connection, tables: CatalogTables, at: int
) -> list[tuple[QualifiedName, MacroDefinition]]:
    """Return all macros with what they stand for, by their names."""
    macro, body, parameter = tables["macro"], tables["macro_impl"], tables["macro_parameters"]
    paths = {one.id: one.name for one in schemas(connection, tables, at)}
    rows = connection.execute(
        sa.select(macro.c.schema_id, macro.c.macro_name, body)
        .join(body, body.c.macro_id == macro.c.macro_id)
        .where(visible(macro, at))
        .order_by(body.c.macro_id, body.c.impl_id)
    ).all()
    of_bodies: dict[tuple[int, int], list[MacroParameter]] = {}
    if rows:
        known = sa.select(macro.c.macro_id).where(visible(macro, at))
        order = (parameter.c.macro_id, parameter.c.impl_id, parameter.c.column_id)
        for one in connection.execute(
            sa.select(parameter).where(parameter.c.macro_id.in_(known)).order_by(*order)
        ):
            of_bodies.setdefault((one.macro_id, one.impl_id), []).append(
                MacroParameter.of_row(
                    one.parameter_name, one.parameter_type, one.default_value, one.default_value_type
                )
            )
    found: dict[int, tuple[QualifiedName, MacroDefinition]] = {}
    for row in rows:
        if row.schema_id not in paths:
            continue
        name = QualifiedName(paths[row.schema_id], row.macro_name)
        _, before = found.get(row.macro_id, (name, MacroDefinition((), is_table=row.type == TABLE)))
        parameters = tuple(of_bodies.get((row.macro_id, row.impl_id), ()))
        overload = MacroOverload(row.sql, parameters, row.dialect)
        found[row.macro_id] = name, replace(before, overloads=(*before.overloads, overload))
    return sorted(found.values(), key=lambda one: (one[0], one[1].is_table))


def next_column_id(connection: sa.Connection, tables: CatalogTables, table_id: int) -> int:
    """Return a column id that the table never had."""
    column = tables["column"]
    largest = connection.execute(
        sa.select(maybe(sa.func.max(column.c.column_id))).where(column.c.table_id == table_id)
    )
    return (largest.scalar() or 0) + 1


def stored_versions(connection: sa.Connection, tables: CatalogTables) -> list[str]:
    """Return the catalog's version, from columns that every version has; not one means no lake."""
    metadata = tables["metadata"]
    return list(connection.execute(sa.select(metadata.c.value).where(metadata.c.key == "version")).scalars())


def option_rows(connection: sa.Connection, tables: CatalogTables) -> list[OptionRow]:
    """Return every stored option."""
    return options_query(tables).ask(connection)


@lru_cache
def options_query(tables: CatalogTables) -> Question[list[OptionRow]]:
    """Return the query for every stored option."""
    return Question(
        select_all(tables["metadata"], "scope", "scope_id"),
        lambda rows: [OptionRow(row.key, row.value, row.scope, row.scope_id) for row in rows],
    )


@dataclass(frozen=True, slots=True)
class StoredCatalog:
    """The options of a catalog of whatever version, ``version`` among them; none: it is no lake.

    ``columns`` are those of its tables, by the table's name; ``schema`` is the one that they are in, None for
    the only one that there is.
    """

    options: Sequence[OptionRow] = ()
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    schema: str | None = None


def stored_catalog(dialect: CatalogDialect, metadata_schema: str | None) -> StoredCatalog:
    """Read the options and columns of a catalog of any version; empty if there is no catalog."""
    first = {
        "columns": dialect.columns_query((*sorted(format_names()), "airflow_ducklake_%"), metadata_schema)
    }
    with dialect.opening_after(metadata_schema, first) as (connection, schema, answers):
        columns = answers["columns"].get(catalog_tables(NEWEST)["metadata"].name)
        if columns is None:
            return StoredCatalog()
        has_scopes = {"scope", "scope_id"} <= set(columns)  # half a migration has one
        tables = catalog_tables(NEWEST if has_scopes else SpecVersion.V0_1, schema)
        found: list[OptionRow] = dialect.ask(connection, {"all": options_query(tables)}, is_last=True)["all"]
        return StoredCatalog(found, answers["columns"], schema)


# Locations of a lake's files in any version, relative to the data path if they are below it.


_PLACE = ("path", "path_is_relative")  # since 0.2


@dataclass(frozen=True, slots=True)
class Place:
    """The path of a file as the catalog stores it, and the directory of its table."""

    path: CatalogPath
    folder: CatalogPath

    @property
    def from_data_path(self) -> CatalogPath:
        """Where the file lies, as the schedule of deletions says it."""
        return _below(self.folder, self.path)

    def full(self, data_path: str) -> str:
        """Return the full path."""
        return self.from_data_path.below(data_path)

    def beside(self, suffix: str) -> Place:
        """Return a new place in the same directory."""
        directory, slash, _ = (self.path.path or "").rpartition("/")
        path = f"{directory}{slash}ducklake-{uuid7()}{suffix}"
        return Place(CatalogPath(path, self.path.is_relative), self.folder)


def table_folders(connection: sa.Connection, tables: CatalogTables) -> dict[int, CatalogPath]:
    """Return each table's directory, by its id; those of dropped tables too, but none without a schema."""
    schemas = {
        row.schema_id: CatalogPath(row.path, row.path_is_relative is not False)
        for row in connection.execute(select_all(tables["schema"], *_PLACE))
    }
    return {
        row.table_id: _below(schemas[row.schema_id], CatalogPath(row.path, row.path_is_relative is not False))
        for row in connection.execute(select_all(tables["table"], *_PLACE))
        if row.schema_id in schemas
    }


def _below(parent: CatalogPath, child: CatalogPath) -> CatalogPath:
    if not child.is_relative:
        return child
    return CatalogPath((parent.path or "") + (child.path or ""), parent.is_relative)


# The ids that a catalog has given out already; they check the counters of its newest snapshot.
#
# Two writers with counters that they kept in memory leave one behind, and the next commit would give two
# tables one id. *Source:* docs/sources.md, commits; DuckDB itself does not look.


# The counter of a snapshot, and where it is used; the first are primary keys, and cost nothing to ask.
_OF_FILES = (("next_file_id", "data_file", "data_file_id"), ("next_file_id", "delete_file", "delete_file_id"))
_OF_DEFINITIONS = (
    ("next_file_id", "column_mapping", "mapping_id"),
    ("next_catalog_id", "schema", "schema_id"),
    ("next_catalog_id", "table", "table_id"),
    ("next_catalog_id", "view", "view_id"),
    ("next_catalog_id", "macro", "macro_id"),
    ("next_catalog_id", "partition_info", "partition_id"),
    ("next_catalog_id", "sort_info", "sort_id"),
    ("schema_version", "schema_versions", "schema_version"),
)


def counters_query(tables: CatalogTables, *, definitions: bool) -> Question[Mapping[str, int]]:
    """Ask what each counter has to be at least; that of files alone, or with ``definitions`` all of them."""
    places = (*_OF_FILES, *(_OF_DEFINITIONS if definitions else ()))

    def read(rows: Sequence[sa.Row[Any]]) -> Mapping[str, int]:
        least: dict[str, int] = {}
        for (counter, *_), largest in zip(places, rows[0], strict=True):
            if largest is not None:
                given = largest if counter == "schema_version" else largest + 1
                least[counter] = max(least.get(counter, 0), given)
        return least

    return Question(_largest(tables, places), read)


def check_counters(head: Snapshot, least: Mapping[str, int]) -> None:
    """Compare the newest snapshot's counters with what is given out."""
    for counter, wanted in least.items():
        if (found := getattr(head, counter)) < wanted:
            raise CounterBehindError(counter, found, wanted, head.id)


@lru_cache
def _largest(tables: CatalogTables, places: tuple[tuple[str, str, str], ...]) -> sa.Select[Any]:
    return sa.select(
        *(
            sa.select(maybe(sa.func.max(tables[table].c[column]))).scalar_subquery().label(column)
            for _, table, column in places
        )
    )
