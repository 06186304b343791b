"""The steps of a migration: fill and repair rows; add, rename, convert and drop tables and columns.

A step that fills or repairs is a handful of statements, all in one transaction. They find all columns of the
version that the catalog is migrated to, besides those that it dropped. *Source:* docs/sources.md, versions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateTable, DDLElement

from ...errors import CatalogError
from ...format.names.identifiers import fold
from ...format.types.ducklake_types import TEXTS, ScalarType
from ...format.versions import NEWEST, SpecVersion, write_version
from ...planning.upkeep.migration import (
    column_ids_of_ordinals,
    lost_defaults,
    missing_schema_versions,
    misspelled_bounds,
    renamed_columns,
    versions_of_tables,
)
from ..database.tables import CatalogTables, catalog_tables, maybe
from ..dialects.bootstrap import AddColumn
from ..snapshot.inlined_tables import INLINED_SCALARS, inlined_table_name
from ..snapshot.read_layouts import layout_schema

if TYPE_CHECKING:
    from sqlalchemy.sql.compiler import DDLCompiler
    from sqlalchemy.types import TypeEngine

    from ..dialects.dialect import CatalogDialect


# What older writers left behind that the migration to 1.1 repairs; done twice, it does nothing more.
_DEFAULT = ("initial_default", "default_value", "default_value_type", "default_value_dialect")
_STATISTICS = ("min_value", "max_value", "min_is_exact", "max_is_exact")


def schema_versions(connection: sa.Connection, tables: CatalogTables, _version: SpecVersion) -> None:
    """Add the first snapshots of those schema versions that have a table for inlined rows."""
    own, inlined, snapshot = tables["schema_versions"], tables["inlined_data_tables"], tables["snapshot"]
    registered = connection.execute(sa.select(inlined.c.table_id, inlined.c.schema_version)).all()
    if not registered:
        return
    known = connection.execute(sa.select(own.c.begin_snapshot, own.c.schema_version, own.c.table_id)).all()
    snapshots = connection.execute(
        sa.select(snapshot.c.snapshot_id, snapshot.c.schema_version).order_by(snapshot.c.snapshot_id)
    ).all()
    rows = missing_schema_versions(
        [(row.snapshot_id, row.schema_version) for row in snapshots],
        [(row.table_id, row.schema_version) for row in registered],
        [(row.begin_snapshot, row.schema_version, row.table_id) for row in known],
    )
    if rows:
        names = ("begin_snapshot", "schema_version", "table_id")
        connection.execute(own.insert(), [dict(zip(names, row, strict=True)) for row in rows])


def field_defaults(connection: sa.Connection, tables: CatalogTables, _version: SpecVersion) -> None:
    """Give nested fields the default back that they had before a rename."""
    column = tables["column"]
    names = ("table_id", "column_id", "begin_snapshot", *_DEFAULT)
    is_nested = column.c.parent_column.is_not(None)
    fields = connection.execute(sa.select(*(column.c[name] for name in names)).where(is_nested))
    lost = lost_defaults((table, one, begin, tuple(default)) for table, one, begin, *default in fields)
    is_it = (
        (column.c.table_id == sa.bindparam("table"))
        & (column.c.column_id == sa.bindparam("id"))
        & (column.c.begin_snapshot == sa.bindparam("begin"))
    )
    statement = sa.update(column).where(is_it).values({one: sa.bindparam(f"new_{one}") for one in _DEFAULT})
    rows = [
        {"table": table, "id": one, "begin": begin}
        | {f"new_{name}": value for name, value in zip(_DEFAULT, default, strict=True)}
        for table, one, begin, default in lost
    ]
    if rows:
        connection.execute(statement, rows)


def retyped_bounds(connection: sa.Connection, tables: CatalogTables, _version: SpecVersion) -> None:
    """Remove bounds that may be spelled in the way of an earlier type of the column.

    A table's row goes, since DuckDB takes one without bounds for that of an empty table.
    """
    column, file, own = (tables[one] for one in ("column", "file_column_stats", "table_column_stats"))
    several = (
        sa.select(column.c.table_id, column.c.column_id)
        .group_by(column.c.table_id, column.c.column_id)
        .having(sa.func.count(column.c.column_type.distinct()) > 1)
        .subquery()
    )
    types = connection.execute(
        sa.select(column.c.table_id, column.c.column_id, column.c.column_type).join(
            several, (several.c.table_id == column.c.table_id) & (several.c.column_id == column.c.column_id)
        )
    )
    keys = [{"table": table, "id": one} for table, one in misspelled_bounds(tuple(row) for row in types)]
    if not keys:
        return
    forget = sa.update(file).where(
        file.c.table_id == sa.bindparam("table"), file.c.column_id == sa.bindparam("id")
    )
    connection.execute(forget.values(dict.fromkeys(_STATISTICS)), keys)
    is_it = (own.c.table_id == sa.bindparam("table")) & (own.c.column_id == sa.bindparam("id"))
    connection.execute(own.delete().where(is_it), keys)


@dataclass(frozen=True, slots=True)
class Fill:
    """A step for catalogs before a version: in words, and as a function of a connection and new tables."""

    before: SpecVersion
    what: str
    run: Callable[[sa.Connection, CatalogTables, SpecVersion], None]


def fills_of(version: SpecVersion, target: SpecVersion) -> tuple[Fill, ...]:
    """List the steps that fill rows between two versions, in order."""
    return tuple(one for one in _FILLS if version < one.before <= target)


def _folders(connection: sa.Connection, tables: CatalogTables, _version: SpecVersion) -> None:
    """All files of 0.1 lie in the data path itself."""
    for name in ("schema", "table"):
        connection.execute(sa.update(tables[name]).values(path="", path_is_relative=True))


def _partition_columns(connection: sa.Connection, tables: CatalogTables, _version: SpecVersion) -> None:
    key = tables["partition_column"]
    rows = connection.execute(sa.select(key.c.partition_id, key.c.partition_key_index, key.c.column_id)).all()
    if not rows:
        return
    ids = column_ids_of_ordinals(
        ((row.partition_id, row.column_id) for row in rows), _columns_at_start(connection, tables)
    )
    statement = sa.update(key).where(
        key.c.partition_id == sa.bindparam("partition"), key.c.partition_key_index == sa.bindparam("place")
    )
    connection.execute(
        statement.values(column_id=sa.bindparam("id")),
        [
            {"partition": row.partition_id, "place": row.partition_key_index, "id": column_id}
            for row, column_id in zip(rows, ids, strict=True)
        ],
    )


def why_not_keyed(connection: sa.Connection, tables: CatalogTables) -> tuple[str, ...]:
    """List the partition keys of 0.1 that name no column, each with what to do; none since 0.2."""
    if tables.version >= SpecVersion.V0_2:
        return ()
    key = tables["partition_column"]
    columns, found = _columns_at_start(connection, tables), []
    for row in connection.execute(sa.select(key.c.partition_id, key.c.column_id)):
        try:
            column_ids_of_ordinals([(row.partition_id, row.column_id)], columns)
        except CatalogError as error:
            found.append(str(error))
    return tuple(found)


def _columns_at_start(connection: sa.Connection, tables: CatalogTables) -> dict[int, list[int]]:
    """Return the top-level columns of each partitioning's table when it began, in order."""
    info, column = tables["partition_info"], tables["column"]
    rows = connection.execute(
        sa.select(info.c.partition_id, column.c.column_id)
        .join(column, column.c.table_id == info.c.table_id)
        .where(
            column.c.parent_column.is_(None),
            column.c.begin_snapshot <= info.c.begin_snapshot,
            column.c.end_snapshot.is_(None) | (column.c.end_snapshot > info.c.begin_snapshot),
        )
        .order_by(info.c.partition_id, column.c.column_order, column.c.column_id)
    )
    found = defaultdict(list)
    for row in rows:
        found[row.partition_id].append(row.column_id)
    return found


