"""Check that definitions are complete: tables, columns and keys, which clients read before any row."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, and_, case, exists, func, literal, or_, select, union_all

from airflow_provider_ducklake.lake.catalog.database.connect import asked, superfluous, telling
from airflow_provider_ducklake.lake.catalog.database.tables import is_needed
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_tables import (
    bare_table,
    inlined_delete_name,
    inlined_delete_table,
)
from airflow_provider_ducklake.lake.catalog.snapshot.read_layouts import schema_of
from airflow_provider_ducklake.lake.catalog.verify.look import lacking
from airflow_provider_ducklake.lake.errors import DuckLakeError, InvalidTypeError
from airflow_provider_ducklake.lake.planning.upkeep.findings import Finding, FindingCode
from airflow_provider_ducklake.lake.spec.partitioning import Transform
from airflow_provider_ducklake.lake.spec.snapshots import ColumnId
from airflow_provider_ducklake.lake.spec.types.ducklake_types import NOT_STORABLE, catalog_name, parse_type
from airflow_provider_ducklake.lake.spec.types.literals import parse_scalar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection, Row, Table

    from airflow_provider_ducklake.lake.catalog.dialects.dialect import Catalog
    from airflow_provider_ducklake.lake.catalog.verify.look import Look
    from airflow_provider_ducklake.lake.spec.schema import TableSchema
    from airflow_provider_ducklake.lake.spec.types.ducklake_types import DuckLakeType


_CHILDREN = {"list": (1, 1), "map": (2, 2), "struct": (1, 10_000)}  # least and most
_OTHER_SPELLINGS = frozenset({"timestamp_us"})  # that the reference reads and never writes


def check_definitions(look: Look) -> Iterator[Finding]:
    """Yield what is wrong with tables, columns and partition keys as they are now."""
    yield from chain(
        _without_columns(look),
        _without_schema(look),
        _without_parent(look),
        _unknown_types(look),
        _parents(look),
        _children(look),
        _defaults(look),
        _schema_versions(look),
        _partition_keys(look),
    )


def _without_columns(look: Look) -> Iterator[Finding]:
    table, column = look.tables["table"], look.tables["column"]
    joined, has_none = lacking(
        table,
        column.c.table_id,
        and_(
            column.c.table_id == table.c.table_id,
            column.c.end_snapshot.is_(None),
            column.c.parent_column.is_(None),
        ),
    )
    query = (
        select(table.c.table_id)
        .select_from(joined)
        .where(table.c.end_snapshot.is_(None), look.chosen(table.c.table_id), has_none)
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.NO_COLUMNS,
            f"{look.table(row.table_id)} has no column: DuckDB opens no table of the lake.",
            {"table_id": row.table_id},
        )


def _without_schema(look: Look) -> Iterator[Finding]:
    schema = look.tables["schema"]
    parts = []
    for name, id_ in (("table", "table_id"), ("view", "view_id")):
        table = look.tables[name]
        is_live = exists().where(schema.c.schema_id == table.c.schema_id, schema.c.end_snapshot.is_(None))
        chosen = look.chosen(table.c.table_id) if name == "table" else literal(value=True)
        parts.append(
            select(literal(name).label("kind"), table.c[id_].label("id"), table.c.schema_id).where(
                table.c.end_snapshot.is_(None), chosen, ~is_live
            )
        )
    for row in look.few(select(union_all(*parts[: 2 if look.is_whole else 1]).subquery())):
        named = look.table(row.id) if row.kind == "table" else f"view {row.id}"
        yield Finding(
            FindingCode.SCHEMA_MISSING,
            f"{named} lies in schema {row.schema_id}, which does not exist.",
            {"kind": row.kind, "id": row.id, "schema_id": row.schema_id},
        )


def _without_parent(look: Look) -> Iterator[Finding]:
    schema = look.tables["schema"]
    if "parent_schema_id" not in schema.c or not look.is_whole:
        return
    above = schema.alias()
    is_there = exists().where(above.c.schema_id == schema.c.parent_schema_id, above.c.end_snapshot.is_(None))
    query = select(schema.c.schema_id, schema.c.schema_name, schema.c.parent_schema_id).where(
        schema.c.end_snapshot.is_(None), schema.c.parent_schema_id.is_not(None), ~is_there
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.SCHEMA_MISSING,
            f"Schema {row.schema_name} ({row.schema_id}) lies in schema {row.parent_schema_id}, which does "
            "not exist: it counts as dropped, with all that lies in it.",
            {"kind": "schema", "id": row.schema_id, "schema_id": row.parent_schema_id},
        )


def is_known_type(text: str) -> bool:
    """Whether a catalog text is a type, or the word for a nested one."""
    if text in _CHILDREN or text in _OTHER_SPELLINGS:
        return True
    with suppress(InvalidTypeError):
        return catalog_name(parse_type(text)) == text
    return False


def _unknown_types(look: Look) -> Iterator[Finding]:
    column = look.tables["column"]
    types = look.connection.execute(select(column.c.column_type).distinct()).scalars()
    unknown = [one for one in types if not is_known_type(one)]
    query = select(column.c.table_id, column.c.column_id, column.c.column_name, column.c.column_type).where(
        column.c.column_type.in_(unknown), look.chosen(column.c.table_id)
    )
    for row in look.few(query) if unknown else ():
        yield Finding(
            FindingCode.TYPE_UNKNOWN,
            f"Column {row.column_name} of {look.table(row.table_id)} has the type {row.column_type!r}, "
            "which the format does not have.",
            {"table_id": row.table_id, "column_id": row.column_id},
        )


def _parents(look: Look) -> Iterator[Finding]:
    column = look.tables["column"]
    parent = column.alias("parent")
    joined, has_none = lacking(
        column,
        parent.c.column_id,
        and_(
            parent.c.table_id == column.c.table_id,
            parent.c.column_id == column.c.parent_column,
            parent.c.end_snapshot.is_(None),
            parent.c.column_type.in_(_CHILDREN),
        ),
    )
    query = (
        select(column.c.table_id, column.c.column_id, column.c.column_name, column.c.parent_column)
        .select_from(joined)
        .where(
            column.c.end_snapshot.is_(None),
            column.c.parent_column.is_not(None),
            look.chosen(column.c.table_id),
            has_none,
        )
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.PARENT_MISSING,
            f"Field {row.column_name} of {look.table(row.table_id)} lies below column {row.parent_column}, "
            "which is not one of its nested columns.",
            {"table_id": row.table_id, "column_id": row.column_id},
        )


def _children(look: Look) -> Iterator[Finding]:
    column = look.tables["column"]
    child = column.alias("child")
    count = func.count(child.c.column_id)
    query = (
        select(
            column.c.table_id,
            column.c.column_id,
            column.c.column_name,
            column.c.column_type,
            count.label("fields"),
        )
        .outerjoin(
            child,
            and_(
                child.c.table_id == column.c.table_id,
                child.c.parent_column == column.c.column_id,
                child.c.end_snapshot.is_(None),
            ),
        )
        .where(
            column.c.end_snapshot.is_(None),
            column.c.column_type.in_(_CHILDREN),
            look.chosen(column.c.table_id),
        )
        .group_by(column.c.table_id, column.c.column_id, column.c.column_name, column.c.column_type)
        .having(or_(*(_is_other(column.c.column_type, count, word) for word in _CHILDREN)))
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.CHILDREN_WRONG,
            f"Column {row.column_name} of {look.table(row.table_id)} is a {row.column_type} with "
            f"{row.fields} fields.",
            {"table_id": row.table_id, "column_id": row.column_id},
        )


def _is_other(type_: ColumnElement[str], count: ColumnElement[int], word: str) -> ColumnElement[bool]:
    least, most = _CHILDREN[word]
    return and_(type_ == word, or_(count < least, count > most))


def _defaults(look: Look) -> Iterator[Finding]:
    column = look.tables["column"]
    query = select(
        column.c.table_id,
        column.c.column_id,
        column.c.column_name,
        column.c.column_type,
        column.c.initial_default,
    ).where(
        column.c.initial_default.is_not(None),
        column.c.end_snapshot.is_(None),
        look.chosen(column.c.table_id),
    )
    for row in look.all(query):
        if not _is_default(row.column_type, row.initial_default):
            yield Finding(
                FindingCode.DEFAULT_UNREADABLE,
                f"The initial default {row.initial_default!r} of column {row.column_name} of "
                f"{look.table(row.table_id)} is not a valid {row.column_type}.",
                {"table_id": row.table_id, "column_id": row.column_id},
            )


def _is_default(type_text: str, default: str) -> bool:
    if type_text in _CHILDREN or type_text in NOT_STORABLE or not is_known_type(type_text):
        return True  # nobody reads it, or the type is the finding
    try:
        parse_scalar(parse_type(type_text), default)
    except (ValueError, ArithmeticError):
        return False
    return True


def _schema_versions(look: Look) -> Iterator[Finding]:
    table, versions = look.tables["table"], look.tables["schema_versions"]
    joined, has_none = lacking(table, versions.c.table_id, versions.c.table_id == table.c.table_id)
    query = (
        select(table.c.table_id)
        .select_from(joined)
        .where(look.chosen(table.c.table_id), table.c.end_snapshot.is_(None), has_none)
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.SCHEMA_VERSION_MISSING,
            f"{look.table(row.table_id)} has no row in ducklake_schema_versions: DuckDB compacts no table "
            "of the lake.",
            {"table_id": row.table_id},
        )


def _partition_keys(look: Look) -> Iterator[Finding]:
    info, key, column = (look.tables[one] for one in ("partition_info", "partition_column", "column"))
    exists_now = exists().where(
        column.c.table_id == key.c.table_id,
        column.c.column_id == key.c.column_id,
        column.c.end_snapshot.is_(None),
    )
    query = (
        select(
            key.c.table_id, key.c.partition_id, key.c.column_id, key.c.transform, exists_now.label("known")
        )
        .join(info, and_(info.c.partition_id == key.c.partition_id, info.c.table_id == key.c.table_id))
        .where(info.c.end_snapshot.is_(None), look.chosen(key.c.table_id))
    )
    for row in look.all(query):
        if not row.known or not _is_transform(row.transform):
            yield Finding(
                FindingCode.PARTITION_KEY_UNKNOWN,
                f"{look.table(row.table_id)} is partitioned by {row.transform} of column {row.column_id}: "
                f"{'no such transform' if row.known else 'no such column'}.",
                {"table_id": row.table_id, "partition_id": row.partition_id, "column_id": row.column_id},
            )


def _is_transform(text: str) -> bool:
    try:
        Transform.parse(text)
    except DuckLakeError:
        return False
    return True


# The columns that tables have had at each snapshot, read at once.


_NESTED = ("list", "struct", "map")


class Columns:
    """Every row of ``ducklake_column`` of the tables looked at."""

    def __init__(self, look: Look) -> None:
        self._rows: dict[int, list[Row[Any]]] = {}
        self._layouts: dict[tuple[int, int], TableSchema | None] = {}
        self._turns: dict[int, list[int]] = {}
        column = look.tables["column"]
        query = (
            select(column)
            .where(look.chosen(column.c.table_id))
            .order_by(column.c.column_order, column.c.column_id)
        )
        for row in look.all(query):
            self._rows.setdefault(row.table_id, []).append(row)

    def types(self, table_id: int) -> dict[ColumnId, tuple[DuckLakeType, ...]]:
        """Return the types that each column without fields has had, those we know, the newest last."""
        found: dict[ColumnId, dict[DuckLakeType, None]] = {}
        for row in sorted(self._rows.get(table_id, ()), key=lambda one: one.begin_snapshot):
            if row.column_type not in _NESTED and is_known_type(row.column_type):
                found.setdefault(ColumnId(row.column_id), {})[parse_type(row.column_type)] = None
        return {column_id: tuple(types) for column_id, types in found.items()}

    def at(self, table_id: int, snapshot: int) -> TableSchema | None:
        """Return the columns that a table had at a snapshot; None where they make no schema."""
        place = bisect_right(self._turns_of(table_id), snapshot)
        if (table_id, place) not in self._layouts:
            self._layouts[table_id, place] = _schema(self._rows.get(table_id, ()), snapshot)
        return self._layouts[table_id, place]

    def _turns_of(self, table_id: int) -> list[int]:
        if table_id not in self._turns:
            rows = self._rows.get(table_id, ())
            begins = {row.begin_snapshot for row in rows}
            ends = {row.end_snapshot for row in rows if row.end_snapshot is not None}
            self._turns[table_id] = sorted(begins | ends)
        return self._turns[table_id]


def _schema(rows: Sequence[Row[Any]], at: int) -> TableSchema | None:
    visible = [
        row
        for row in rows
        if row.begin_snapshot <= at and (row.end_snapshot is None or at < row.end_snapshot)
    ]
    try:
        return schema_of(visible)
    except (DuckLakeError, IndexError):
        return None


# Check that the catalog's own tables have no columns of a newer version: DuckDB inserts by position.


def check_columns(look: Look) -> Iterator[Finding]:
    """Yield the tables and columns that the catalog's version does not have."""
    schema = look.tables.metadata_schema
    found = look.catalog.dialect.which_columns(tuple(telling()), schema).ask(look.connection)
    for name in superfluous(found, look.tables):
        yield Finding(
            FindingCode.COLUMNS_TOO_NEW,
            f"The catalog has {name}, which is not in DuckLake {look.tables.version.value}, its version: "
            "DuckDB inserts by position, and fails.",
            {"name": name},
        )


