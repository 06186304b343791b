"""Check that definitions are complete: tables, columns and keys, which clients read before any row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ...errors import DuckLakeError
from ...format.names.identifiers import schema_circles
from ...format.partitioning import Transform
from ...format.types.ducklake_types import NOT_STORABLE, parse_type
from ...format.types.literals import parse_scalar
from ...planning.upkeep.findings import Finding
from ...planning.upkeep.findings import FindingCode as Code
from ..database.connect import asked, superfluous, telling
from ..database.tables import CatalogTables, is_needed
from ..snapshot.inlined_tables import bare_table, inlined_delete_name, inlined_delete_table
from ..snapshot.read import all_schema_parents
from .look import CHILDREN, Check, Fields, Found, VerificationScope, is_known_type, lacking

if TYPE_CHECKING:
    from ..dialects.dialect import Catalog


def _superfluous_columns(look: VerificationScope) -> Iterator[Fields]:
    """Yield the tables and columns that the catalog's version does not have."""
    schema = look.tables.metadata_schema
    found = look.catalog.dialect.which_columns(tuple(telling()), schema).ask(look.connection)
    for name in superfluous(found, look.tables):
        yield {"name": name, "version": look.tables.version.value}


def _without_columns(look: VerificationScope) -> sa.Select[Any]:
    table, column = look.tables["table"], look.tables["column"]
    is_live, is_top = column.c.end_snapshot.is_(None), column.c.parent_column.is_(None)
    is_of_it = sa.and_(column.c.table_id == table.c.table_id, is_live, is_top)
    return lacking(column.c.table_id, is_of_it, table.c.table_id).where(
        table.c.end_snapshot.is_(None), look.chosen(table.c.table_id)
    )


def _without_schema(look: VerificationScope) -> Iterator[Fields]:
    schema = look.tables["schema"]
    parts = []
    for kind in ("table", "view") if look.is_whole else ("table",):
        table = look.tables[kind]
        id_ = table.c[f"{kind}_id"]
        is_there = sa.exists().where(schema.c.schema_id == table.c.schema_id, schema.c.end_snapshot.is_(None))
        query = sa.select(sa.literal(kind).label("kind"), id_.label("id"), table.c.schema_id)
        parts.append(query.where(table.c.end_snapshot.is_(None), look.chosen(id_), ~is_there))
    for row in look.limited(sa.select(sa.union_all(*parts).subquery())):
        named = look.table(row.id) if row.kind == "table" else f"view {row.id}"
        yield {**row._asdict(), "named": named}


def _without_parent_schema(look: VerificationScope) -> Found:
    schema = look.tables["schema"]
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


def _unknown_types(look: VerificationScope) -> Found:
    column = look.tables["column"]
    types = look.connection.execute(sa.select(column.c.column_type).distinct()).scalars()
    unknown = [one for one in types if not is_known_type(one)]
    query = sa.select(column.c.table_id, column.c.column_id, column.c.column_name, column.c.column_type)
    return query.where(column.c.column_type.in_(unknown), look.chosen(column.c.table_id)) if unknown else ()


def _without_parent(look: VerificationScope) -> sa.Select[Any]:
    column = look.tables["column"]
    parent = column.alias("parent")
    is_its = sa.and_(
        parent.c.table_id == column.c.table_id,
        parent.c.column_id == column.c.parent_column,
        parent.c.end_snapshot.is_(None),
        parent.c.column_type.in_(CHILDREN),
    )
    shown = column.c.table_id, column.c.column_id, column.c.column_name, column.c.parent_column
    return lacking(parent.c.column_id, is_its, *shown).where(
        column.c.end_snapshot.is_(None),
        column.c.parent_column.is_not(None),
        look.chosen(column.c.table_id),
    )


def _other_children(look: VerificationScope) -> sa.Select[Any]:
    column = look.tables["column"]
    child = column.alias("child")
    is_its = sa.and_(
        child.c.table_id == column.c.table_id,
        child.c.parent_column == column.c.column_id,
        child.c.end_snapshot.is_(None),
    )
    count, type_ = sa.func.count(child.c.column_id), column.c.column_type
    shown = column.c.table_id, column.c.column_id, column.c.column_name, type_
    return (
        sa.select(*shown, count.label("fields"))
        .outerjoin(child, is_its)
        .where(column.c.end_snapshot.is_(None), type_.in_(CHILDREN), look.chosen(column.c.table_id))
        .group_by(*shown)
        .having(
            sa.or_(
                *(
                    sa.and_(type_ == word, sa.or_(count < least, count > most))
                    for word, (least, most) in CHILDREN.items()
                )
            )
        )
    )