def _mappings(connection: sa.Connection, tables: CatalogTables, _version: SpecVersion) -> None:
    connection.execute(sa.update(tables["name_mapping"]).values(is_partition=False))


_OF_TABLE = ("column", "column_tag", "data_file", "delete_file", "partition_info")


def _dropped_tables(connection: sa.Connection, tables: CatalogTables, _version: SpecVersion) -> None:
    """0.2 ended no row but the table's own."""
    table = tables["table"]
    live = sa.select(table.c.table_id).where(table.c.end_snapshot.is_(None))
    for name in _OF_TABLE:
        row = tables[name]
        dropped_at = (
            sa.select(sa.func.max(table.c.end_snapshot))
            .where(table.c.table_id == row.c.table_id)
            .scalar_subquery()
        )
        is_left = row.c.end_snapshot.is_(None) & row.c.table_id.not_in(live)
        connection.execute(sa.update(row).where(is_left).values(end_snapshot=dropped_at))


def _schema_versions(connection: sa.Connection, tables: CatalogTables, version: SpecVersion) -> None:
    """Before 0.4 the whole lake has them, before 0.3 only its snapshots say so."""
    own = tables["schema_versions"]
    rows = versions_of_tables(_changes_of_tables(connection, tables), _versions(connection, tables, version))
    connection.execute(own.delete())
    if rows:
        names = ("begin_snapshot", "schema_version", "table_id")
        connection.execute(own.insert(), [dict(zip(names, row, strict=True)) for row in rows])


