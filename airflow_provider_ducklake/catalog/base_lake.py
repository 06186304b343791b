"""What a transaction asks of its base snapshot, read from the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.catalog import read
from airflow_provider_ducklake.catalog.table_snapshot import load_table
from airflow_provider_ducklake.spec.identifiers import QualifiedName, fold
from airflow_provider_ducklake.spec.ids import SchemaId
from airflow_provider_ducklake.spec.options import Options
from airflow_provider_ducklake.transaction.lake_draft import BaseLake, BaseMacro, BaseView, SchemaDraft
from airflow_provider_ducklake.transaction.table_draft import TableDraft

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection

    from airflow_provider_ducklake.catalog.catalog import Catalog
    from airflow_provider_ducklake.spec.snapshots import Snapshot


class CatalogBase(BaseLake):
    """One snapshot of a catalog; ``reading`` opens a connection for each question."""

    def __init__(
        self, catalog: Catalog, snapshot: Snapshot, reading: Callable[[], AbstractContextManager[Connection]]
    ) -> None:
        self.snapshot_id = snapshot.id
        self._catalog = catalog
        self._snapshot = snapshot
        self._reading = reading

    def schema(self, name: str) -> SchemaDraft | None:
        with self._reading() as connection:
            found = read.find_schema(connection, self._catalog.tables, self.snapshot_id, name)
        if found is None:
            return None
        return SchemaDraft(found.id, found.name, found.path.below(self._catalog.data_path))

    def table(self, schema: SchemaDraft, name: str) -> TableDraft | None:
        qualified = QualifiedName(schema.name, name)
        tables = self._catalog.tables
        with self._reading() as connection:
            if not read.table_rows(connection, tables, self.snapshot_id, qualified):
                return None
            table = load_table(connection, self._catalog, self._snapshot, qualified, with_files=False)
            return TableDraft.of(table, read.next_column_id(connection, tables, table.table_id))

    def view(self, schema: SchemaDraft, name: str) -> BaseView | None:
        return next((one for one in self.views_in(schema) if fold(one.name.name) == fold(name)), None)

    def tables_in(self, schema: SchemaDraft) -> list[QualifiedName]:
        with self._reading() as connection:
            rows = read.table_rows(connection, self._catalog.tables, self.snapshot_id)
        return [row.qualified for row in rows if row.schema.id == schema.ref]

    def views_in(self, schema: SchemaDraft) -> list[BaseView]:
        with self._reading() as connection:
            rows = read.view_names(connection, self._catalog.tables, self.snapshot_id, _id(schema))
        return [BaseView(view_id, QualifiedName(schema.name, name)) for view_id, name in rows]

    def macros_in(self, schema: SchemaDraft) -> list[BaseMacro]:
        with self._reading() as connection:
            rows = read.macros(connection, self._catalog.tables, self.snapshot_id, _id(schema))
        return [
            BaseMacro(row.id, QualifiedName(schema.name, row.name), is_table_macro=row.is_table_macro)
            for row in rows
        ]

    def options_of_new_table(self, schema: SchemaDraft) -> Options:
        schema_id = schema.ref if isinstance(schema.ref, int) else None
        with self._reading() as connection:
            return Options.effective(read.option_rows(connection, self._catalog.tables), schema_id)


def _id(schema: SchemaDraft) -> SchemaId:
    assert isinstance(schema.ref, int)
    return SchemaId(schema.ref)