def _unreadable_defaults(look: VerificationScope) -> Iterator[sa.Row[Any]]:
    column = look.tables["column"]
    shown = column.c.table_id, column.c.column_id, column.c.column_name, column.c.column_type
    query = sa.select(*shown, column.c.initial_default).where(
        column.c.initial_default.is_not(None),
        column.c.end_snapshot.is_(None),
        look.chosen(column.c.table_id),
    )
    return (row for row in look.all(query) if not _is_default(row.column_type, row.initial_default))


def _is_default(type_text: str, default: str) -> bool:
    if type_text in CHILDREN or type_text in NOT_STORABLE or not is_known_type(type_text):
        return True  # no client reads it, or the type is the finding
    try:
        parse_scalar(parse_type(type_text), default)
    except (ValueError, ArithmeticError):
        return False
    return True


def _without_schema_version(look: VerificationScope) -> sa.Select[Any]:
    table, versions = look.tables["table"], look.tables["schema_versions"]
    is_of_it = versions.c.table_id == table.c.table_id
    return lacking(versions.c.table_id, is_of_it, table.c.table_id).where(
        look.chosen(table.c.table_id), table.c.end_snapshot.is_(None)
    )


def _unknown_partition_keys(look: VerificationScope) -> Iterator[Fields]:
    info, key, column = (look.tables[one] for one in ("partition_info", "partition_column", "column"))
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
        .where(info.c.end_snapshot.is_(None), look.chosen(key.c.table_id))
    )
    for row in look.all(query):
        if not row.known or not _is_transform(row.transform):
            yield {**row._asdict(), "missing": "transform" if row.known else "column"}


def _is_transform(text: str) -> bool:
    try:
        Transform.parse(text)
    except DuckLakeError:
        return False
    return True


def _macros_without_text(look: VerificationScope) -> sa.Select[Any]:
    macro, text = look.tables["macro"], look.tables["macro_impl"]
    is_of_it = text.c.macro_id == macro.c.macro_id
    found = lacking(text.c.macro_id, is_of_it, macro.c.macro_id, macro.c.macro_name)
    return found.where(macro.c.end_snapshot.is_(None))


CHECKS = (
    Check(Code.COLUMNS_TOO_NEW, _superfluous_columns, ("name",),
          "The catalog has {name}, which is not in DuckLake {version}, its version: DuckDB inserts by "
          "position, and fails.", of_lake=True),
    Check(Code.NO_COLUMNS, _without_columns, ("table_id",),
          "{table} has no column: DuckDB opens no table of the lake."),
    Check(Code.SCHEMA_MISSING, _without_schema, ("kind", "id", "schema_id"),
          "{named} lies in schema {schema_id}, which does not exist."),
    Check(Code.SCHEMA_MISSING, _without_parent_schema, ("kind", "id", "schema_id"),
          "Schema {schema_name} ({id}) lies in schema {schema_id}, which does not exist: it counts as "
          "dropped, with all that lies in it.", of_lake=True),
    Check(Code.TYPE_UNKNOWN, _unknown_types, ("table_id", "column_id"),
          "Column {column_name} of {table} has the type {column_type!r}, which the format does not have."),
    Check(Code.PARENT_MISSING, _without_parent, ("table_id", "column_id"),
          "Field {column_name} of {table} lies below column {parent_column}, which is not one of its nested "
          "columns."),
    Check(Code.CHILDREN_WRONG, _other_children, ("table_id", "column_id"),
          "Column {column_name} of {table} is a {column_type} with {fields} fields."),
    Check(Code.DEFAULT_UNREADABLE, _unreadable_defaults, ("table_id", "column_id"),
          "The initial default {initial_default!r} of column {column_name} of {table} is not a valid "
          "{column_type}."),
    Check(Code.SCHEMA_VERSION_MISSING, _without_schema_version, ("table_id",),
          "{table} has no row in ducklake_schema_versions: DuckDB compacts no table of the lake."),
    Check(Code.PARTITION_KEY_UNKNOWN, _unknown_partition_keys, ("table_id", "partition_id", "column_id"),
          "{table} is partitioned by {transform} of column {column_id}: no such {missing}."),
    Check(Code.MACRO_EMPTY, _macros_without_text, ("macro_id",),
          "Macro {macro_name} has no row in ducklake_macro_impl: DuckDB opens no table of the lake.",
          of_lake=True),
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