def _versions(
    connection: sa.Connection, tables: CatalogTables, version: SpecVersion
) -> list[tuple[int, int]]:
    """Return the first snapshots of the schema versions, as far as they are left, ascending."""
    snapshot, own = tables["snapshot"], tables["schema_versions"]
    query = sa.select(snapshot.c.snapshot_id, snapshot.c.schema_version)
    if version == SpecVersion.V0_3:
        query = sa.select(own.c.begin_snapshot, own.c.schema_version)
    first: dict[int, int] = {}
    for begin, schema_version in sorted(tuple(row) for row in connection.execute(query)):
        first.setdefault(schema_version, begin)
    return [(begin, schema_version) for schema_version, begin in first.items()]


def _changes_of_tables(connection: sa.Connection, tables: CatalogTables) -> Iterable[tuple[int, int]]:
    """List tables with the snapshots at which they, their columns or their partitioning began or ended."""
    table, column, info = tables["table"], tables["column"], tables["partition_info"]
    changes = sa.union(
        *(sa.select(one.c.table_id, one.c.begin_snapshot.label("snapshot")) for one in (table, column, info)),
        sa.select(column.c.table_id, column.c.end_snapshot).where(column.c.end_snapshot.is_not(None)),
    )
    ended = sa.select(table.c.table_id, sa.func.max(table.c.end_snapshot)).group_by(table.c.table_id)
    live = set(
        connection.execute(sa.select(table.c.table_id).where(table.c.end_snapshot.is_(None))).scalars()
    )
    dropped = {(one, end) for one, end in connection.execute(ended) if one not in live}
    present = {one for one, _ in dropped} | live
    return [
        (one, snapshot)
        for one, snapshot in connection.execute(changes)
        if one in present and (one, snapshot) not in dropped
    ]


def _defaults(connection: sa.Connection, tables: CatalogTables, _version: SpecVersion) -> None:
    column = tables["column"]
    connection.execute(sa.update(column).values(default_value_type="literal", default_value_dialect="duckdb"))
    is_nested = column.c.column_type.in_(("struct", "list", "map"))
    connection.execute(sa.update(column).where(is_nested).values(default_value_type=""))
    no_default = column.c.default_value.is_(None)
    connection.execute(sa.update(column).where(no_default).values(default_value="NULL"))


