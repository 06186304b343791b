"""The rows of a catalog that one snapshot needs, with the history cut to it.

What later snapshots ended lives on. Old versions of columns and partition keys stay: files and inlined rows
are known by them, as after an expiry (``catalog.upkeep.expiry``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Select, and_, case, literal, null, or_, select, type_coerce

from airflow_provider_ducklake.lake.catalog.database.column_types import CatalogInteger
from airflow_provider_ducklake.lake.catalog.snapshot.read import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Table

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.spec.snapshots import Snapshot

Condition = ColumnElement[bool]
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

    def queries(self) -> Iterator[tuple[str, Select[Any]]]:
        """Yield each table with the query for its rows, but for options and tables of inlined rows.

        DuckDB takes the parameters of a macro as they come: rows are in the order of their ids, but for the
        many of files.
        """
        for name, condition in self._conditions():
            table = self.tables[name]
            changed = self._changed(name, table)
            columns = [changed.get(one.name, one).label(one.name) for one in table.c]
            query = select(*columns).where(condition)
            ids = [one for one in table.c if isinstance(one.type, CatalogInteger)]
            yield name, query if name in _OF_FILES else query.order_by(*ids)

    def _conditions(self) -> Iterator[tuple[str, Condition]]:
        tables = self.tables
        for name in ("snapshot", "snapshot_changes"):
            yield name, tables[name].c.snapshot_id == self.at
        for name in _VISIBLE:
            yield name, visible(tables[name], self.at)
        yield "data_file", self._is_live(tables["data_file"])
        yield "delete_file", and_(self._is_live(tables["delete_file"]), self._is_of_file("delete_file"))
        for name in _OF_FILES:
            yield name, self._is_of_file(name)
        yield from self._of_tables()
        macro = tables["macro"]
        ids = select(macro.c.macro_id).where(visible(macro, self.at))
        for name in _OF_MACROS:
            yield name, tables[name].c.macro_id.in_(ids)
        if "view_column_tag" in tables:  # since 1.1
            tag, view = tables["view_column_tag"], tables["view"]
            views = select(view.c.view_id).where(visible(view, self.at))
            yield "view_column_tag", and_(visible(tag, self.at), tag.c.view_id.in_(views))

    def _of_tables(self) -> Iterator[tuple[str, Condition]]:
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
            mappings = select(tables["data_file"].c.mapping_id).where(
                self._is_live(tables["data_file"]), tables["data_file"].c.mapping_id.is_not(None)
            )
            yield name, tables[name].c.mapping_id.in_(mappings)
        versions = tables["schema_versions"]
        is_ours = or_(versions.c.table_id.is_(None), self._is_of_table(versions))
        yield "schema_versions", and_(versions.c.begin_snapshot <= self.at, is_ours)

    def live_tables(self) -> Select[Any]:
        """Return the query for the ids of the tables that the snapshot shows."""
        table = self.tables["table"]
        return select(table.c.table_id).where(visible(table, self.at))

    def live_files(self) -> Select[Any]:
        """Return the query for the ids of its data files."""
        file = self.tables["data_file"]
        return select(file.c.data_file_id).where(self._is_live(file))

    def _is_of_table(self, table: Table) -> Condition:
        return table.c.table_id.in_(self.live_tables())

    def _is_live(self, table: Table) -> Condition:
        return and_(visible(table, self.at), self._is_of_table(table))

    def _has_been(self, table: Table) -> Condition:
        """Whether a version of something is that of the snapshot, or an older one."""
        return and_(table.c.begin_snapshot <= self.at, self._is_of_table(table))

    def _is_of_file(self, name: str) -> Condition:
        return self.tables[name].c.data_file_id.in_(self.live_files())

    def _is_of(self, name: str, owner: str, key: str) -> Condition:
        above = self.tables[owner]
        condition = self._has_been(above) if owner == "partition_info" else self._is_live(above)
        return self.tables[name].c[key].in_(select(above.c[key]).where(condition))

    def _changed(self, name: str, table: Table) -> Mapping[str, ColumnElement[Any]]:
        """Return the columns that are another thing in the frozen catalog."""
        if name in ("column", "partition_info"):
            end = table.c.end_snapshot
            return {"end_snapshot": type_coerce(case((end > self.at, null()), else_=end), end.type)}
        if "end_snapshot" in table.c:
            return {"end_snapshot": type_coerce(null(), table.c.end_snapshot.type)}
        if name == "snapshot":
            return {one: literal(getattr(self.newest, one), table.c[one].type) for one in _COUNTERS}
        return {}
