"""The rows of a catalog that one snapshot needs, with the history cut to it.

What later snapshots ended lives on. Old versions of columns and partition keys stay: files and inlined rows
refer to them, as after an expiry (``catalog.upkeep.expiry``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ...errors import UnsupportedFeatureError
from ...format.tags import ExportFormat
from ...format.types.ducklake_types import ScalarKind
from ...format.versions import Feature
from ...planning.reading import scan
from ..database.tables import CatalogInteger, CatalogTables
from ..dialects.sqlite import SqliteDialect
from ..snapshot import read
from ..snapshot.inlined_read import inlined_of
from ..snapshot.inlined_tables import (
    BEGIN_SNAPSHOT,
    END_SNAPSHOT,
    ROW_ID,
    cell_key,
    inlined_delete_name,
    inlined_delete_table,
    inlined_table,
)
from ..snapshot.read import visible
from ..snapshot.scan import load_table

if TYPE_CHECKING:
    from ...format.files import InlinedForm
    from ...format.schema import TableSchema
    from ...format.snapshots import Snapshot, TableSnapshot
    from ...planning.reading.scan import InlinedRows
    from ..dialects.dialect import Catalog


Condition = sa.ColumnElement[bool]
_VISIBLE = ("schema", "table", "view", "tag", "macro")
_OF_FILES = ("file_column_stats", "file_variant_stats", "file_partition_value")
_OF_MACROS = ("macro_impl", "macro_parameters")
_COUNTERS = ("next_catalog_id", "next_file_id")


@dataclass(frozen=True, slots=True)
class FrozenRows:
    """The tables of a lake, the snapshot that is frozen, and the newest one of the lake.

    Bounds of whole tables are the newest snapshot's: another one has none, and goes by those of its files.
    The counters are the newest one's, too, since files that were merged later have ids of later.
    """

    tables: CatalogTables
    at: int
    newest: Snapshot

    def queries(self) -> Iterator[tuple[str, sa.Select[Any]]]:
        """Yield each table with the query for its rows, but for options and tables of inlined rows.

        DuckDB takes the parameters of a macro as they come: rows are in the order of their ids, but for the
        many of files.
        """
        for name, condition in self._conditions():
            table = self.tables[name]
            changed = self._changed(name, table)
            columns = [changed.get(one.name, one).label(one.name) for one in table.c]
            query = sa.select(*columns).where(condition)
            ids = [one for one in table.c if isinstance(one.type, CatalogInteger)]
            yield name, query if name in _OF_FILES else query.order_by(*ids)

    def _conditions(self) -> Iterator[tuple[str, Condition]]:
        tables = self.tables
        for name in ("snapshot", "snapshot_changes"):
            yield name, tables[name].c.snapshot_id == self.at
        for name in _VISIBLE:
            yield name, visible(tables[name], self.at)
        yield "data_file", self._is_live(tables["data_file"])
        yield "delete_file", sa.and_(self._is_live(tables["delete_file"]), self._is_of_file("delete_file"))
        for name in _OF_FILES:
            yield name, self._is_of_file(name)
        yield from self._rows_of_tables()
        macro = tables["macro"]
        ids = sa.select(macro.c.macro_id).where(visible(macro, self.at))
        for name in _OF_MACROS:
            yield name, tables[name].c.macro_id.in_(ids)
        if "view_column_tag" in tables:  # since 1.1
            tag, view = tables["view_column_tag"], tables["view"]
            views = sa.select(view.c.view_id).where(visible(view, self.at))
            yield "view_column_tag", sa.and_(visible(tag, self.at), tag.c.view_id.in_(views))

    def _rows_of_tables(self) -> Iterator[tuple[str, Condition]]:
        tables = self.tables
        yield "column_tag", self._is_live(tables["column_tag"])
        for name in ("column", "partition_info"):
            yield name, self._has_been(tables[name])
        yield "partition_column", self._is_of("partition_column", "partition_info", "partition_id")
        yield "sort_info", self._is_live(tables["sort_info"])
        yield "sort_expression", self._is_of("sort_expression", "sort_info", "sort_id")
        yield "table_stats", self._is_of_table(tables["table_stats"])
        if self.at == self.newest.id:
            yield "table_column_stats", self._is_of_table(tables["table_column_stats"])
        for name in ("column_mapping", "name_mapping"):
            mappings = sa.select(tables["data_file"].c.mapping_id).where(
                self._is_live(tables["data_file"]), tables["data_file"].c.mapping_id.is_not(None)
            )
            yield name, tables[name].c.mapping_id.in_(mappings)
        versions = tables["schema_versions"]
        is_ours = sa.or_(versions.c.table_id.is_(None), self._is_of_table(versions))
        yield "schema_versions", sa.and_(versions.c.begin_snapshot <= self.at, is_ours)

    def live_tables(self) -> sa.Select[Any]:
        """Return the query for the ids of the tables that the snapshot shows."""
        table = self.tables["table"]
        return sa.select(table.c.table_id).where(visible(table, self.at))

    def live_files(self) -> sa.Select[Any]:
        """Return the query for the ids of its data files."""
        file = self.tables["data_file"]
        return sa.select(file.c.data_file_id).where(self._is_live(file))

    def _is_of_table(self, table: sa.Table) -> Condition:
        return table.c.table_id.in_(self.live_tables())

    def _is_live(self, table: sa.Table) -> Condition:
        return sa.and_(visible(table, self.at), self._is_of_table(table))

    def _has_been(self, table: sa.Table) -> Condition:
        """Return True if a version of something is that of the snapshot, or an older one."""
        return sa.and_(table.c.begin_snapshot <= self.at, self._is_of_table(table))

    def _is_of_file(self, name: str) -> Condition:
        return self.tables[name].c.data_file_id.in_(self.live_files())

    def _is_of(self, name: str, owner: str, key: str) -> Condition:
        above = self.tables[owner]
        condition = self._has_been(above) if owner == "partition_info" else self._is_live(above)
        return self.tables[name].c[key].in_(sa.select(above.c[key]).where(condition))

    def _changed(self, name: str, table: sa.Table) -> Mapping[str, sa.ColumnElement[Any]]:
        """Return the columns that are another thing in the frozen catalog."""
        if name in ("column", "partition_info"):
            end = table.c.end_snapshot
            return {"end_snapshot": sa.type_coerce(sa.case((end > self.at, sa.null()), else_=end), end.type)}
        if "end_snapshot" in table.c:
            return {"end_snapshot": sa.type_coerce(sa.null(), table.c.end_snapshot.type)}
        if name == "snapshot":
            return {one: sa.literal(getattr(self.newest, one), table.c[one].type) for one in _COUNTERS}
        return {}


# The rows and deletes that a snapshot has in the catalog, as the tables of a frozen catalog hold them.


_DELETES = "ducklake_inlined_delete_%"


@dataclass(frozen=True, slots=True)
class FrozenInlined:
    """A table of rows that are inlined, or of deletes: ``schema_version`` None."""

    table: sa.Table
    rows: list[dict[str, Any]]
    table_id: int
    schema_version: int | None = None


def frozen_inlined(
    connection: sa.Connection,
    catalog: Catalog,
    snapshot: Snapshot,
    tables: CatalogTables,
    format_: ExportFormat,
) -> Iterator[FrozenInlined]:
    """Yield the inlined rows that the snapshot shows, in the form of the frozen catalog's database."""
    registry = catalog.tables["inlined_data_tables"]
    registered = set(connection.execute(sa.select(registry.c.table_id)).scalars())
    for row in read.table_rows(connection, catalog.tables, snapshot.id) if registered else ():
        if row.id not in registered:
            continue
        table = load_table(connection, catalog, snapshot, row.qualified, with_files=False)
        for part in _parts(connection, catalog, table):
            problem = _unknown_to_duckdb(part.schema) if format_ is ExportFormat.DUCKDB else None
            if problem is not None and not part.rows:
                continue  # readers need no table without rows
            if problem is not None:
                raise _not_exported(str(table.name), problem)
            cells = _cells(part, str(table.name), catalog.dialect.inlined_form)
            yield _frozen(part, cells, row.id, tables)