def _table_statistics(connection: sa.Connection, tables: CatalogTables, _version: SpecVersion) -> None:
    """Forget bounds that do not cover a file's, which older clients left: the next insert trusts them.

    Without a row DuckDB looks at every file; with one that is too narrow it leaves rows out.
    """
    own, file = tables["table_column_stats"], tables["file_column_stats"]
    unknown = sa.case(
        ((file.c.value_count > 0) & (file.c.min_value.is_(None) | file.c.max_value.is_(None)), 1)
    )
    known = sa.select(
        file.c.table_id,
        file.c.column_id,
        sa.func.count(file.c.min_value).label("known"),
        sa.func.count(unknown),
    ).group_by(file.c.table_id, file.c.column_id)
    facts = {(table, column): counts for table, column, *counts in connection.execute(known)}
    rows = connection.execute(sa.select(own.c.table_id, own.c.column_id, own.c.min_value, own.c.max_value))
    narrow = [
        {"table": row.table_id, "column": row.column_id}
        for row in rows
        for known_count, unknown_count in [facts.get((row.table_id, row.column_id), (0, 0))]
        if (known_count if None in (row.min_value, row.max_value) else unknown_count)
    ]
    if narrow:
        is_it = (own.c.table_id == sa.bindparam("table")) & (own.c.column_id == sa.bindparam("column"))
        connection.execute(own.delete().where(is_it), narrow)


_FILLS = (
    Fill(SpecVersion.V0_2, "schemas and tables: their files lie in the data path itself", _folders),
    Fill(SpecVersion.V0_2, "partition keys: name columns by their ids", _partition_columns),
    Fill(SpecVersion.V0_3, "name mappings: no value lies in a folder's name", _mappings),
    Fill(SpecVersion.V0_3, "dropped tables: end their columns and files with them", _dropped_tables),
    Fill(SpecVersion.V0_4, "schema versions: of each table, instead of the lake", _schema_versions),
    Fill(SpecVersion.V0_4, "table statistics: forget bounds that leave a file out", _table_statistics),
    Fill(SpecVersion.V0_4, "columns: the default is a literal, NULL where there was none", _defaults),
    Fill(SpecVersion.V1_1, "schema versions: add those that inlined rows need", schema_versions),
    Fill(SpecVersion.V1_1, "nested fields: restore defaults that a rename lost", field_defaults),
    Fill(SpecVersion.V1_1, "statistics: forget bounds of columns whose type has changed", retyped_bounds),
)


# The tables and columns that an older catalog lacks or has in excess, and the DDL that corrects it.
#
# ``catalog/database/tables.py`` says what belongs there; what is there is looked up, so half a migration is
# finished by the same rule. Each change is one statement: where DDL is no part of a transaction, a kill
# leaves whole ones.


Found = dict[str, list[str]]  # table → columns, in order
_OLDEST = SpecVersion.V0_1


class _RenameTable(DDLElement):
    def __init__(self, old: sa.Table, new: sa.Table) -> None:
        self.old, self.new = old, new


class _DropColumn(DDLElement):
    def __init__(self, column: sa.Column[Any]) -> None:
        self.column = column


@compiles(_RenameTable)
def _rename_table(element: _RenameTable, compiler: DDLCompiler, **_: object) -> str:
    old, new = compiler.preparer.format_table(element.old), compiler.preparer.quote(element.new.name)
    return f"ALTER TABLE {old} RENAME TO {new}"


@compiles(_RenameTable, "mysql")
def _rename_with_schema(element: _RenameTable, compiler: DDLCompiler, **_: object) -> str:
    old, new = (compiler.preparer.format_table(one) for one in (element.old, element.new))
    return f"ALTER TABLE {old} RENAME TO {new}"


@compiles(_DropColumn)
def _drop_column(element: _DropColumn, compiler: DDLCompiler, **_: object) -> str:
    table = compiler.preparer.format_table(element.column.table)
    return f"ALTER TABLE {table} DROP COLUMN {compiler.preparer.format_column(element.column)}"


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """One DDL statement, and what it does in words."""

    what: str
    ddl: DDLElement


def found_layout(connection: sa.Connection, dialect: CatalogDialect, schema: str | None) -> Found:
    """List the catalog's tables that any version of the format has, with their columns."""
    known = {
        table.name
        for version in (_OLDEST, NEWEST)
        for table in catalog_tables(version, schema).metadata.sorted_tables
    }
    names = dialect.table_names(connection, schema) & known
    return {name: dialect.column_names(connection, name, schema) for name in sorted(names)}


