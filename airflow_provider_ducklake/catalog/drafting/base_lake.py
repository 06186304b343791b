"""What a transaction asks of its base snapshot, read from the catalog."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.catalog.drafting.base_rows import BaseRows
from airflow_provider_ducklake.catalog.snapshot import read, read_snapshots
from airflow_provider_ducklake.catalog.snapshot.table_snapshot import load_table
from airflow_provider_ducklake.spec.ids import SchemaId
from airflow_provider_ducklake.spec.names.identifiers import QualifiedName, fold
from airflow_provider_ducklake.spec.options import Options
from airflow_provider_ducklake.transaction.lake_draft import BaseLake, BaseMacro, BaseView, SchemaDraft
from airflow_provider_ducklake.transaction.table_draft import TableDraft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_ducklake.catalog.database.questions import Question
    from airflow_provider_ducklake.catalog.open_lake import OpenLake
    from airflow_provider_ducklake.spec.options import OptionRow
    from airflow_provider_ducklake.spec.snapshots import Snapshot, TableSnapshot


class CatalogBase(BaseLake):
    """One snapshot of a catalog; ``reading`` opens a connection for each question not answered before.

    ``rows`` answers what is asked about the rows of its tables.
    """

    def __init__(self, lake: OpenLake, snapshot: Snapshot, options: Sequence[OptionRow]) -> None:
        self.snapshot_id = snapshot.id
        self._catalog = lake.catalog
        self._snapshot = snapshot
        self._reading = lake.reading
        self._definitions = lake.definitions
        self._option_rows = options
        self.rows = BaseRows(lake.catalog, lake.reading)

    @classmethod
    def newest(cls, lake: OpenLake) -> CatalogBase:
        """Return the newest snapshot, with the options of this moment."""
        tables = lake.catalog.tables
        questions: dict[str, Question[Any]] = {
            "head": read_snapshots.which_head(tables),
            "options": read.which_options(tables),
        }
        with lake.translated():
            answers = lake.catalog.dialect.ask_at_once(questions)
        head = answers["head"]
        lake.definitions = lake.definitions.at(head.schema_version)
        return cls(lake, head, answers["options"])

    def schema(self, name: str) -> SchemaDraft | None:
        known = self._definitions.schemas
        if fold(name) not in known:
            with self._reading() as connection:
                found = read.find_schema(connection, self._catalog.tables, self.snapshot_id, name)
            root = None if found is None else found.path.below(self._catalog.data_path)
            known[fold(name)] = SchemaDraft(found.id, found.name, root) if found and root else None
        return known[fold(name)]

    def table(self, schema: SchemaDraft, name: str) -> TableDraft | None:
        known, key = self._definitions.tables, (schema.ref, fold(name))
        if key not in known:
            known[key] = self._read_table(QualifiedName(schema.name, name))
        found = known[key]
        if found is None:
            return None
        table, next_column_id = found
        options = self._options(table.schema_id, table.table_id)
        return TableDraft.of(replace(table, snapshot=self._snapshot, options=options), next_column_id)

    def _read_table(self, name: QualifiedName) -> tuple[TableSnapshot, int] | None:
        tables = self._catalog.tables
        with self._reading() as connection:
            if not read.table_rows(connection, tables, self.snapshot_id, name):
                return None
            table = load_table(connection, self._catalog, self._snapshot, name, with_files=False)
            return table, read.next_column_id(connection, tables, table.table_id)

    def _options(self, schema_id: int | None, table_id: int | None = None) -> Options:
        return Options.effective(self._option_rows, schema_id, table_id)

    @property
    def lake_options(self) -> Options:
        """The options of the whole lake."""
        return self._options(None)

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
        return self._options(schema.ref if isinstance(schema.ref, int) else None)


def _id(schema: SchemaDraft) -> SchemaId:
    assert isinstance(schema.ref, int)
    return SchemaId(schema.ref)