def _parts(connection: sa.Connection, catalog: Catalog, table: TableSnapshot) -> Iterator[InlinedRows]:
    """Yield the rows of each inlined table that has any, and the newest one in any case."""
    at, inlined = table.snapshot.id, inlined_of(connection, catalog, table)
    asked = inlined.rows_query(lambda rows: read.visible(rows, at))
    found = catalog.dialect.ask(connection, asked)
    layouts = [one for one in inlined.layouts if one.begin <= at]
    newest = max((one.schema_version for one in layouts), default=None)
    for layout in layouts:
        part = found[layout.name]
        if part.rows or layout.schema_version == newest:
            yield part


def _cells(part: InlinedRows, name: str, form: InlinedForm | None) -> list[dict[str, Any]]:
    """Return the cells as SQLite has them; DuckDB casts those texts to its own types, as it reads SQLite."""
    from ...storage.rows.inlined_values import cells_again

    try:
        return cells_again(part.rows, part.schema, form, SqliteDialect.inlined_form)
    except UnsupportedFeatureError as error:
        raise _not_exported(name, str(error)) from error


def _not_exported(name: str, problem: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"Inlined rows of {name} cannot be exported: {problem} Flush the table's inlined data first."
    )


def _unknown_to_duckdb(schema: TableSchema) -> str | None:
    """Name a column whose inlined values no table of a DuckDB file holds; None: there is none."""
    for column in schema.walk():
        if column.type.facts.kind is ScalarKind.VARIANT or column.type.facts.since is Feature.TIMESTAMPTZ_NS:
            return f"Column {column.name} is of type {column.type}."
    return None


def _frozen(
    part: InlinedRows, cells: Iterable[Mapping[str, Any]], table_id: int, tables: CatalogTables
) -> FrozenInlined:
    version = int(part.table_name.rpartition("_")[2])
    rows = [
        {
            ROW_ID: row[scan.ROW_ID],
            BEGIN_SNAPSHOT: row[scan.BEGIN_SNAPSHOT],
            END_SNAPSHOT: None,
            **{cell_key(column): value for column, value in found.items()},
        }
        for row, found in zip(part.rows, cells, strict=True)
    ]
    return FrozenInlined(inlined_table(part.schema, table_id, version, tables), rows, table_id, version)


def frozen_deletes(
    connection: sa.Connection, catalog: Catalog, frozen: FrozenRows, tables: CatalogTables
) -> Iterator[FrozenInlined]:
    """Yield the inlined deletes in force at the snapshot, of files that it shows."""
    schema = catalog.tables.metadata_schema
    found = catalog.dialect.columns_query((_DELETES,), schema).ask(connection)
    if not found:
        return
    for table_id in connection.execute(frozen.live_tables()).scalars().all():
        if inlined_delete_name(table_id) not in found:
            continue
        deletes = inlined_delete_table(table_id, schema)
        query = sa.select(deletes).where(
            deletes.c.begin_snapshot <= frozen.at, deletes.c.file_id.in_(frozen.live_files())
        )
        rows = [dict(row._mapping) for row in connection.execute(query)]  # noqa: SLF001 - its public name
        if rows:
            yield FrozenInlined(inlined_delete_table(table_id, tables.metadata_schema), rows, table_id)
