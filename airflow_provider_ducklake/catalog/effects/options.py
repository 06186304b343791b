"""Statements of options that go over to another table or schema. *Source:* docs/sources.md, options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import literal, select

from airflow_provider_ducklake.catalog.dialects.effect import Effect

if TYPE_CHECKING:
    from airflow_provider_ducklake.catalog.database.tables import CatalogTables


def inherit_options(scope: str, old_id: int, new_id: int, tables: CatalogTables) -> Effect:
    """Return a copy of the options of a ``table`` or ``schema`` for another one."""
    metadata = tables["metadata"]
    names = [one.name for one in metadata.columns]
    values = (literal(new_id) if one.name == "scope_id" else one for one in metadata.columns)
    own = select(*values).where(metadata.c.scope == scope, metadata.c.scope_id == old_id)
    return Effect(metadata.insert().from_select(names, own))
