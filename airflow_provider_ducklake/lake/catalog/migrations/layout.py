"""The tables and columns that an older catalog lacks or has in excess, and the DDL that corrects it.

``catalog/database/tables.py`` says what belongs there; what is there is looked up, so half a migration is
finished by the same rule. Each change is one statement: where DDL is no part of a transaction, a kill leaves
whole ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateTable, DDLElement

from airflow_provider_ducklake.lake.catalog.database.tables import catalog_tables
from airflow_provider_ducklake.lake.catalog.dialects.added_columns import AddColumn
from airflow_provider_ducklake.lake.spec.versions import NEWEST, SpecVersion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Column, Connection, Table
    from sqlalchemy.sql.compiler import DDLCompiler

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.catalog.dialects.dialect import CatalogDialect

Found = dict[str, list[str]]  # table → columns, in order
_OLDEST = SpecVersion.V0_1


class _RenameTable(DDLElement):
    def __init__(self, old: Table, new: Table) -> None:
        self.old, self.new = old, new


class _DropColumn(DDLElement):
    def __init__(self, column: Column[Any]) -> None:
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


def found_layout(connection: Connection, dialect: CatalogDialect, schema: str | None) -> Found:
    """Return the catalog's tables that the format knows, of whatever version, with their columns."""
    known = {
        table.name
        for version in (_OLDEST, NEWEST)
        for table in catalog_tables(version, schema).metadata.sorted_tables
    }
    names = dialect.table_names(connection, schema) & known
    return {name: dialect.column_names(connection, name, schema) for name in sorted(names)}


def growth(found: Mapping[str, Sequence[str]], target: CatalogTables) -> tuple[LayoutChange, ...]:
    """Return what adds all that the target has; columns that it no longer has are still there then."""
    return tuple(_growth(found, target))


def _growth(found: Mapping[str, Sequence[str]], target: CatalogTables) -> Iterator[LayoutChange]:
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


def why_not_ordered(found: Mapping[str, Sequence[str]], target: CatalogTables) -> tuple[str, ...]:
    """Return which tables would not have the target's columns in its order: DuckDB inserts by position."""
    return tuple(_why_not_ordered(found, target))


def _why_not_ordered(found: Mapping[str, Sequence[str]], target: CatalogTables) -> Iterator[str]:
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


def _former_names(target: CatalogTables) -> dict[str, Table]:
    """Return the tables that had another name, as they were, by the name that they have now."""
    before, now = catalog_tables(_OLDEST, target.metadata_schema), target
    keys = (table.name.removeprefix("ducklake_") for table in now.metadata.sorted_tables)
    return {now[key].name: before[key] for key in keys if key in before and before[key].name != now[key].name}


def _outdated(target: CatalogTables) -> list[Column[Any]]:
    now = target.metadata.tables
    return [
        column
        for key, table in catalog_tables(_OLDEST, target.metadata_schema).metadata.tables.items()
        if key in now
        for column in table.columns
        if column.name not in now[key].columns
    ]
