"""Options in ``ducklake_metadata``: rows that are written in place, outside every snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import literal, select

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.spec.options import OptionRow


def write_option(connection: Connection, tables: CatalogTables, option: OptionRow) -> None:
    """Set an option in its scope; the row is updated where there is one."""
    metadata = tables["metadata"]
    scope = metadata.c.scope.is_(None) if option.scope is None else metadata.c.scope == option.scope
    scope_id = (
        metadata.c.scope_id.is_(None) if option.scope_id is None else metadata.c.scope_id == option.scope_id
    )
    where = (metadata.c.key == option.key, scope, scope_id)
    if connection.execute(select(literal(1)).select_from(metadata).where(*where)).first():
        connection.execute(metadata.update().where(*where).values(value=option.value))
    else:
        connection.execute(
            metadata.insert(),
            {
                "key": option.key,
                "value": option.value,
                "scope": option.scope,
                "scope_id": option.scope_id,
            },
        )