def growth(found: Mapping[str, Sequence[str]], target: CatalogTables) -> Iterator[LayoutChange]:
    """Plan the changes that add all that the target has; columns that it no longer has stay until later."""
    former = _former_names(target)
    for table in target.metadata.sorted_tables:
        old = former.get(table.name)
        columns = found.get(table.name)
        if columns is None and old is not None and old.name in found:
            yield LayoutChange(f"rename table {old.name} to {table.name}", _RenameTable(old, table))
            columns = found[old.name]
        if columns is None:
            yield LayoutChange(f"create table {table.name}", CreateTable(table))
            continue
        for column in table.columns:
            if column.name not in columns:
                yield LayoutChange(f"add column {table.name}.{column.name}", AddColumn(column))


def shrinkage(found: Mapping[str, Sequence[str]], target: CatalogTables) -> tuple[LayoutChange, ...]:
    """Return the changes that drop the columns that the target no longer has: the data in them is lost."""
    return tuple(
        LayoutChange(f"drop column {column.table.name}.{column.name}", _DropColumn(column))
        for column in _outdated(target)
        if column.name in found.get(column.table.name, ())
    )


def why_not_ordered(found: Mapping[str, Sequence[str]], target: CatalogTables) -> Iterator[str]:
    """List the tables whose columns would not be in the target's order: DuckDB inserts by position."""
    former = _former_names(target)
    outdated = {(column.table.name, column.name) for column in _outdated(target)}
    for table in target.metadata.sorted_tables:
        old = former.get(table.name)
        columns = found.get(table.name) or found.get(old.name if old is not None else "") or []
        kept = [name for name in columns if (table.name, name) not in outdated]
        wanted = [column.name for column in table.columns]
        if kept != wanted[: len(kept)]:
            yield (
                f"{table.name} has the columns {', '.join(columns)}; DuckLake {target.version.value} needs "
                f"{', '.join(wanted)} "
                "in this order, and new ones can only be added at the end. Drop the columns that others have "
                "added."
            )


def _former_names(target: CatalogTables) -> dict[str, sa.Table]:
    """Return the tables that had another name, as they were, by the name that they have now."""
    before, now = catalog_tables(_OLDEST, target.metadata_schema), target
    keys = (table.name.removeprefix("ducklake_") for table in now.metadata.sorted_tables)
    return {now[key].name: before[key] for key in keys if key in before and before[key].name != now[key].name}


def _outdated(target: CatalogTables) -> list[sa.Column[Any]]:
    now = target.metadata.tables
    return [
        column
        for key, table in catalog_tables(_OLDEST, target.metadata_schema).metadata.tables.items()
        if key in now
        for column in table.columns
        if column.name not in now[key].columns
    ]


_FIRST = SpecVersion.V0_1  # has the names that 1.0 has


class _RenameColumn(DDLElement):
    def __init__(self, table: sa.Table, old: str, new: str) -> None:
        self.table, self.old, self.new = table, old, new


@compiles(_RenameColumn)
def _rename_column(element: _RenameColumn, compiler: DDLCompiler, **_: object) -> str:
    table = compiler.preparer.format_table(element.table)
    old, new = (compiler.preparer.quote(name) for name in (element.old, element.new))
    return f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}"


def read_renames(
    connection: sa.Connection, dialect: CatalogDialect, source: CatalogTables, target: CatalogTables
) -> tuple[tuple[LayoutChange, ...], tuple[str, ...]]:
    """Return the renames that the target asks for, and what stands in the way of any of them."""
    old, new = write_version(_FIRST).inlined_columns, target.writer.inlined_columns
    if old == new:
        return (), ()
    changes, refusals = [], []
    layouts = dialect.columns_query(("ducklake_inlined_data_%",), target.metadata_schema).ask(connection)
    for name, of in _registered(connection, source):
        found = renamed_columns(name, of, layouts.get(name), old, new)
        if found.refusal is not None:
            refusals.append(found.refusal)
        table = sa.Table(name, sa.MetaData(schema=target.metadata_schema))
        changes += [
            LayoutChange(f"rename column {name}.{one} to {other}", _RenameColumn(table, one, other))
            for one, other in found.of
        ]
    return tuple(changes), tuple(refusals)


