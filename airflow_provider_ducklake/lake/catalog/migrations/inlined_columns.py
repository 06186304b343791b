"""The system columns of tables for inlined rows, which 1.1 gives other names.

All tables are looked at before the first is changed. *Source:* docs/sources.md, versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import MetaData, Table, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import DDLElement

from airflow_provider_ducklake.lake.catalog.database.column_types import maybe
from airflow_provider_ducklake.lake.catalog.migrations.layout import LayoutChange
from airflow_provider_ducklake.lake.planning.upkeep.migration import renamed_columns
from airflow_provider_ducklake.lake.spec.versions import SpecVersion, write_version

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.sql.compiler import DDLCompiler

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.catalog.dialects.dialect import CatalogDialect

_FIRST = SpecVersion.V0_1  # has the names that 1.0 has


class _RenameColumn(DDLElement):
    def __init__(self, table: Table, old: str, new: str) -> None:
        self.table, self.old, self.new = table, old, new


@compiles(_RenameColumn)
def _rename_column(element: _RenameColumn, compiler: DDLCompiler, **_: object) -> str:
    table = compiler.preparer.format_table(element.table)
    old, new = (compiler.preparer.quote(name) for name in (element.old, element.new))
    return f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}"


def read_renames(
    connection: Connection, dialect: CatalogDialect, source: CatalogTables, target: CatalogTables
) -> tuple[tuple[LayoutChange, ...], tuple[str, ...]]:
    """Return the renames that the target asks for, and what stands in the way of any of them."""
    old, new = write_version(_FIRST).inlined_columns, target.writer.inlined_columns
    if old == new:
        return (), ()
    changes, refusals = [], []
    layouts = dialect.which_columns(("ducklake_inlined_data_%",), target.metadata_schema).ask(connection)
    for name, of in _registered(connection, source):
        found = renamed_columns(name, of, layouts.get(name), old, new)
        if found.refusal is not None:
            refusals.append(found.refusal)
        table = Table(name, MetaData(schema=target.metadata_schema))
        changes += [
            LayoutChange(f"rename column {name}.{one} to {other}", _RenameColumn(table, one, other))
            for one, other in found.of
        ]
    return tuple(changes), tuple(refusals)


def _registered(connection: Connection, tables: CatalogTables) -> list[tuple[str, str]]:
    """Return the tables for inlined rows, each with the user's table, by its id where it is dropped."""
    inlined, table, schema = tables["inlined_data_tables"], tables["table"], tables["schema"]
    rows = connection.execute(
        select(
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
