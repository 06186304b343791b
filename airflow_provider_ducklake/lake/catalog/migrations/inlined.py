"""The system columns of tables for inlined rows, which 1.1 gives other names.

All tables are looked at before the first is changed. *Source:* docs/sources.md, versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import DDLElement

from ...format.names.identifiers import fold
from ...format.types.ducklake_types import TEXTS, ScalarType
from ...format.versions import SpecVersion, write_version
from ...planning.upkeep.migration import renamed_columns
from ..database.tables import CatalogTables, maybe
from ..snapshot.inlined_tables import INLINED_SCALARS, inlined_table_name
from ..snapshot.read_layouts import layout_schema
from .steps import LayoutChange

if TYPE_CHECKING:
    from sqlalchemy.sql.compiler import DDLCompiler
    from sqlalchemy.types import TypeEngine

    from ..dialects.dialect import CatalogDialect


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
) -> tuple[LayoutChange, ...]:
    """Plan the changes that bring the columns of tables for inlined rows to the current format."""
    return tuple(_conversions(connection, dialect, tables))


def _conversions(
    connection: sa.Connection, dialect: CatalogDialect, tables: CatalogTables
) -> Iterator[LayoutChange]:
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
            found = types.get(fold(column.name))
            if found not in (
                INLINED_SCALARS[column.type.name].former.split()
                if isinstance(column.type, ScalarType)
                else []
            ):
                continue
            actual = next(one for one in declared[name] if fold(one) == fold(column.name))
            is_string = column.type.facts.kind in TEXTS
            there: sa.ColumnElement[Any] = sa.Column(actual)
            zoned = column.type.facts.zoned
            value = (
                sa.func.convert_to(sa.cast(there, sa.Text), "UTF8")
                if is_string
                else _time(there, zoned=zoned)
            )
            type_: TypeEngine[Any] = sa.LargeBinary() if is_string else sa.VARCHAR()
            yield LayoutChange(
                f"convert column {name}.{actual}, which DuckLake 0.3 made",
                _ConvertColumn(table, actual, type_, value),
            )


def _time(column: sa.ColumnElement[Any], *, zoned: bool) -> sa.ColumnElement[Any]:
    """Return a time as DuckDB writes it: in UTC, and (BC) after the date of a year before 1."""
    local = sa.cast(sa.func.timezone("UTC", column) if zoned else column, sa.Text)
    text = sa.func.regexp_replace(local, r"^(\S+)(.*) BC$", r"\1 (BC)\2")
    if not zoned:
        return text
    return sa.case((sa.func.isfinite(column), text.op("||")(sa.literal("+00"))), else_=local)
