"""The tables, views, macros and schemas of a restore, at the older and the current snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sqlalchemy import select

from airflow_provider_ducklake.lake.catalog.snapshot import read
from airflow_provider_ducklake.lake.errors import (
    AlreadyExistsError,
    SchemaNotFoundError,
    TableNotFoundError,
)
from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName, SchemaPath
from airflow_provider_ducklake.lake.spec.snapshots import SchemaId, ViewId
from airflow_provider_ducklake.lake.spec.tags import ViewDefinition, parse_aliases
from airflow_provider_ducklake.lake.transaction.changes import (
    CreateSchema,
    DropSchema,
    NewSchemaRef,
    SchemaRef,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.catalog.snapshot.read import MacroRow, SchemaRow, TableRow
    from airflow_provider_ducklake.lake.spec.names.paths import CatalogPath
    from airflow_provider_ducklake.lake.spec.snapshots import Snapshot

Thing = TypeVar("Thing")


@dataclass(frozen=True, slots=True)
class Pair(Generic[Thing]):
    """One object as it was then and as it is now; None: it was not there, or is not."""

    then: Thing | None
    now: Thing | None


@dataclass(frozen=True, slots=True)
class ViewRow:
    """A view as the catalog holds it."""

    id: ViewId
    uuid: str
    name: QualifiedName
    schema_id: SchemaId
    definition: ViewDefinition


@dataclass(frozen=True, slots=True)
class PlacedMacro:
    """A macro with the schema it lies in."""

    row: MacroRow
    name: QualifiedName
    schema_id: SchemaId


@dataclass(frozen=True, slots=True)
class Home:
    """The schema that has, or gets, what lay in one then: itself, or another one of its name."""

    ref: SchemaRef
    name: SchemaPath
    path: CatalogPath


@dataclass(frozen=True, slots=True)
class Scope:
    """What is to be restored; ``homes`` are those of the schemas at that snapshot."""

    tables: tuple[Pair[TableRow], ...]
    homes: Mapping[SchemaId, Home]
    views: tuple[Pair[ViewRow], ...] = ()
    macros: tuple[Pair[PlacedMacro], ...] = ()
    schemas: tuple[CreateSchema | DropSchema, ...] = ()

    def moves(self, row: TableRow) -> bool:
        """Whether a table of that snapshot cannot come back under its id: its schema has another one."""
        return self.homes[row.schema.id].ref != row.schema.id


def scope_of_table(
    connection: Connection, tables: CatalogTables, then: Snapshot, now: Snapshot, name: QualifiedName
) -> Scope:
    """Return the table that had a name then, or else has it now.

    A table that took the name of one that was dropped since is dropped for it, as by CREATE OR REPLACE. Its
    schema is created where none of its name is there.

    Raises:
        TableNotFoundError: there was no such table then.
        AlreadyExistsError: its name has been given to something else since.
    """
    was = _table_then(connection, tables, then, now, name)
    living = read.table_rows(connection, tables, now.id)
    live = next((row for row in living if row.id == was.id), None)
    homes, created = _homes(connection, tables, [was.schema], then, now, alike=attrgetter("folded"))
    others = [row for row in living if row.qualified.folded == was.qualified.folded and row.id != was.id]
    if others and live is not None:
        raise AlreadyExistsError("table", str(was.qualified))
    if read.find_view(connection, tables, now.id, was.qualified) is not None:
        raise AlreadyExistsError("view", str(was.qualified))
    replaced = tuple(Pair(None, other) for other in others)
    return Scope((Pair(was, live), *replaced), homes, schemas=created)


def _table_then(
    connection: Connection, tables: CatalogTables, then: Snapshot, now: Snapshot, name: QualifiedName
) -> TableRow:
    if named := read.table_rows(connection, tables, then.id, name):
        return named[0]
    for row in read.table_rows(connection, tables, now.id, name):
        for was in read.table_rows(connection, tables, then.id):
            if was.id == row.id:
                return was
    raise TableNotFoundError(str(name), then.id)


def scope_of_schemas(
    connection: Connection, tables: CatalogTables, then: Snapshot, now: Snapshot, schema: SchemaPath | None
) -> Scope:
    """Return all that lay in a schema then, or lies in it now, schemas in it as well; in any schema (None).

    Raises:
        SchemaNotFoundError: there was no such schema then.
    """

    def chosen(at: Snapshot) -> list[SchemaRow]:
        found = read.schemas(connection, tables, at.id)
        return [one for one in found if schema is None or one.name.is_below(schema)]

    old, new = chosen(then), chosen(now)
    if schema is not None and not old:
        raise SchemaNotFoundError(str(schema), then.id)
    homes, created = _homes(connection, tables, old, then, now, alike=attrgetter("parts"))
    kept = {home.ref for home in homes.values()}
    dropped = [DropSchema(one.id, one.name) for one in new if one.id not in kept]
    ids_then, ids_now = {one.id for one in old}, {one.id for one in new}
    of_tables = _pairs(
        _tables_in(connection, tables, then, ids_then),
        _tables_in(connection, tables, now, ids_now),
        lambda row: row.id,
    )
    of_views = _pairs(
        _views_in(connection, tables, then, ids_then),
        _views_in(connection, tables, now, ids_now),
        lambda row: row.id,
    )
    of_macros = _pairs(
        _macros_in(connection, tables, then, old),
        _macros_in(connection, tables, now, new),
        lambda one: one.row.id,
    )
    return Scope(of_tables, homes, of_views, of_macros, (*dropped, *created))


def _homes(  # noqa: PLR0913 - which schemas, of when, and what makes them the same
    connection: Connection,
    tables: CatalogTables,
    old: Iterable[SchemaRow],
    then: Snapshot,
    now: Snapshot,
    *,
    alike: Callable[[SchemaPath], Hashable],
) -> tuple[dict[SchemaId, Home], tuple[CreateSchema, ...]]:
    """Return the schema that takes each one's place: itself, one of its name, or one to be created.

    Names are the same of which ``alike`` makes the same. Those that the schemas lay in have places, too.
    """
    were = {one.id: one for one in read.schemas(connection, tables, then.id)}
    living = read.schemas(connection, tables, now.id)
    by_id, by_name = {one.id: one for one in living}, {alike(one.name): one for one in living}
    uuids = _uuids(connection, tables, then)
    homes: dict[SchemaId, Home] = {}
    created: list[CreateSchema] = []
    for one in _outermost_first(old, were):
        found = by_id.get(one.id) or by_name.get(alike(one.name))
        if found is not None:
            homes[one.id] = Home(found.id, found.name, found.path)
            continue
        above = None if one.parent is None else homes[one.parent]
        name = SchemaPath((*(above.name.parts if above else ()), one.name.name))
        ref, parent = NewSchemaRef(len(created)), above.ref if above else None
        created.append(CreateSchema(ref, name, uuids[one.id], parent, one.path, heir_of=one.id))
        homes[one.id] = Home(ref, name, one.path)
    return homes, tuple(created)


def _outermost_first(some: Iterable[SchemaRow], were: Mapping[SchemaId, SchemaRow]) -> Iterator[SchemaRow]:
    """Yield schemas and all that they lay in, each once and after the one that it lay in."""
    found: dict[SchemaId, SchemaRow] = {}
    for one in some:
        above: SchemaRow | None = one
        while above is not None:
            found[above.id] = above
            above = None if above.parent is None else were[above.parent]
    yield from sorted(found.values(), key=lambda one: (len(one.name.parts), one.id))


def _uuids(connection: Connection, tables: CatalogTables, at: Snapshot) -> dict[SchemaId, str]:
    schema = tables["schema"]
    rows = connection.execute(
        select(schema.c.schema_id, schema.c.schema_uuid).where(read.visible(schema, at.id))
    )
    return {SchemaId(row.schema_id): str(row.schema_uuid) for row in rows}


def _pairs(
    then: Iterable[Thing], now: Iterable[Thing], id_of: Callable[[Thing], Hashable]
) -> tuple[Pair[Thing], ...]:
    old, new = {id_of(one): one for one in then}, {id_of(one): one for one in now}
    return tuple(Pair(old.get(one), new.get(one)) for one in {**old, **new})


def _tables_in(
    connection: Connection, tables: CatalogTables, at: Snapshot, schema_ids: set[SchemaId]
) -> list[TableRow]:
    return [row for row in read.table_rows(connection, tables, at.id) if row.schema.id in schema_ids]


def _views_in(
    connection: Connection, tables: CatalogTables, at: Snapshot, schema_ids: set[SchemaId]
) -> Iterator[ViewRow]:
    names = {one.id: one.name for one in read.schemas(connection, tables, at.id)}
    view = tables["view"]
    rows: Iterable[Any] = connection.execute(select(view).where(read.visible(view, at.id)))
    for row in rows:
        if row.schema_id in schema_ids:
            yield ViewRow(
                ViewId(row.view_id),
                str(row.view_uuid),
                QualifiedName(names[row.schema_id], row.view_name),
                SchemaId(row.schema_id),
                ViewDefinition(row.sql, row.dialect, parse_aliases(row.column_aliases)),
            )


def _macros_in(
    connection: Connection, tables: CatalogTables, at: Snapshot, schemas: Iterable[SchemaRow]
) -> Iterator[PlacedMacro]:
    for schema in schemas:
        for row in read.macros(connection, tables, at.id, schema.id):
            yield PlacedMacro(row, QualifiedName(schema.name, row.name), schema.id)