# Check that no row lacks a value that every writer gives it: such a row cannot be read.


def missing_values(connection: Connection, catalog: Catalog) -> Iterator[Finding]:
    """Yield the columns of the catalog that are NULL in some rows, and the inlined tables with such rows."""
    found = list(_in_catalog(connection, catalog))
    yield from found or _in_inlined(connection, catalog)  # of which rows of the catalog say the names


def _in_catalog(connection: Connection, catalog: Catalog) -> Iterator[Finding]:
    for kind, table in catalog.tables.items():
        numbers = (func.count(case((one.is_(None), 1))).label(one.name) for one in table.c if is_needed(one))
        query = select(*numbers).where(_has_none(table))
        for column, number in connection.execute(query).one()._asdict().items():
            if number:
                yield _missing(f"{table.name}.{column} is NULL", number, kind=kind, column=column)


def _in_inlined(connection: Connection, catalog: Catalog) -> Iterator[Finding]:
    counts = [
        select(literal(one.name).label("name"), func.count().label("number")).where(_has_none(one))
        for one in _inlined_tables(connection, catalog)
    ]
    for row in asked(connection, counts):
        if row.number:
            yield _missing(f"{row.name} lacks a row id, file id or begin_snapshot", row.number, name=row.name)


def _inlined_tables(connection: Connection, catalog: Catalog) -> Iterator[Table]:
    tables = catalog.tables
    existing = catalog.dialect.table_names(connection, tables.metadata_schema)
    registered = connection.execute(select(tables["inlined_data_tables"].c.table_name).distinct())
    for name in registered.scalars():
        if name in existing:
            yield bare_table(name, tables)
    for table_id in connection.execute(select(tables["table"].c.table_id).distinct()).scalars():
        if inlined_delete_name(table_id) in existing:
            yield inlined_delete_table(table_id, tables.metadata_schema)


def _has_none(table: Table) -> ColumnElement[bool]:
    return or_(*(one.is_(None) for one in table.c if is_needed(one)))


def _missing(what: str, number: int, **objects: Any) -> Finding:  # noqa: ANN401 - names
    sentence = f"{what} in {number} rows: nothing else was checked."
    return Finding(FindingCode.VALUE_MISSING, sentence, {**objects, "rows": number})