def _registered(connection: sa.Connection, tables: CatalogTables) -> list[tuple[str, str]]:
    """Return the tables for inlined rows, each with the user's table, by its id where it is dropped."""
    inlined, table, schema = tables["inlined_data_tables"], tables["table"], tables["schema"]
    rows = connection.execute(
        sa.select(
            inlined.c.table_name,
            inlined.c.table_id,
            maybe(schema.c.schema_name).label("schema_name"),
            maybe(table.c.table_name).label("of"),
        )
        .outerjoin(table, (table.c.table_id == inlined.c.table_id) & table.c.end_snapshot.is_(None))
        .outerjoin(schema, (schema.c.schema_id == table.c.schema_id) & schema.c.end_snapshot.is_(None))
        .order_by(inlined.c.table_id, inlined.c.schema_version)
    )
    named = {
        row.table_name: f"dropped table {row.table_id}" if row.of is None else f"{row.schema_name}.{row.of}"
        for row in rows
    }
    return list(named.items())


# Columns of tables for inlined rows that DuckLake 0.3 declared otherwise: in PostgreSQL, strings and times.
#
# Their values are converted in place. *Source:* docs/sources.md, DuckLake 1.1.


class _ConvertColumn(DDLElement):
    def __init__(
        self, table: sa.Table, name: str, type_: TypeEngine[Any], value: sa.ColumnElement[Any]
    ) -> None:
        self.table, self.name, self.type_, self.value = table, name, type_, value


@compiles(_ConvertColumn, "postgresql")
def _convert_column(element: _ConvertColumn, compiler: DDLCompiler, **_: object) -> str:
    table, name = compiler.preparer.format_table(element.table), compiler.preparer.quote(element.name)
    type_ = compiler.type_compiler.process(element.type_)
    value = compiler.sql_compiler.process(element.value, literal_binds=True)
    return f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {type_} USING {value}"


def read_conversions(
    connection: sa.Connection, dialect: CatalogDialect, tables: CatalogTables
) -> Iterator[LayoutChange]:
    """Plan the changes that bring the columns of tables for inlined rows to the current format."""
    declared = dialect.inlined_types(connection, tables.metadata_schema)
    if not declared:
        return
    registry = tables["inlined_data_tables"]
    for table_id, version in connection.execute(
        sa.select(registry.c.table_id, registry.c.schema_version)
    ).all():
        name = inlined_table_name(table_id, version)
        types = {fold(one): type_ for one, type_ in declared.get(name, {}).items()}
        table = sa.Table(name, sa.MetaData(schema=tables.metadata_schema))
        for column in layout_schema(connection, tables, table_id, version).columns:
            type_ = column.type
            former = INLINED_SCALARS[type_.name].former if isinstance(type_, ScalarType) else ""
            if types.get(fold(column.name)) not in former.split():
                continue
            actual = next(one for one in declared[name] if fold(one) == fold(column.name))
            there: sa.ColumnElement[Any] = sa.Column(actual)
            change: tuple[TypeEngine[Any], sa.ColumnElement[Any]] = (
                (sa.LargeBinary(), sa.func.convert_to(sa.cast(there, sa.Text), "UTF8"))
                if type_.facts.kind in TEXTS
                else (sa.VARCHAR(), _time(there, zoned=type_.facts.zoned))
            )
            yield LayoutChange(
                f"convert column {name}.{actual}, which DuckLake 0.3 made",
                _ConvertColumn(table, actual, *change),
            )


def _time(column: sa.ColumnElement[Any], *, zoned: bool) -> sa.ColumnElement[Any]:
    """Return a time as DuckDB writes it: in UTC, and (BC) after the date of a year before 1."""
    local = sa.cast(sa.func.timezone("UTC", column) if zoned else column, sa.Text)
    text = sa.func.regexp_replace(local, r"^(\S+)(.*) BC$", r"\1 (BC)\2")
    if not zoned:
        return text
    return sa.case((sa.func.isfinite(column), text.op("||")(sa.literal("+00"))), else_=local)
