"""What a transaction asks about the rows of its base snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from airflow_provider_ducklake.catalog.committing.locked_facts import live_inlined_tables
from airflow_provider_ducklake.catalog.drafting.row_changes import read_targets
from airflow_provider_ducklake.catalog.reports import null_check
from airflow_provider_ducklake.catalog.snapshot import read_files, read_layouts
from airflow_provider_ducklake.catalog.snapshot.inlined_tables import why_not_inlined
from airflow_provider_ducklake.catalog.snapshot.read_layouts import layout_schema
from airflow_provider_ducklake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.transaction.changes import InlinedLayout
from airflow_provider_ducklake.transaction.definition import same_layout
from airflow_provider_ducklake.transaction.table_draft import InlinedBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa
    from sqlalchemy import Connection

    from airflow_provider_ducklake.catalog.dialects.opened import Catalog
    from airflow_provider_ducklake.catalog.drafting.row_changes import Targets
    from airflow_provider_ducklake.spec.files import DataFile
    from airflow_provider_ducklake.spec.ids import DataFileId
    from airflow_provider_ducklake.spec.schema import Column, TableSchema
    from airflow_provider_ducklake.spec.snapshots import TableSnapshot

Reading: TypeAlias = "Callable[[], AbstractContextManager[Connection]]"


@dataclass(frozen=True, slots=True)
class BaseRows:
    """The rows of a catalog's tables; ``_reading`` opens a connection for each question."""

    _catalog: Catalog
    _reading: Reading

    def inlined(self, rows: pa.Table, schema: TableSchema) -> InlinedBatch | None:
        """Return rows as the catalog keeps them; None where its database or the values do not allow it."""
        from airflow_provider_ducklake.storage.rows.inlined_values import (  # noqa: PLC0415 - heavy
            cells,
            inlined_stats,
        )

        form = self._catalog.dialect.inlined_form
        if form is None or why_not_inlined(schema, form, self._catalog.tables.writer):
            return None
        try:
            found = cells(rows, schema, form)
        except UnsupportedFeatureError:
            return None
        ids = {column.name: column.id for column in schema.columns}
        by_id = tuple({ids[name]: value for name, value in row.items()} for row in found)
        return InlinedBatch(by_id, inlined_stats(rows, schema))

    def targets(
        self, table: TableSnapshot, file_ids: Collection[DataFileId], row_ids: Collection[int]
    ) -> Targets:
        """Return those of the files that the table has, and what they have lost; see ``read_targets``."""
        with self._reading() as connection:
            return read_targets(connection, self._catalog, table, file_ids, row_ids)

    def layout(self, table: TableSnapshot | None, schema: TableSchema) -> InlinedLayout:
        """Return a table's newest catalog table for inlined rows, and whether rows of ``schema`` fit it."""
        if table is None:
            return InlinedLayout()
        with self._reading() as connection:
            newest = read_layouts.which_newest_layouts(self._catalog.tables, [table.table_id]).ask(connection)
            version = newest.get(table.table_id)
            if version is None:
                return InlinedLayout()
            had = layout_schema(connection, self._catalog.tables, table.table_id, version)
        return InlinedLayout(version, same_layout(had, schema))

    def had_any(self, table: TableSnapshot | None) -> bool:
        """Whether a table ever held a row; one that does not exist yet has none."""
        if table is None:
            return False
        with self._reading() as connection:
            return null_check.has_rows(connection, self._catalog, table)

    def has_live(self, table: TableSnapshot) -> bool:
        """Whether a table has a live data file, or live rows in the catalog."""
        with self._reading() as connection:
            return bool(
                read_files.tables_with_live_files(connection, self._catalog.tables, [table.table_id])
                or live_inlined_tables(connection, self._catalog, table.table_id)
            )

    def may_hold_null(self, table: TableSnapshot | None, files: Sequence[DataFile], column: Column) -> bool:
        """Whether a top-level column may hold NULL, in a table or in files about to be added."""
        if null_check.files_may_hold_null(files, column):
            return True
        if table is None:
            return False
        with self._reading() as connection:
            return null_check.may_hold_null(connection, self._catalog, table.snapshot.id, table, column)
