"""Statements of rows kept in the catalog, and of the tables that hold them.

*Source:* docs/sources.md, inlining.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.schema import CreateTable

from airflow_provider_ducklake.lake.catalog.dialects.effect import Effect, insert
from airflow_provider_ducklake.lake.catalog.effects.statistics import add_to_stats
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_tables import (
    BEGIN_SNAPSHOT,
    END_SNAPSHOT,
    ROW_ID,
    cell_key,
    inlined_table,
    why_not_inlined,
)
from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.spec.files import TableStats, merge_known
from airflow_provider_ducklake.lake.transaction.changes_made import ChangeKind, ChangeRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.spec.schema import TableSchema
    from airflow_provider_ducklake.lake.spec.snapshots import TableId
    from airflow_provider_ducklake.lake.transaction.changes import InlineRows, RegisterLayout
    from airflow_provider_ducklake.lake.transaction.commit_state import CommitState


def register_layout(change: RegisterLayout, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield a catalog table for rows with a table's new columns; older ones keep their rows.

    Where columns now keep a table's rows out of the catalog there is none, and the older ones stay.

    Raises:
        UnsupportedFeatureError: rows lie in a database where this release cannot make such a table.
    """
    table_id = state.table_id(change.table)
    registered = state.layout(table_id) is not None
    if why_not_inlined(change.schema, state.facts.inlined_form, tables.writer) is None:
        if registered or not change.only_if_registered:
            yield from _layout(table_id, change.schema, state, tables)
    elif registered and state.facts.inlined_form is None:
        yield from _forget_layouts(change, table_id, state, tables)


def _layout(
    table_id: TableId, schema: TableSchema, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    table = inlined_table(schema, table_id, state.schema_version, tables)
    yield Effect(CreateTable(table))
    yield insert(
        tables["inlined_data_tables"],
        {"table_id": table_id, "table_name": table.name, "schema_version": state.schema_version},
    )
    state.add_layout(table_id)


def _forget_layouts(
    change: RegisterLayout, table_id: TableId, state: CommitState, tables: CatalogTables
) -> Iterator[Effect]:
    """Yield the end of empty layouts, which do not fit the new columns; DuckDB makes one when it needs it."""
    if state.facts.live_inlined.get(table_id):
        raise UnsupportedFeatureError(
            f"{change.name} has inlined rows ({', '.join(state.facts.live_inlined[table_id])}). In this "
            "catalog database, its columns, name and partition keys cannot change while it has them. Flush "
            "them with DuckDB's ducklake_flush_inlined_data first; on MySQL and MariaDB, where DuckDB cannot "
            "flush, copy the table with DuckDB (CREATE TABLE … AS FROM …) and drop this one."
        )
    registry = tables["inlined_data_tables"]
    yield Effect(registry.delete().where(registry.c.table_id == table_id))


def inline_rows(change: InlineRows, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield rows in the table's newest layout, or in a new one where none fits."""
    table_id = state.table_id(change.table)
    if change.lacks_layout(state.layout(table_id)):
        yield from _layout(table_id, change.schema, state, tables)
    version = state.layout(table_id)
    assert version is not None
    start = (state.stats(table_id) or TableStats()).next_row_id
    keys = {column.id: cell_key(column.name) for column in change.schema.columns}
    rows = [
        {
            ROW_ID: start + number,
            BEGIN_SNAPSHOT: state.snapshot_id,
            END_SNAPSHOT: None,
            **{key: row.get(column_id) for column_id, key in keys.items()},
        }
        for number, row in enumerate(change.rows)
    ]
    yield insert(inlined_table(change.schema, table_id, version, tables), *rows)
    incoming = merge_known(change.column_stats, change.schema.leaf_types())
    yield from add_to_stats(table_id, change.schema, len(rows), 0, incoming, state, tables)
    if table_id not in state.added_rows:
        state.new_file_id()  # for no file: DuckDB caches statistics by this counter
    state.note_rows(table_id, start, len(rows))
    state.record(ChangeRecord(ChangeKind.INLINED_INSERT, table_id))
