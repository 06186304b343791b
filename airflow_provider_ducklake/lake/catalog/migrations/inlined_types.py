"""Columns of tables for inlined rows that DuckLake 0.3 declared otherwise: in PostgreSQL, strings and times.

Their values are converted in place. *Source:* docs/sources.md, DuckLake 1.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    VARCHAR,
    Column,
    LargeBinary,
    MetaData,
    Table,
    Text,
    case,
    cast,
    func,
    literal,
    select,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import DDLElement

from airflow_provider_ducklake.lake.catalog.migrations.layout import LayoutChange
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_tables import INLINED_SCALARS, inlined_table_name
from airflow_provider_ducklake.lake.catalog.snapshot.read_layouts import layout_schema
from airflow_provider_ducklake.lake.spec.names.identifiers import fold
from airflow_provider_ducklake.lake.spec.types.ducklake_types import TEXTS, ScalarType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import ColumnElement, Connection
    from sqlalchemy.sql.compiler import DDLCompiler
    from sqlalchemy.types import TypeEngine

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.catalog.dialects.dialect import CatalogDialect
    from airflow_provider_ducklake.lake.spec.types.ducklake_types import DuckLakeType


class _ConvertColumn(DDLElement):
    def __init__(self, table: Table, name: str, type_: TypeEngine[Any], value: ColumnElement[Any]) -> None:
        self.table, self.name, self.type_, self.value = table, name, type_, value


@compiles(_ConvertColumn, "postgresql")
def _convert_column(element: _ConvertColumn, compiler: DDLCompiler, **_: object) -> str:
    table, name = compiler.preparer.format_table(element.table), compiler.preparer.quote(element.name)
    type_ = compiler.type_compiler.process(element.type_)
    value = compiler.sql_compiler.process(element.value, literal_binds=True)
    return f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {type_} USING {value}"


def read_conversions(
    connection: Connection, dialect: CatalogDialect, tables: CatalogTables
) -> tuple[LayoutChange, ...]:
    """Return what makes the columns of tables for inlined rows those that the format has now."""
    return tuple(_conversions(connection, dialect, tables))


def _conversions(
    connection: Connection, dialect: CatalogDialect, tables: CatalogTables
) -> Iterator[LayoutChange]:
    declared = dialect.inlined_types(connection, tables.metadata_schema)
    if not declared:
        return
    registry = tables["inlined_data_tables"]
    for table_id, version in connection.execute(select(registry.c.table_id, registry.c.schema_version)).all():
        name = inlined_table_name(table_id, version)
        types = {fold(one): type_ for one, type_ in declared.get(name, {}).items()}
        table = Table(name, MetaData(schema=tables.metadata_schema))
        for column in layout_schema(connection, tables, table_id, version).columns:
            found = types.get(fold(column.name))
            if found not in _former(column.type):
                continue
            actual = next(one for one in declared[name] if fold(one) == fold(column.name))
            is_string = column.type.facts.kind in TEXTS
            there: ColumnElement[Any] = Column(actual)
            zoned = column.type.facts.zoned
            value = func.convert_to(cast(there, Text), "UTF8") if is_string else _time(there, zoned=zoned)
            type_: TypeEngine[Any] = LargeBinary() if is_string else VARCHAR()
            yield LayoutChange(
                f"convert column {name}.{actual}, which DuckLake 0.3 made",
                _ConvertColumn(table, actual, type_, value),
            )


def _former(type_: DuckLakeType) -> list[str]:
    return INLINED_SCALARS[type_.name].former.split() if isinstance(type_, ScalarType) else []


def _time(column: ColumnElement[Any], *, zoned: bool) -> ColumnElement[Any]:
    """Return a time as DuckDB writes it: in UTC, and (BC) after the date of a year before 1."""
    local = cast(func.timezone("UTC", column) if zoned else column, Text)
    text = func.regexp_replace(local, r"^(\S+)(.*) BC$", r"\1 (BC)\2")
    if not zoned:
        return text
    return case((func.isfinite(column), text.op("||")(literal("+00"))), else_=local)
