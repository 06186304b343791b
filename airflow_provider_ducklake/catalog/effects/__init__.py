"""The statements a change stands for; nothing here runs one."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from airflow_provider_ducklake.catalog.effects.ddl import create_schema, create_table, drop_schema, drop_table
from airflow_provider_ducklake.catalog.effects.files import append_files
from airflow_provider_ducklake.transaction.changes import (
    AppendFiles,
    Change,
    CreateSchema,
    CreateTable,
    DropSchema,
    DropTable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_ducklake.catalog.effects.effect import Effect
    from airflow_provider_ducklake.catalog.tables import CatalogTables
    from airflow_provider_ducklake.transaction.commit_state import CommitState


def effects_of(change: Change, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the statements of one change; takes ids from ``state`` and leaves its records there."""
    match change:
        case CreateSchema():
            yield from create_schema(change, state, tables)
        case DropSchema():
            yield from drop_schema(change, state, tables)
        case CreateTable():
            yield from create_table(change, state, tables)
        case DropTable():
            yield from drop_table(change, state, tables)
        case AppendFiles():
            yield from append_files(change, state, tables)
        case _:
            assert_never(change)
