"""Statements of options of tables and schemas. *Source:* docs/sources.md, options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import literal, select

from airflow_provider_ducklake.lake.catalog.dialects.effect import Effect, insert

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.transaction.changes import SetOptions
    from airflow_provider_ducklake.lake.transaction.commit_state import CommitState


def inherit_options(scope: str, old_id: int, new_id: int, tables: CatalogTables) -> Effect:
    """Return a copy of the options of a ``table`` or ``schema`` for another one."""
    metadata = tables["metadata"]
    names = [one.name for one in metadata.columns]
    values = (literal(new_id) if one.name == "scope_id" else one for one in metadata.columns)
    own = select(*values).where(metadata.c.scope == scope, metadata.c.scope_id == old_id)
    return Effect(metadata.insert().from_select(names, own))


def set_options(change: SetOptions, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield a table's own options in the place of those it had."""
    metadata, table_id = tables["metadata"], state.table_id(change.table)
    of_table = (metadata.c.scope == "table", metadata.c.scope_id == table_id)
    yield Effect(metadata.delete().where(*of_table, metadata.c.key.in_(change.options)))
    rows = [
        {"key": key, "value": text, "scope": "table", "scope_id": table_id}
        for key, text in change.options.items()
        if text is not None
    ]
    if rows:
        yield insert(metadata, *rows)
    if change.skipped is not None:
        state.skip_bounds(table_id, change.skipped)
