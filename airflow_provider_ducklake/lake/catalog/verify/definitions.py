"""Check that definitions are complete: tables, columns and keys, which clients read before any row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ...errors import DuckLakeError
from ...format.defaults import initial_value
from ...format.names.identifiers import schema_circles
from ...format.partitioning import Transform
from ...planning.upkeep.findings import Finding
from ...planning.upkeep.findings import FindingCode as Code
from ..database.connect import asked, columns_newer_than_1_0, superfluous
from ..database.tables import CatalogTables, is_needed
from ..snapshot.inlined_tables import bare_table, inlined_delete_name, inlined_delete_table
from ..snapshot.read import all_schema_parents
from ..snapshot.read_layouts import schema_of
from .scope import Check, Fields, Found, VerificationScope, lacking

if TYPE_CHECKING:
    from ..dialects.dialect import Catalog


def _superfluous_columns(scope: VerificationScope) -> Iterator[Fields]:
    """Yield the tables and columns that the catalog's version does not have."""
    schema = scope.tables.metadata_schema
    found = scope.catalog.dialect.columns_query(tuple(columns_newer_than_1_0()), schema).ask(scope.connection)
    for name in superfluous(found, scope.tables):
        yield {"name": name, "version": scope.tables.version.value}


def _unreadable_columns(scope: VerificationScope) -> Iterator[Fields]:
    """Yield the live tables whose columns no client can read, with what this reader says about them."""
    table, columns = scope.tables["table"], scope.columns
    live = sa.select(table.c.table_id).where(table.c.end_snapshot.is_(None), scope.chosen(table.c.table_id))
    for (table_id,) in scope.all(live):
        try:
            schema = schema_of(columns.live(table_id))
            for column in schema.walk():
                initial_value(column)
            problem = "" if schema.columns else "it has none."
        except DuckLakeError as error:
            problem = str(error)
        if problem:
            yield {"table_id": table_id, "problem": problem}


def _without_schema(scope: VerificationScope) -> Iterator[Fields]:
    schema = scope.tables["schema"]
    parts = []
    for kind in ("table", "view") if scope.is_whole else ("table",):
        table = scope.tables[kind]
        id_ = table.c[f"{kind}_id"]
        is_there = sa.exists().where(schema.c.schema_id == table.c.schema_id, schema.c.end_snapshot.is_(None))
        query = sa.select(sa.literal(kind).label("kind"), id_.label("id"), table.c.schema_id)
        parts.append(query.where(table.c.end_snapshot.is_(None), scope.chosen(id_), ~is_there))
    for row in scope.limited(sa.select(sa.union_all(*parts).subquery())):
        named = scope.table(row.id) if row.kind == "table" else f"view {row.id}"
        yield {**row._asdict(), "named": named}


def _without_parent_schema(scope: VerificationScope) -> Found:
    schema = scope.tables["schema"]
    if "parent_schema_id" not in schema.c:
        return ()
    above = schema.alias()
    is_there = sa.exists().where(
        above.c.schema_id == schema.c.parent_schema_id, above.c.end_snapshot.is_(None)
    )
    return sa.select(
        sa.literal("schema").label("kind"),
        schema.c.schema_id.label("id"),
        schema.c.schema_name,
        schema.c.parent_schema_id.label("schema_id"),
    ).where(schema.c.end_snapshot.is_(None), schema.c.parent_schema_id.is_not(None), ~is_there)


def _without_schema_version(scope: VerificationScope) -> sa.Select[Any]:
    table, versions = scope.tables["table"], scope.tables["schema_versions"]
    is_of_it = versions.c.table_id == table.c.table_id
    return lacking(versions.c.table_id, is_of_it, table.c.table_id).where(
        scope.chosen(table.c.table_id), table.c.end_snapshot.is_(None)
    )


def _unknown_partition_keys(scope: VerificationScope) -> Iterator[Fields]:
    info, key, column = (scope.tables[one] for one in ("partition_info", "partition_column", "column"))
    is_column = sa.exists().where(
        column.c.table_id == key.c.table_id,
        column.c.column_id == key.c.column_id,
        column.c.end_snapshot.is_(None),
    )
    query = (
        sa.select(
            key.c.table_id, key.c.partition_id, key.c.column_id, key.c.transform, is_column.label("known")
        )
        .join(info, sa.and_(info.c.partition_id == key.c.partition_id, info.c.table_id == key.c.table_id))
        .where(info.c.end_snapshot.is_(None), scope.chosen(key.c.table_id))
    )
    for row in scope.all(query):
        if not row.known or not _is_transform(row.transform):
            yield {**row._asdict(), "missing": "transform" if row.known else "column"}


