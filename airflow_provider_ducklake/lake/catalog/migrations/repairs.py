"""What older writers left behind that the migration to 1.1 repairs; done twice, it does nothing more.

*Source:* docs/sources.md, DuckLake 1.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, func, select, update

from airflow_provider_ducklake.lake.planning.upkeep.migration import (
    lost_defaults,
    missing_schema_versions,
    misspelled_bounds,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.spec.versions import SpecVersion

_DEFAULT = ("initial_default", "default_value", "default_value_type", "default_value_dialect")
_STATISTICS = ("min_value", "max_value", "min_is_exact", "max_is_exact")


def schema_versions(connection: Connection, tables: CatalogTables, _version: SpecVersion) -> None:
    """Add the snapshots by which schema versions began that have a table for inlined rows."""
    own, inlined, snapshot = tables["schema_versions"], tables["inlined_data_tables"], tables["snapshot"]
    registered = connection.execute(select(inlined.c.table_id, inlined.c.schema_version)).all()
    if not registered:
        return
    known = connection.execute(select(own.c.begin_snapshot, own.c.schema_version, own.c.table_id)).all()
    snapshots = connection.execute(
        select(snapshot.c.snapshot_id, snapshot.c.schema_version).order_by(snapshot.c.snapshot_id)
    ).all()
    rows = missing_schema_versions(
        [(row.snapshot_id, row.schema_version) for row in snapshots],
        [(row.table_id, row.schema_version) for row in registered],
        [(row.begin_snapshot, row.schema_version, row.table_id) for row in known],
    )
    if rows:
        names = ("begin_snapshot", "schema_version", "table_id")
        connection.execute(own.insert(), [dict(zip(names, row, strict=True)) for row in rows])


def field_defaults(connection: Connection, tables: CatalogTables, _version: SpecVersion) -> None:
    """Give nested fields the default back that they had before a rename."""
    column = tables["column"]
    names = ("table_id", "column_id", "begin_snapshot", *_DEFAULT)
    is_nested = column.c.parent_column.is_not(None)
    fields = connection.execute(select(*(column.c[name] for name in names)).where(is_nested))
    lost = lost_defaults((table, one, begin, tuple(default)) for table, one, begin, *default in fields)
    is_it = (
        (column.c.table_id == bindparam("table"))
        & (column.c.column_id == bindparam("id"))
        & (column.c.begin_snapshot == bindparam("begin"))
    )
    statement = update(column).where(is_it).values({one: bindparam(f"new_{one}") for one in _DEFAULT})
    rows = [
        {"table": table, "id": one, "begin": begin}
        | {f"new_{name}": value for name, value in zip(_DEFAULT, default, strict=True)}
        for table, one, begin, default in lost
    ]
    if rows:
        connection.execute(statement, rows)


def retyped_bounds(connection: Connection, tables: CatalogTables, _version: SpecVersion) -> None:
    """Forget bounds that may be spelled as an earlier type of the column has it.

    A table's row goes, since DuckDB takes one without bounds for that of an empty table.
    """
    column, file, own = (tables[one] for one in ("column", "file_column_stats", "table_column_stats"))
    several = (
        select(column.c.table_id, column.c.column_id)
        .group_by(column.c.table_id, column.c.column_id)
        .having(func.count(column.c.column_type.distinct()) > 1)
        .subquery()
    )
    types = connection.execute(
        select(column.c.table_id, column.c.column_id, column.c.column_type).join(
            several,
            (several.c.table_id == column.c.table_id) & (several.c.column_id == column.c.column_id),
        )
    )
    keys = [{"table": table, "id": one} for table, one in misspelled_bounds(tuple(row) for row in types)]
    if not keys:
        return
    forget = update(file).where(file.c.table_id == bindparam("table"), file.c.column_id == bindparam("id"))
    connection.execute(forget.values(dict.fromkeys(_STATISTICS)), keys)
    is_it = (own.c.table_id == bindparam("table")) & (own.c.column_id == bindparam("id"))
    connection.execute(own.delete().where(is_it), keys)