def _is_transform(text: str) -> bool:
    try:
        Transform.parse(text)
    except DuckLakeError:
        return False
    return True


CHECKS = (
    Check(Code.COLUMNS_TOO_NEW, _superfluous_columns, ("name",),
          "The catalog has {name}, which is not in DuckLake {version}, its version: DuckDB inserts by "
          "position, and fails.", of_lake=True),
    Check(Code.COLUMNS_UNREADABLE, _unreadable_columns, ("table_id",),
          "The columns of {table} cannot be read: {problem}"),
    Check(Code.SCHEMA_MISSING, _without_schema, ("kind", "id", "schema_id"),
          "{named} lies in schema {schema_id}, which does not exist."),
    Check(Code.SCHEMA_MISSING, _without_parent_schema, ("kind", "id", "schema_id"),
          "Schema {schema_name} ({id}) lies in schema {schema_id}, which does not exist: it counts as "
          "dropped, with all that lies in it.", of_lake=True),
    Check(Code.SCHEMA_VERSION_MISSING, _without_schema_version, ("table_id",),
          "{table} has no row in ducklake_schema_versions: DuckDB compacts no table of the lake."),
    Check(Code.PARTITION_KEY_UNKNOWN, _unknown_partition_keys, ("table_id", "partition_id", "column_id"),
          "{table} is partitioned by {transform} of column {column_id}: no such {missing}."),
)  # fmt: skip


# What keeps every other check from running: rows without a value that every writer gives them cannot be read,
# and a schema that lies in itself has no full name, and neither has what lies in it.


def missing_values(connection: sa.Connection, catalog: Catalog) -> Iterator[Finding]:
    """Yield the columns of the catalog that are NULL in some rows, and the inlined tables with such rows."""
    found = list(_in_catalog(connection, catalog))
    yield from found or _in_inlined(connection, catalog)  # of which rows of the catalog say the names


def _in_catalog(connection: sa.Connection, catalog: Catalog) -> Iterator[Finding]:
    for kind, table in catalog.tables.items():
        numbers = (
            sa.func.count(sa.case((one.is_(None), 1))).label(one.name) for one in table.c if is_needed(one)
        )
        query = sa.select(*numbers).where(_has_none(table))
        for column, number in connection.execute(query).one()._asdict().items():
            if number:
                yield _missing(f"{table.name}.{column} is NULL", number, kind=kind, column=column)


def _in_inlined(connection: sa.Connection, catalog: Catalog) -> Iterator[Finding]:
    counts = [
        sa.select(sa.literal(one.name).label("name"), sa.func.count().label("number")).where(_has_none(one))
        for one in _inlined_tables(connection, catalog)
    ]
    for row in asked(connection, counts):
        if row.number:
            yield _missing(f"{row.name} lacks a row id, file id or begin_snapshot", row.number, name=row.name)


def _inlined_tables(connection: sa.Connection, catalog: Catalog) -> Iterator[sa.Table]:
    tables = catalog.tables
    existing = catalog.dialect.table_names(connection, tables.metadata_schema)
    registered = connection.execute(sa.select(tables["inlined_data_tables"].c.table_name).distinct())
    for name in registered.scalars():
        if name in existing:
            yield bare_table(name, tables)
    for table_id in connection.execute(sa.select(tables["table"].c.table_id).distinct()).scalars():
        if inlined_delete_name(table_id) in existing:
            yield inlined_delete_table(table_id, tables.metadata_schema)


def _has_none(table: sa.Table) -> sa.ColumnElement[bool]:
    return sa.or_(*(one.is_(None) for one in table.c if is_needed(one)))


def _missing(what: str, number: int, **objects: Any) -> Finding:  # noqa: ANN401 - names
    sentence = f"{what} in {number} rows: nothing else was checked."
    return Finding(Code.VALUE_MISSING, sentence, {**objects, "rows": number})


def schemas_in_circles(connection: sa.Connection, tables: CatalogTables) -> Iterator[Finding]:
    """Yield each circle of schemas that lie in each other."""
    rows = all_schema_parents(connection, tables)
    names = {schema_id: name for schema_id, _, name in rows}
    for circle in schema_circles({schema_id: parent for schema_id, parent, _ in rows}):
        listed = ", ".join(f"{names[one]!r} (id {one})" for one in circle)
        yield Finding(
            Code.SCHEMA_CIRCLE,
            f"The schemas {listed} lie in each other: parent_schema_id leads round in a circle.",
            {"schema_id": min(circle)},
        )
